//! What has become of the kit, and what the commands say of it: parts that are gone, a guarded column
//! that was renamed, a table that somebody has locked, and what is committed while they wait.

use leasehold_harness::Value;

use super::rights::is_closed_by_the_advice;
use super::triggers::{SHOWN, is_mended_by_installing};
use super::{codes, refused, sql, told, with_kit};
use crate::postgres::fixture::{number, run, session, session_as};

/// Calls without what they need: told by every command that looks, and called by none.
#[test]
fn what_the_kit_made_and_is_gone_is_a_hole() {
    for (deed, what, undo) in [
        ("DROP TABLE leasehold.fence", "table leasehold.fence", false),
        ("DROP TABLE leasehold.kit", "table leasehold.kit", true),
        ("DROP TABLE leasehold.kit, leasehold.fence", "table leasehold.fence", false),
        (
            "ALTER TABLE leasehold.fence DROP CONSTRAINT fence_pkey",
            "the primary key of table leasehold.fence",
            true,
        ),
        (
            "ALTER TABLE leasehold.fence DISABLE TRIGGER keep; TRUNCATE leasehold.fence, leasehold.kit;
            ALTER TABLE leasehold.fence ENABLE ALWAYS TRIGGER keep",
            "the content of table leasehold.kit",
            false,
        ),
        ("ALTER TABLE leasehold.fence DROP used", "column used of table leasehold.fence", true),
    ] {
        let server = with_kit();
        let url = server.url();
        sql(&server, &format!("SELECT leasehold.seal('r', 50); {deed}"));
        let (status, code) = told(&["status", "--postgres", &url]);
        assert!(codes(&status).contains(&"fence_incomplete") && code == Some(1), "{status}");
        assert!(!codes(&status).contains(&"fence_forgets"), "{status}");
        for command in ["install", "test"] {
            let (_, detail, _) = refused(&[command, "--postgres", &url]);
            assert!(detail.contains(&format!("{what} is gone")), "{command}: {detail}");
            let help = ["--forget-tokens", "bring the rows of both tables back from a backup"];
            assert!(undo || help.iter().any(|help| detail.contains(help)), "{command}: {detail}");
        }
        if undo {
            is_closed_by_the_advice(&server, "fence_incomplete");
            told(&["install", "--postgres", &url]);
            assert_eq!(sql(&server, "SELECT leasehold.highest_token('r')"), ["50"]);
        }
    }
}

#[test]
fn a_call_that_is_gone_is_a_hole_and_installing_closes_it() {
    let server = with_kit();
    let url = server.url();
    sql(&server, "DROP FUNCTION leasehold.guard(text, bigint)");
    let (_, detail, _) = refused(&["test", "--postgres", &url]);
    assert!(detail.contains("function leasehold.guard(text, bigint) is gone"), "{detail}");
    is_mended_by_installing(&server, "fence_incomplete");
}

#[test]
fn a_column_that_took_the_name_of_the_guarded_one_is_a_hole() {
    let server = with_kit();
    let url = server.url();
    sql(&server, "CREATE TABLE bill (id int, r text); SELECT leasehold.protect('bill', 'r')");
    sql(&server, "ALTER TABLE bill RENAME r TO \"R old\"");
    let (status, code) = told(&["status", "--postgres", &url]);
    assert_eq!((&status["protected"][0]["column"], code), (&"R old".into(), Some(0)), "{status}");
    sql(&server, "ALTER TABLE bill ADD r text");
    let (status, code) = told(&["status", "--postgres", &url]);
    assert!(codes(&status).contains(&"trigger_disabled") && code == Some(1), "{status}");
    assert!(status["findings"].to_string().contains("judged by the column R old"), "{status}");
    told(&["install", "--postgres", &url]);
    assert_eq!(sql(&server, SHOWN), ["bill r f f t"], "or it was moved");
    sql(&server, status["protected"][0]["call"].as_str().expect("a statement"));
    assert_eq!(sql(&server, SHOWN), ["bill R old f t f"]);
    assert_eq!(told(&["status", "--postgres", &url]).1, Some(0));
}

/// A session that has something open on the fence while somebody installs, under whatever level is the
/// default of the database: a snapshot from before the wait would not show it.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_committed_while_a_command_waits_is_seen_at_every_level() {
    for level in ["read committed", "repeatable read", "serializable"] {
        let server = tokio::task::spawn_blocking(with_kit).await.expect("it does not panic");
        let url = server.url();
        let admin = session(&server).await;
        run(
            &admin,
            &format!(
                "CREATE ROLE app LOGIN; CREATE SCHEMA lair AUTHORIZATION app;
                GRANT USAGE ON SCHEMA leasehold TO app; GRANT TRIGGER ON leasehold.fence TO app;
                ALTER DATABASE postgres SET default_transaction_isolation = '{level}'"
            ),
        )
        .await;
        let app = session_as(&server, "app").await;
        run(
            &app,
            "CREATE FUNCTION lair.spy() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
        )
        .await;
        run(
            &app,
            "BEGIN ISOLATION LEVEL READ COMMITTED; CREATE TRIGGER spy BEFORE INSERT ON leasehold.fence FOR EACH ROW EXECUTE FUNCTION lair.spy()",
        )
        .await;
        let at = url.clone();
        let installing =
            tokio::task::spawn_blocking(move || refused(&["install", "--postgres", &at]));
        let waits = "SELECT count(*) FROM pg_stat_activity
            WHERE application_name = 'leasehold' AND cardinality(pg_blocking_pids(pid)) > 0";
        while number(&admin, waits).await != Some(1) {
            assert!(!installing.is_finished(), "{level}: it waits for nobody");
            tokio::task::yield_now().await;
        }
        run(&app, "COMMIT").await;
        let (_, detail, _) = installing.await.expect("it does not panic");
        assert!(detail.contains("trigger spy on table leasehold.fence"), "{level}: {detail}");
        run(&admin, "DROP TRIGGER spy ON leasehold.fence").await;
        let commands = tokio::task::spawn_blocking(move || {
            for command in ["install", "remove", "install"] {
                told(&[command, "--postgres", &url]);
            }
            assert_eq!(told(&["status", "--postgres", &url]).1, Some(0), "the default is no hole");
        });
        commands.await.expect("it does not panic");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_somebody_has_locked_is_told_and_not_waited_for() {
    let server = tokio::task::spawn_blocking(with_kit).await.expect("it does not panic");
    let admin = session(&server).await;
    run(&admin, "CREATE TABLE bill (r text); SELECT leasehold.protect('bill', 'r')").await;
    run(&admin, "BEGIN; LOCK TABLE bill IN ACCESS EXCLUSIVE MODE").await;
    let url = server.url();
    let looked = tokio::task::spawn_blocking(move || {
        told(&["install", "--postgres", &url]);
        told(&["status", "--postgres", &url])
    });
    let (status, code) = looked.await.expect("it does not panic");
    assert_eq!((&status["protected"][0]["enabled"], code), (&Value::Null, Some(0)), "{status}");
    assert!(codes(&status).contains(&"trigger_unseen"), "{status}");
}
