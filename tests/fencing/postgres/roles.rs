//! What a role needs, and what it cannot do with it.

use super::fixture::{INSTALL, installed, number, refused_as, run, session, session_as};
use leasehold_harness::postgres::Postgres;

#[tokio::test]
async fn usage_on_the_schema_is_enough_and_gives_no_way_to_the_table() {
    let (server, admin) = installed().await;
    run(&admin, "CREATE ROLE app LOGIN").await;
    let app = session_as(&server, "app").await;
    assert_eq!(refused_as(&app, "SELECT leasehold.guard('a', 5)").await, "42501");
    run(&admin, "GRANT USAGE ON SCHEMA leasehold TO app").await;
    run(&app, "SELECT leasehold.seal('a', 5); SELECT leasehold.guard('a', 5); SELECT leasehold.guard('a', 5, true)").await;
    assert_eq!(number(&app, "SELECT leasehold.highest_token('a')").await, Some(5));
    run(&app, "SELECT leasehold.version(); SELECT * FROM leasehold.protected").await;
    for deed in [
        "SELECT * FROM leasehold.fence",
        "UPDATE leasehold.fence SET token = 1",
        "DELETE FROM leasehold.fence",
        "TRUNCATE leasehold.fence",
        "INSERT INTO leasehold.fence VALUES ('b', 1)",
        "SELECT leasehold.refuse_token('a', 1, false)",
        "CREATE FUNCTION leasehold.guard(text, integer) RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'",
    ] {
        assert_eq!(refused_as(&app, deed).await, "42501", "{deed}");
    }
}

#[tokio::test]
async fn nothing_that_a_caller_puts_into_its_path_is_called_by_the_kit() {
    let (server, admin) = installed().await;
    run(
        &admin,
        "CREATE ROLE app LOGIN; GRANT USAGE ON SCHEMA leasehold TO app;
        CREATE SCHEMA trap AUTHORIZATION app",
    )
    .await;
    let app = session_as(&server, "app").await;
    run(&app, "CREATE FUNCTION trap.always(bigint, bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true';
        CREATE OPERATOR trap.<= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = trap.always);
        CREATE OPERATOR trap.> (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = trap.always);
        CREATE FUNCTION trap.now() RETURNS timestamptz LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''trapped''; END';
        CREATE FUNCTION trap.octet_length(text) RETURNS integer LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''trapped''; END';
        CREATE FUNCTION trap.current_setting(text) RETURNS text LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''trapped''; END';
        SET search_path = trap, pg_catalog").await;
    run(&app, "SELECT leasehold.seal('a', 34); SELECT leasehold.guard('a', 34); SELECT leasehold.guard('a', 34, true)").await;
    assert_eq!(refused_as(&app, "SELECT leasehold.guard('a', 33)").await, "LH001");
    assert_eq!(refused_as(&app, "SELECT leasehold.guard('a', 9007199254740992)").await, "LH004");
}

/// `passes` is put into the caller's own statement, so its words are looked up where the caller says.
#[tokio::test]
async fn a_guard_in_the_write_needs_usage_alone_and_falls_into_no_trap() {
    let (server, admin) = installed().await;
    run(
        &admin,
        "CREATE ROLE app LOGIN; CREATE SCHEMA trap AUTHORIZATION app;
        CREATE TABLE public.bill (total bigint); INSERT INTO public.bill VALUES (0);
        GRANT SELECT, UPDATE ON public.bill TO app",
    )
    .await;
    let app = session_as(&server, "app").await;
    let write = |token: u64| {
        format!("UPDATE public.bill SET total = {token} WHERE leasehold.passes('a', {token})")
    };
    assert_eq!(refused_as(&app, &write(34)).await, "42501", "not without USAGE");
    run(&admin, "GRANT USAGE ON SCHEMA leasehold TO app").await;
    run(
        &app,
        "CREATE FUNCTION trap.always(bigint, bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true';
        CREATE FUNCTION trap.never(bigint, integer) RETURNS boolean LANGUAGE plpgsql AS
            'BEGIN RAISE EXCEPTION ''trapped''; END';
        CREATE OPERATOR trap.<= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = trap.always);
        CREATE OPERATOR trap.> (LEFTARG = bigint, RIGHTARG = integer, FUNCTION = trap.never);
        CREATE FUNCTION trap.guard(text, bigint) RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint';
        CREATE TABLE trap.fence (resource text PRIMARY KEY, token bigint, previous bigint, changed_at timestamptz);
        CREATE TEMP TABLE fence (resource text PRIMARY KEY, token bigint, previous bigint, changed_at timestamptz);
        SET search_path = pg_temp, trap, pg_catalog",
    )
    .await;
    run(&app, &write(34)).await;
    assert_eq!(refused_as(&app, &write(33)).await, "LH001");
    assert_eq!(refused_as(&app, &write(0)).await, "LH004");
    assert_eq!(refused_as(&app, &write(9_007_199_254_740_992)).await, "LH004");
    assert_eq!(number(&admin, "SELECT total FROM bill").await, Some(34));
    assert_eq!(number(&admin, "SELECT leasehold.highest_token('a')").await, Some(34));
    for other in ["trap.fence", "pg_temp.fence"] {
        let rows = format!("SELECT count(*) FROM {other}");
        assert_eq!(number(&app, &rows).await, Some(0), "{other}");
    }
}

#[tokio::test]
async fn whoever_may_create_a_schema_may_install_and_needs_no_superuser() {
    let server = Postgres::start();
    let admin = session(&server).await;
    run(&admin, "CREATE ROLE owner LOGIN; CREATE ROLE app LOGIN; GRANT CREATE ON DATABASE postgres TO owner").await;
    let owner = session_as(&server, "owner").await;
    run(&owner, INSTALL).await;
    run(&owner, "GRANT USAGE ON SCHEMA leasehold TO app").await;
    let app = session_as(&server, "app").await;
    run(&app, "SELECT leasehold.guard('a', 34)").await;
    assert_eq!(refused_as(&app, "SELECT leasehold.guard('a', 33)").await, "LH001");
}

#[tokio::test]
async fn in_trigger_mode_a_writer_needs_no_right_on_the_kit_and_cannot_leave_it() {
    let (server, admin) = installed().await;
    run(
        &admin,
        "CREATE ROLE app LOGIN; CREATE TABLE plain (n int);
        GRANT SELECT, INSERT, UPDATE, DELETE ON plain TO app; SELECT leasehold.protect('plain')",
    )
    .await;
    let app = session_as(&server, "app").await;
    assert_eq!(refused_as(&app, "INSERT INTO plain VALUES (1)").await, "LH003");
    run(&app, &super::fixture::with_token("a", 5, "INSERT INTO plain VALUES (1)")).await;
    run(&admin, "GRANT USAGE ON SCHEMA leasehold TO app").await;
    assert_eq!(refused_as(&app, "SELECT leasehold.unprotect('plain')").await, "42501");
    assert_eq!(refused_as(&app, "SELECT leasehold.protect('plain')").await, "42501");
}

/// A table of somebody else behind a trigger of the kit, with a cast of theirs for what is in it.
#[tokio::test]
async fn casts_of_a_role_never_run_as_the_owner_of_the_kit() {
    let (server, admin) = installed().await;
    run(&admin, "CREATE ROLE app LOGIN; GRANT USAGE ON SCHEMA leasehold TO app").await;
    run(&admin, "CREATE SCHEMA lair AUTHORIZATION app").await;
    let app = session_as(&server, "app").await;
    run(
        &app,
        "CREATE TYPE lair.bait AS ENUM ('worm');
        CREATE FUNCTION lair.spy(lair.bait) RETURNS json LANGUAGE plpgsql AS $$
        BEGIN
            RAISE EXCEPTION 'ran as %', current_user
                USING ERRCODE = CASE current_user WHEN 'app' THEN 'XXAPP' ELSE 'XXOWN' END;
        END $$;
        CREATE CAST (lair.bait AS json) WITH FUNCTION lair.spy(lair.bait);
        CREATE TABLE lair.trap (v lair.bait, r text);
        CREATE TRIGGER trap AFTER INSERT ON lair.trap FOR EACH ROW
            EXECUTE FUNCTION leasehold.misplaced('r')",
    )
    .await;
    let bait = "INSERT INTO lair.trap VALUES ('worm', 'x')";
    assert_eq!(refused_as(&app, bait).await, "XXAPP");
    let definers = "SELECT count(*) FROM pg_proc WHERE pronamespace = 'leasehold'::regnamespace
        AND prosecdef AND prosrc ~ 'to_json|row_to_json|(OLD|NEW)[.]'";
    assert_eq!(number(&admin, definers).await, Some(0), "none of them looks into rows");
}

#[tokio::test]
async fn a_schema_that_somebody_else_made_is_not_installed_into() {
    let server = Postgres::start();
    let admin = session(&server).await;
    run(&admin, "CREATE ROLE app LOGIN; CREATE SCHEMA leasehold AUTHORIZATION app").await;
    assert_eq!(refused_as(&admin, INSTALL).await, "42501");
    run(
        &admin,
        "DROP SCHEMA leasehold; CREATE SCHEMA leasehold;
        CREATE FUNCTION leasehold.spy() RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint';
        ALTER FUNCTION leasehold.spy() OWNER TO app",
    )
    .await;
    assert_eq!(refused_as(&admin, INSTALL).await, "42501");
    run(&admin, "DROP FUNCTION leasehold.spy()").await;
    run(&admin, INSTALL).await;
    run(&admin, "GRANT USAGE ON SCHEMA leasehold TO PUBLIC").await;
    run(&admin, INSTALL).await;
    let app = session_as(&server, "app").await;
    assert_eq!(
        number(&app, "SELECT leasehold.seal('a', 5)").await,
        None,
        "the grant is still there"
    );
}

/// What a role that may create in a schema of the path makes: better matches than those of the system,
/// and the same under a path that names the system last. All of them refuse with a state of their own.
const TRAPS: &str = "
    CREATE FUNCTION public.format(text, name) RETURNS text LANGUAGE plpgsql AS $$BEGIN RAISE 'trapped' USING ERRCODE = 'XXTRP'; END$$;
    CREATE FUNCTION public.format(text, text, text, text) RETURNS text LANGUAGE plpgsql AS $$BEGIN RAISE 'trapped' USING ERRCODE = 'XXTRP'; END$$;
    CREATE FUNCTION public.format(text, regprocedure) RETURNS text LANGUAGE plpgsql AS $$BEGIN RAISE 'trapped' USING ERRCODE = 'XXTRP'; END$$;
    CREATE FUNCTION public.array_to_string(regclass[], text) RETURNS text LANGUAGE plpgsql AS $$BEGIN RAISE 'trapped' USING ERRCODE = 'XXTRP'; END$$;
    CREATE FUNCTION public.unnest(regclass[]) RETURNS SETOF regclass LANGUAGE plpgsql AS $$BEGIN RAISE 'trapped' USING ERRCODE = 'XXTRP'; END$$;
    CREATE FUNCTION public.current_setting(text) RETURNS text LANGUAGE plpgsql AS $$BEGIN RAISE 'trapped' USING ERRCODE = 'XXTRP'; END$$;
    CREATE FUNCTION public.set_config(text, text, boolean) RETURNS text LANGUAGE plpgsql AS $$BEGIN RAISE 'trapped' USING ERRCODE = 'XXTRP'; END$$;
    CREATE FUNCTION public.trap(oid, regnamespace) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RAISE 'trapped' USING ERRCODE = 'XXTRP'; END$$;
    CREATE FUNCTION public.trap(oid, regproc) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RAISE 'trapped' USING ERRCODE = 'XXTRP'; END$$;
    CREATE FUNCTION public.trap(text, text) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RAISE 'trapped' USING ERRCODE = 'XXTRP'; END$$;
    CREATE OPERATOR public.= (LEFTARG = oid, RIGHTARG = regnamespace, FUNCTION = public.trap);
    CREATE OPERATOR public.= (LEFTARG = oid, RIGHTARG = regproc, FUNCTION = public.trap);
    CREATE OPERATOR public.= (LEFTARG = text, RIGHTARG = text, FUNCTION = public.trap);
    CREATE OPERATOR public.<> (LEFTARG = text, RIGHTARG = text, FUNCTION = public.trap);
    CREATE DOMAIN public.text AS pg_catalog.text CHECK (public.set_config('a', 'b', true) IS NULL)";

#[tokio::test]
async fn neither_installer_nor_remover_runs_what_others_put_into_the_path() {
    let server = Postgres::start();
    let admin = session(&server).await;
    run(
        &admin,
        "CREATE ROLE mallory LOGIN; GRANT CREATE ON SCHEMA public TO mallory;
        GRANT CREATE ON DATABASE postgres TO mallory",
    )
    .await;
    let mallory = session_as(&server, "mallory").await;
    run(&mallory, TRAPS).await;
    for path in ["public", "public, pg_catalog"] {
        run(&admin, &format!("SET search_path = {path}")).await;
        run(&mallory, "CREATE SCHEMA leasehold").await;
        assert_eq!(refused_as(&admin, INSTALL).await, "42501", "{path}");
        run(&mallory, "DROP SCHEMA leasehold").await;
        run(&admin, INSTALL).await;
        run(&admin, INSTALL).await;
        run(&admin, "CREATE TABLE public.bill (n int); SELECT leasehold.protect('public.bill')")
            .await;
        assert_eq!(refused_as(&admin, super::fixture::REMOVE).await, "2BP01", "{path}");
        run(&admin, "SET leasehold.unprotect = 'yes'; SET leasehold.forget_tokens = 'yes'").await;
        run(&admin, super::fixture::REMOVE).await;
        run(
            &admin,
            "DROP TABLE public.bill; RESET leasehold.unprotect; RESET leasehold.forget_tokens",
        )
        .await;
    }
}

/// The functions of a kit that is somebody else's are not called either.
#[tokio::test]
async fn a_superuser_removes_the_kit_of_another_role_and_runs_nothing_of_it() {
    let server = Postgres::start();
    let admin = session(&server).await;
    run(
        &admin,
        "CREATE ROLE dbo LOGIN; CREATE ROLE app LOGIN; GRANT CREATE ON DATABASE postgres TO dbo;
        GRANT CREATE ON SCHEMA public TO dbo",
    )
    .await;
    let dbo = session_as(&server, "dbo").await;
    run(&dbo, INSTALL).await;
    run(&dbo, "CREATE TABLE bill (n int); SELECT leasehold.protect('bill');
        CREATE OR REPLACE FUNCTION leasehold.unprotect(target regclass) RETURNS void LANGUAGE plpgsql
            AS $$BEGIN RAISE 'trapped'; END$$")
    .await;
    let app = session_as(&server, "app").await;
    let error = app.batch_execute(super::fixture::REMOVE).await.expect_err("it is not its own");
    let told = error.as_db_error().expect("the server says it");
    assert_eq!(told.code().code(), "42501");
    assert!(told.hint().is_some_and(|hint| hint.contains("dbo")), "{told:?}");
    run(&admin, "SET leasehold.unprotect = 'yes'").await;
    run(&admin, super::fixture::REMOVE).await;
    // What would run functions of dbo is not read.
    run(&dbo, "ALTER TABLE leasehold.fence RENAME TO before; CREATE VIEW leasehold.fence AS SELECT 1 AS token").await;
    assert_eq!(refused_as(&admin, super::fixture::REMOVE).await, "42809");
}

/// A schema of mallory's with the tables of a kit, and in each an index whose condition runs when
/// somebody so much as counts the rows. It tells on whoever is not mallory, or was another before.
pub(crate) const BAITED: &str = "CREATE SCHEMA leasehold; CREATE SCHEMA lair;
    CREATE TABLE leasehold.fence (resource text, token bigint);
    CREATE TABLE leasehold.kit (version integer);
    CREATE FUNCTION lair.deed() RETURNS boolean LANGUAGE plpgsql AS $$
    BEGIN
        IF current_user <> 'mallory' OR session_user <> 'mallory' THEN RAISE 'trapped' USING ERRCODE = 'XXTRP'; END IF;
        RETURN true;
    END $$;
    CREATE FUNCTION lair.bait(integer) RETURNS boolean IMMUTABLE LANGUAGE plpgsql
        AS $$BEGIN RETURN lair.deed(); END$$;
    CREATE INDEX ON leasehold.fence (resource) WHERE lair.bait(1);
    CREATE INDEX ON leasehold.kit (version) WHERE lair.bait(1)";

#[tokio::test]
async fn the_index_of_another_role_is_not_looked_at() {
    let server = Postgres::start();
    let admin = session(&server).await;
    run(&admin, "CREATE ROLE mallory LOGIN; GRANT CREATE ON DATABASE postgres TO mallory").await;
    run(&session_as(&server, "mallory").await, BAITED).await;
    for rows in ["SELECT count(*) FROM leasehold.fence", "SELECT count(*) FROM leasehold.kit"] {
        assert_eq!(refused_as(&admin, rows).await, "XXTRP", "or it is no bait");
    }
    assert_eq!(refused_as(&admin, INSTALL).await, "42501");
    for how in
        ["RESET ROLE", "SET ROLE mallory", "SET leasehold.forget_tokens = 'yes'", "RESET ROLE"]
    {
        run(&admin, how).await;
        assert_eq!(refused_as(&admin, super::fixture::REMOVE).await, "42809", "{how}");
    }
}

#[tokio::test]
async fn a_right_that_was_handed_on_for_a_column_is_taken_back() {
    let (server, admin) = installed().await;
    run(
        &admin,
        "CREATE ROLE app LOGIN; CREATE ROLE mallory LOGIN; GRANT USAGE ON SCHEMA leasehold TO app, mallory;
        SELECT leasehold.seal('a', 34); GRANT UPDATE ON leasehold.fence TO app WITH GRANT OPTION",
    )
    .await;
    let (app, mallory) = (session_as(&server, "app").await, session_as(&server, "mallory").await);
    run(&app, "GRANT UPDATE (token) ON leasehold.fence TO mallory").await;
    run(&mallory, "UPDATE leasehold.fence SET token = 35").await;
    run(&admin, INSTALL).await;
    for one in [&app, &mallory] {
        assert_eq!(refused_as(one, "UPDATE leasehold.fence SET token = 1").await, "42501");
    }
    let rights = "SELECT count(*) FROM pg_attribute AS t, aclexplode(t.attacl)
        WHERE t.attrelid = 'leasehold.fence'::regclass";
    assert_eq!(number(&admin, rights).await, Some(0));
}

#[tokio::test]
async fn the_path_and_the_patience_of_a_migration_are_as_they_were() {
    let server = Postgres::start();
    let admin = session(&server).await;
    for script in [INSTALL, INSTALL, super::fixture::REMOVE, super::fixture::REMOVE] {
        run(&admin, "BEGIN; SET LOCAL search_path = \"$user\", mine, public").await;
        run(&admin, script).await;
        let path = admin.query_one("SHOW search_path", &[]).await.expect("it is one");
        assert_eq!(path.get::<_, String>(0), "\"$user\", mine, public");
        let patience = admin.query_one("SHOW lock_timeout", &[]).await.expect("it is one");
        assert_eq!(patience.get::<_, String>(0), "0");
        run(&admin, "COMMIT").await;
    }
}

/// Rights of others in the schema, as the catalog has them. Of the view, all may read it; of the
/// functions, all may call some.
const OF_OTHERS: &str = "SELECT count(*) FROM (
    SELECT a.grantee, n.nspowner, a.privilege_type, '' FROM pg_namespace AS n, aclexplode(n.nspacl) AS a
        WHERE n.nspname = 'leasehold' AND a.privilege_type <> 'USAGE'
    UNION ALL SELECT a.grantee, c.relowner, a.privilege_type, c.relname FROM pg_class AS c, aclexplode(c.relacl) AS a
        WHERE c.relnamespace = 'leasehold'::regnamespace AND (c.relname, a.privilege_type) <> ('protected', 'SELECT')
    UNION ALL SELECT a.grantee, c.relowner, a.privilege_type, c.relname FROM pg_class AS c
        JOIN pg_attribute AS t ON t.attrelid = c.oid, aclexplode(t.attacl) AS a
        WHERE c.relnamespace = 'leasehold'::regnamespace
    UNION ALL SELECT a.grantee, p.proowner, a.privilege_type, p.proname FROM pg_proc AS p, aclexplode(p.proacl) AS a
        WHERE p.pronamespace = 'leasehold'::regnamespace AND a.grantee <> 0
    ) AS o (grantee, owner, deed, what) WHERE o.grantee <> o.owner";

const DEFAULTS: &str = "CREATE ROLE app LOGIN; CREATE ROLE \"the other\" LOGIN;
    ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO app, \"the other\", PUBLIC;
    ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO app WITH GRANT OPTION;
    ALTER DEFAULT PRIVILEGES GRANT ALL ON FUNCTIONS TO app";

#[tokio::test]
async fn default_privileges_hand_nothing_of_the_kit_over() {
    let server = Postgres::start();
    let admin = session(&server).await;
    run(&admin, DEFAULTS).await;
    run(&admin, INSTALL).await;
    assert_eq!(number(&admin, OF_OTHERS).await, Some(0));
    run(&admin, "GRANT USAGE ON SCHEMA leasehold TO app").await;
    let app = session_as(&server, "app").await;
    run(&app, "SELECT leasehold.seal('a', 34); SELECT * FROM leasehold.protected").await;
    for deed in [
        "UPDATE leasehold.fence SET token = 1",
        "UPDATE leasehold.kit SET version = 9",
        "CREATE FUNCTION leasehold.guard(text, integer) RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'",
        "SELECT leasehold.check_request('a', 1, 'exclusive')",
    ] {
        assert_eq!(refused_as(&app, deed).await, "42501", "{deed}");
    }
}

#[tokio::test]
async fn installing_takes_back_what_an_older_one_handed_over() {
    let server = Postgres::start();
    let admin = session(&server).await;
    run(&admin, DEFAULTS).await;
    run(&admin, include_str!("kit-1.sql")).await;
    run(&admin, "GRANT UPDATE (token) ON leasehold.fence TO app").await;
    run(&admin, "REVOKE SELECT ON leasehold.fence, leasehold.kit FROM app, \"the other\"").await;
    assert!(number(&admin, OF_OTHERS).await > Some(10), "or there is nothing to take back");
    run(&admin, "CREATE SCHEMA lair AUTHORIZATION app").await;
    let app = session_as(&server, "app").await;
    run(
        &app,
        "CREATE FUNCTION lair.spy() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'trapped'; END$$;
        CREATE TRIGGER spy BEFORE INSERT ON leasehold.kit FOR EACH ROW EXECUTE FUNCTION lair.spy()",
    )
    .await;
    let error = admin.batch_execute(INSTALL).await.expect_err("the trigger would run as the owner");
    let told = error.as_db_error().expect("the server says it");
    assert_eq!(told.code().code(), "42809");
    let hint = told.hint().unwrap_or_default();
    run(&admin, hint.split("To undo it: ").nth(1).expect("the statement")).await;
    run(&admin, INSTALL).await;
    // What the first kit gave with its functions stays, as with every one that is there already.
    run(&admin, "REVOKE ALL ON ALL FUNCTIONS IN SCHEMA leasehold FROM app").await;
    assert_eq!(number(&admin, OF_OTHERS).await, Some(0));
}

#[tokio::test]
async fn what_was_revoked_stays_revoked_and_what_was_granted_stays_granted() {
    let (_server, admin) = installed().await;
    run(
        &admin,
        "CREATE ROLE app; CREATE ROLE other; GRANT USAGE ON SCHEMA leasehold TO app, other;
        REVOKE EXECUTE ON FUNCTION leasehold.guard(text, bigint) FROM PUBLIC;
        GRANT EXECUTE ON FUNCTION leasehold.guard(text, bigint) TO other;
        REVOKE SELECT ON leasehold.protected FROM PUBLIC; GRANT SELECT ON leasehold.fence TO other",
    )
    .await;
    run(&admin, INSTALL).await;
    let rights = admin
        .query_one(
            "SELECT has_function_privilege('app', 'leasehold.guard(text, bigint)', 'EXECUTE'),
                has_table_privilege('app', 'leasehold.protected', 'SELECT'),
                has_function_privilege('other', 'leasehold.guard(text, bigint)', 'EXECUTE'),
                has_table_privilege('other', 'leasehold.fence', 'SELECT'),
                has_schema_privilege('app', 'leasehold', 'USAGE')",
            &[],
        )
        .await
        .expect("they are there");
    let rights: Vec<bool> = (0..5).map(|at| rights.get(at)).collect();
    assert_eq!(rights, [false, false, true, true, true]);
}
