//! A server with the kit, sessions to it, and what they have in common.

use std::future::poll_fn;
use std::time::{Duration, Instant};

use leasehold_harness::Value;
use leasehold_harness::postgres::Postgres;
use tokio_postgres::{AsyncMessage, Client, Error, NoTls};

/// The kit as it is shipped.
pub(super) const INSTALL: &str = include_str!("../../../plugins/fences/postgres/install.sql");
/// Its removal.
pub(super) const REMOVE: &str = include_str!("../../../plugins/fences/postgres/remove.sql");

/// What a waiting session may take to show up as waiting, on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server with the kit, and a session of its superuser.
pub(super) async fn installed() -> (Postgres, Client) {
    let server = Postgres::start();
    let admin = session(&server).await;
    admin.batch_execute(INSTALL).await.expect("the kit can be installed");
    (server, admin)
}

/// `installed`, with a table whose writes are guarded by whoever makes them.
pub(super) async fn with_invoices() -> (Postgres, Client) {
    let (server, admin) = installed().await;
    let table = "CREATE TABLE invoice (id int PRIMARY KEY, resource text, total bigint NOT NULL);
        INSERT INTO invoice VALUES (1, 'invoice/1', 0), (2, 'invoice/2', 0)";
    admin.batch_execute(table).await.expect("a table can be made");
    (server, admin)
}

/// A session of the superuser.
pub(crate) async fn session(server: &Postgres) -> Client {
    session_as(server, "postgres").await
}

/// A session of another role.
pub(crate) async fn session_as(server: &Postgres, role: &str) -> Client {
    let url = server.url().replace("postgres@", &format!("{role}@"));
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.expect("it listens");
    // Ends with the client or the server; whoever uses the client hears of both.
    tokio::spawn(connection);
    client
}

/// Runs what must pass.
pub(crate) async fn run(client: &Client, sql: &str) {
    if let Err(error) = client.batch_execute(sql).await {
        panic!("{sql}: {error:?}");
    }
}

/// Runs what must pass, and gives what the server said beside its answer: severity and message.
pub(super) async fn noticed(server: &Postgres, sql: &str) -> Vec<(String, String)> {
    let (client, mut connection) =
        tokio_postgres::connect(&server.url(), NoTls).await.expect("it listens");
    let told = tokio::spawn(async move {
        let mut told = Vec::new();
        while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notice(notice) = message.expect("the server stays") {
                told.push((notice.severity().to_owned(), notice.message().to_owned()));
            }
        }
        told
    });
    run(&client, sql).await;
    drop(client);
    told.await.expect("it does not panic")
}

/// One number, or nothing where the answer is NULL.
pub(crate) async fn number(client: &Client, sql: &str) -> Option<i64> {
    let row = client.query_one(sql, &[]).await.unwrap_or_else(|e| panic!("{sql}: {e:?}"));
    row.get(0)
}

/// Runs what must be refused, and gives its SQLSTATE and detail.
pub(super) async fn refused(client: &Client, sql: &str) -> (String, Value) {
    match client.batch_execute(sql).await {
        Ok(()) => panic!("it was let through: {sql}"),
        Err(error) => (state(&error), detail(&error)),
    }
}

/// The SQLSTATE of what must be refused.
pub(super) async fn refused_as(client: &Client, sql: &str) -> String {
    refused(client, sql).await.0
}

/// The same for a transaction, which it ends.
pub(super) async fn refused_then_over(client: &Client, sql: &str) -> String {
    let state = refused_as(client, sql).await;
    run(client, "ROLLBACK").await;
    state
}

/// The SQLSTATE of an error that the server sent.
pub(super) fn state(error: &Error) -> String {
    let error = error.as_db_error().unwrap_or_else(|| panic!("not of the server: {error:?}"));
    error.code().code().to_owned()
}

fn detail(error: &Error) -> Value {
    let detail = error.as_db_error().and_then(|error| error.detail()).unwrap_or("null");
    detail.parse().unwrap_or(Value::Null)
}

/// The two lines of trigger mode.
pub(super) fn with_token(resource: &str, token: u64, sql: &str) -> String {
    format!(
        "BEGIN; SET LOCAL leasehold.resource = '{resource}'; SET LOCAL leasehold.token = '{token}';
         {sql}; COMMIT"
    )
}

/// The process that serves a session.
pub(super) async fn backend(client: &Client) -> i32 {
    client.query_one("SELECT pg_backend_pid()", &[]).await.expect("it is idle").get(0)
}

/// Waits until a session waits for a lock that somebody holds.
pub(super) async fn until_blocked(admin: &Client, backend: i32) {
    let deadline = Instant::now() + PATIENCE;
    let sql = "SELECT cardinality(pg_blocking_pids($1)) > 0";
    while !admin.query_one(sql, &[&backend]).await.expect("it answers").get::<_, bool>(0) {
        assert!(Instant::now() < deadline, "the session does not wait for anybody");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
