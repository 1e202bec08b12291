//! Whom the kit waits for while it is installed, removed, or put on a table, and for how long.

use std::time::Duration;

use super::fixture::{
    INSTALL, REMOVE, backend, installed, noticed, number, run, session, state, until_blocked,
    with_invoices,
};

/// Far more than the scripts wait on their own.
const PATIENCE: Duration = Duration::from_secs(120);

/// Somebody has a table in trigger mode for themselves, or waits for that behind a reader.
#[tokio::test]
async fn a_locked_table_holds_up_nobody_who_is_about_others() {
    for queued in [false, true] {
        let (server, admin) = installed().await;
        run(
            &admin,
            "CREATE TABLE a (r text); CREATE TABLE b (r text); CREATE TABLE whole (r text) PARTITION BY LIST (r);
            CREATE TABLE part PARTITION OF whole DEFAULT; SELECT leasehold.protect('a', 'r'),
            leasehold.protect('b', 'r'), leasehold.protect('whole', 'r')",
        )
        .await;
        let (reader, writer) = (session(&server).await, session(&server).await);
        run(&reader, "BEGIN; TABLE a; TABLE part").await;
        if !queued {
            run(&reader, "COMMIT").await;
        }
        let process = backend(&writer).await;
        let locked = tokio::spawn(async move {
            run(&writer, "BEGIN; LOCK TABLE a, ONLY part IN ACCESS EXCLUSIVE MODE").await;
            writer
        });
        let locked = if queued {
            until_blocked(&admin, process).await;
            None
        } else {
            Some(locked.await.expect("it does not panic"))
        };
        run(&admin, "SET lock_timeout = '2s'").await;
        let told = noticed(&server, &format!("SET lock_timeout = '2s'; {INSTALL}")).await;
        assert!(told.iter().all(|(_, what)| what.contains("is locked by somebody")), "{told:?}");
        assert!(told[0].1.starts_with("public.a"), "{told:?}");
        run(&admin, "SELECT leasehold.protect('b', 'r', true)").await;
        let known =
            "SELECT count(*) FROM leasehold.protected WHERE target = 'b'::regclass AND enabled";
        assert_eq!(number(&admin, known).await, Some(1));
        let unknown = "SELECT count(*) FROM leasehold.protected
            WHERE target = 'a'::regclass AND enabled IS NULL AND remade IS NULL";
        assert_eq!(number(&admin, unknown).await, Some(1));
        run(&admin, "SELECT leasehold.unprotect('b')").await;
        drop((reader, locked));
    }
}

/// One that is to be made anew and is in use is told, and left.
#[tokio::test]
async fn installing_leaves_a_table_that_is_in_use() {
    let (server, admin) = installed().await;
    run(
        &admin,
        "CREATE TABLE a (n int); CREATE TABLE b (n int); SELECT leasehold.protect('a'), leasehold.protect('b')",
    )
    .await;
    for table in ["a", "b"] {
        run(
            &admin,
            &format!(
                "DROP TRIGGER leasehold_fence ON {table}; CREATE TRIGGER leasehold_fence BEFORE INSERT ON {table}
                FOR EACH STATEMENT EXECUTE FUNCTION leasehold.fenced('false', '')"
            ),
        )
        .await;
    }
    let busy = session(&server).await;
    run(&busy, "BEGIN; LOCK TABLE a IN ROW EXCLUSIVE MODE").await;
    let told = noticed(&server, INSTALL).await;
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].1.starts_with("public.a has triggers"), "{told:?}");
    let remade = "SELECT count(*) FROM leasehold.protected WHERE remade";
    assert_eq!(number(&admin, remade).await, Some(1));
    run(&busy, "COMMIT").await;
    run(&admin, INSTALL).await;
    assert_eq!(number(&admin, remade).await, Some(0));
}

/// However many tables somebody holds, they are waited for together: a second for each of these would be
/// longer than the statement may take.
#[tokio::test]
async fn installing_waits_once_for_all_tables_that_are_in_use() {
    const TABLES: usize = 60;
    let (server, admin) = installed().await;
    for table in 0..TABLES {
        run(
            &admin,
            &format!(
                "CREATE TABLE t{table} (n int); SELECT leasehold.protect('t{table}');
                DROP TRIGGER leasehold_fence ON t{table}; CREATE TRIGGER leasehold_fence BEFORE INSERT ON t{table}
                FOR EACH STATEMENT EXECUTE FUNCTION leasehold.fenced('false', '')"
            ),
        )
        .await;
    }
    let busy = session(&server).await;
    let all = (0..TABLES).map(|table| format!("t{table}")).collect::<Vec<_>>().join(", ");
    run(&busy, &format!("BEGIN; LOCK TABLE {all} IN ROW EXCLUSIVE MODE")).await;
    let told = noticed(&server, &format!("SET statement_timeout = '50s'; {INSTALL}")).await;
    assert_eq!(told.len(), TABLES, "{told:?}");
}

/// With a session that sets no limit of its own: everybody else would queue behind the call.
#[tokio::test]
async fn protecting_a_table_that_is_in_use_is_given_up() {
    let (server, admin) = with_invoices().await;
    let busy = session(&server).await;
    run(&admin, "SELECT leasehold.protect('invoice')").await;
    run(&busy, "BEGIN; LOCK TABLE invoice IN ROW EXCLUSIVE MODE").await;
    let other = session(&server).await;
    let both = async {
        tokio::join!(
            admin.batch_execute("SELECT leasehold.protect('invoice')"),
            other.batch_execute("SELECT leasehold.unprotect('invoice')")
        )
    };
    let (protect, unprotect) = tokio::time::timeout(PATIENCE, both).await.expect("they give up");
    for outcome in [protect, unprotect] {
        assert_eq!(state(&outcome.expect_err("somebody uses it")), "55P03");
    }
    run(&busy, "COMMIT").await;
    for patience in ["0", "3s"] {
        let set = format!("BEGIN; SET LOCAL lock_timeout = '{patience}'");
        run(
            &admin,
            &format!("{set}; SELECT leasehold.protect('invoice'), leasehold.unprotect('invoice')"),
        )
        .await;
        let after = admin.query_one("SHOW lock_timeout", &[]).await.expect("it is one");
        assert_eq!(after.get::<_, String>(0), patience);
        run(&admin, "COMMIT").await;
    }
}

/// With sessions that set no limit of their own: an installer that hangs must not hang the others.
#[tokio::test]
async fn installer_and_remover_give_up_waiting_for_another_one() {
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
