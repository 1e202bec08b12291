//! Installing again, over an older version, over a newer one, and removal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use leasehold_harness::postgres::Postgres;

use super::fixture::{
    INSTALL, REMOVE, installed, noticed, number, refused, refused_as, run, session, state,
    with_invoices, with_token,
};

const OLDER: &str = include_str!("kit-1.sql");

#[tokio::test]
async fn installing_again_changes_nothing_and_waits_for_nobody() {
    let (server, admin) = installed().await;
    let busy = session(&server).await;
    run(&busy, "BEGIN; SELECT leasehold.seal('a', 34)").await;
    run(&admin, "SET lock_timeout = '1s'").await;
    run(&admin, INSTALL).await;
    run(&busy, "COMMIT").await;
    assert_eq!(number(&admin, "SELECT leasehold.highest_token('a')").await, Some(34));
    assert_eq!(number(&admin, "SELECT leasehold.version()::bigint").await, Some(2));
    assert_eq!(number(&admin, "SELECT count(*) FROM leasehold.kit").await, Some(2));
}

#[tokio::test]
async fn many_installers_at_once_install_it_once() {
    let server = Postgres::start();
    let mut installers = Vec::new();
    for _ in 0..6 {
        let client = session(&server).await;
        installers.push(tokio::spawn(async move { client.batch_execute(INSTALL).await }));
    }
    for installer in installers {
        installer.await.expect("it does not panic").expect("it installs or finds it installed");
    }
    let admin = session(&server).await;
    assert_eq!(number(&admin, "SELECT count(*) FROM leasehold.kit").await, Some(2));
}

#[tokio::test]
async fn an_older_kit_is_upgraded_under_its_users_and_no_token_is_lost() {
    const HOLDERS: i64 = 4;
    let server = Postgres::start();
    let admin = session(&server).await;
    run(&admin, OLDER).await;
    run(&admin, "SELECT leasehold.seal('before', 34)").await;
    let upgraded = Arc::new(AtomicBool::new(false));
    let mut holders = Vec::new();
    for holder in 0..HOLDERS {
        let (client, upgraded) = (session(&server).await, Arc::clone(&upgraded));
        holders.push(tokio::spawn(async move {
            let guard =
                client.prepare("SELECT leasehold.guard($1, $2)").await.expect("it is there");
            let (resource, mut token, mut after) = (format!("holder/{holder}"), 0, 0);
            while after < 50 {
                after += i64::from(upgraded.load(Ordering::SeqCst));
                token += 1;
                // A prepared call, so that it was looked up before the upgrade.
                client.query_one(&guard, &[&resource, &token]).await.expect("no call fails");
            }
            (resource, token)
        }));
    }
    run(&admin, INSTALL).await;
    upgraded.store(true, Ordering::SeqCst);
    for holder in holders {
        let (resource, token) = holder.await.expect("it does not panic");
        let highest = format!("SELECT leasehold.highest_token('{resource}')");
        assert_eq!(number(&admin, &highest).await, Some(token));
    }
    assert_eq!(number(&admin, "SELECT leasehold.version()::bigint").await, Some(2));
    assert_eq!(refused(&admin, "SELECT leasehold.seal('before', 33)").await.1["highest_token"], 34);
    run(&admin, "SELECT leasehold.guard('before', 34, true)").await;
}

#[tokio::test]
async fn an_upgrade_gives_up_rather_than_hold_up_everybody() {
    let server = Postgres::start();
    let (admin, busy) = (session(&server).await, session(&server).await);
    run(&admin, OLDER).await;
    run(&busy, "BEGIN; SELECT leasehold.seal('a', 34)").await;
    run(&admin, "SET lock_timeout = '50ms'").await;
    assert_eq!(refused_as(&admin, INSTALL).await, "55P03");
    assert_eq!(number(&admin, "SELECT leasehold.version()::bigint").await, Some(1));
    run(&busy, "COMMIT").await;
    run(&admin, INSTALL).await;
    assert_eq!(number(&admin, "SELECT leasehold.highest_token('a')").await, Some(34));
}

#[tokio::test]
async fn a_newer_kit_is_left_alone() {
    let (_server, admin) = installed().await;
    run(&admin, "INSERT INTO leasehold.kit (version) VALUES (3)").await;
    let error = admin.batch_execute(INSTALL).await.expect_err("it is refused");
    assert_eq!(state(&error), "55000");
    let said = error.as_db_error().expect("the server says it").message();
    assert!(said.contains("version 3") && said.contains("older version 2"), "{said}");
    // Nor is anything of it called strange.
    run(
        &admin,
        "COMMENT ON FUNCTION leasehold.version() IS 'version 3';
        CREATE FUNCTION leasehold.later() RETURNS void LANGUAGE sql AS 'SELECT'",
    )
    .await;
    assert_eq!(refused_as(&admin, INSTALL).await, "55000");
}

#[tokio::test]
async fn a_table_of_somebody_else_and_a_foreign_encoding_are_refused() {
    let server = Postgres::start();
    let admin = session(&server).await;
    run(&admin, "CREATE SCHEMA leasehold; CREATE TABLE leasehold.fence (n int)").await;
    assert_eq!(refused_as(&admin, INSTALL).await, "42809");
    run(
        &admin,
        "CREATE DATABASE old TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'",
    )
    .await;
    let url = server.url().replace("/postgres", "/old");
    let (old, connection) =
        tokio_postgres::connect(&url.replace("//old@", "//postgres@"), tokio_postgres::NoTls)
            .await
            .expect("it listens");
    tokio::spawn(connection);
    assert_eq!(refused_as(&old, INSTALL).await, "0A000");
}

/// A transaction with a snapshot of its own does not see what was committed while it waited.
#[tokio::test]
async fn the_scripts_want_to_see_what_is_committed_meanwhile() {
    let server = Postgres::start();
    let admin = session(&server).await;
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        for script in [INSTALL, REMOVE] {
            run(&admin, &format!("BEGIN ISOLATION LEVEL {level}")).await;
            let error = admin.batch_execute(script).await.expect_err("it is refused");
            assert_eq!(state(&error), "25000", "{level}");
            let error = error.as_db_error().expect("the server says it");
            assert!(error.message().contains(level), "{error:?}");
            assert!(error.hint().is_some_and(|hint| hint.contains("READ COMMITTED")), "{error:?}");
            run(&admin, "ROLLBACK").await;
        }
    }
    let schema = "SELECT count(*) FROM pg_namespace WHERE nspname = 'leasehold'";
    assert_eq!(number(&admin, schema).await, Some(0));
    for level in ["READ COMMITTED", "READ UNCOMMITTED"] {
        for script in [INSTALL, REMOVE] {
            run(&admin, &format!("BEGIN ISOLATION LEVEL {level}; {script}; COMMIT")).await;
        }
    }
}

#[tokio::test]
async fn removal_keeps_the_tokens_until_it_is_told_to_forget_them() {
    let (_server, admin) = installed().await;
    run(&admin, "SELECT leasehold.seal('a', 34)").await;
    run(&admin, REMOVE).await;
    assert_eq!(refused_as(&admin, "SELECT leasehold.guard('a', 33)").await, "42883");
    assert_eq!(refused_as(&admin, "DELETE FROM leasehold.fence").await, "23001");
    run(&admin, INSTALL).await;
    assert_eq!(refused_as(&admin, "SELECT leasehold.guard('a', 33)").await, "LH001");
    run(&admin, REMOVE).await;
    run(&admin, "SET leasehold.forget_tokens = 'yes'").await;
    run(&admin, REMOVE).await;
    let sql = "SELECT count(*) FROM pg_namespace WHERE nspname = 'leasehold'";
    assert_eq!(number(&admin, sql).await, Some(0));
    run(&admin, REMOVE).await;
    run(&admin, INSTALL).await;
    run(&admin, "SELECT leasehold.guard('a', 33)").await;
}

/// The guard stays where it was, and whoever installs is told.
#[tokio::test]
async fn a_column_that_took_the_old_name_does_not_get_the_guard() {
    let (server, admin) = with_invoices().await;
    run(
        &admin,
        "SELECT leasehold.protect('invoice', 'resource');
        ALTER TABLE invoice RENAME resource TO before; ALTER TABLE invoice ADD resource text",
    )
    .await;
    let rightful = with_token("invoice/1", 5, "UPDATE invoice SET total = 1 WHERE id = 1");
    for _ in 0..2 {
        let told = noticed(&server, INSTALL).await;
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(told[0].0, "WARNING", "{told:?}");
        assert!(told[0].1.contains("judged by column \"before\""), "{told:?}");
        run(&admin, &rightful).await;
    }
    run(&admin, "SELECT leasehold.protect('invoice', 'before')").await;
    assert_eq!(noticed(&server, INSTALL).await, []);
    run(&admin, &rightful).await;
    // A column that was renamed, and whose name nobody took, keeps the guard when a trigger is mended.
    run(
        &admin,
        "ALTER TABLE invoice RENAME before TO after; DROP TRIGGER leasehold_resource_insert ON invoice;
        CREATE TRIGGER leasehold_resource_insert AFTER INSERT ON invoice FOR EACH ROW
            EXECUTE FUNCTION leasehold.misplaced('before')",
    )
    .await;
    assert_eq!(noticed(&server, INSTALL).await, []);
    let mended =
        "SELECT count(*) FROM leasehold.protected WHERE enabled AND resource_column = 'after'";
    assert_eq!(number(&admin, mended).await, Some(1));
    run(&admin, &rightful).await;
}

#[tokio::test]
async fn removal_stops_at_what_still_stands_on_the_kit() {
    let (_server, admin) = with_invoices().await;
    run(&admin, "SELECT leasehold.protect('invoice', 'resource')").await;
    let error = admin.batch_execute(REMOVE).await.expect_err("it is refused");
    assert_eq!(state(&error), "2BP01");
    assert!(error.as_db_error().expect("the server says it").message().contains("invoice"));
    run(
        &admin,
        "SET leasehold.unprotect = 'yes'; CREATE VIEW mine AS SELECT leasehold.highest_token('a')",
    )
    .await;
    assert_eq!(refused_as(&admin, REMOVE).await, "2BP01");
    assert_eq!(refused_as(&admin, "DELETE FROM invoice").await, "LH003");
    run(&admin, "DROP VIEW mine").await;
    run(&admin, REMOVE).await;
    run(&admin, "DELETE FROM invoice").await;
}

/// A partition that was detached is no part of what was protected any more, and still has a trigger
/// of the kit.
#[tokio::test]
async fn removal_finds_what_a_partition_took_with_it() {
    let (_server, admin) = installed().await;
    run(
        &admin,
        "CREATE TABLE whole (n int) PARTITION BY RANGE (n);
        CREATE TABLE low PARTITION OF whole FOR VALUES FROM (0) TO (10);
        SELECT leasehold.protect('whole');
        ALTER TABLE whole DETACH PARTITION low; SELECT leasehold.unprotect('whole')",
    )
    .await;
    assert_eq!(refused_as(&admin, "TRUNCATE low").await, "LH003");
    run(&admin, "INSERT INTO low VALUES (1)").await;
    let error = admin.batch_execute(REMOVE).await.expect_err("it is refused");
    assert_eq!(state(&error), "2BP01");
    assert!(error.as_db_error().expect("the server says it").message().contains("low"));
    run(&admin, "SET leasehold.unprotect = 'yes'").await;
    run(&admin, REMOVE).await;
    run(&admin, "TRUNCATE low").await;
    let ours = "SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'leasehold%'";
    assert_eq!(number(&admin, ours).await, Some(0));
    run(&admin, INSTALL).await;
}
