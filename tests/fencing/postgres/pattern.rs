//! The guide's pattern for a table that keeps the token itself: no kit, one conditional UPDATE.

use super::fixture::{backend, number, run, session, until_blocked};
use leasehold_harness::postgres::Postgres;

const WRITE: &str =
    "UPDATE account SET balance = $2, last_token = $1 WHERE id = 1 AND last_token <= $1";
const SEAL: &str = "UPDATE account SET last_token = $1 WHERE id = 1 AND last_token <= $1";

async fn with_accounts() -> (Postgres, tokio_postgres::Client) {
    let server = Postgres::start();
    let admin = session(&server).await;
    let table = "CREATE TABLE account (id int PRIMARY KEY, balance bigint NOT NULL, last_token bigint NOT NULL DEFAULT 0);
        INSERT INTO account VALUES (1, 100)";
    run(&admin, table).await;
    (server, admin)
}

#[tokio::test]
async fn a_stale_update_changes_no_row_and_an_equal_one_does() {
    let (_server, admin) = with_accounts().await;
    assert_eq!(admin.execute(SEAL, &[&34_i64]).await.expect("it runs"), 1);
    assert_eq!(admin.execute(WRITE, &[&33_i64, &1_i64]).await.expect("it runs"), 0);
    assert_eq!(admin.execute(WRITE, &[&34_i64, &2_i64]).await.expect("it runs"), 1);
    assert_eq!(admin.execute(WRITE, &[&34_i64, &3_i64]).await.expect("it runs"), 1);
    assert_eq!(admin.execute(SEAL, &[&33_i64]).await.expect("it runs"), 0);
    assert_eq!(number(&admin, "SELECT balance FROM account").await, Some(3));
}

#[tokio::test]
async fn a_stale_update_that_waited_for_the_seal_changes_no_row() {
    let (server, admin) = with_accounts().await;
    let (old, new) = (session(&server).await, session(&server).await);
    run(&new, "BEGIN").await;
    new.execute(SEAL, &[&34_i64]).await.expect("it runs");
    let old_backend = backend(&old).await;
    let (changed, ()) = tokio::join!(old.execute(WRITE, &[&33_i64, &1_i64]), async {
        until_blocked(&admin, old_backend).await;
        run(&new, "COMMIT").await;
    });
    assert_eq!(changed.expect("it runs"), 0);
    assert_eq!(number(&admin, "SELECT balance FROM account").await, Some(100));
}
