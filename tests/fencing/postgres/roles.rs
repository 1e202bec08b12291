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
