//! The three isolation levels: none of them lets a newer holder read what an older one was about to
//! change.

use super::fixture::{
    backend, number, refused_as, run, session, state, until_blocked, with_invoices,
};

const SNAPSHOTS: [&str; 2] = ["REPEATABLE READ", "SERIALIZABLE"];

#[tokio::test]
async fn a_stale_token_is_refused_at_every_level() {
    let (server, admin) = with_invoices().await;
    run(&admin, "SELECT leasehold.seal('invoice/1', 34)").await;
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let old = session(&server).await;
        let write = format!(
            "BEGIN ISOLATION LEVEL {level}; SELECT leasehold.guard('invoice/1', 33);
            UPDATE invoice SET total = -1; COMMIT"
        );
        assert_eq!(refused_as(&old, &write).await, "LH001", "{level}");
        let write = write.replace("33", "34").replace("-1", "total + 1");
        run(&admin, &write).await;
    }
    assert_eq!(number(&admin, "SELECT max(total) FROM invoice").await, Some(3));
}

#[tokio::test]
async fn a_snapshot_taken_while_an_older_write_was_under_way_is_refused() {
    let (server, admin) = with_invoices().await;
    let mut token = 100;
    for level in SNAPSHOTS {
        // Seen before with this very token: a check that only reads and locks is not enough here.
        for sealed in [true, false] {
            token += 10;
            let (old, new) = (session(&server).await, session(&server).await);
            if sealed {
                run(&old, &format!("SELECT leasehold.seal('invoice/1', {token})")).await;
            }
            run(
                &old,
                &format!(
                    "BEGIN; SELECT leasehold.guard('invoice/1', {token});
                UPDATE invoice SET total = {token} WHERE id = 1"
                ),
            )
            .await;
            let new_backend = backend(&new).await;
            // The seal is the first query, so it takes the snapshot, and then waits.
            run(&new, &format!("BEGIN ISOLATION LEVEL {level}")).await;
            let seal = format!("SELECT leasehold.seal('invoice/1', {})", token + 1);
            let (sealing, ()) = tokio::join!(new.batch_execute(&seal), async {
                until_blocked(&admin, new_backend).await;
                run(&old, "COMMIT").await;
            });
            assert_eq!(
                state(&sealing.expect_err("its snapshot is too old")),
                "40001",
                "{level} {sealed}"
            );
            run(&new, "ROLLBACK").await;
            run(&new, &format!("BEGIN ISOLATION LEVEL {level}; {seal}")).await;
            assert_eq!(number(&new, "SELECT total FROM invoice WHERE id = 1").await, Some(token));
            run(&new, "COMMIT").await;
        }
    }
}

#[tokio::test]
async fn a_first_sight_at_the_same_moment_is_told_to_run_again() {
    let (server, admin) = with_invoices().await;
    for level in SNAPSHOTS {
        let resource = format!("new/{level}");
        let (old, new) = (session(&server).await, session(&server).await);
        run(&old, &format!("BEGIN; SELECT leasehold.guard('{resource}', 33)")).await;
        let new_backend = backend(&new).await;
        let seal =
            format!("BEGIN ISOLATION LEVEL {level}; SELECT leasehold.seal('{resource}', 34)");
        let (sealing, ()) = tokio::join!(new.batch_execute(&seal), async {
            until_blocked(&admin, new_backend).await;
            run(&old, "COMMIT").await;
        });
        assert_eq!(state(&sealing.expect_err("its snapshot is too old")), "40001", "{level}");
        run(&new, &format!("ROLLBACK; {seal}; COMMIT")).await;
    }
}

#[tokio::test]
async fn an_older_writer_with_an_old_snapshot_cannot_slip_behind_a_seal() {
    let (server, admin) = with_invoices().await;
    for level in SNAPSHOTS {
        let old = session(&server).await;
        run(&old, &format!("BEGIN ISOLATION LEVEL {level}; SELECT * FROM invoice")).await;
        run(&admin, "SELECT leasehold.seal('invoice/1', 34)").await;
        let refusal = refused_as(&old, "SELECT leasehold.guard('invoice/1', 33)").await;
        // What it may know is older than the seal, so it is told to look again, and refused then.
        assert!(["40001", "LH001"].contains(&refusal.as_str()), "{level}: {refusal}");
        run(&old, "ROLLBACK").await;
        assert_eq!(refused_as(&old, "SELECT leasehold.guard('invoice/1', 33)").await, "LH001");
    }
}

#[tokio::test]
async fn serializable_holders_of_different_resources_are_in_no_conflict() {
    let (server, admin) = with_invoices().await;
    run(&admin, "SELECT leasehold.seal('r/' || n, 1) FROM generate_series(1, 4) AS n").await;
    // A planner that knows how few rows there are would scan them all.
    run(&admin, "VACUUM ANALYZE leasehold.fence").await;
    let mut holders = Vec::new();
    for holder in 1..=4 {
        let client = session(&server).await;
        run(&client, "BEGIN ISOLATION LEVEL SERIALIZABLE").await;
        run(&client, &format!("SELECT leasehold.guard('r/{holder}', 2)")).await;
        // First sights as well.
        run(&client, &format!("SELECT leasehold.guard('fresh/{holder}', 2)")).await;
        holders.push(client);
    }
    for holder in &holders {
        run(holder, "COMMIT").await;
    }
}

#[tokio::test]
async fn a_guard_inside_the_writing_statement_protects_nothing() {
    let (server, admin) = with_invoices().await;
    let (old, new) = (session(&server).await, session(&server).await);
    run(
        &old,
        "BEGIN; SELECT leasehold.guard('invoice/1', 33);
        INSERT INTO invoice VALUES (3, 'invoice/1', 7)",
    )
    .await;
    let new_backend = backend(&new).await;
    // The documented wrong use: the statement's snapshot is older than what its guard waited for.
    let wrong = "WITH passed AS (SELECT leasehold.guard('invoice/1', 34))
        SELECT (SELECT sum(total)::bigint FROM invoice) FROM passed";
    let (sum, ()) = tokio::join!(number(&new, wrong), async {
        until_blocked(&admin, new_backend).await;
        run(&old, "COMMIT").await;
    });
    assert_eq!(sum, Some(0), "the guide warns of this");
    assert_eq!(number(&new, "SELECT sum(total)::bigint FROM invoice").await, Some(7));
}
