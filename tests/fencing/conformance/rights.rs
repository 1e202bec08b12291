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
