//! A test that is stopped, and stores that die, hang or say nothing.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpListener;
use std::process::{Child, ExitStatus, Stdio};
use std::time::Duration;

use leasehold_harness::process::signal;
use leasehold_harness::redis::Redis;
use leasehold_harness::{Value, within};
use rustix::process::Signal;

use super::{fence, left_over, refused, sql, told, with_kit};

const PATIENCE: Duration = Duration::from_secs(120);

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

/// A session ends a moment after its program, and the next test may be there before.
#[test]
fn a_test_waits_a_moment_for_the_one_before() {
    let server = with_kit();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("a runtime can be made");
    let (client, connection) = runtime
        .block_on(tokio_postgres::connect(&server.url(), tokio_postgres::NoTls))
        .expect("it listens");
    runtime.spawn(connection);
    // The key of the test, "lh fence" in ASCII.
    let lock = "SELECT pg_advisory_lock(x'6c682066656e6365'::bigint)";
    runtime.block_on(client.batch_execute(lock)).expect("nobody has it");
    let args = ["test", "--postgres", &server.url(), "--only", "guard", "--only", "none"];
    let mut next = fence(&args);
    let next = next.args(["--rounds", "20", "--race", "paused-holder"]);
    let mut next = next.stdout(Stdio::null()).spawn().expect("the binary is there");
    within(PATIENCE, "it waits for the lock", || {
        let waits = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
        (!sql(&server, waits).is_empty()).then_some(())
    });
    drop(client);
    assert!(next.wait().expect("it is ours").success(), "its turn comes");
}

/// Either would be waited for without end by whoever bounds only the first step.
#[test]
fn a_port_that_takes_a_connection_and_says_nothing_is_given_up() {
    let mute = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = mute.local_addr().expect("it is bound");
    let (postgres, redis) =
        (format!("postgres://app@{address}/shop"), format!("redis://{address}"));
    let calls = ["status", "install", "test"].into_iter().flat_map(|call| {
        [[call, "--postgres", postgres.as_str()], [call, "--redis", redis.as_str()]]
    });
    // At once, as each takes as long as the limit.
    let calls: Vec<_> = calls
        .map(|args| {
            let mut command = fence(&args);
            let command = command.stdout(Stdio::null()).stderr(Stdio::piped());
            (args, command.spawn().expect("the binary is there"))
        })
        .collect();
    for (args, mut child) in calls {
        within(PATIENCE, "it gives up", || child.try_wait().expect("it is ours"));
        let output = child.wait_with_output().expect("it has ended");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(69), "{args:?}: {said}");
        assert!(said.contains("does not answer"), "{args:?}: {said}");
    }
}
