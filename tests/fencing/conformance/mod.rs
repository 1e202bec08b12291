//! `leasehold fence` against stores that are fenced, and against stores that are not.
//!
//! | file | holds |
//! | --- | --- |
//! | `kit` | what is installed: installing, looking, every part in every race, who may do it |
//! | `statements` | a user's own: sound ones, holes, and what is spared and left |
//! | `widths` | tokens of every width |
//! | `interruptions` | signals, limits, stores that die, hang or say nothing |
//! | `rights` | rights and things of others around the kit |
//! | `triggers` | triggers on the tables of users |
//! | `whole` | parts of the kit that are gone, renamed or locked |
//! | `tls` | whom a store is taken for |

mod interruptions;
mod kit;
mod rights;
mod statements;
mod tls;
mod triggers;
mod whole;
mod widths;

use std::process::Command;

use leasehold_harness::Value;
use leasehold_harness::postgres::Postgres;

const SETUP: &str = "INSERT INTO invoice (name, total) VALUES (:resource, 0)";
const CLEANUP: &str = "DELETE FROM invoice WHERE name = :resource";
const READ: &str = "SELECT total FROM invoice WHERE name = :resource";
const SEAL: &str = "SELECT leasehold.seal(:resource, :token)";

/// `leasehold fence`, without the settings of the person who runs the tests.
fn fence(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("LEASEHOLD_") {
            command.env_remove(name);
        }
    }
    command.arg("fence").args(args);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What it printed as JSON, and how it exited.
#[track_caller]
fn told(args: &[&str]) -> (Value, Option<i32>) {
    let output = fence(args).args(["--output", "json"]).output().expect("the binary is there");
    let printed = text(&output.stdout);
    let document = serde_json::from_str(&printed);
    let document = document
        .unwrap_or_else(|_| panic!("{args:?} printed {printed:?}; {}", text(&output.stderr)));
    (document, output.status.code())
}

/// The code of the error that it ended with, and its exit code.
#[track_caller]
fn refused(args: &[&str]) -> (String, String, Option<i32>) {
    let output = fence(args).args(["--output", "json"]).output().expect("the binary is there");
    let said = text(&output.stderr);
    let last = said.lines().last().unwrap_or_default();
    let problem: Value = serde_json::from_str(last).unwrap_or_else(|_| panic!("{args:?}: {said}"));
    let field = |name: &str| problem[name].as_str().unwrap_or_default().to_owned();
    (field("code"), field("detail"), output.status.code())
}

fn with_kit() -> Postgres {
    let server = Postgres::start();
    let (installed, code) = told(&["install", "--postgres", &server.url()]);
    assert_eq!((code, &installed["before"]), (Some(0), &Value::Null), "{installed}");
    server
}

/// Runs SQL of the test itself; the first column of the rows that come back.
fn sql(server: &Postgres, statements: &str) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime can be made").block_on(async {
        let (client, connection) = tokio_postgres::connect(&server.url(), tokio_postgres::NoTls)
            .await
            .expect("it listens");
        let _connection = tokio::spawn(connection);
        let messages = client.simple_query(statements).await.expect("the statements are right");
        let rows = messages.iter().filter_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        rows.collect()
    })
}

fn left_over(server: &Postgres) -> Vec<String> {
    sql(server, "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'leasehold_fence_test%'")
}

#[track_caller]
fn row<'a>(report: &'a Value, schema: &str, race: &str) -> &'a Value {
    let rows = report["races"].as_array().expect("a list of races");
    let found = rows.iter().find(|row| row["schema"] == schema && row["race"] == race);
    found.unwrap_or_else(|| panic!("no {race} of {schema}: {report}"))
}

fn codes(report: &Value) -> Vec<&str> {
    let findings = report["findings"].as_array().expect("a list of findings");
    findings.iter().filter_map(|finding| finding["code"].as_str()).collect()
}
