//! Installing again, over an older version, over a newer one, and removal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_harness::postgres::Postgres;

use super::fixture::{
    INSTALL, REMOVE, installed, number, refused, refused_as, run, session, state, with_invoices,
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
    assert_eq!(refused_as(&admin, INSTALL).await, "42P07");
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

/// As an interrupted restore leaves it, or whoever dropped a part.
#[tokio::test]
async fn calls_without_their_tables_get_no_empty_fence() {
    for older in [true, false] {
        for (deed, told) in [
            ("DROP TABLE leasehold.fence", "table leasehold.fence is gone"),
            ("DROP TABLE leasehold.kit", "table leasehold.kit is gone"),
            ("DROP TABLE leasehold.fence, leasehold.kit", "table leasehold.fence is gone"),
            (
                "DELETE FROM leasehold.kit",
                "no row of leasehold.kit says which version is installed",
            ),
            (
                "ALTER TABLE leasehold.fence DROP CONSTRAINT fence_pkey",
                "the primary key of table leasehold.fence is gone",
            ),
            (
                "ALTER TABLE leasehold.fence DROP COLUMN token",
                "column token of table leasehold.fence is gone",
            ),
        ] {
            let server = Postgres::start();
            let admin = session(&server).await;
            run(&admin, if older { OLDER } else { INSTALL }).await;
            run(&admin, &format!("SELECT leasehold.seal('a', 50); {deed}")).await;
            let error = admin.batch_execute(INSTALL).await.expect_err("it would be an empty fence");
            let error = error.as_db_error().expect("the server says it");
            assert_eq!((error.code().code(), error.message()), ("55000", told), "{deed}");
            let hint = error.hint().expect("what to do");
            let undo = hint.split_once("anew: ").or(hint.split_once("are there: "));
            let Some((_, undo)) = undo else {
                assert!(hint.contains("Bring it back") && hint.contains("remove"), "{hint}");
                assert!(
                    refused_as(&admin, "SELECT leasehold.guard('a', 33)").await.starts_with("42")
                );
                continue;
            };
            run(&admin, undo).await;
            run(&admin, INSTALL).await;
            assert_eq!(
                refused_as(&admin, "SELECT leasehold.guard('a', 33)").await,
                "LH001",
                "{undo}"
            );
            let rows = "SELECT count(*) FROM leasehold.kit";
            assert_eq!(number(&admin, rows).await, Some(2), "{undo}");
        }
    }
}

#[tokio::test]
async fn a_column_that_is_made_anew_lets_no_used_token_pass_again() {
    let (_server, admin) = installed().await;
    run(&admin, "SELECT leasehold.guard('a', 5, true)").await;
    for column in ["previous", "used", "changed_at"] {
        run(&admin, &format!("ALTER TABLE leasehold.fence DROP COLUMN {column}")).await;
        let error = admin.batch_execute(INSTALL).await.expect_err("every call would fail");
        let hint = error.as_db_error().and_then(|error| error.hint()).unwrap_or_default();
        run(&admin, hint.split_once("anew: ").expect("a statement").1).await;
        run(&admin, INSTALL).await;
    }
    assert_eq!(refused_as(&admin, "SELECT leasehold.guard('a', 5, true)").await, "LH002");
}

/// What a kit is that its owner has removed, and calls that are gone beside whole tables.
#[tokio::test]
async fn what_is_gone_without_loss_is_made_anew() {
    let (_server, admin) = installed().await;
    run(&admin, "SELECT leasehold.seal('a', 50)").await;
    for deed in [
        "DROP FUNCTION leasehold.guard(text, bigint)",
        "DROP FUNCTION leasehold.version()",
        "DROP VIEW leasehold.protected; DROP FUNCTION leasehold.tables_protected()",
        "DROP FUNCTION leasehold.keep() CASCADE",
    ] {
        run(&admin, deed).await;
        run(&admin, INSTALL).await;
        assert_eq!(refused_as(&admin, "SELECT leasehold.guard('a', 33)").await, "LH001", "{deed}");
        assert_eq!(refused_as(&admin, "DELETE FROM leasehold.fence").await, "23001", "{deed}");
    }
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

/// With sessions that set no limit of their own: an installer that hangs must not hang the others.
#[tokio::test]
async fn installer_and_remover_give_up_waiting_for_another_one() {
    const PATIENCE: Duration = Duration::from_secs(120);
    let (server, admin) = installed().await;
    run(&admin, "BEGIN; SELECT pg_advisory_xact_lock(7810758011010182508)").await;
    let (one, other) = (session(&server).await, session(&server).await);
    let both = async { tokio::join!(one.batch_execute(INSTALL), other.batch_execute(REMOVE)) };
    let (install, remove) = tokio::time::timeout(PATIENCE, both).await.expect("they give up");
    for outcome in [install, remove] {
        assert_eq!(state(&outcome.expect_err("somebody else is at it")), "55P03");
    }
    run(&admin, "COMMIT").await;
    run(&one, INSTALL).await;
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
