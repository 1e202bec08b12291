//! The client commands: what they print, on which stream, and how they exit.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use leasehold_harness::process::client_of;
use leasehold_harness::{Server, Value, ask, eventually, json, with, within};

use crate::server;

const PATIENCE: Duration = Duration::from_secs(30);

/// Every command that talks to the service, as far as its help needs it.
const COMMANDS: [&str; 19] = [
    "exec",
    "acquire",
    "renew",
    "release",
    "lock",
    "locks",
    "why",
    "grants",
    "watch",
    "leases",
    "clients",
    "force-release",
    "domains",
    "cluster",
    "stats",
    "attention",
    "config",
    "audit",
    "backup",
];

fn leasehold(server: &Server, args: &[&str]) -> Output {
    let mut command = client_of(env!("CARGO_BIN_EXE_leasehold"), server);
    command.args(args).output().expect("the binary is there")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What it printed, after it did what it was asked to.
#[track_caller]
fn printed(server: &Server, args: &[&str]) -> String {
    let output = leasehold(server, args);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "", "{args:?}");
    text(&output.stdout)
}

#[track_caller]
fn document(server: &Server, args: &[&str]) -> Value {
    let args: Vec<&str> = args.iter().copied().chain(["--output", "json"]).collect();
    let printed = printed(server, &args);
    assert_eq!(printed.lines().count(), 1, "one document a line: {printed}");
    serde_json::from_str(&printed).expect("it is JSON")
}

/// What it complained of, with nothing on standard output.
#[track_caller]
fn refused(server: &Server, args: &[&str], code: i32) -> String {
    let output = leasehold(server, args);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
    assert_eq!(text(&output.stdout), "", "{args:?}");
    said
}

#[test]
fn a_lock_is_got_kept_shown_and_given_back() {
    let server = server();
    let got = document(&server, &["acquire", "a/b", "--ttl", "30s", "--client-id", "me"]);
    assert_eq!((&got["resource"], &got["client_id"]), (&json!("a/b"), &json!("me")));
    let token = got["token"].to_string();

    let shown = printed(&server, &["lock", "a/b"]);
    assert!(shown.starts_with("a/b is held.") && shown.contains("me"), "{shown}");
    assert!(shown.contains("Nobody waits."), "{shown}");
    let listed = printed(&server, &["locks", "--prefix", "a/"]);
    assert_eq!(listed.lines().count(), 2, "a head and a row: {listed}");
    let again = document(&server, &["lock", "a/b"]);
    assert_eq!(again["holders"][0]["token"], got["token"]);

    let kept = document(&server, &["renew", "a/b", &token]);
    assert!(kept["valid_for_ms"].as_u64().is_some_and(|ms| ms > 0), "{kept}");
    assert_eq!(printed(&server, &["release", "a/b", &token]), "released\n");
    assert_eq!(printed(&server, &["release", "a/b", &token]), "it was released before\n");
    assert!(printed(&server, &["lock", "a/b"]).starts_with("a/b is free."));
    assert_eq!(printed(&server, &["locks"]), "No lock is held or waited for.\n");
    assert_eq!(document(&server, &["locks"])["items"], json!([]));
}

#[test]
fn json_is_that_of_the_service_itself() {
    let server = server();
    let mut client = server.client();
    client.acquire(&ask("a", "x", 60_000));
    client.acquire(&ask("b", "y", 60_000));
    let mut own = client.get("/v1/locks?limit=1").ok();
    let mut told = document(&server, &["locks", "--limit", "1"]);
    for page in [&mut own, &mut told] {
        // Time goes on between the two.
        page["items"][0]["holders"][0]["expires_in_ms"].take();
    }
    assert_eq!(own, told);
    let cursor = told["next_cursor"].as_str().expect("there is more");
    let rest = document(&server, &["locks", "--limit", "1", "--cursor", cursor]);
    assert_eq!(rest["items"][0]["resource"], "b");
    let all = printed(&server, &["locks", "--limit", "1", "--all", "--output", "json"]);
    assert_eq!(all.lines().count(), 2, "one document a page: {all}");
}

#[test]
fn a_refusal_has_its_code_on_standard_error_and_its_exit_code() {
    let server = server();
    let mut client = server.client();
    let token = client.acquire(&ask("r", "other", 60_000)).token();
    let next = (token + 1).to_string();
    for (args, exit, code) in [
        (&["acquire", "r"][..], 75, "held"),
        (&["acquire", "r", "--wait", "50ms"], 75, "wait_timeout"),
        (&["acquire", "s", "--ttl", "1ms"], 64, "invalid_request"),
        (&["release", "r", &next], 76, "not_holder"),
        (&["renew", "r", &next], 76, "not_holder"),
        (&["leases", "show", "00000000000000000000000000000000"], 1, "not_found"),
    ] {
        let said = refused(&server, args, exit);
        assert!(said.starts_with(&format!("leasehold: {code}: ")), "{args:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        let args: Vec<&str> = args.iter().copied().chain(["--output", "json"]).collect();
        let problem: Value =
            serde_json::from_str(&refused(&server, &args, exit)).expect("the problem is JSON");
        assert_eq!(problem["code"], code);
    }
    let said = refused(&server, &["lock", "r", "--server", "http://127.0.0.1:1"], 69);
    assert!(said.starts_with("leasehold: unavailable: "), "{said}");
}

#[test]
fn another_server_is_asked_when_the_first_is_not_there() {
    let server = server();
    let address = format!("http://{}", server.addr());
    let args = ["lock", "r", "--server", "http://127.0.0.1:1", "--server", &address];
    assert!(printed(&server, &args).starts_with("r is free."));
}

#[test]
fn wrong_use_is_64_with_a_hint() {
    let server = server();
    let said = refused(&server, &["acquire", "r", "--ttl", "10"], 64);
    assert!(said.contains("10s") && said.contains("10ms"), "{said}");
    let said = refused(&server, &["lock", "r", "--credential-file", "/no/such/file"], 64);
    assert!(said.contains("/no/such/file"), "{said}");
    for args in [
        &["lock"][..],
        &["release", "r", "not-a-token"],
        &["why", "r"],
        &["watch", "--prefix", "a", "--domain", "b"],
        &["leases"],
        &["domains", "set", "d", "--queue-max", "0"],
        &["lock", "r", "--server", "not a url"],
        &["lock", "r", "--output", "xml"],
        &["locks", "--limit", "0"],
    ] {
        refused(&server, args, 64);
    }
}

#[test]
fn leases_are_opened_kept_shown_and_ended() {
    let server = server();
    assert_eq!(printed(&server, &["leases", "list"]), "No lease is open.\n");
    let opened = document(&server, &["leases", "open", "--ttl", "1m", "--client-id", "me"]);
    let id = opened["lease_id"].as_str().expect("an id");
    let mut client = server.client();
    client.acquire(&with(json!({"resource": "r", "client_id": "me"}), json!({"lease_id": id})));
    let shown = printed(&server, &["leases", "show", id]);
    assert!(shown.contains(id) && shown.contains("LOCK"), "{shown}");
    document(&server, &["leases", "keep-alive", id]);
    assert_eq!(document(&server, &["leases", "list"])["items"][0]["grants_total"], 1);
    refused(&server, &["leases", "end", id, "--client-id", "other"], 1);
    assert_eq!(printed(&server, &["leases", "end", id]), "ended\n");
    assert_eq!(client.lock("r")["state"], "free");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let server = server();
    let mut client = server.client();
    for number in 0..300 {
        client.acquire(&ask(&format!("{number:0100}"), "a", 60_000));
    }
    let mut command = client_of(env!("CARGO_BIN_EXE_leasehold"), &server);
    let mut child = command
        .args(["locks", "--all", "--limit", "10"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary is there");
    let mut stdout = child.stdout.take().expect("a pipe");
    stdout.read_exact(&mut [0; 10]).expect("it begins");
    drop(stdout);
    let output = child.wait_with_output().expect("the process is ours");
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
}

#[test]
fn a_watch_whose_reader_has_gone_ends_although_nothing_happens() {
    let server = server();
    server.client().acquire(&ask("r", "a", 60_000));
    let mut command = client_of(env!("CARGO_BIN_EXE_leasehold"), &server);
    let mut child = command
        .args(["watch", "--from", "0", "--prefix", "r"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary is there");
    let stdout = child.stdout.take().expect("a pipe");
    let first = BufReader::new(stdout).lines().next();
    assert!(first.expect("a line").expect("it is text").contains("granted"));
    let ended = within(PATIENCE, "watch ends", || child.try_wait().expect("it is ours"));
    assert_eq!(ended.code(), Some(0));
}

#[test]
fn a_lock_is_got_on_a_lease_and_with_what_is_held_named() {
    let server = server();
    let mut client = server.client();
    let lease = document(&server, &["leases", "open", "--ttl", "1m", "--client-id", "me"]);
    let id = lease["lease_id"].as_str().expect("an id");
    let on = ["acquire", "a", "--lease", id, "--client-id", "me", "--metadata", "k=v"];
    let token = document(&server, &on)["token"].to_string();
    assert_eq!(document(&server, &["leases", "show", id])["grants_total"], 1);
    refused(&server, &["acquire", "b", "--lease", id, "--ttl", "5s"], 64);
    refused(&server, &["acquire", "b", "--lease", id, "--wait", "61s"], 64);

    let theirs = client.acquire(&ask("b", "other", 60_000)).token();
    let held = format!("b={theirs}");
    let mut waiter = client_of(env!("CARGO_BIN_EXE_leasehold"), &server)
        .args(["acquire", "a", "--wait", "50s", "--client-id", "other", "--holding", &held])
        .spawn()
        .expect("the binary is there");
    eventually("it waits", || client.queue_length("a") == 1);
    let mine = format!("a={token}");
    let ask = ["acquire", "b", "--wait", "50s", "--client-id", "me", "--holding", &mine];
    assert!(refused(&server, &ask, 75).starts_with("leasehold: would_deadlock: "));
    printed(&server, &["leases", "end", id]);
    let ended = within(PATIENCE, "it is granted", || waiter.try_wait().expect("it is ours"));
    assert_eq!(ended.code(), Some(0));
    refused(&server, &["acquire", "b", "--holding", "a"], 64);
    refused(&server, &["acquire", "b", "--holding", "a=b"], 64);
}

#[test]
fn a_place_is_kept_and_an_unclaimed_lock_passes_on() {
    let server = server();
    let mut client = server.client();
    let claimed = document(&server, &["acquire", "r", "--ttl", "10m", "--claim", "100ms"]);
    eventually("nobody claimed it", || client.lock("r")["state"] == "free");
    let token = client.acquire(&ask("r", "other", 60_000)).token();
    assert!(claimed["token"].as_u64() < Some(token));

    refused(&server, &["acquire", "r", "--keep-place"], 64);
    let keep = ["acquire", "r", "--wait", "100ms", "--keep-place", "--request-id", "mine"];
    assert!(refused(&server, &keep, 75).starts_with("leasehold: wait_timeout: "));
    assert_eq!(client.queue_length("r"), 1, "the place is kept");
    client.release("r", token);
    assert!(document(&server, &keep)["token"].as_u64() > Some(token), "a repeat finds it");
}

#[test]
fn every_command_explains_itself_with_an_example() {
    let server = server();
    for command in COMMANDS {
        let help = printed(&server, &[command, "--help"]);
        assert!(help.contains("Example"), "{command}: {help}");
        assert!(help.contains("leasehold") && help.contains("--server"), "{command}: {help}");
        assert!(help.contains("Exit codes"), "{command}: {help}");
    }
    let all = printed(&server, &["--help"]);
    for command in COMMANDS.iter().chain(&["serve", "restore", "recover", "completions"]) {
        assert!(all.lines().any(|line| line.trim_start().starts_with(command)), "{command}: {all}");
    }
    assert!(!all.contains("guardian"), "what is not for people is not shown: {all}");
}

#[test]
fn shells_get_their_completions() {
    let server = server();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = printed(&server, &["completions", shell]);
        assert!(script.contains("leasehold") && script.contains("lease-margin"), "{shell}");
    }
    refused(&server, &["completions", "no-such-shell"], 64);
}

#[test]
fn a_wait_stands_in_line_like_any_other() {
    let server = server();
    let mut client = server.client();
    let token = client.acquire(&ask("r", "other", 60_000)).token();
    let mut command = client_of(env!("CARGO_BIN_EXE_leasehold"), &server);
    let command: &mut Command = command.args(["acquire", "r", "--wait", "50s", "--output", "json"]);
    let child = command.stdout(Stdio::piped()).spawn().expect("the binary is there");
    eventually("it waits", || client.queue_length("r") == 1);
    client.release("r", token);
    let output = child.wait_with_output().expect("the process is ours");
    let got: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert!(got["token"].as_u64() > Some(token), "{got}");
}

#[test]
fn printed_settings_are_a_file_that_says_the_same() {
    let server = server();
    let dir = tempfile::TempDir::new().expect("a directory");
    let file = dir.path().join("leasehold.toml");
    let file = file.to_str().expect("a plain path");
    let odd = "a\"b\\c\u{1b} d";
    let first =
        printed(&server, &["serve", "--print-config", "--queue-max", "7", "--data-dir", odd]);
    std::fs::write(file, &first).expect("a file");
    let second = printed(&server, &["serve", "--print-config", "--config", file]);
    let values = |text: &str| -> Vec<String> {
        text.lines().filter_map(|line| Some(line.rsplit_once("  # ")?.0.to_owned())).collect()
    };
    assert_eq!(values(&first), values(&second));
    assert!(values(&first).iter().any(|line| line == "queue_max = 7"), "{first}");
    assert_eq!(
        printed(&server, &["serve", "--check-config", "--config", file]),
        "the settings are right\n"
    );
}

#[test]
fn history_and_clients_and_reasons_are_told() {
    let server = server();
    let mut client = server.client();
    assert_eq!(printed(&server, &["clients"]), "No client holds, waits or has a lease.\n");
    let first = client.acquire(&ask("r", "one", 60_000)).token();
    client.release("r", first);
    let second = client.acquire(&ask("r", "two", 60_000)).token();

    let grants = document(&server, &["grants", "--resource", "r"]);
    assert_eq!(
        (&grants["items"][0]["token"], &grants["items"][1]["token"]),
        (&json!(second), &json!(first))
    );
    let table = printed(&server, &["grants", "--token", &first.to_string()]);
    assert!(table.contains("released after") && table.lines().count() == 2, "{table}");
    // One that was given back at once may never have been valid, by the millisecond.
    let then = grants["items"][0]["granted_at"].as_str().expect("a time");
    let valid = printed(&server, &["grants", "--token", &second.to_string(), "--at", then]);
    assert!(valid.contains("VALID THEN") && valid.trim_end().ends_with("yes"), "{valid}");
    assert!(!table.contains("VALID THEN"), "nobody asked: {table}");
    refused(&server, &["grants", "--token", "999"], 1);
    assert!(printed(&server, &["grants", "--resource", "s"]).starts_with("No such grant"));
    assert!(printed(&server, &["clients"]).contains("two"));
    let why = printed(&server, &["why", "r", "--client-id", "three"]);
    assert!(why.contains("two"), "it names the holder: {why}");
    assert_eq!(document(&server, &["why", "r", "--client-id", "two"])["state"], "holds");
}

#[test]
fn operators_see_and_change_what_is_theirs() {
    let server = server();
    let mut client = server.client();
    assert_eq!(printed(&server, &["domains", "list"]), "No domain has settings of its own.\n");
    refused(&server, &["domains", "get", "d"], 1);
    refused(&server, &["domains", "reset", "d"], 1);
    assert_eq!(document(&server, &["domains", "set", "d", "--queue-max", "5"])["queue_max"], 5);
    let set = document(&server, &["domains", "set", "d", "--queue-max", "6"]);
    let version = set["version"].as_str().expect("a version");
    document(&server, &["domains", "set", "d", "--queue-max", "7", "--if-version", version]);
    refused(&server, &["domains", "set", "d", "--queue-max", "8", "--if-version", version], 1);
    assert!(printed(&server, &["domains", "get", "d"]).contains("at most 7 waiters"));
    printed(&server, &["domains", "reset", "d"]);
    refused(&server, &["domains", "get", "d"], 1);

    let token = client.acquire(&ask("r", "other", 60_000)).token().to_string();
    refused(&server, &["force-release", "r", &token], 64);
    let drains = printed(&server, &["force-release", "r", &token, "--reason", "test"]);
    assert!(drains.starts_with("draining: "), "{drains}");
    assert!(printed(&server, &["lock", "r"]).contains("draining"));
    let ended = printed(&server, &["force-release", "r", &token, "--reason", "test", "--now"]);
    assert!(ended.starts_with("ended"), "{ended}");
    let audit = printed(&server, &["audit"]);
    assert!(audit.contains("force_release_now") && audit.contains("set_domain"), "{audit}");

    let stats = printed(&server, &["stats"]);
    assert!(stats.starts_with("Node 1 ") && stats.contains("BOUND"), "{stats}");
    assert!(document(&server, &["stats"])["uptime_ms"].is_u64());
    assert_eq!(document(&server, &["attention"])["items"], json!([]));
    assert_eq!(printed(&server, &["attention"]), "Nothing needs attention.\n");
    let config = printed(&server, &["config"]);
    assert!(config.contains("queue_max") && config.contains("default"), "{config}");
}

#[test]
fn what_happens_is_printed_line_by_line_from_where_one_wants() {
    let server = server();
    let mut client = server.client();
    let token = client.acquire(&ask("a/x", "me", 60_000)).token();
    client.release("a/x", token);
    client.acquire(&ask("b/x", "me", 60_000));
    for args in [
        &["watch", "--prefix", "a/", "--from", "0"][..],
        &["watch", "--domain", "a", "--from", "0"],
    ] {
        let mut command = client_of(env!("CARGO_BIN_EXE_leasehold"), &server);
        let command = command.args(args).args(["--output", "json"]).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the binary is there");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let events: Vec<Value> = lines
            .take(2)
            .map(|line| serde_json::from_str(&line.expect("a line")).expect("it is JSON"))
            .collect();
        child.kill().expect("the process is ours");
        child.wait().expect("the process is ours");
        assert_eq!(events[0]["event"], "granted", "{events:?}");
        assert_eq!(events[1]["event"], "released", "{events:?}");
        assert_eq!(events[1]["token"], token);
    }
}
