//! A service that was restored or recovered has forgotten what came after the state that it began
//! with, and a proxy does not go by what it tells of that time.

use super::process::{Builder, Proxy, copy_files};
use super::scripted::Scripted;
use super::succession::{patient, waits};
use super::tokens::{grant, release};
use super::{BINARY, put, service};
use leasehold_harness::nginx::Nginx;
use leasehold_harness::process::client_of;
use leasehold_harness::{Answer, Server, eventually};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A backup of it as it is now.
fn back_up(service: &Server, home: &TempDir) -> PathBuf {
    let file = home.path().join("backup");
    let output = client_of(BINARY, service).arg("backup").arg(&file).output();
    let output = output.expect("the binary is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    file
}

/// The service dies with all that it has, and another one is made of the backup.
fn restore(service: &mut Server, file: &Path) {
    service.kill9();
    std::fs::remove_dir_all(service.data_dir()).expect("the data can be removed");
    let file = file.to_str().expect("a plain path");
    begin_from(service, &["restore", file], "auto");
}

/// The service begins anew on its directory.
fn begin_from(service: &mut Server, how: &[&str], floor: &str) {
    let mut command = Command::new(BINARY);
    command.args(how).arg("--data-dir").arg(service.data_dir());
    let output = command.args(["--token-floor", floor, "--no-wait"]).output();
    let output = output.expect("the binary is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    service.restart();
}

/// It waits for little after an end that was not in order, and does not trust for long.
fn quick(service: &Server, nginx: &Nginx) -> Builder {
    Proxy::builder(service, &nginx.url())
        .flag("--upstream-settle", "1ms")
        .flag("--upstream-timeout", "500ms")
        .flag("--check-timeout", "1s")
        .flag("--lock-ttl", "1s")
}

fn write(proxy: &Proxy, token: u64, body: &str) -> Answer {
    let mut client = proxy.client();
    client.send(&put("/a", "r", token, body)).expect("the proxy reads");
    client.finish()
}

#[test]
fn what_may_be_in_flight_from_before_a_restore_is_waited_for() {
    let (mut service, upstream) = (service(), Scripted::start());
    let home = TempDir::new().expect("a directory");
    let file = back_up(&service, &home);
    // The backup knows nothing of it.
    let mut first = patient(&service, &upstream).start();
    first.kill9();
    restore(&mut service, &file);
    let proxy = patient(&service, &upstream).start();
    assert!(proxy.said().contains("was restored or recovered"), "{}", proxy.said());
    waits(&proxy, &upstream, 34);
}

#[test]
fn what_may_be_in_flight_from_before_a_recovery_is_waited_for() {
    let (mut service, upstream) = (service(), Scripted::start());
    // As on a node that was behind when all others were lost.
    let behind = TempDir::new().expect("a directory");
    service.kill9();
    copy_files(service.data_dir(), behind.path());
    service.restart();
    let mut first = patient(&service, &upstream).start();
    first.kill9();
    service.kill9();
    copy_files(behind.path(), service.data_dir());
    begin_from(&mut service, &["recover", "--unsafe-from-one"], "auto");
    waits(&patient(&service, &upstream).start(), &upstream, 34);
}

#[test]
fn a_directory_from_before_a_restore_takes_nothing_on_record_for_the_whole_story() {
    let (mut service, nginx) = (service(), Nginx::start());
    let quick = |service: &Server| quick(service, &nginx);
    let mut first = quick(&service).start();
    let older = grant(&service, "r");
    assert_eq!(write(&first, older, "older").status, 201);
    assert!(first.stop().success());
    let home = TempDir::new().expect("a directory");
    let file = back_up(&service, &home);
    // Another directory, and a newer token: both after the backup.
    let mut second = quick(&service).start();
    release(&service, "r", older);
    let newer = grant(&service, "r");
    assert_eq!(write(&second, newer, "newer").status, 204);
    assert!(second.stop().success());
    restore(&mut service, &file);
    let restored = Instant::now();
    // Then the history of the lock alone has no doubt: its last grant was left in order.
    eventually("nothing is in flight any more", || restored.elapsed() > Duration::from_secs(3));

    first.turn_to(&service);
    first.start_again();
    let said = first.said();
    assert!(said.contains("this data directory was used with the cluster"), "{said}");
    assert!(said.contains("was not left in order") && !said.contains("lower tokens"), "{said}");
    write(&first, older, "older again").problem(412, "unknown_token");
    assert_eq!(nginx.stored("a"), Some(b"newer".to_vec()));
    let newest = grant(&service, "r");
    assert_eq!(write(&first, newest, "newest").status, 204);
    assert!(first.stop().success());
    // From here on the directory goes by the service that was restored.
    first.start_again();
    let said = first.said();
    assert!(!said.contains("was used with") && !said.contains("not left in order"), "{said}");
    assert_eq!(write(&first, newest, "newest again").status, 204);
    // A new directory knows less, and is told no more.
    assert!(first.stop().success());
    let third = quick(&service).start();
    write(&third, older, "older again").problem(412, "stale_token");
    assert_eq!(nginx.stored("a"), Some(b"newest again".to_vec()));
}

/// Uses up many numbers, so that whoever forgets them gives out lower ones for a long time.
fn go_on(service: &Server) -> u64 {
    let use_up = || {
        let token = grant(service, "x");
        release(service, "x", token);
        token
    };
    (0..50).map(|_| use_up()).max().unwrap_or_default()
}

/// What was overtaken behind the back of a directory stays refused there, although the service
/// gives out numbers below it. `begin` makes another service of the one that died, from a backup,
/// with what it had given out by then.
#[track_caller]
fn stays_refused(begin: impl FnOnce(&mut Server, &Path, u64)) {
    let (mut service, nginx) = (service(), Nginx::start());
    let home = TempDir::new().expect("a directory");
    let counter = grant(&service, "x");
    release(&service, "x", counter);
    let file = back_up(&service, &home);
    go_on(&service);
    let mut first = quick(&service, &nginx).start();
    let older = grant(&service, "r");
    assert_eq!(write(&first, older, "older").status, 201);
    assert!(first.stop().success());
    let mut second = quick(&service, &nginx).start();
    release(&service, "r", older);
    let newer = grant(&service, "r");
    assert_eq!(write(&second, newer, "newer").status, 204);
    assert!(second.stop().success());
    service.kill9();
    begin(&mut service, &file, counter);

    first.turn_to(&service);
    first.start_again();
    let said = first.said();
    assert!(said.contains("this data directory was used with the cluster"), "{said}");
    assert!(said.contains("gives out lower tokens than were seen here"), "{said}");
    assert!(!said.contains("nothing is to be done"), "{said}");
    // After a stop in order, and after another end: neither start knows better.
    for kill in [false, true] {
        if kill {
            first.kill9();
            first.start_again();
        }
        eventually("nothing is held any more", || first.metric("held_seconds") == 0.0);
        assert!(first.stop().success());
        first.start_again();
        assert!(!first.said().contains("not left in order"), "{}", first.said());
        write(&first, older, "older again").problem(412, "unknown_token");
        assert_eq!(nginx.stored("a"), Some(b"newer".to_vec()));
    }
    // Where nobody was before, its numbers are as good as any.
    let token = grant(&service, "s");
    assert!(token < older, "{token}");
    for status in [201, 204] {
        let mut client = first.client();
        client.send(&put("/b", "s", token, "new")).expect("the proxy reads");
        assert_eq!(client.finish().status, status);
    }
}

#[test]
fn a_service_that_lost_its_data_does_not_clear_what_was_overtaken_before() {
    stays_refused(|service, _, _| {
        std::fs::remove_dir_all(service.data_dir()).expect("the data can be removed");
        service.restart();
    });
}

#[test]
fn a_token_floor_that_is_too_low_does_not_clear_what_was_overtaken_before() {
    stays_refused(|service, file, counter| {
        std::fs::remove_dir_all(service.data_dir()).expect("the data can be removed");
        let file = file.to_str().expect("a plain path");
        begin_from(service, &["restore", file], &counter.to_string());
    });
}
