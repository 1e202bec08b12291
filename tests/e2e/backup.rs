//! A backup of a service at work, and the service that is made of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use leasehold_harness::postgres::Postgres;
use leasehold_harness::process::client_of;
use leasehold_harness::redis::Redis;
use leasehold_harness::{Server, Told, Value, Watcher, ask, eventually, json};

use crate::server;

const LEASEHOLD: &str = env!("CARGO_BIN_EXE_leasehold");
/// How far tokens and revisions jump at least.
const JUMP: u64 = 1 << 40;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn run(args: &[&str]) -> Output {
    Command::new(LEASEHOLD).args(args).output().expect("the binary is there")
}

/// What it complained of.
#[track_caller]
fn refused(output: &Output, code: i32) -> String {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert_eq!(text(&output.stdout), "");
    said
}

/// What it did, as a document.
#[track_caller]
fn document(output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("it is JSON")
}

#[track_caller]
fn back_up(server: &Server, file: &Path) -> Value {
    let mut command = client_of(LEASEHOLD, server);
    let command = command.arg("backup").arg(file).args(["--output", "json"]);
    document(&command.output().expect("the binary is there"))
}

fn restore(file: &Path, dir: &Path, flags: &[&str]) -> Output {
    let mut command = Command::new(LEASEHOLD);
    command.arg("restore").arg(file).arg("--data-dir").arg(dir).args(flags);
    command.args(["--output", "json"]).output().expect("the binary is there")
}

/// A server whose data is gone, and the place for other data.
fn emptied(mut server: Server) -> (Server, PathBuf) {
    server.kill9();
    let dir = server.data_dir().to_owned();
    fs::remove_dir_all(&dir).expect("the data can be removed");
    (server, dir)
}

/// A backup of a small service, and the service.
fn small(home: &Path) -> (Server, PathBuf) {
    let server = server();
    let mut client = server.client();
    for n in 0..3 {
        client.acquire(&ask(&format!("kept/{n}"), "holder", 60_000)).token();
    }
    let file = home.join("backup");
    back_up(&server, &file);
    (server, file)
}

#[test]
fn a_service_made_of_a_backup_taken_under_load_issues_no_token_twice() {
    let home = tempfile::tempdir().expect("a directory");
    let file = home.path().join("backup");
    let server = server();
    let mut client = server.client();
    // It lives on when the backup is taken, and is the longest.
    let held = client.acquire(&ask("held", "holder", 2_500)).token();
    let (highest, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let taken = std::thread::scope(|scope| {
        for worker in 0..4 {
            let (server, highest, stop) = (&server, &highest, &stop);
            scope.spawn(move || {
                let mut client = server.client();
                for n in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let resource = format!("busy/{worker}/{}", n % 7);
                    let token = client.acquire(&ask(&resource, "worker", 2_000)).token();
                    highest.fetch_max(token, Ordering::Relaxed);
                    client.let_go(&resource, token);
                }
            });
        }
        let before = highest.load(Ordering::Relaxed);
        eventually("there is work", || highest.load(Ordering::Relaxed) > before + 200);
        let acknowledged = highest.load(Ordering::Relaxed);
        let taken = back_up(&server, &file);
        // Everything that was answered before is in it.
        assert!(taken["last_token"].as_u64() >= Some(acknowledged), "{taken}");
        let then = highest.load(Ordering::Relaxed);
        eventually("the work goes on", || highest.load(Ordering::Relaxed) > then + 200);
        stop.store(true, Ordering::Relaxed);
        taken
    });
    let highest = highest.load(Ordering::Relaxed);
    assert!(taken["last_token"].as_u64() < Some(highest), "{taken}");
    let late = client.acquire(&ask("late", "holder", 60_000)).token();
    let seen = client.get("/v1/lock?resource=late");
    let position = seen.header("leasehold-revision").and_then(|text| text.parse().ok());
    let position = position.expect("a revision");

    let (mut server, dir) = emptied(server);
    let made = document(&restore(&file, &dir, &["--token-floor", "auto"]));
    assert!(made["token_floor"].as_u64() >= taken["last_token"].as_u64().map(|t| t + JUMP));
    assert_ne!(made["cluster_id"], taken["cluster_id"]);
    let hold_ms = made["hold_ms"].as_u64().expect("a number");
    assert!((2_500..=60_000).contains(&hold_ms), "{made}");
    server.restart();

    let mut client = server.client();
    // Whoever held a lock may still believe in it.
    let answer = client.acquire(&ask("held", "other", 60_000));
    let problem = answer.problem(503, "not_ready");
    assert!(problem["retry_after_ms"].as_u64() <= Some(hold_ms), "{problem}");
    eventually("the hold is over", || client.acquire(&ask("new", "x", 60_000)).status == 200);
    for resource in ["held", "late", "busy/0/0", "busy/3/6", "never"] {
        let token = client.acquire(&ask(resource, "other", 60_000)).token();
        assert!(token > late.max(highest) && token > JUMP, "{resource}: {token}");
    }
    // How it ended is on record, and that a token of before is none of now.
    let grants = client.get(&format!("/v1/grants?token={held}&resource=held")).ok();
    assert_eq!(grants["items"][0]["how"], "restored", "{grants}");
    client.release("held", held).problem(410, "grant_ended");

    // A watcher from before hears of what it cannot be told, from wherever it was.
    for from in [position, revision_of(&taken)] {
        let told = Watcher::new(server.addr(), "", Some(from)).wait();
        assert!(matches!(told, Told::Gap(at, to) if at == from && to > JUMP), "{from}: {told:?}");
    }
}

fn revision_of(taken: &Value) -> u64 {
    let revision = taken["revision"].as_str().and_then(|text| text.parse().ok());
    revision.unwrap_or_else(|| panic!("no revision in {taken}"))
}

#[test]
fn a_service_that_is_told_not_to_wait_grants_at_once() {
    let home = tempfile::tempdir().expect("a directory");
    let (server, file) = small(home.path());
    let (mut server, dir) = emptied(server);
    let made = document(&restore(&file, &dir, &["--token-floor", "7000", "--no-wait"]));
    assert_eq!(made["hold_ms"], 0);
    assert_eq!((&made["grants_ended"], &made["leases_ended"]), (&json!(3), &json!(3)));
    server.restart();
    assert_eq!(server.client().acquire(&ask("kept/0", "other", 60_000)).token(), 7_001);
    // It is a service like any other.
    let again = home.path().join("again");
    assert_eq!(back_up(&server, &again)["last_token"], 7_001);
    server.kill9();
    server.restart();
    assert_eq!(server.client().holders("kept/0"), [7_001]);
}

#[test]
fn nothing_is_restored_that_could_issue_a_token_twice_or_is_not_whole() {
    let home = tempfile::tempdir().expect("a directory");
    let (server, file) = small(home.path());
    let dir = home.path().join("new");
    let auto = ["--token-floor", "auto"];

    let said = refused(&restore(&file, &dir, &[]), 64);
    assert!(said.contains("--token-floor"), "{said}");
    let said = refused(&restore(&file, &dir, &["--token-floor", "2"]), 1);
    assert!(said.contains("below 3") && said.contains("issued twice"), "{said}");
    let said = refused(&restore(&file, &dir, &["--token-floor", "9007199254740992"]), 1);
    assert!(said.contains("2^53"), "{said}");
    let said = refused(&restore(&file, &dir, &["--token-floor", "-1"]), 64);
    assert!(!said.is_empty());
    let said = refused(&restore(&file, server.data_dir(), &auto), 1);
    assert!(said.contains("not empty"), "{said}");
    assert_eq!(server.client().holders("kept/1"), [2], "the data is as it was");
    let storage = [&auto[..], &["--fence-url", "http://127.0.0.1:1"]].concat();
    let said = refused(&restore(&file, &dir, &storage), 64);
    assert!(said.contains("postgres:// and redis://"), "{said}");

    let bytes = fs::read(&file).expect("readable");
    let other = home.path().join("other");
    let mut damaged = bytes.clone();
    damaged[bytes.len() / 2] ^= 1;
    let mut newer = bytes.clone();
    newer[16] = 9;
    for (content, why) in [
        (&bytes[..bytes.len() - 1], "cut off"),
        (&bytes[..40], "cut off"),
        (&damaged[..], "damaged"),
        (&newer[..], "format 9"),
        (b"no such thing", "not a backup"),
        (b"", "not a backup"),
    ] {
        fs::write(&other, content).expect("writable");
        let said = refused(&restore(&other, &dir, &auto), 1);
        assert!(said.contains(why), "{why}: {said}");
    }
    assert!(!dir.exists(), "nothing is left of all that");

    // A backup does not replace another by accident, and is not made of what nobody answers.
    let backup = |flags: &[&str]| {
        let mut command = client_of(LEASEHOLD, &server);
        command.arg("backup").arg(&file).args(flags).output().expect("the binary is there")
    };
    let said = refused(&backup(&[]), 64);
    assert!(said.contains("--force"), "{said}");
    assert!(backup(&["--force"]).status.success());
    let nobody = home.path().join("nobody");
    let nobody = nobody.to_str().expect("a plain path");
    refused(&run(&["backup", nobody, "--server", "http://127.0.0.1:1"]), 69);
    assert!(!Path::new(nobody).exists());

    let said = refused(&run(&["recover", "--data-dir", nobody, "--token-floor", "auto"]), 64);
    assert!(said.contains("--unsafe-from-one"), "{said}");
    let unsafe_from_one = ["recover", "--unsafe-from-one", "--data-dir"];
    let said =
        refused(&run(&[&unsafe_from_one[..], &[nobody, "--token-floor", "auto"]].concat()), 1);
    assert!(said.contains("nothing to recover"), "{said}");
    let used = server.data_dir().to_str().expect("a plain path");
    let said = refused(&run(&[&unsafe_from_one[..], &[used, "--token-floor", "auto"]].concat()), 1);
    assert!(said.contains("another process uses"), "{said}");
}

#[test]
fn the_floor_is_above_what_storage_has_seen() {
    let home = tempfile::tempdir().expect("a directory");
    let (server, file) = small(home.path());
    let (mut server, dir) = emptied(server);
    let redis = Redis::start();
    let url = redis.url();
    assert!(run(&["fence", "install", "--redis", &url]).status.success());
    let seen = 3 * JUMP;
    let mut connection = redis::Client::open(url.as_str())
        .and_then(|client| client.get_connection())
        .expect("it answers");
    for (resource, token) in [("a", 5), ("kept/0", seen), ("b", 17)] {
        let sealed: Result<redis::Value, _> = redis::cmd("FCALL")
            .arg("leasehold_seal")
            .arg(1)
            .arg(format!("fence:{{{resource}}}"))
            .arg(token)
            .query(&mut connection);
        sealed.expect("it is newer");
    }
    let below = (seen - 1).to_string();
    let fence = ["--fence-url", &url, "--no-wait", "--token-floor"];
    let said = refused(&restore(&file, &dir, &[&fence[..], &[&below]].concat()), 64);
    assert!(said.contains(&format!("below {seen}")), "{said}");
    let other = home.path().join("other");
    let made = document(&restore(&file, &other, &[&fence[..], &["auto"]].concat()));
    assert_eq!(made["token_floor"], seen);

    // Of several the highest counts.
    let postgres = Postgres::start();
    let database = postgres.url();
    assert!(run(&["fence", "install", "--postgres", &database]).status.success());
    sealed(&database, "b", seen + 5);
    let both = [&fence[..], &["auto", "--fence-url", &database]].concat();
    let made = document(&restore(&file, &dir, &both));
    assert_eq!(made["token_floor"], seen + 5);
    server.restart();
    assert!(server.client().acquire(&ask("kept/0", "other", 60_000)).token() > seen + 5);
    // Whoever may not see all of it is told so, and nothing is made.
    let stranger = database.replace("postgres@", "nobody@");
    let third = home.path().join("third");
    let asked = ["--token-floor", "auto", "--fence-url", &stranger];
    let output = restore(&file, &third, &asked);
    assert!(!output.status.success() && !third.exists(), "{}", text(&output.stderr));
    // Nor is anything read of a fence with something on it that is not of the kit's making.
    told(
        &database,
        "CREATE FUNCTION public.bait(text) RETURNS boolean IMMUTABLE LANGUAGE plpgsql
            AS 'BEGIN IF current_setting(''application_name'') = ''leasehold'' THEN RAISE ''trapped''; END IF;
                RETURN true; END';
        CREATE INDEX ON leasehold.fence (token) WHERE public.bait('x')",
    );
    let asked = ["--token-floor", "auto", "--fence-url", &database];
    let output = restore(&file, &third, &asked);
    let said = text(&output.stderr);
    assert!(!output.status.success() && !third.exists(), "{said}");
    assert!(said.contains("fence_token_idx is not of the kit's making"), "{said}");
    // Nor of a kit that has lost a part.
    told(&database, "DROP INDEX leasehold.fence_token_idx; DROP TABLE leasehold.kit");
    let output = restore(&file, &third, &asked);
    let said = text(&output.stderr);
    assert!(!output.status.success() && !third.exists(), "{said}");
    assert!(said.contains("table leasehold.kit is gone"), "{said}");
}

/// Seals in a database with the kit.
fn sealed(database: &str, resource: &str, token: u64) {
    told(database, &format!("SELECT leasehold.seal('{resource}', {token})"));
}

fn told(database: &str, sql: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let connected = tokio_postgres::connect(database, tokio_postgres::NoTls).await;
        let (client, connection) = connected.expect("it listens");
        tokio::spawn(connection);
        client.batch_execute(sql).await.expect("it is right");
    });
}
