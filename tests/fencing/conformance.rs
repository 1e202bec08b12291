//! `leasehold fence test` against stores that are fenced, and against stores that are not.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use leasehold_harness::postgres::Postgres;
use leasehold_harness::process::signal;
use leasehold_harness::redis::Redis;
use leasehold_harness::{Value, within};
use rustix::process::Signal;

const PATIENCE: Duration = Duration::from_secs(120);

const SETUP: &str = "INSERT INTO invoice (name, total) VALUES (:resource, 0)";
const CLEANUP: &str = "DELETE FROM invoice WHERE name = :resource";
const READ: &str = "SELECT total FROM invoice WHERE name = :resource";
const SEAL: &str = "SELECT leasehold.seal(:resource, :token)";
const GUARD: &str = "SELECT leasehold.guard(:resource, :token)";
const BLIND: &str = "UPDATE invoice SET total = :value WHERE name = :resource";
const OWN_SEAL: &str =
    "UPDATE invoice SET last_token = :token WHERE name = :resource AND last_token <= :token";
const OWN_WRITE: &str = "UPDATE invoice SET total = :value, last_token = :token \
     WHERE name = :resource AND last_token <= :token";
const OWN_CHECK: &str = "SELECT 1 FROM invoice WHERE name = :resource AND last_token <= :token";

/// Looks into another table: that is not looked at again after the statement has waited for its row.
const SUBQUERY: &str = "UPDATE invoice SET total = :value WHERE name = :resource \
     AND :token >= (SELECT leasehold.highest_token(:resource))";
const SINKING_SEAL: &str = "UPDATE invoice SET last_token = :token WHERE name = :resource";
const TOO_STRICT: &str = "UPDATE invoice SET total = :value, last_token = :token \
     WHERE name = :resource AND last_token < :token";

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

/// Ten thousand rounds of holders that seal, read and write, and the same with the two mistakes.
#[allow(clippy::print_stdout)]
fn ten_thousand_rounds(level: &str) {
    let server = with_kit();
    let url = server.url();
    let mut args = vec!["test", "--postgres", &url, "--rounds", "10000", "--isolation", level];
    args.extend(["--race", "updates", "--race", "read-before-seal"]);
    args.extend(["--only", "guard", "--only", "none"]);
    let (report, code) = told(&args);
    for row in report["races"].as_array().expect("a list of races") {
        println!("{row}");
    }
    let sound = row(&report, "guard", "updates");
    assert_eq!(sound["rounds"], 10_000, "{report}");
    assert_eq!((&sound["got_through"], &sound["denied"]), (&0.into(), &0.into()), "{report}");
    assert!(sound["refused"].as_u64() > Some(0), "nobody was stale: {report}");
    for (schema, race) in [("guard", "read-before-seal"), ("none", "updates")] {
        let lost = row(&report, schema, race)["got_through"].as_u64();
        assert!(lost > Some(0), "{schema}, {race} lost nothing: {report}");
    }
    assert_eq!((&report["verdict"], code), (&"fenced".into(), Some(0)), "{report}");
    assert_eq!(left_over(&server), [""; 0]);
}

#[test]
fn ten_thousand_rounds_read_committed() {
    ten_thousand_rounds("read-committed");
}

#[test]
fn ten_thousand_rounds_repeatable_read() {
    ten_thousand_rounds("repeatable-read");
}

#[test]
fn ten_thousand_rounds_serializable() {
    ten_thousand_rounds("serializable");
}

#[test]
fn every_part_of_the_kit_holds_in_every_race() {
    let server = with_kit();
    let url = server.url();
    let (report, code) =
        told(&["test", "--postgres", &url, "--rounds", "60", "--isolation", "all"]);
    assert_eq!((&report["verdict"], code), (&"fenced".into(), Some(0)), "{report}");
    for part in ["guard", "passes", "trigger", "conditional", "strict"] {
        for race in ["paused-holder", "on-the-wire", "updates", "two-seals"] {
            assert_eq!(row(&report, part, race)["rounds"], 60, "{part}, {race}");
        }
        assert_eq!(row(&report, part, "paused-holder")["refused"], 60, "{part}");
    }
    assert_eq!(row(&report, "strict", "once")["refused"], 120, "one of three writes passes");
    assert_eq!(row(&report, "guard", "equal-token")["refused"], 0);
    // The server of the tests does not sync.
    assert!(codes(&report).contains(&"fsync_off"), "{report}");
    assert_eq!(report["left"], serde_json::json!([]));
    assert_eq!(left_over(&server), [""; 0]);
}

/// Statements of a user: the seal, the write, and whether each commits by itself.
struct Case<'a> {
    seal: &'a [&'a str],
    write: &'a [&'a str],
    autocommit: bool,
}

impl Case<'_> {
    #[track_caller]
    fn run(&self, url: &str, more: &[&str]) -> (Value, Option<i32>) {
        let mut args = vec!["test", "--postgres", url, "--rounds", "80", "--setup", SETUP];
        args.extend(["--cleanup", CLEANUP, "--read", READ]);
        for seal in self.seal {
            args.extend(["--seal", seal]);
        }
        for write in self.write {
            args.extend(["--write", write]);
        }
        if self.autocommit {
            args.push("--autocommit");
        }
        args.extend(more);
        told(&args)
    }
}

fn case<'a>(seal: &'a [&'a str], write: &'a [&'a str]) -> Case<'a> {
    Case { seal, write, autocommit: false }
}

const INVOICE: &str = "CREATE TABLE invoice \
     (name text PRIMARY KEY, total integer NOT NULL, last_token bigint NOT NULL DEFAULT 0)";

#[test]
fn sound_statements_of_a_user_are_found_sound() {
    let server = with_kit();
    sql(&server, INVOICE);
    // As a test that was killed leaves it.
    sql(&server, "INSERT INTO invoice VALUES ('leasehold-fence-test/1', 9, 9)");
    for sound in [case(&[SEAL], &[GUARD, BLIND]), case(&[OWN_SEAL], &[OWN_WRITE])] {
        let (report, code) = sound.run(&server.url(), &["--isolation", "all"]);
        assert_eq!((&report["verdict"], code), (&"fenced".into(), Some(0)), "{report}");
    }
    assert_eq!(sql(&server, "SELECT name FROM invoice"), [""; 0], "it removed its rows");
}

#[test]
fn a_hole_is_found_and_named() {
    let server = with_kit();
    sql(&server, INVOICE);
    let together = format!("WITH g AS ({GUARD}) {BLIND} AND (SELECT true FROM g)");
    let holes = [
        ("no_check", case(&[SEAL], &[BLIND])),
        ("no_seal", case(&[], &[GUARD, BLIND])),
        ("two_steps", Case { seal: &[SEAL], write: &[GUARD, BLIND], autocommit: true }),
        ("two_steps", case(&[OWN_SEAL], &[OWN_CHECK, BLIND])),
        ("two_steps", case(&[SEAL], &[SUBQUERY])),
        ("token_sinks", case(&[SINKING_SEAL], &[OWN_WRITE])),
        ("holder_refused", case(&[], &[TOO_STRICT])),
    ];
    for (wanted, hole) in holes {
        let (report, code) = hole.run(&server.url(), &[]);
        assert_eq!(
            (&report["verdict"], code),
            (&"not_fenced".into(), Some(1)),
            "{wanted} {report}"
        );
        let found = codes(&report);
        assert!(found.contains(&wanted), "{wanted}: {report}");
        let others = ["no_check", "no_seal", "two_steps", "token_sinks"];
        let others = others.iter().filter(|other| **other != wanted && found.contains(other));
        // The one that refuses its holder has no seal on top.
        let allowed: &[&str] = if wanted == "holder_refused" { &["no_seal"] } else { &[] };
        let others: Vec<_> = others.filter(|other| !allowed.contains(other)).collect();
        assert!(others.is_empty(), "{wanted} was told as {others:?} as well: {report}");
        let advice = report["findings"][0]["advice"].as_str().unwrap_or_default();
        assert!(!advice.is_empty(), "{report}");
    }
    // Guard and write in one statement share a snapshot. Whether that loses something depends on
    // what the planner runs first; the test must not end otherwise than with a verdict.
    let (report, _) = case(&[SEAL], &[together.as_str()]).run(&server.url(), &[]);
    assert_eq!(report["stopped"], Value::Null, "{report}");
    assert_eq!(sql(&server, "SELECT name FROM invoice"), [""; 0], "it removed its rows");
}

/// Each looks at a token without holding it until the commit. No statement comes after the look, so
/// only a holder that is paused before its commit shows it.
#[test]
fn a_trigger_that_looks_without_a_lock_is_found() {
    let look = "CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         IF EXISTS (SELECT FROM seen WHERE seen.name = NEW.name AND token > NEW.last_token) THEN \
         RAISE EXCEPTION 'stale' USING ERRCODE = 'LH001'; END IF; RETURN NEW; END $$; \
         CREATE TABLE seen (name text PRIMARY KEY, token bigint)";
    let ask = "CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         IF leasehold.highest_token(NEW.name) > NEW.last_token THEN \
         RAISE EXCEPTION 'stale' USING ERRCODE = 'LH001'; END IF; RETURN NEW; END $$";
    let trigger =
        "CREATE TRIGGER look BEFORE UPDATE ON invoice FOR EACH ROW EXECUTE FUNCTION look()";
    let seal = "INSERT INTO seen VALUES (:resource, :token) ON CONFLICT (name) DO UPDATE \
         SET token = EXCLUDED.token WHERE seen.token <= EXCLUDED.token";
    let write = "UPDATE invoice SET total = :value, last_token = :token WHERE name = :resource";
    for (function, seal) in [(look, seal), (ask, SEAL)] {
        for write in [&[write][..], &["SELECT 1", write]] {
            let server = with_kit();
            for statement in [INVOICE, function, trigger] {
                sql(&server, statement);
            }
            let (report, code) = case(&[seal], write).run(&server.url(), &[]);
            assert_eq!((&report["verdict"], code), (&"not_fenced".into(), Some(1)), "{report}");
            let paused = row(&report, "own", "paused-in-write");
            assert!(paused["got_through"].as_u64() > Some(0), "{report}");
            let held = row(&report, "own", "equal-token");
            assert_eq!(held["denied"], 0, "it lets its holder work: {report}");
        }
    }
}

#[test]
fn statements_that_are_wrong_are_named_and_leave_nothing() {
    let server = with_kit();
    sql(&server, INVOICE);
    let (report, code) =
        case(&[SEAL], &[GUARD, "UPDATE bill SET total = :value"]).run(&server.url(), &[]);
    assert_eq!((&report["verdict"], code), (&"unfinished".into(), Some(1)), "{report}");
    let why = report["stopped"]["detail"].as_str().unwrap_or_default();
    assert!(why.contains("write, statement 2") && why.contains("42P01"), "{report}");
    assert_eq!(report["stopped"]["code"], "store_refused");
    assert_eq!(sql(&server, "SELECT name FROM invoice"), [""; 0], "it removed its rows");
    let half =
        fence(&["test", "--postgres", &server.url(), "--seal", SEAL, "--read", READ]).output();
    let half = half.expect("the binary is there");
    assert_eq!(half.status.code(), Some(64));
    assert!(text(&half.stderr).contains("--write"), "{}", text(&half.stderr));
}

#[test]
fn without_the_kit_there_is_nothing_to_test() {
    let server = Postgres::start();
    let (code, detail, exit) = refused(&["test", "--postgres", &server.url()]);
    assert_eq!((code.as_str(), exit), ("store_refused", Some(1)));
    assert!(detail.contains("leasehold fence install"), "{detail}");
    let (code, _, exit) = refused(&["test", "--postgres", "postgres://a@127.0.0.1:1/x"]);
    assert_eq!((code.as_str(), exit), ("store_unavailable", Some(69)));
    let (code, detail, exit) = refused(&["status"]);
    assert_eq!((code.as_str(), exit), ("usage", Some(64)));
    assert!(detail.contains("LEASEHOLD_POSTGRES"), "{detail}");
}

/// A test that would run for a while, after its first race.
struct Running {
    child: Child,
    said: BufReader<std::process::ChildStderr>,
}

impl Running {
    #[track_caller]
    fn start(url: &str, more: &[&str]) -> Self {
        let redis = url.starts_with("redis");
        let (store, part) = if redis { ("--redis", "set") } else { ("--postgres", "guard") };
        let mut command = fence(&["test", store, url, "--output", "json", "--only", part]);
        // The end of the first race tells that the next one begins.
        command.args(["--rounds", "2000", "--race", "equal-token", "--race", "updates"]).args(more);
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary is there");
        let mut said = BufReader::new(child.stderr.take().expect("it is piped"));
        let mut line = String::new();
        said.read_line(&mut line).expect("it is text");
        assert!(line.contains("equal-token"), "{line}");
        Self { child, said }
    }

    #[track_caller]
    fn end(mut self) -> (Value, ExitStatus) {
        let status =
            within(PATIENCE, "the test ends", || self.child.try_wait().expect("it is ours"));
        let mut printed = String::new();
        self.child.stdout.take().expect("it is piped").read_to_string(&mut printed).expect("text");
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).expect("text");
        let report = serde_json::from_str(&printed);
        (report.unwrap_or_else(|_| panic!("printed {printed:?}, said {rest}")), status)
    }
}

#[test]
fn a_test_that_is_interrupted_tidies_up() {
    let server = with_kit();
    let running = Running::start(&server.url(), &["--isolation", "all"]);
    assert_eq!(left_over(&server).len(), 1);
    signal(running.child.id(), Signal::INT);
    let (report, status) = running.end();
    assert_eq!(report["stopped"]["code"], "interrupted", "{report}");
    assert_eq!((&report["verdict"], status.code()), (&"unfinished".into(), Some(1)), "{report}");
    assert_eq!((left_over(&server), &report["left"]), (vec![], &serde_json::json!([])));
}

#[test]
fn a_test_that_takes_too_long_ends_with_what_it_has() {
    let server = with_kit();
    let (report, code) =
        told(&["test", "--postgres", &server.url(), "--rounds", "10000000", "--time-limit", "1s"]);
    assert_eq!(report["stopped"]["code"], "time_limit", "{report}");
    assert_eq!((&report["verdict"], code), (&"unfinished".into(), Some(1)), "{report}");
    assert!(report["races"][0]["rounds"].as_u64() > Some(0), "{report}");
    assert_eq!(left_over(&server), [""; 0]);
}

#[test]
fn a_server_that_dies_is_reported_and_the_next_test_tidies_up() {
    let mut server = with_kit();
    let running = Running::start(&server.url(), &["--isolation", "all"]);
    server.kill9();
    let (report, status) = running.end();
    assert_eq!((&report["verdict"], status.code()), (&"unfinished".into(), Some(69)), "{report}");
    let left = report["left"][0].as_str().unwrap_or_default();
    server.restart();
    let there = left_over(&server);
    assert_eq!(there.len(), 1);
    assert!(left.contains(&there[0]), "{left} names {there:?}");
    let (report, code) = told(&["test", "--postgres", &server.url(), "--rounds", "20"]);
    assert_eq!(code, Some(0), "{report}");
    assert_eq!(left_over(&server), [""; 0]);
}

#[test]
fn two_tests_in_one_database_do_not_disturb_each_other() {
    let server = with_kit();
    let running = Running::start(&server.url(), &["--isolation", "all"]);
    let (code, detail, exit) = refused(&["test", "--postgres", &server.url()]);
    assert_eq!((code.as_str(), exit), ("store_refused", Some(1)), "{detail}");
    signal(running.child.id(), Signal::TERM);
    let (report, _) = running.end();
    assert_eq!(report["stopped"]["code"], "interrupted", "{report}");
}

#[test]
fn the_kit_is_installed_shown_and_removed() {
    let server = Postgres::start();
    let url = server.url();
    sql(&server, "CREATE ROLE \"the app\"");
    let (installed, _) = told(&["install", "--postgres", &url, "--grant-to", "the app"]);
    let version = installed["version"].as_i64().expect("a version");
    let (again, code) = told(&["install", "--postgres", &url]);
    assert_eq!((&again["before"], code), (&version.into(), Some(0)), "{again}");
    sql(&server, "CREATE TABLE bill (name text)");
    sql(&server, "SELECT leasehold.protect('bill'), leasehold.seal('bill/1', 7)");
    sql(&server, "GRANT UPDATE ON leasehold.fence TO PUBLIC");
    let (status, _) = told(&["status", "--postgres", &url]);
    assert_eq!((&status["version"], &status["shipped"]), (&version.into(), &version.into()));
    assert_eq!(status["granted"], serde_json::json!(["the app"]), "{status}");
    assert_eq!(status["protected"][0]["table"], "bill", "{status}");
    assert!(codes(&status).contains(&"fence_writable"), "{status}");
    let (code, detail, _) = refused(&["remove", "--postgres", &url]);
    assert_eq!(code, "store_refused");
    assert!(detail.contains("bill") && detail.contains("--unprotect"), "{detail}");
    let (removed, code) = told(&["remove", "--postgres", &url, "--unprotect"]);
    assert_eq!((&removed["tokens_forgotten"], code), (&false.into(), Some(0)), "{removed}");
    let (status, code) = told(&["status", "--postgres", &url]);
    assert_eq!((&status["tokens_kept"], code), (&true.into(), Some(1)), "{status}");
    let (installed, _) = told(&["install", "--postgres", &url]);
    assert_eq!(installed["taken_over"], 1, "{installed}");
    assert_eq!(sql(&server, "SELECT leasehold.highest_token('bill/1')"), ["7"]);
    sql(&server, "CREATE VIEW lent AS SELECT leasehold.version()");
    let (_, detail, _) = refused(&["remove", "--postgres", &url]);
    assert!(detail.contains("lent") && !detail.contains("CASCADE"), "{detail}");
    sql(&server, "DROP VIEW lent");
    for (forgotten, tokens) in [(true, 1.into()), (false, Value::Null)] {
        let (removed, _) = told(&["remove", "--postgres", &url, "--forget-tokens"]);
        assert_eq!(removed["tokens_forgotten"], forgotten, "{removed}");
        assert_eq!(removed["tokens"], tokens, "{removed}");
    }
    let (status, code) = told(&["status", "--postgres", &url]);
    assert_eq!((&status["version"], code), (&Value::Null, Some(1)), "{status}");
    assert_eq!(status["tokens_kept"], false, "{status}");
    assert_eq!(sql(&server, "SELECT 1 FROM pg_namespace WHERE nspname = 'leasehold'"), [""; 0]);
}

#[test]
fn a_disabled_trigger_is_a_hole_and_the_advice_takes_nothing_away() {
    let server = with_kit();
    let url = server.url();
    sql(&server, "CREATE TABLE \"Größe\" (\"für\" text, n integer)");
    sql(&server, "SELECT leasehold.protect('\"Größe\"', 'für', true)");
    let (before, code) = told(&["status", "--postgres", &url]);
    assert_eq!(code, Some(0), "{before}");
    assert_eq!(
        (&before["protected"][0]["column"], &before["protected"][0]["strict"]),
        (&"für".into(), &true.into())
    );
    for trigger in ["leasehold_fence", "leasehold_resource_update"] {
        sql(&server, &format!("ALTER TABLE \"Größe\" DISABLE TRIGGER {trigger}"));
        let (status, code) = told(&["status", "--postgres", &url]);
        assert_eq!(code, Some(1), "{status}");
        assert!(codes(&status).contains(&"trigger_disabled"), "{trigger}: {status}");
        let call = status["protected"][0]["call"].as_str().unwrap_or_default();
        let advice = status["findings"].to_string().replace("\\\"", "\"");
        assert!(advice.contains(call), "{call} is not in {advice}");
        sql(&server, call);
        let (after, code) = told(&["status", "--postgres", &url]);
        assert_eq!((&after["protected"], code), (&before["protected"], Some(0)), "{trigger}");
    }
}

#[test]
fn a_resource_that_somebody_uses_is_spared() {
    let server = with_kit();
    let url = server.url();
    sql(&server, INVOICE);
    sql(&server, "INSERT INTO invoice VALUES ('invoice/1', 9, 0)");
    sql(&server, "SELECT leasehold.seal('invoice/2', 34)");
    let statements = ["--read", READ, "--write", OWN_WRITE, "--seal", OWN_SEAL];
    for name in ["invoice/1", "invoice/2"] {
        let mut args = vec!["test", "--postgres", &url, "--resource", name, "--rounds", "20"];
        args.extend(statements);
        let (code, detail, exit) = refused(&args);
        assert_eq!((code.as_str(), exit), ("usage", Some(64)), "{detail}");
        assert!(detail.contains(name) && detail.contains("--overwrite"), "{detail}");
    }
    assert_eq!(sql(&server, "SELECT total, last_token FROM invoice"), ["9"]);
    assert_eq!(sql(&server, "SELECT leasehold.highest_token('invoice/2')"), ["34"]);
    let mut args = vec!["test", "--postgres", &url, "--resource", "invoice/1", "--rounds", "20"];
    args.push("--overwrite");
    args.extend(statements);
    let (report, code) = told(&args);
    assert_eq!(code, Some(0), "{report}");
}

#[test]
fn statements_for_a_table_in_trigger_mode_share_their_transaction() {
    let server = with_kit();
    let url = server.url();
    sql(&server, INVOICE);
    sql(&server, "SELECT leasehold.protect('invoice', 'name')");
    let context =
        ["SET LOCAL leasehold.resource = :resource", "SET LOCAL leasehold.token = :token"];
    let mut args = vec!["test", "--postgres", &url, "--rounds", "40", "--read", READ];
    args.extend(["--seal", SEAL]);
    for (flag, statement) in [("--setup", SETUP), ("--write", BLIND), ("--cleanup", CLEANUP)] {
        for one in context.iter().chain([&statement]) {
            args.extend([flag, one]);
        }
    }
    let (report, code) = told(&args);
    assert_eq!((&report["verdict"], code), (&"fenced".into(), Some(0)), "{report}");
    assert_eq!(report["left"], serde_json::json!([]));
    assert_eq!(sql(&server, "SELECT name FROM invoice"), [""; 0], "it removed its rows");
    // Without them nothing was made, and nothing is said to be left.
    let plain = ["test", "--postgres", &url, "--read", READ, "--write", BLIND, "--setup", SETUP];
    let (report, _) = told(&plain);
    assert!(report["stopped"]["detail"].to_string().contains("LH003"), "{report}");
    assert_eq!(report["left"], serde_json::json!([]), "{report}");
}

#[test]
fn what_a_test_leaves_is_told() {
    let server = with_kit();
    let url = server.url();
    sql(&server, INVOICE);
    let args = ["test", "--postgres", &url, "--rounds", "200", "--setup", SETUP, "--read", READ];
    let own = ["--seal", OWN_SEAL, "--write", OWN_WRITE];
    let (report, _) = told(&[&args[..], &own].concat());
    assert!(report["left"].to_string().contains("leasehold-fence-test/4"), "{report}");
    assert!(!codes(&report).contains(&"fence_rows_stay"), "it never used the kit: {report}");
    let (report, _) = told(&[&args[..], &own].concat());
    let why = report["stopped"]["detail"].as_str().unwrap_or_default();
    assert!(why.contains("23505") && why.contains("--cleanup"), "{report}");
    let (report, code) = told(&[&args[..], &own, &["--cleanup", CLEANUP]].concat());
    assert_eq!((&report["left"], code), (&serde_json::json!([]), Some(0)), "{report}");
    let kit = ["--seal", SEAL, "--write", GUARD, "--write", BLIND, "--cleanup", CLEANUP];
    let (report, _) = told(&[&args[..], &kit].concat());
    assert!(codes(&report).contains(&"fence_rows_stay"), "{report}");
}

#[test]
fn what_is_wrong_with_a_test_is_named() {
    let server = with_kit();
    let url = server.url();
    sql(&server, INVOICE);
    let blind = ["test", "--postgres", &url, "--rounds", "40", "--setup", SETUP];
    let blind = [&blind[..], &["--cleanup", CLEANUP, "--write", BLIND]].concat();
    let (report, _) = told(&[&blind[..], &["--read", READ]].concat());
    assert_eq!(report["findings"][0]["code"], "no_check", "the worse one first: {report}");
    assert!(codes(&report).contains(&"no_seal"), "{report}");
    let misspelt = READ.replace(":resource", ":resourc");
    let (report, code) = told(&[&blind[..], &["--read", &misspelt]].concat());
    let why = report["stopped"]["detail"].as_str().unwrap_or_default();
    assert!(why.contains(":resourc meant as a parameter"), "{report}");
    assert_eq!(code, Some(64), "{report}");
    let (code, detail, _) = refused(&["test", "--postgres", &url, "--only", "hset"]);
    assert_eq!(code, "usage");
    assert!(detail.contains("passes"), "{detail}");
    let (code, detail, _) =
        refused(&["test", "--postgres", &url, "--only", "guard", "--race", "once"]);
    assert_eq!(code, "usage");
    assert!(detail.contains("two-seals"), "{detail}");
}

#[test]
fn a_part_alone_is_shown_by_the_control_that_runs_along() {
    let server = with_kit();
    let url = server.url();
    let test = ["test", "--postgres", &url, "--rounds", "300"];
    let (report, code) = told(&[&test[..], &["--only", "guard", "--race", "two-seals"]].concat());
    assert_eq!((&report["verdict"], code), (&"fenced".into(), Some(0)), "{report}");
    assert!(row(&report, "guard", "read-before-seal")["got_through"].as_u64() > Some(0));
    let (report, code) = told(&[&test[..], &["--only", "none"]].concat());
    assert_eq!((&report["verdict"], code), (&"unproven".into(), Some(1)), "{report}");
}

#[test]
fn what_would_be_run_can_be_printed_and_is_the_script() {
    for (kind, script) in [
        ("postgres", include_str!("../../plugins/fences/postgres/install.sql")),
        ("redis", include_str!("../../plugins/fences/redis/leasehold.lua")),
    ] {
        let output = fence(&["install", "--print", "--kind", kind]).output().expect("it is there");
        assert_eq!(text(&output.stdout), script, "{kind}");
    }
}

#[test]
fn the_library_for_redis_holds_in_every_race() {
    let server = Redis::start();
    let url = server.url();
    let (code, detail, _) = refused(&["test", "--redis", &url]);
    assert_eq!(code, "store_refused", "{detail}");
    let (installed, code) = told(&["install", "--redis", &url]);
    assert_eq!((&installed["before"], code), (&Value::Null, Some(0)), "{installed}");
    let (report, code) = told(&["test", "--redis", &url, "--rounds", "400"]);
    assert_eq!((&report["verdict"], code), (&"fenced".into(), Some(0)), "{report}");
    for part in ["set", "hset", "call", "once"] {
        assert_eq!(row(&report, part, "paused-holder")["refused"], 400, "{part}");
    }
    assert_eq!(row(&report, "once", "once")["refused"], 800);
    assert!(row(&report, "none", "updates")["got_through"].as_u64() > Some(0), "{report}");
    assert_eq!(codes(&report), [""; 0], "a Redis that loses nothing: {report}");
    let (removed, _) = told(&["remove", "--redis", &url]);
    assert_eq!(removed["before"], installed["version"]);
    let (status, _) = told(&["status", "--redis", &url]);
    assert_eq!(status["version"], Value::Null, "{status}");
}

#[test]
fn a_user_of_redis_with_the_rights_of_the_guide_looks_and_tests() {
    let server = Redis::start();
    let url = server.url();
    told(&["install", "--redis", &url]);
    let guide = include_str!("../../plugins/fences/redis/README.md");
    let selectors = [
        "(+fcall ~fence:* ~{invoice/*)",
        "(+hmget +hset +exists +persist ~fence:*)",
        "(+get +set +del ~{invoice/*)",
        "(+fcall +hmget +hset +hget +exists +persist +get +set +setex +del \
         ~fence:{leasehold-fence-test/* ~{leasehold-fence-test/*)",
    ];
    assert!(selectors.iter().all(|selector| guide.contains(selector)), "as the guide has them");
    let mut set = redis::cmd("ACL");
    set.arg("SETUSER").arg("app").arg("on").arg(">secret").arg("resetkeys").arg("-@all");
    let mut connection =
        redis::Client::open(url.as_str()).and_then(|client| client.get_connection()).expect("up");
    let () = set.clone().arg(&selectors[..3]).query(&mut connection).expect("rules");
    let as_app = url.replace("redis://", "redis://app:secret@");
    let (status, code) = told(&["status", "--redis", &as_app]);
    assert_eq!(code, Some(0), "{status}");
    assert!(codes(&status).contains(&"settings_hidden"), "{status}");
    let (report, _) = told(&["test", "--redis", &as_app, "--rounds", "40"]);
    let why = report["stopped"]["detail"].as_str().unwrap_or_default();
    assert!(why.contains(selectors[3]), "{report}");
    let () = set.arg(&selectors[..]).query(&mut connection).expect("rules");
    let (report, code) = told(&["test", "--redis", &as_app, "--rounds", "400"]);
    assert_eq!((&report["verdict"], code), (&"fenced".into(), Some(0)), "{report}");
    assert_eq!(report["left"], serde_json::json!([]));
}

#[test]
fn fences_and_resources_in_redis_are_named_and_spared() {
    let server = Redis::start();
    let url = server.url();
    told(&["install", "--redis", &url]);
    let mut args = vec!["test", "--redis", &url, "--rounds", "200"];
    args.extend(["--read", "GET n:{:resource}"]);
    args.extend(["--seal", "FCALL leasehold_seal 1 fence:{:resource} :token"]);
    args.extend(["--write", "FCALL leasehold_set 2 fence:{:resource} n:{:resource} :token :value"]);
    args.extend(["--setup", "SET n:{:resource} 0"]);
    let (report, _) = told(&[&args[..], &["--cleanup", "DEL n:{:resource}"]].concat());
    assert!(codes(&report).contains(&"fence_keys_stay"), "{report}");
    let huge = ["test", "--redis", &url, "--read", "ECHO 9223372036854775807", "--write", "PING"];
    let (report, code) = told(&huge);
    assert_eq!((&report["stopped"]["code"], code), (&"usage".into(), Some(64)), "{report}");
    let named = [&args[..], &["--resource", "invoice/1"]].concat();
    told(&named);
    let (code, detail, exit) = refused(&named);
    assert_eq!((code.as_str(), exit), ("usage", Some(64)), "{detail}");
    assert!(detail.contains("--overwrite"), "{detail}");
    let (code, detail, _) = refused(&["test", "--redis", &url, "--only", "guard"]);
    assert_eq!(code, "usage");
    assert!(detail.contains("hset"), "{detail}");
}

#[test]
fn a_redis_with_a_hole_is_found_out() {
    let server = Redis::builder()
        .setting("appendfsync", "everysec")
        .setting("maxmemory", "100mb")
        .setting("maxmemory-policy", "allkeys-lru")
        .start();
    let url = server.url();
    told(&["install", "--redis", &url]);
    let check = "EVAL \"if tonumber(ARGV[1]) < tonumber(redis.call('HGET', KEYS[1], 'token')) then \
         return false end return 1\" 1 fence:{:resource} :token";
    for (wanted, write) in [
        ("no_check", &["SET n:{:resource} :value"][..]),
        ("two_steps", &[check, "SET n:{:resource} :value"][..]),
    ] {
        let mut args = vec!["test", "--redis", &url, "--rounds", "100"];
        args.extend(["--setup", "SET n:{:resource} 0", "--read", "GET n:{:resource}"]);
        args.extend(["--cleanup", "DEL n:{:resource} fence:{:resource}"]);
        args.extend(["--seal", "FCALL leasehold_seal 1 fence:{:resource} :token"]);
        args.extend(write.iter().flat_map(|write| ["--write", write]));
        let (report, code) = told(&args);
        assert_eq!((&report["verdict"], code), (&"not_fenced".into(), Some(1)), "{report}");
        for code in [wanted, "eviction", "not_durable"] {
            assert!(codes(&report).contains(&code), "{code}: {report}");
        }
    }
}

#[test]
fn a_store_that_hangs_does_not_hang_the_test() {
    let server = Redis::start();
    told(&["install", "--redis", &server.url()]);
    let running = Running::start(&server.url(), &[]);
    server.freeze();
    signal(running.child.id(), Signal::INT);
    let (report, status) = running.end();
    server.thaw();
    assert_eq!(report["stopped"]["code"], "interrupted", "{report}");
    assert_eq!((&report["verdict"], status.code()), (&"unfinished".into(), Some(1)), "{report}");
    let left = report["left"][0].as_str().unwrap_or_default();
    assert!(left.contains("leasehold-fence-test/"), "{report}");
}

#[test]
fn a_role_without_rights_learns_what_it_lacks() {
    let server = with_kit();
    sql(&server, "CREATE ROLE app LOGIN");
    let url = server.url().replace("postgres@", "app@");
    let (_, detail, _) = refused(&["install", "--postgres", &url]);
    assert!(detail.contains("42501"), "{detail}");
    let (code, detail, exit) = refused(&["test", "--postgres", &url]);
    assert_eq!((code.as_str(), exit), ("store_refused", Some(1)));
    assert!(detail.contains("42501") && detail.contains("leasehold"), "{detail}");
    told(&["install", "--postgres", &server.url(), "--grant-to", "app"]);
    let (report, code) = told(&["test", "--postgres", &url]);
    assert_eq!((&report["verdict"], code), (&"unfinished".into(), Some(1)), "{report}");
    let why = report["stopped"]["detail"].as_str().unwrap_or_default();
    assert!(why.contains("CREATE on the database") && why.contains("42501"), "{report}");
    // Who is not a superuser has no way around the fence.
    let found = codes(&report);
    assert!(!found.contains(&"superuser") && !found.contains(&"fence_writable"), "{report}");
    sql(&server, "GRANT CREATE ON DATABASE postgres TO app");
    let (report, code) = told(&["test", "--postgres", &url, "--rounds", "60"]);
    assert_eq!((&report["verdict"], code), (&"fenced".into(), Some(0)), "{report}");
    assert_eq!(left_over(&server), [""; 0]);
}

#[test]
fn it_explains_itself() {
    for part in [&["--help"][..], &["test", "--help"]] {
        let output = fence(part).output().expect("the binary is there");
        let help = text(&output.stdout);
        assert!(help.contains("Example") && help.contains("Exit codes"), "{help}");
        assert!(!help.contains("--server"), "it needs no server: {help}");
        assert!(help.contains("CREATE on the database") || help.contains("GRANT CREATE"), "{help}");
    }
}
