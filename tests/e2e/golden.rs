//! Data directories as releases left them, in `tests/golden`: this binary reads them, and goes on
//! where they stopped.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use leasehold_harness::{
    Builder, Client, Server, Value, Watcher, ask, ask_on, eventually, json, with,
};

use crate::configured;

/// Set, the present format's directory is written anew before it is read.
const REWRITE: &str = "LEASEHOLD_REWRITE_GOLDEN";
/// The directory that this binary writes: the format, and what is in it.
const WRITTEN: &str = "1-single";
/// What it says of itself, beside the data.
const EXPECTED: &str = "expected.json";
/// What a node keeps. Its lock and its reserve of space are nothing that anybody reads.
const FILES: [&str; 4] = ["format", "log.redb", "state.redb", "history.redb"];
/// What passes while one looks.
const FLEETING: [&str; 5] =
    ["earliest_end_in_ms", "expires_in_ms", "latest_end_in_ms", "valid_for_ms", "waiting_ms"];
const LONG: u64 = 3_600_000;

type Files = BTreeMap<String, Vec<u8>>;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// All that are kept of a node alone, those of earlier releases too.
fn kept() -> Vec<PathBuf> {
    let all = fs::read_dir(golden()).expect("the directories are part of the repository");
    let all = all.map(|one| one.expect("readable").path());
    let of_one = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().contains("-single"))
    };
    let kept: Vec<_> = all.filter(of_one).collect();
    assert!(!kept.is_empty(), "nothing is kept in {}", golden().display());
    kept
}

fn read(dir: &Path) -> Files {
    let file = |name: &str| (name.to_owned(), fs::read(dir.join(name)).expect("it is kept"));
    FILES.into_iter().map(file).collect()
}

/// A server that ran on these files before it was killed.
fn stopped_on(files: &Files) -> Server {
    let mut server = node().start();
    server.kill9();
    let dir = server.data_dir().to_owned();
    fs::remove_dir_all(&dir).expect("it is there");
    fs::create_dir(&dir).expect("it can be made");
    for (name, bytes) in files {
        fs::write(dir.join(name), bytes).expect("it can be written");
    }
    server
}

/// A node that forgets nothing, whenever it is looked at again.
fn node() -> Builder {
    const CENTURIES_MS: u64 = 10_000_000_000_000;
    configured()
        .flag("--reserve-bytes", 0)
        .flag("--history-ms", CENTURIES_MS)
        .flag("--remember-ms", CENTURIES_MS)
}

fn get(client: &mut Client, path: &str) -> Value {
    let mut told = client.get(path).ok();
    without_fleeting(&mut told);
    told
}

fn without_fleeting(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !FLEETING.contains(&name.as_str()));
            fields.values_mut().for_each(without_fleeting);
        }
        Value::Array(items) => items.iter_mut().for_each(without_fleeting),
        _ => {}
    }
}

/// All that can be read, by path.
fn readable(server: &Server) -> Value {
    const PATHS: [&str; 10] = [
        "/v1/lock?resource=held",
        "/v1/lock?resource=line",
        "/v1/lock?resource=read",
        "/v1/lock?resource=forced",
        "/v1/locks",
        "/v1/leases",
        "/v1/clients",
        "/v1/grants?limit=100",
        "/v1/audit",
        "/v1/domains?domain=payments",
    ];
    let mut client = server.client();
    let mut read: serde_json::Map<String, Value> =
        PATHS.iter().map(|path| ((*path).to_owned(), get(&mut client, path))).collect();
    read.insert("watch".to_owned(), changes(server));
    Value::Object(read)
}

fn changes(server: &Server) -> Value {
    let newest = server.client().get("/v1/lock?resource=nothing");
    let newest: u64 = newest.header("leasehold-revision").expect("told").parse().expect("a number");
    let mut watcher = Watcher::new(server.addr(), "", Some(0));
    let mut changes = Vec::new();
    while watcher.position().is_some_and(|at| at < newest) {
        let mut change = watcher.wait().event();
        without_fleeting(&mut change);
        changes.push(change);
    }
    Value::Array(changes)
}

/// Something of everything that a node keeps.
fn live(server: &Server) {
    let mut client = server.client();
    for round in 0..20 {
        let resource = format!("past/{}", round % 4);
        let token = client.acquire(&ask(&resource, "a", LONG)).token();
        client.let_go(&resource, token);
    }
    let named = json!({"request_id": "the holder", "metadata": {"host": "n1"}});
    client.acquire(&with(ask("held", "a", LONG), named)).token();
    let lease = client.open_lease("b", LONG);
    client.acquire(&ask_on("line", "b", &lease)).token();
    for reader in ["c", "d"] {
        client.acquire(&with(ask("read", reader, LONG), json!({"mode": "shared"}))).token();
    }
    let forced = client.acquire(&ask("forced", "e", LONG)).token();
    let order = json!({"resource": "forced", "token": forced, "reason": "stuck", "when": "now"});
    client.post("/v1/lock/force-release", &order).ok();
    let headers = [("If-None-Match", "*"), ("Content-Type", "application/json")];
    client.call("PUT", "/v1/domains?domain=payments", &headers, br#"{"queue_max":9}"#).ok();
}

fn waiting() -> Value {
    with(ask("line", "f", LONG), json!({"request_id": "the waiter", "wait_ms": 60_000}))
}

fn rewrite() {
    let mut server = node().start();
    live(&server);
    let mut waiter = server.client();
    waiter.begin_acquire(&waiting());
    let mut client = server.client();
    eventually("it waits", || client.queue_length("line") == 1);
    // Started again, so that what is expected is what a start finds.
    server.kill9();
    server.restart();
    eventually("its connection is known to be gone", || !is_attached(&server));
    let expected = readable(&server);
    server.begin_stop();
    server.finish_stop(std::time::Duration::from_secs(60));
    let dir = golden().join(WRITTEN);
    fs::create_dir_all(&dir).expect("the repository is writable");
    for name in FILES {
        fs::copy(server.data_dir().join(name), dir.join(name)).expect("it is there");
    }
    let text = serde_json::to_string_pretty(&expected).expect("JSON");
    fs::write(dir.join(EXPECTED), format!("{text}\n")).expect("the repository is writable");
}

fn is_attached(server: &Server) -> bool {
    server.client().lock("line")["queue"][0]["attached"] == json!(true)
}

/// Where something expected is missing. What a later release says in addition is no mistake.
fn missing(expected: &Value, found: &Value, place: &str) -> Option<String> {
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => {
            let fields = expected.iter();
            fields.into_iter().find_map(|(name, expected)| match found.get(name) {
                Some(found) => missing(expected, found, &format!("{place}.{name}")),
                None => Some(format!("{place}.{name} is not there")),
            })
        }
        (Value::Array(expected), Value::Array(found)) if expected.len() == found.len() => {
            let both = expected.iter().zip(found).enumerate();
            both.into_iter().find_map(|(at, (expected, found))| {
                missing(expected, found, &format!("{place}[{at}]"))
            })
        }
        _ if expected == found => None,
        _ => Some(format!("{place}: {expected} was expected, and there is {found}")),
    }
}

#[test]
fn golden_directories_are_read_and_gone_on_with() {
    if std::env::var_os(REWRITE).is_some() {
        rewrite();
    }
    for dir in kept() {
        let expected = fs::read_to_string(dir.join(EXPECTED)).expect("it is kept");
        let expected: Value = serde_json::from_str(&expected).expect("JSON");
        let mut server = stopped_on(&read(&dir));
        server.restart();
        eventually("its connection is known to be gone", || !is_attached(&server));
        let found = readable(&server);
        assert_eq!(missing(&expected, &found, ""), None, "{}", dir.display());

        // The holder repeats its request, the waiter comes back to its place, and both go on.
        let mut client = server.client();
        let held = client.lock("held")["holders"][0]["token"].as_u64().expect("a token");
        let again = with(ask("held", "a", LONG), json!({"request_id": "the holder"}));
        let again = with(again, json!({"metadata": {"host": "n1"}}));
        assert_eq!(client.acquire(&again).token(), held);
        client.renew("held", held).ok();
        let mut waiter = server.client();
        waiter.begin_acquire(&waiting());
        eventually("it is back", || is_attached(&server));
        let in_front = client.lock("line")["holders"][0]["token"].as_u64().expect("a token");
        client.let_go("line", in_front);
        let newest = waiter.finish().token();
        assert!(newest > in_front && newest > held, "{newest}");
        assert_eq!(client.acquire(&ask("new", "a", LONG)).token(), newest + 1);
    }
}

#[test]
fn a_golden_directory_of_a_newer_format_is_refused_and_stays_as_it_is() {
    let mut files = read(&golden().join(WRITTEN));
    files.insert("format".to_owned(), b"leasehold data format 2\n".to_vec());
    let mut server = stopped_on(&files);
    let refused = server.try_restart().expect_err("nobody knows that format");
    assert_eq!(refused.status.code(), Some(70), "{}", refused.output);
    let says = "has format 2; this binary reads format 1. Nothing was changed";
    assert!(refused.output.contains(says), "{}", refused.output);
    assert!(read(server.data_dir()) == files, "a refusal changed a file");
}
