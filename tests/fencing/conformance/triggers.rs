//! Triggers on the tables of users: those of the kit, and those of others beside them.

use leasehold_harness::postgres::Postgres;

use super::rights::is_closed_by_the_advice;
use super::{codes, refused, sql, told, with_kit};

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
