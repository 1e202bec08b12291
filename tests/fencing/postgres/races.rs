//! Several sessions on one resource: who waits, who passes, and who is refused.

use super::fixture::{
    backend, number, refused_as, run, session, state, until_blocked, with_invoices,
};
use tokio_postgres::Client;

const STALE_WRITE: &str = "BEGIN; SELECT leasehold.guard('invoice/1', 33);
    UPDATE invoice SET total = -1 WHERE id = 1; COMMIT";

/// What the newer holder writes: what it has read, and 10 more.
async fn add_ten(new: &Client, read: i64) {
    let write = format!(
        "BEGIN; SELECT leasehold.guard('invoice/1', 34);
        UPDATE invoice SET total = {} WHERE id = 1; COMMIT",
        read + 10
    );
    run(new, &write).await;
}

async fn total(client: &Client) -> i64 {
    number(client, "SELECT total FROM invoice WHERE id = 1").await.expect("it is there")
}

#[tokio::test]
async fn what_the_newer_holder_reads_after_its_seal_stays_true() {
    let (server, admin) = with_invoices().await;
    let (old, new) = (session(&server).await, session(&server).await);
    run(&old, "SELECT leasehold.seal('invoice/1', 33)").await;
    run(&new, "SELECT leasehold.seal('invoice/1', 34)").await;
    let read = total(&new).await;
    assert_eq!(refused_as(&old, STALE_WRITE).await, "LH001");
    add_ten(&new, read).await;
    assert_eq!(total(&admin).await, 10);
}

#[tokio::test]
async fn without_a_seal_the_same_read_is_overtaken() {
    let (server, admin) = with_invoices().await;
    let (old, new) = (session(&server).await, session(&server).await);
    run(&old, "SELECT leasehold.seal('invoice/1', 33)").await;
    let read = total(&new).await;
    run(&old, STALE_WRITE).await;
    add_ten(&new, read).await;
    // The older holder's -1 was accepted and is lost: what sealing before reading is for.
    assert_eq!(total(&admin).await, 10);
}

#[tokio::test]
async fn a_stale_write_that_waits_on_the_wire_while_the_newer_one_seals_is_refused() {
    let (server, admin) = with_invoices().await;
    let (old, new) = (session(&server).await, session(&server).await);
    run(&new, "BEGIN; SELECT leasehold.seal('invoice/1', 34)").await;
    let old_backend = backend(&old).await;
    let write = tokio::spawn(async move { old.batch_execute(STALE_WRITE).await });
    until_blocked(&admin, old_backend).await;
    run(&new, "COMMIT").await;
    let error = write.await.expect("it does not panic").expect_err("it is stale");
    assert_eq!(state(&error), "LH001");
    assert_eq!(number(&admin, "SELECT total FROM invoice WHERE id = 1").await, Some(0));
}

#[tokio::test]
async fn a_seal_that_is_taken_back_refuses_nobody() {
    let (server, admin) = with_invoices().await;
    let (old, new) = (session(&server).await, session(&server).await);
    run(&new, "BEGIN; SELECT leasehold.seal('invoice/1', 34)").await;
    let old_backend = backend(&old).await;
    let write = tokio::spawn(async move { old.batch_execute(STALE_WRITE).await });
    until_blocked(&admin, old_backend).await;
    run(&new, "ROLLBACK").await;
    write.await.expect("it does not panic").expect("nobody newer was there");
    assert_eq!(number(&admin, "SELECT leasehold.highest_token('invoice/1')").await, Some(33));
}

#[tokio::test]
async fn a_seal_waits_for_the_older_write_under_way_and_then_reads_it() {
    let (server, admin) = with_invoices().await;
    let (old, new) = (session(&server).await, session(&server).await);
    for seen_before in [false, true] {
        let (older, newer) = if seen_before { (43, 44) } else { (33, 34) };
        run(
            &old,
            &format!(
                "BEGIN; SELECT leasehold.guard('invoice/1', {older});
            UPDATE invoice SET total = {older} WHERE id = 1"
            ),
        )
        .await;
        let new_backend = backend(&new).await;
        let seal = format!("SELECT leasehold.seal('invoice/1', {newer})");
        let (before, ()) = tokio::join!(number(&new, &seal), async {
            until_blocked(&admin, new_backend).await;
            run(&old, "COMMIT").await;
        });
        assert_eq!(before, Some(older));
        assert_eq!(number(&new, "SELECT total FROM invoice WHERE id = 1").await, Some(older));
    }
}

#[tokio::test]
async fn of_two_seals_at_once_the_higher_one_stays() {
    let (server, admin) = with_invoices().await;
    for round in 0..20 {
        let resource = format!("both/{}", round / 2);
        let low = 10 * round + 1;
        let (first, second) = (session(&server).await, session(&server).await);
        let (low_seal, high_seal) = (
            format!("SELECT leasehold.seal('{resource}', {low})"),
            format!("SELECT leasehold.seal('{resource}', {})", low + 1),
        );
        let (one, other) =
            tokio::join!(first.batch_execute(&low_seal), second.batch_execute(&high_seal));
        other.expect("nobody is newer");
        if let Err(error) = one {
            assert_eq!(state(&error), "LH001");
        }
        let highest = format!("SELECT leasehold.highest_token('{resource}')");
        assert_eq!(number(&admin, &highest).await, Some(low + 1));
    }
}

#[tokio::test]
async fn two_resources_do_not_wait_for_each_other() {
    let (server, _admin) = with_invoices().await;
    let (one, other) = (session(&server).await, session(&server).await);
    run(&one, "BEGIN; SELECT leasehold.guard('invoice/1', 1)").await;
    // Would be told, instead of waiting for the other session's end.
    run(&other, "SET lock_timeout = '1ms'").await;
    run(&other, "BEGIN; SELECT leasehold.guard('invoice/2', 1); SELECT leasehold.seal('invoice/3', 1); COMMIT").await;
    assert_eq!(refused_as(&other, "SELECT leasehold.guard('invoice/1', 1)").await, "55P03");
    run(&one, "COMMIT").await;
}

#[tokio::test]
async fn updates_of_the_fence_do_not_touch_its_index() {
    let (_server, admin) = with_invoices().await;
    run(&admin, "SELECT leasehold.seal('r/' || n, 1) FROM generate_series(1, 100) AS n").await;
    run(
        &admin,
        "DO $$ BEGIN FOR n IN 0..999 LOOP
        PERFORM leasehold.guard('r/' || (n % 100 + 1), 1 + n / 100); COMMIT; END LOOP; END $$",
    )
    .await;
    let sql = "SELECT count(*) FROM leasehold.fence WHERE previous IS NOT NULL";
    assert_eq!(number(&admin, sql).await, Some(100));
    // Of a thousand updates of a hundred rows, none may have been left without room beside its old version.
    let size = "SELECT pg_relation_size('leasehold.fence') / 8192";
    assert!(number(&admin, size).await.expect("it has a size") <= 8);
}
