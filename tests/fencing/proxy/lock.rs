//! One proxy before one upstream.

use super::scripted::Scripted;
use super::{begin_put, service, trusting};
use leasehold_harness::nginx::Nginx;
use leasehold_harness::{Client, eventually};

#[test]
fn a_second_proxy_is_refused_and_told_who_was_first() {
    let (service, nginx) = (service(), Nginx::start());
    let proxy = trusting(&service, &nginx.url()).start();
    let refused = proxy.second();
    assert_eq!(refused.status.code(), Some(75), "{}", refused.output);
    assert!(
        refused.output.contains("another proxy stands before this upstream"),
        "{}",
        refused.output
    );
    assert!(refused.output.contains("/fence-proxy-"), "{}", refused.output);
    // The first one has not noticed.
    assert_eq!(begin_put(&proxy, "/a", "r", 1).finish().status, 201);
}

#[test]
fn a_second_proxy_on_the_same_directory_is_refused_as_well() {
    let (service, nginx) = (service(), Nginx::start());
    let proxy = trusting(&service, &nginx.url()).start();
    let refused = proxy.twin();
    assert_eq!(refused.status.code(), Some(75), "{}", refused.output);
    assert!(
        refused.output.contains("another proxy runs on this data directory"),
        "{}",
        refused.output
    );
    assert!(refused.output.contains("/fence-proxy-"), "{}", refused.output);
    assert_eq!(begin_put(&proxy, "/a", "r", 1).finish().status, 201);
}

#[test]
fn a_directory_stays_with_its_upstream() {
    let (service, first, other) = (service(), Nginx::start(), Nginx::start());
    let mut proxy = trusting(&service, &first.url()).start();
    assert_eq!(begin_put(&proxy, "/a", "r", 34).finish().status, 201);
    assert!(proxy.stop().success());
    proxy.set("--upstream", &other.url());
    let refused = proxy.try_start_again().expect_err("the tokens of another upstream");
    assert_eq!(refused.status.code(), Some(64), "{}", refused.output);
    let belongs = format!("belongs to the upstream {}", first.url());
    assert!(refused.output.contains(&belongs), "{}", refused.output);
    // The same storage at another address keeps its name, and so its tokens.
    proxy.set("--upstream-name", &first.url());
    proxy.start_again();
    begin_put(&proxy, "/a", "r", 33).finish().problem(412, "stale_token");
    assert_eq!(begin_put(&proxy, "/a", "r", 34).finish().status, 201);
}

#[test]
fn the_ttl_of_the_lock_can_be_changed_at_every_start() {
    let (service, nginx) = (service(), Nginx::start());
    let mut proxy = trusting(&service, &nginx.url()).flag("--lock-ttl", "30m").start();
    let before = holder(&service, &nginx.url());
    proxy.kill9();
    proxy.set("--lock-ttl", "40m");
    proxy.start_again();
    assert_eq!(holder(&service, &nginx.url()), before, "it is found again");
    assert_eq!(proxy.ops("/readyz").status, 200);
    assert!(proxy.stop().success());
    proxy.set("--lock-ttl", "50m");
    proxy.start_again();
    assert!(holder(&service, &nginx.url()) > before);
}

#[test]
fn a_killed_proxy_comes_back_to_its_own_lock_at_once() {
    let (service, nginx) = (service(), Nginx::start());
    let mut proxy = trusting(&service, &nginx.url()).flag("--lock-ttl", "1h").start();
    let before = holder(&service, &nginx.url());
    proxy.kill9();
    // Waiting for the lock to end would take an hour.
    proxy.start_again();
    assert_eq!(holder(&service, &nginx.url()), before);
}

#[test]
fn an_orderly_stop_gives_the_lock_back() {
    let (service, nginx) = (service(), Nginx::start());
    let mut proxy = trusting(&service, &nginx.url()).flag("--lock-ttl", "1h").start();
    assert!(proxy.stop().success());
    assert_eq!(holder(&service, &nginx.url()), None);
}

#[test]
fn without_its_lock_it_begins_no_write_and_cuts_those_under_way_and_reads_go_on() {
    let (mut service, upstream) = (service(), Scripted::start());
    let proxy = trusting(&service, &upstream.url())
        .flag("--lock-ttl", "2s")
        .flag("--upstream-settle", "1ms")
        .start();
    assert_eq!(proxy.ops("/readyz").status, 200);
    let mut writing = begin_put(&proxy, "/a", "r", 33);
    let mut link = upstream.accept();
    link.request();
    service.kill9();
    link.closed();
    let problem = writing.finish().problem(503, "not_ready");
    assert!(problem["detail"].as_str().is_some_and(|text| text.contains("may have happened")));
    assert_eq!(proxy.ops("/readyz").status, 503);
    assert_eq!(proxy.ops("/livez").status, 200);
    begin_put(&proxy, "/b", "r", 33).finish().problem(503, "not_ready");
    assert!(upstream.try_accept().is_none(), "a write was begun without the lock");

    let mut reading = proxy.client();
    reading.send(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
    let mut link = upstream.accept();
    link.request();
    link.answer("200 OK", "read");
    assert_eq!(reading.finish().body, b"read");
    drop(link);
}

#[test]
fn a_lock_that_was_taken_away_is_got_again() {
    let (service, nginx) = (service(), Nginx::start());
    let proxy = trusting(&service, &nginx.url())
        .flag("--lock-ttl", "2s")
        .flag("--upstream-settle", "1ms")
        .start();
    take_away(&service, &nginx.url());
    eventually("it is ready", || proxy.ops("/readyz").status == 200);
    assert_eq!(begin_put(&proxy, "/a", "r", 33).finish().status, 201);
}

/// Another proxy may have stood before the upstream while it waited.
#[test]
fn a_write_that_waited_while_the_lock_was_lost_is_not_begun_under_the_next_one() {
    let (service, upstream) = (service(), Scripted::start());
    let proxy = trusting(&service, &upstream.url())
        .flag("--lock-ttl", "2s")
        .flag("--upstream-settle", "1s")
        .flag("--wait-max", "60s")
        .start();
    let mut older = begin_put(&proxy, "/a", "r", 33);
    let mut link = upstream.accept();
    link.request();
    let mut newer = begin_put(&proxy, "/b", "r", 34);
    eventually("the newer one waits", || proxy.metric("fence{what=\"waiting\"}") == 1.0);
    take_away(&service, &upstream.url());
    link.closed();
    older.finish().problem(503, "not_ready");
    newer.finish().problem(503, "not_ready");
    if let Some(mut link) = upstream.try_accept() {
        // It had connected by then, and sent nothing.
        assert_eq!(link.rest(), b"");
    }
    eventually("it is ready", || proxy.ops("/readyz").status == 200);
    let mut again = begin_put(&proxy, "/b", "r", 34);
    let mut link = upstream.accept();
    link.request();
    link.answer("201 Created", "");
    assert_eq!(again.finish().status, 201);
}

/// Ends the proxy's grant by force, and waits until it has got another one.
fn take_away(service: &leasehold_harness::Server, upstream: &str) {
    let (resource, token) = (lock(upstream), holder(service, upstream).expect("it is held"));
    let body = leasehold_harness::json!({
        "resource": resource, "token": token, "reason": "a test", "when": "now"
    });
    let forced = service.client().post("/v1/lock/force-release", &body);
    assert_eq!(forced.status, 200, "{forced}");
    eventually("it holds another grant", || {
        holder(service, upstream).is_some_and(|now| now > token)
    });
}

fn lock(upstream: &str) -> String {
    format!("fence-proxy/{upstream}")
}

/// The token of the proxy's lock, if it is held.
fn holder(service: &leasehold_harness::Server, upstream: &str) -> Option<u64> {
    let resource = leasehold_harness::encode(&lock(upstream));
    let mut client: Client = service.client();
    client.get(&format!("/v1/lock?resource={resource}")).ok()["holders"][0]["token"].as_u64()
}
