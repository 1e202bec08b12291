//! Rights and things of others around the kit: what the commands say of them, and never run.

use leasehold_harness::Value;
use leasehold_harness::postgres::Postgres;

use super::{codes, refused, sql, told, with_kit};
use crate::postgres::roles::BAITED;
use crate::postgres::strange::{BAIT, taken_over};

/// Status finds this hole, and the statement that it advises for it closes it.
#[track_caller]
pub(super) fn is_closed_by_the_advice(server: &Postgres, code: &str) {
    let (status, exit) = told(&["status", "--postgres", &server.url()]);
    let findings = status["findings"].as_array().cloned().unwrap_or_default();
    let holes: Vec<&Value> = findings.iter().filter(|finding| finding["code"] == code).collect();
    assert!(!holes.is_empty() && exit == Some(1), "{code}: {status}");
    for hole in holes {
        assert_eq!(hole["severity"], "hole", "{status}");
        sql(server, hole["advice"].as_str().expect("a statement"));
    }
    let (status, exit) = told(&["status", "--postgres", &server.url()]);
    assert!(!codes(&status).contains(&code) && exit == Some(0), "{code}: {status}");
}

#[test]
fn rights_that_go_round_the_calls_are_holes_and_the_advice_is_sql() {
    let server = with_kit();
    sql(&server, "CREATE ROLE \"the app\" LOGIN");
    for (right, code) in [
        ("UPDATE ON leasehold.fence", "fence_writable"),
        ("TRIGGER ON leasehold.fence", "fence_writable"),
        ("REFERENCES ON leasehold.fence", "fence_writable"),
        ("TRUNCATE ON leasehold.kit", "fence_writable"),
        ("UPDATE (token) ON leasehold.fence", "fence_writable"),
        ("INSERT (version) ON leasehold.kit", "fence_writable"),
        ("CREATE ON SCHEMA leasehold", "schema_open"),
    ] {
        for role in ["\"the app\"", "PUBLIC"] {
            sql(&server, &format!("GRANT {right} TO {role}"));
            is_closed_by_the_advice(&server, code);
        }
    }
    sql(
        &server,
        "CREATE ROLE mallory; GRANT UPDATE ON leasehold.fence TO \"the app\" WITH GRANT OPTION;
        GRANT USAGE ON SCHEMA leasehold TO \"the app\"; SET ROLE \"the app\";
        GRANT UPDATE (token) ON leasehold.fence TO mallory",
    );
    is_closed_by_the_advice(&server, "fence_writable");
    sql(&server, "GRANT SELECT ON leasehold.fence TO \"the app\"");
    let (status, code) = told(&["status", "--postgres", &server.url()]);
    assert_eq!(code, Some(0), "to read it is no hole: {status}");
}

#[test]
fn what_others_have_in_the_schema_or_hung_on_its_tables_is_a_hole() {
    let server = with_kit();
    let url = server.url();
    sql(&server, "CREATE ROLE app LOGIN");
    sql(
        &server,
        "CREATE FUNCTION leasehold.guard(text, integer) RETURNS bigint LANGUAGE sql
            AS 'SELECT 1::bigint'; ALTER FUNCTION leasehold.guard(text, integer) OWNER TO app",
    );
    let (status, code) = told(&["status", "--postgres", &url]);
    assert_eq!(code, Some(1), "{status}");
    assert!(codes(&status).contains(&"schema_foreign"), "{status}");
    assert!(status["findings"].to_string().contains("leasehold.guard(text,integer)"), "{status}");
    let (_, detail, _) = refused(&["install", "--postgres", &url]);
    assert!(detail.contains("belongs to app") && !detail.contains("CREATE on the"), "{detail}");
    // It stays what it is when it is given to the owner of the kit.
    sql(&server, "REASSIGN OWNED BY app TO postgres");
    for command in ["install", "remove", "test"] {
        let (_, detail, _) = refused(&[command, "--postgres", &url]);
        assert!(detail.contains("guard(text,integer) is not of the kit's"), "{command}: {detail}");
    }
    is_closed_by_the_advice(&server, "fence_strange");

    sql(
        &server,
        "CREATE FUNCTION public.spy() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
        ALTER FUNCTION public.spy() OWNER TO app;
        CREATE TRIGGER \"Spy\" BEFORE UPDATE ON leasehold.fence FOR EACH ROW EXECUTE FUNCTION public.spy()",
    );
    is_closed_by_the_advice(&server, "fence_strange");
}

#[test]
fn a_child_that_a_table_was_given_later_is_a_hole_and_is_not_written_through_it() {
    let server = with_kit();
    let url = server.url();
    sql(&server, "CREATE TABLE bill (id int, resource text)");
    sql(&server, "SELECT leasehold.protect('bill', 'resource')");
    sql(&server, "CREATE TABLE \"Old bill\" () INHERITS (bill)");
    sql(&server, "INSERT INTO \"Old bill\" VALUES (3, 'b')");
    let (status, code) = told(&["status", "--postgres", &url]);
    assert_eq!(code, Some(1), "{status}");
    assert!(codes(&status).contains(&"trigger_inherited"), "{status}");
    let count = "SELECT count(*) FROM bill WHERE id = 3";
    for deed in ["UPDATE bill SET id = 4 WHERE id = 3", "DELETE FROM bill WHERE id = 3"] {
        let block = format!(
            "DO $$ BEGIN
                PERFORM set_config('leasehold.resource', 'a', true), set_config('leasehold.token', '10', true);
                {deed};
                RAISE 'it was let through';
            EXCEPTION WHEN wrong_object_type THEN NULL; END $$"
        );
        sql(&server, &block);
        assert_eq!(sql(&server, count), ["1"], "{deed}");
    }
    sql(&server, "ALTER TABLE \"Old bill\" NO INHERIT bill");
    let (status, code) = told(&["status", "--postgres", &url]);
    assert_eq!(code, Some(0), "{status}");

    // Without a column the parent guards what is written through it, and nothing else does.
    sql(&server, "SELECT leasehold.protect('bill')");
    sql(&server, "ALTER TABLE \"Old bill\" INHERIT bill");
    let (status, code) = told(&["status", "--postgres", &url]);
    assert!(codes(&status).contains(&"trigger_inherited") && code == Some(0), "{status}");
    sql(&server, "SELECT leasehold.protect('\"Old bill\"')");
    let (status, _) = told(&["status", "--postgres", &url]);
    assert!(!codes(&status).contains(&"trigger_inherited"), "{status}");
}

/// Better matches than the functions and operators of the system, in the schema of everybody's path.
#[test]
fn no_command_runs_what_others_put_into_the_path() {
    let server = Postgres::start();
    let url = server.url();
    sql(&server, "CREATE ROLE app LOGIN; GRANT CREATE ON SCHEMA public TO app");
    for (name, arguments, result) in [
        ("format", "text, name", "text"),
        ("format", "text, text, text, text", "text"),
        ("format", "text, regprocedure", "text"),
        ("convert_from", "bytea, text", "text"),
        ("array_to_string", "regclass[], text", "text"),
        ("unnest", "regclass[]", "SETOF regclass"),
        ("trap", "oid, regclass", "boolean"),
        ("trap", "oid, regproc", "boolean"),
        ("trap", "oid, regnamespace", "boolean"),
    ] {
        sql(
            &server,
            &format!(
                "SET ROLE app; CREATE FUNCTION public.{name}({arguments}) RETURNS {result}
            LANGUAGE plpgsql AS $$BEGIN RAISE 'trapped by {name}({arguments})'; END$$"
            ),
        );
    }
    for right in ["regclass", "regproc", "regnamespace"] {
        sql(
            &server,
            &format!(
                "SET ROLE app; CREATE OPERATOR public.= (LEFTARG = oid, RIGHTARG = {right}, FUNCTION = public.trap)"
            ),
        );
    }
    told(&["install", "--postgres", &url, "--grant-to", "app"]);
    sql(&server, "CREATE TABLE bill (id int, resource text)");
    sql(&server, "SELECT leasehold.protect('bill', 'resource')");
    let (status, code) = told(&["status", "--postgres", &url]);
    assert_eq!(
        (&status["protected"][0]["column"], code),
        (&"resource".into(), Some(0)),
        "{status}"
    );
    let test = ["test", "--postgres", &url, "--only", "trigger", "--rounds", "20"];
    let (report, _) = told(&[&test[..], &["--race", "paused-holder"]].concat());
    assert_eq!(report["stopped"], Value::Null, "{report}");
    let (removed, code) = told(&["remove", "--postgres", &url, "--unprotect"]);
    assert_eq!((&removed["before"], code), (&2.into(), Some(0)), "{removed}");
}

/// A kit may be a fake of whoever made the schema.
#[test]
fn no_command_runs_a_call_of_a_kit_that_is_somebody_elses() {
    let server = Postgres::start();
    let url = server.url();
    sql(
        &server,
        "CREATE ROLE app LOGIN; GRANT CREATE ON DATABASE postgres TO app; SET ROLE app;
        CREATE SCHEMA leasehold;
        CREATE FUNCTION leasehold.version() RETURNS integer LANGUAGE plpgsql AS $$BEGIN RAISE 'trapped'; END$$;
        CREATE FUNCTION leasehold.count() RETURNS bigint LANGUAGE plpgsql AS $$BEGIN RAISE 'trapped'; END$$;
        CREATE VIEW leasehold.fence AS SELECT leasehold.count() AS token;
        CREATE TABLE leasehold.kit (version integer)",
    );
    let (status, _) = told(&["status", "--postgres", &url]);
    assert_eq!(status["version"], 1, "{status}");
    let (_, detail, _) = refused(&["install", "--postgres", &url]);
    assert!(detail.contains("belongs to app") && !detail.contains("trapped"), "{detail}");
    let (_, detail, _) = refused(&["remove", "--postgres", &url]);
    assert!(detail.contains("is not of the kit's making"), "{detail}");
}

/// Reading a table runs the condition of an index on it.
#[test]
fn no_command_reads_a_table_that_is_somebody_elses() {
    let server = Postgres::start();
    let url = server.url();
    sql(&server, "CREATE ROLE mallory LOGIN; GRANT CREATE ON DATABASE postgres TO mallory");
    sql(&server, &format!("SET SESSION AUTHORIZATION mallory; {BAITED}"));
    told(&["status", "--postgres", &url]);
    let (_, detail, _) = refused(&["install", "--postgres", &url]);
    assert!(detail.contains("belongs to mallory") && !detail.contains("trapped"), "{detail}");
    let remove = ["remove", "--postgres", &url, "--forget-tokens"];
    for remove in [&remove[..3], &remove[..]] {
        let (_, detail, _) = refused(remove);
        assert!(detail.contains("42809") && !detail.contains("trapped"), "{detail}");
    }
}

/// Nor one that was somebody else's, with what that one left on it.
#[tokio::test(flavor = "multi_thread")]
async fn no_command_reads_a_table_with_what_others_left_on_it() {
    let server = Postgres::start();
    taken_over(&server, BAIT).await;
    let found = tokio::task::spawn_blocking(move || {
        let url = server.url();
        let (status, code) = told(&["status", "--postgres", &url]);
        assert_eq!(code, Some(1), "{status}");
        let install = ["install", "--postgres", &url];
        let remove = ["remove", "--postgres", &url, "--forget-tokens"];
        for command in [&install[..], &remove[..3], &remove[..]] {
            let (_, detail, _) = refused(command);
            assert!(detail.contains("of the kit's making - Look"), "{command:?}: {detail}");
        }
        sql(&server, "DROP INDEX leasehold.fence_token_idx");
        told(&install);
        sql(
            &server,
            "CREATE RULE r AS ON INSERT TO leasehold.fence WHERE lair.bait('x') DO ALSO NOTHING",
        );
        let (_, detail, _) = refused(&["test", "--postgres", &url]);
        assert!(
            detail.contains("rule r on table leasehold.fence is not of the kit's making"),
            "{detail}"
        );
        status
    });
    let status = found.await.expect("it does not panic");
    assert!(codes(&status).contains(&"fence_strange"), "{status}");
}

/// A better match for the call that is to protect a table anew.
#[test]
fn the_advice_for_a_table_is_caught_by_no_overload() {
    let server = with_kit();
    let url = server.url();
    sql(&server, "CREATE TABLE bill (r text); SELECT leasehold.protect('bill', 'r', true)");
    sql(&server, "ALTER TABLE bill DISABLE TRIGGER leasehold_fence");
    sql(
        &server,
        "CREATE FUNCTION leasehold.protect(text, text, boolean) RETURNS void LANGUAGE plpgsql
            AS $$BEGIN RAISE 'trapped'; END$$",
    );
    let (status, code) = told(&["status", "--postgres", &url]);
    assert!(codes(&status).contains(&"fence_strange") && code == Some(1), "{status}");
    sql(&server, status["protected"][0]["call"].as_str().expect("a statement"));
    let (status, _) = told(&["status", "--postgres", &url]);
    assert!(!codes(&status).contains(&"trigger_disabled"), "{status}");
}

#[test]
fn nothing_of_an_older_kit_is_a_hole() {
    let server = Postgres::start();
    sql(&server, include_str!("../postgres/kit-1.sql"));
    let (status, code) = told(&["status", "--postgres", &server.url()]);
    assert_eq!(code, Some(0), "{status}");
    assert!(codes(&status).contains(&"kit_old"), "{status}");
}

#[test]
fn a_trigger_that_was_dropped_is_a_hole_and_protecting_anew_closes_it() {
    let server = with_kit();
    let url = server.url();
    sql(
        &server,
        "CREATE TABLE bill (id int, \"größe\" text) PARTITION BY RANGE (id);
        CREATE TABLE low PARTITION OF bill FOR VALUES FROM (0) TO (10);
        SELECT leasehold.protect('bill', 'größe', true)",
    );
    let shown = "SELECT format('%s %s %s %s', target, resource_column, strict, enabled)
        FROM leasehold.protected";
    for (trigger, table) in [
        ("leasehold_fence", "bill"),
        ("leasehold_fence_rows", "bill"),
        ("leasehold_resource_update", "bill"),
        ("leasehold_fence_truncate", "low"),
    ] {
        sql(&server, &format!("DROP TRIGGER {trigger} ON {table}"));
        assert_eq!(sql(&server, shown), ["bill größe t f"], "{trigger}");
        let (status, code) = told(&["status", "--postgres", &url]);
        assert_eq!(code, Some(1), "{trigger}: {status}");
        assert!(codes(&status).contains(&"trigger_disabled"), "{trigger}: {status}");
        sql(&server, status["protected"][0]["call"].as_str().expect("a statement"));
        assert_eq!(sql(&server, shown), ["bill größe t t"], "{trigger}");
        let (status, code) = told(&["status", "--postgres", &url]);
        assert_eq!(code, Some(0), "{trigger}: {status}");
    }
}

#[test]
fn the_tokens_that_a_removed_kit_left_are_looked_after() {
    let server = with_kit();
    let url = server.url();
    sql(&server, "CREATE ROLE app LOGIN; SELECT leasehold.seal('a', 34)");
    told(&["remove", "--postgres", &url]);
    let (status, _) = told(&["status", "--postgres", &url]);
    assert!(!codes(&status).contains(&"fence_writable"), "{status}");
    sql(&server, "GRANT UPDATE ON leasehold.fence TO app");
    let (status, code) = told(&["status", "--postgres", &url]);
    assert!(codes(&status).contains(&"fence_writable") && code == Some(1), "{status}");
}

#[test]
fn who_owns_the_kit_and_who_reaches_it_as_a_member_is_told() {
    let server = Postgres::start();
    let url = server.url();
    sql(&server, "CREATE ROLE dbo LOGIN; CREATE ROLE app LOGIN; CREATE ROLE clerk LOGIN");
    sql(&server, "GRANT CREATE ON DATABASE postgres TO dbo");
    let as_owner = url.replace("postgres@", "dbo@");
    told(&["install", "--postgres", &as_owner, "--grant-to", "app"]);
    let (status, code) = told(&["status", "--postgres", &as_owner]);
    assert_eq!((&status["owner"], code), (&"dbo".into(), Some(0)), "{status}");
    assert!(codes(&status).contains(&"fence_owner"), "{status}");
    assert!(!codes(&status).contains(&"fence_reachable"), "{status}");
    sql(&server, "GRANT dbo TO clerk");
    let since_14 = "SELECT current_setting('server_version_num')::integer >= 140000";
    let wide = sql(&server, since_14) == ["t"];
    if wide {
        sql(&server, "GRANT pg_write_all_data TO app");
    }
    let (status, code) = told(&["status", "--postgres", &url]);
    assert_eq!(code, Some(0), "a warning is no hole: {status}");
    let findings = status["findings"].to_string();
    assert!(findings.contains("clerk can change leasehold.fence as a member of dbo"), "{status}");
    let through_all = "app can change leasehold.fence as a member of pg_write_all_data";
    assert_eq!(findings.contains(through_all), wide, "{status}");
    assert!(!codes(&status).contains(&"fence_owner"), "{status}");

    // The calls of the kit would run with the rights of the superuser.
    let (code, detail, _) = refused(&["test", "--postgres", &url, "--rounds", "5"]);
    assert_eq!(code, "store_refused", "{detail}");
    assert!(detail.contains("belongs to dbo"), "{detail}");
    let (report, _) = told(&["test", "--postgres", &as_owner, "--rounds", "20", "--only", "guard"]);
    assert_eq!(report["stopped"], Value::Null, "{report}");
}

/// The holder of the lock is thrown out long after the role has lost its patience, and before a
/// program that has a patience of its own would.
#[tokio::test]
async fn an_installer_waits_no_longer_than_its_role() {
    let server = Postgres::start();
    let (admin, connection) =
        tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await.expect("it listens");
    let _connection = tokio::spawn(connection);
    for statements in [
        "ALTER ROLE postgres SET lock_timeout = '10ms'",
        "SET idle_in_transaction_session_timeout = '25s'",
        "BEGIN; SELECT pg_advisory_xact_lock(7810758011010182508)",
    ] {
        admin.batch_execute(statements).await.expect("the statements are right");
    }
    let (_, detail, _) = refused(&["install", "--postgres", &server.url()]);
    assert!(detail.contains("55P03"), "{detail}");
}

#[test]
fn a_role_that_there_is_not_leaves_nothing_installed() {
    let server = Postgres::start();
    let url = server.url();
    sql(&server, "CREATE ROLE app");
    let grant = ["install", "--postgres", &url, "--grant-to", "app", "--grant-to", "nobody"];
    let (code, detail, exit) = refused(&grant);
    assert_eq!((code.as_str(), exit), ("store_refused", Some(1)));
    assert!(detail.contains("\"nobody\"") && detail.contains("as it was"), "{detail}");
    assert_eq!(sql(&server, "SELECT 1 FROM pg_namespace WHERE nspname = 'leasehold'"), [""; 0]);
}

#[test]
fn who_may_not_remove_the_kit_learns_who_may() {
    let server = with_kit();
    sql(&server, "CREATE ROLE app LOGIN");
    let url = server.url().replace("postgres@", "app@");
    let (_, detail, exit) = refused(&["remove", "--postgres", &url]);
    assert_eq!(exit, Some(1));
    assert!(detail.contains("42501") && detail.contains("as postgres"), "{detail}");
    let (_, detail, _) = refused(&["status", "--postgres", &url]);
    assert!(detail.contains("42501") && detail.contains("GRANT USAGE"), "{detail}");
}

#[test]
fn what_runs_on_the_tables_and_belongs_to_others_is_a_hole() {
    let server = with_kit();
    let url = server.url();
    sql(
        &server,
        "CREATE ROLE app LOGIN; CREATE SCHEMA of_app;
        CREATE FUNCTION of_app.deed(text) RETURNS boolean IMMUTABLE LANGUAGE sql AS 'SELECT true';
        CREATE FUNCTION of_app.word() RETURNS text LANGUAGE sql AS 'SELECT ''a''';
        ALTER FUNCTION of_app.deed(text) OWNER TO app; ALTER FUNCTION of_app.word() OWNER TO app",
    );
    for (hang, what) in [
        ("CREATE INDEX i ON leasehold.fence (resource) WHERE of_app.deed(resource)", "index"),
        (
            "ALTER TABLE leasehold.fence ADD CONSTRAINT c CHECK (of_app.deed(resource))",
            "constraint",
        ),
        ("ALTER TABLE leasehold.fence ALTER resource SET DEFAULT of_app.word()", "default"),
        (
            "CREATE TRIGGER own BEFORE UPDATE ON leasehold.fence FOR EACH ROW
                WHEN (of_app.deed(NEW.resource)) EXECUTE FUNCTION leasehold.keep()",
            "trigger",
        ),
        (
            "CREATE RULE r AS ON UPDATE TO leasehold.kit WHERE of_app.deed('') DO ALSO NOTHING",
            "rule",
        ),
        ("CREATE POLICY p ON leasehold.fence USING (of_app.deed(resource))", "policy"),
        ("CREATE STATISTICS s ON resource, token FROM leasehold.fence", "statistics"),
        ("CREATE TABLE child () INHERITS (leasehold.fence)", "inherits"),
    ] {
        sql(&server, hang);
        for command in ["install", "remove"] {
            let (_, detail, _) = refused(&[command, "--postgres", &url]);
            assert!(detail.contains(what) && detail.contains("To undo it"), "{what}: {detail}");
        }
        is_closed_by_the_advice(&server, "fence_strange");
    }
    told(&["install", "--postgres", &url]);
}

/// The advice for a code is to install, and after that there is nothing to tell.
#[track_caller]
pub(super) fn is_mended_by_installing(server: &Postgres, code: &str) {
    let url = server.url();
    let (status, _) = told(&["status", "--postgres", &url]);
    let findings = status["findings"].as_array().cloned().unwrap_or_default();
    let found = findings.iter().find(|finding| finding["code"] == code);
    let advice = found.and_then(|found| found["advice"].as_str()).unwrap_or_default();
    assert!(advice.contains("leasehold fence install"), "{code}: {status}");
    told(&["install", "--postgres", &url]);
    let (status, exit) = told(&["status", "--postgres", &url]);
    assert!(!codes(&status).contains(&code) && exit == Some(0), "{code}: {status}");
}

#[test]
fn a_fence_without_its_keeper_or_with_another_gets_it() {
    let server = with_kit();
    let deeds = "BEFORE DELETE OR TRUNCATE ON leasehold.fence FOR EACH STATEMENT";
    sql(
        &server,
        "CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
    );
    for (deed, code) in [
        ("DROP TRIGGER keep ON leasehold.fence".to_owned(), "fence_forgets"),
        ("ALTER TABLE leasehold.fence DISABLE TRIGGER keep".to_owned(), "fence_forgets"),
        (
            format!("CREATE TRIGGER keep {deeds} WHEN (false) EXECUTE FUNCTION leasehold.keep()"),
            "fence_strange",
        ),
        (format!("CREATE TRIGGER keep {deeds} EXECUTE FUNCTION nothing()"), "fence_strange"),
    ] {
        if deed.starts_with("CREATE") {
            sql(&server, "DROP TRIGGER keep ON leasehold.fence");
            sql(
                &server,
                &format!("{deed}; ALTER TABLE leasehold.fence ENABLE ALWAYS TRIGGER keep"),
            );
        } else {
            sql(&server, &deed);
        }
        is_mended_by_installing(&server, code);
    }
}

/// A table with a column, and what is told of it: by status, and by the view.
const BILL: &str = "CREATE TABLE bill (id int, r text, s text) PARTITION BY RANGE (id);
    CREATE TABLE low PARTITION OF bill FOR VALUES FROM (0) TO (10);
    CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
    SELECT leasehold.protect('bill', 'r', true)";
pub(super) const SHOWN: &str = "SELECT concat_ws(' ', target, resource_column, strict, enabled, remade) FROM leasehold.protected";

#[test]
fn a_trigger_that_was_made_anew_with_a_condition_or_for_another_function_is_a_hole() {
    let server = with_kit();
    let url = server.url();
    sql(&server, BILL);
    let fenced = "EXECUTE FUNCTION leasehold.fenced('true'";
    let misplaced = "EXECUTE FUNCTION leasehold.misplaced('r')";
    let rows = "BEFORE INSERT OR UPDATE OR DELETE ON bill FOR EACH ROW";
    let statement = "BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON bill FOR EACH STATEMENT";
    for (name, how) in [
        ("leasehold_fence", format!("{statement} WHEN (false) {fenced}, 'r')")),
        ("leasehold_fence", format!("{statement} {fenced}, 's')")),
        ("leasehold_fence", format!("{statement} EXECUTE FUNCTION nothing()")),
        ("leasehold_fence_rows", format!("{rows} {fenced})")),
        ("leasehold_fence_rows", format!("{rows} WHEN (false) {fenced})")),
        ("leasehold_fence_rows", format!("{rows} EXECUTE FUNCTION nothing()")),
        ("leasehold_resource_insert", format!("AFTER INSERT ON bill FOR EACH ROW {misplaced}")),
        (
            "leasehold_resource_insert",
            format!(
                "AFTER INSERT ON bill FOR EACH ROW WHEN ((NEW.s COLLATE \"C\"
                    = current_setting('leasehold.resource', true)) IS NOT TRUE) {misplaced}"
            ),
        ),
        (
            "leasehold_resource_update",
            format!("AFTER UPDATE ON bill FOR EACH ROW WHEN (false) {misplaced}"),
        ),
        (
            "leasehold_resource_delete",
            format!("AFTER DELETE ON bill FOR EACH ROW WHEN (OLD.r = 'x') {misplaced}"),
        ),
    ] {
        sql(&server, &format!("DROP TRIGGER {name} ON bill; CREATE TRIGGER {name} {how}"));
        assert_eq!(sql(&server, SHOWN), ["bill r t f t"], "{name} {how}");
        let (status, code) = told(&["status", "--postgres", &url]);
        assert!(codes(&status).contains(&"trigger_disabled") && code == Some(1), "{how}: {status}");
        let call = status["protected"][0]["call"].as_str().expect("a statement");
        if how.contains("FOR EACH ROW") {
            sql(&server, call);
        } else {
            told(&["install", "--postgres", &url]);
        }
        assert_eq!(sql(&server, SHOWN), ["bill r t t f"], "{name} {how}");
        assert_eq!(told(&["status", "--postgres", &url]).1, Some(0), "{name} {how}");
    }
}

#[test]
fn installing_leaves_alone_what_it_cannot_know_or_may_not_touch() {
    let server = with_kit();
    let url = server.url();
    sql(&server, BILL);
    // Whoever disabled or dropped one has done so for the owner to see, not for the next installer.
    sql(&server, "ALTER TABLE bill DISABLE TRIGGER leasehold_fence");
    told(&["install", "--postgres", &url]);
    assert_eq!(sql(&server, SHOWN), ["bill r t f f"]);
    sql(&server, "SELECT leasehold.unprotect('bill')");
    for name in ["leasehold_fence", "leasehold_resource_insert"] {
        let deed = if name.contains("insert") { "AFTER INSERT" } else { "BEFORE TRUNCATE" };
        sql(&server, &format!("CREATE TRIGGER {name} {deed} ON bill EXECUTE FUNCTION nothing()"));
    }
    let (installed, code) = told(&["install", "--postgres", &url]);
    assert_eq!(code, Some(0), "{installed}");
    assert_eq!(sql(&server, SHOWN), ["bill f f t"]);
    let (status, code) = told(&["status", "--postgres", &url]);
    assert!(codes(&status).contains(&"trigger_disabled") && code == Some(1), "{status}");
    sql(&server, "SELECT leasehold.protect('bill', 'r')");
    assert_eq!(sql(&server, SHOWN), ["bill r f t f"]);
}

/// As a dump brings the triggers, and with whatever the caller has in its path.
#[test]
fn triggers_are_known_again_from_a_dump_and_under_any_path() {
    let server = with_kit();
    sql(
        &server,
        "CREATE TABLE \"Bill of (1)\" (id int, \"The r\" varchar(20), n int, b char(9));
        CREATE FUNCTION public.current_setting(text, boolean) RETURNS text LANGUAGE sql AS 'SELECT NULL'",
    );
    let redone = "DO $$ DECLARE one record; BEGIN
            FOR one IN SELECT tgname, pg_get_triggerdef(oid) AS made FROM pg_trigger
                WHERE tgrelid = '\"Bill of (1)\"'::regclass AND tgname LIKE 'leasehold%' LOOP
                EXECUTE format('DROP TRIGGER %I ON \"Bill of (1)\"', one.tgname);
                EXECUTE one.made;
            END LOOP;
        END $$";
    let shown = "SET search_path = public, leasehold, pg_catalog; \
         SELECT concat_ws(' ', enabled, remade) FROM leasehold.protected";
    for (column, strict) in [("The r", false), ("n", true), ("b", false)] {
        sql(&server, &format!("SELECT leasehold.protect('\"Bill of (1)\"', '{column}', {strict})"));
        assert_eq!(sql(&server, shown), ["t f"], "{column}");
        sql(&server, redone);
        assert_eq!(sql(&server, shown), ["t f"], "{column}, from a dump");
        sql(
            &server,
            &format!("ALTER TABLE \"Bill of (1)\" RENAME \"{column}\" TO \"new {column}\""),
        );
        assert_eq!(sql(&server, shown), ["t f"], "{column}, called otherwise");
        let (status, code) = told(&["status", "--postgres", &server.url()]);
        assert_eq!(code, Some(0), "{status}");
        sql(
            &server,
            &format!("ALTER TABLE \"Bill of (1)\" RENAME \"new {column}\" TO \"{column}\""),
        );
    }
}

#[test]
fn a_trigger_that_was_made_anew_for_less_is_a_hole() {
    let server = with_kit();
    let url = server.url();
    sql(&server, "CREATE TABLE bill (id int); SELECT leasehold.protect('bill')");
    let (before, _) = told(&["status", "--postgres", &url]);
    for how in
        ["BEFORE INSERT ON bill", "BEFORE INSERT OR UPDATE OF id OR DELETE OR TRUNCATE ON bill"]
    {
        sql(
            &server,
            &format!(
                "DROP TRIGGER leasehold_fence ON bill; CREATE TRIGGER leasehold_fence {how}
                FOR EACH STATEMENT EXECUTE FUNCTION leasehold.fenced('false', '')"
            ),
        );
        let (status, code) = told(&["status", "--postgres", &url]);
        assert_eq!(code, Some(1), "{how}: {status}");
        assert!(codes(&status).contains(&"trigger_disabled"), "{how}: {status}");
    }
    sql(&server, before["protected"][0]["call"].as_str().expect("a statement"));
    assert_eq!(told(&["status", "--postgres", &url]).1, Some(0));
}
