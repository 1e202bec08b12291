//! Kits that have lost a part, as an interrupted restore leaves them or whoever dropped something:
//! installing makes no empty fence of them, and removal takes what there is.

use leasehold_harness::postgres::Postgres;

use super::fixture::{
    INSTALL, REMOVE, installed, noticed, number, refused_as, run, session, with_invoices,
};

const OLDER: &str = include_str!("kit-1.sql");

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
            ("TRUNCATE leasehold.kit", "the content of table leasehold.kit is gone"),
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
            let known = hint.contains("anew: ") || hint.contains("are there: ");
            let Some((_, undo)) = hint.rsplit_once(": ").filter(|_| known) else {
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

/// As a backup of that table alone brings it back.
#[tokio::test]
async fn a_fence_alone_goes_on_with_its_tokens() {
    let (_server, admin) = installed().await;
    run(&admin, "SELECT leasehold.seal('a', 50)").await;
    run(&admin, REMOVE).await;
    run(&admin, "DROP TABLE leasehold.kit; DROP FUNCTION leasehold.keep() CASCADE").await;
    let error = admin.batch_execute(INSTALL).await.expect_err("nothing tells its version");
    let error = error.as_db_error().expect("the server says it");
    assert_eq!(error.message(), "table leasehold.kit is gone");
    let (_, undo) = error.hint().and_then(|hint| hint.split_once("anew: ")).expect("what to do");
    run(&admin, undo).await;
    run(&admin, INSTALL).await;
    assert_eq!(refused_as(&admin, "SELECT leasehold.guard('a', 33)").await, "LH001");
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

/// Whatever is gone, the calls are removed, and nothing is claimed that did not happen.
#[tokio::test]
async fn removal_takes_what_there_is_and_says_what_is_left() {
    const KEPT: &str = "the leasehold kit is removed; the highest tokens of 1 resources are kept in leasehold.fence";
    const FORGOTTEN: &str =
        "the leasehold kit is removed, and the highest tokens of 1 resources are forgotten";
    const NONE: &str = "the leasehold kit is removed; there was no table leasehold.fence any more, and no token to forget";
    for (deed, kept, forgotten) in [
        ("DROP TABLE leasehold.fence", None, NONE),
        ("DROP TABLE leasehold.kit", Some(KEPT), FORGOTTEN),
        ("DROP TABLE leasehold.fence, leasehold.kit", None, NONE),
        ("DROP VIEW leasehold.protected; DROP FUNCTION leasehold.version()", Some(KEPT), FORGOTTEN),
    ] {
        for (forget, told) in [("no", kept), ("yes", Some(forgotten))] {
            let (server, admin) = installed().await;
            run(&admin, &format!("SELECT leasehold.seal('a', 34); {deed}")).await;
            let Some(told) = told else {
                // What is left is the only mark that there were tokens: no empty fence takes its place.
                for script in [REMOVE, INSTALL] {
                    assert_eq!(refused_as(&admin, script).await, "55000", "{deed}");
                }
                continue;
            };
            let set = format!("SET leasehold.forget_tokens = '{forget}'");
            let notices = noticed(&server, &format!("{set}; {REMOVE}")).await;
            let notices: Vec<_> = notices.iter().map(|(_, told)| told.as_str()).collect();
            assert_eq!(notices, [told], "{deed}");
            let calls =
                "SELECT count(*) FROM pg_proc WHERE pronamespace = to_regnamespace('leasehold')";
            let keeper = i64::from(told == KEPT);
            assert_eq!(number(&admin, calls).await, Some(keeper), "{deed}, {forget}");
            let fence = "SELECT count(*) FROM pg_class WHERE oid = to_regclass('leasehold.fence')";
            assert_eq!(number(&admin, fence).await, Some(keeper), "{deed}, {forget}");
            let schema = "SELECT count(*) FROM pg_namespace WHERE nspname = 'leasehold'";
            let left = i64::from(forget == "no");
            assert_eq!(number(&admin, schema).await, Some(left), "{deed}, {forget}");
            // What is removed once more was removed before.
            let again = noticed(&server, REMOVE).await;
            assert!(!again[0].1.contains("kit is removed"), "{again:?}");
        }
    }
}

#[tokio::test]
async fn removal_without_the_view_still_finds_the_tables_in_trigger_mode() {
    let (_server, admin) = with_invoices().await;
    run(&admin, "SELECT leasehold.protect('invoice'); DROP VIEW leasehold.protected").await;
    let error = admin.batch_execute(REMOVE).await.expect_err("it is refused");
    let error = error.as_db_error().expect("the server says it");
    assert_eq!(error.message(), "these tables are in trigger mode: public.invoice");
    run(&admin, "SET leasehold.unprotect = 'yes'").await;
    run(&admin, REMOVE).await;
    run(&admin, "DELETE FROM invoice").await;
}
