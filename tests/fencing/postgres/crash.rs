//! What a crash of the storage leaves: every token that was acknowledged.

use leasehold_harness::postgres::Postgres;

use super::fixture::{INSTALL, number, refused_as, run, session, with_invoices};

#[tokio::test]
async fn a_crash_between_seal_and_write_loses_neither_the_seal_nor_the_order() {
    let (mut server, admin) = with_invoices().await;
    run(&admin, "SELECT leasehold.seal('invoice/1', 34)").await;
    run(&admin, "BEGIN; SELECT leasehold.guard('invoice/1', 35); UPDATE invoice SET total = 35")
        .await;
    server.kill9();
    server.restart();
    let admin = session(&server).await;
    assert_eq!(number(&admin, "SELECT leasehold.highest_token('invoice/1')").await, Some(34));
    assert_eq!(number(&admin, "SELECT max(total) FROM invoice").await, Some(0));
    assert_eq!(refused_as(&admin, "SELECT leasehold.guard('invoice/1', 33)").await, "LH001");
    run(&admin, "SELECT leasehold.guard('invoice/1', 34)").await;
}

#[tokio::test]
async fn an_acknowledged_seal_is_durable_in_a_session_that_does_not_wait_for_the_disk() {
    // Long enough that nothing is written unless a commit asks for it.
    let mut server = Postgres::start_with(&[("fsync", "off"), ("wal_writer_delay", "10000")]);
    let admin = session(&server).await;
    run(&admin, INSTALL).await;
    run(&admin, "CREATE TABLE lost (n int); SELECT leasehold.seal('d', 1)").await;
    let calls = ["seal('a', 34)", "guard('b', 34)", "guard('c', 34, true)", "seal('d', 34)"];
    for (kept_before, call) in calls.into_iter().enumerate() {
        let lax = session(&server).await;
        run(&lax, "SET synchronous_commit = off").await;
        run(&lax, &format!("SELECT leasehold.{call}")).await;
        // Not for the session, only for the transaction with a token.
        let setting = lax.query_one("SHOW synchronous_commit", &[]).await.expect("it is shown");
        assert_eq!(setting.get::<_, &str>(0), "off");
        // By its loss it shows that the crash could have taken the token as well.
        run(&lax, "INSERT INTO lost VALUES (1)").await;
        server.kill9();
        server.restart();
        let admin = session(&server).await;
        assert_eq!(number(&admin, "SELECT count(*) FROM lost").await, Some(0), "{call}");
        let sql = "SELECT count(*) FROM leasehold.fence WHERE token = 34";
        let kept = number(&admin, sql).await.expect("it is a count");
        assert_eq!(kept, kept_before as i64 + 1, "{call}");
    }
}
