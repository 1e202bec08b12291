//! One proxy before one upstream.

use super::scripted::Scripted;
use super::{begin_put, service, trusting};
use leasehold_harness::nginx::Nginx;
use leasehold_harness::{Client, eventually};
use std::time::{Duration, Instant};

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
fn one_upstream_has_one_lock_however_its_address_is_written() {
    let (service, upstream) = (service(), Scripted::start());
    let port = upstream.url().rsplit_once(':').expect("a port").1.to_owned();
    let url = |host: &str| format!("http://{host}:{port}");
    let proxy = trusting(&service, &url("127.1")).start();
    let held = format!("holds the lock fence-proxy/{}\n", upstream.url());
    assert!(proxy.said().contains(&held), "{}", proxy.said());
    for host in ["127.0.0.1", "0x7f000001", "[::ffff:127.0.0.1]", "127.0.0.1."] {
        let refused = trusting(&service, &url(host)).refused();
        assert_eq!(refused.status.code(), Some(75), "{host}: {}", refused.output);
    }
    // That address is where it connects to.
    let mut client = begin_put(&proxy, "/a", "r", 1);
    let mut link = upstream.accept();
    link.request();
    link.answer("201 Created", "");
    assert_eq!(client.finish().status, 201);
}

#[test]
fn a_program_reads_of_a_refused_start_what_it_reads_of_every_refusal() {
    let (service, nginx) = (service(), Nginx::start());
    let _proxy = trusting(&service, &nginx.url()).start();
    let json = |builder: super::process::Builder| {
        let refused = builder.flag("--output", "json").refused();
        let last = refused.output.lines().last().unwrap_or_default().to_owned();
        let problem: leasehold_harness::Value = last.parse().expect(&refused.output);
        assert!(problem["detail"].as_str().is_some_and(|text| !text.is_empty()), "{problem}");
        (refused.status.code(), problem["code"].as_str().unwrap_or_default().to_owned())
    };
    let of = |upstream: &str| trusting(&service, upstream);
    assert_eq!(json(of(&nginx.url())), (Some(75), "held".to_owned()));
    assert_eq!(json(of("http://a/path")), (Some(64), "usage".to_owned()));
    let variable = of("http://a").variable("LEASEHOLD_FENCE_PROXY_DRAIN", "soon");
    assert_eq!(json(variable), (Some(64), "usage".to_owned()));
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
fn a_copy_of_a_directory_in_use_is_another_proxy() {
    let (service, nginx) = (service(), Nginx::start());
    let mut proxy = trusting(&service, &nginx.url()).flag("--lock-ttl", "30m").start();
    let first = holder(&service, &nginx);
    let copy = proxy.back_up().display().to_string();
    let refused = proxy.second_on(&copy);
    assert_eq!(refused.status.code(), Some(75), "{}", refused.output);
    assert!(refused.output.contains("is a copy"), "{}", refused.output);
    assert_eq!(holder(&service, &nginx), first);
    // Nor does it take the lock of one that was killed.
    proxy.kill9();
    assert_eq!(proxy.second_on(&copy).status.code(), Some(75));
    proxy.start_again();
    assert!(holder(&service, &nginx) > first);
}

#[test]
fn a_copy_to_the_last_bit_takes_the_lock_over_and_does_not_share_it() {
    let (service, nginx) = (service(), Nginx::start());
    let proxy = trusting(&service, &nginx.url())
        .flag("--lock-ttl", "2s")
        .flag("--upstream-settle", "1ms")
        .flag("--upstream-timeout", "1s")
        .start();
    let first = holder(&service, &nginx).expect("it is held");
    assert_eq!(begin_put(&proxy, "/a", "r", 33).finish().status, 201);
    let began = Instant::now();
    let copy = proxy.start_copy();
    assert!(holder(&service, &nginx) > Some(first));
    assert!(copy.said().contains("did not give the lock back"), "{}", copy.said());
    eventually("the first one has lost it", || proxy.ops("/readyz").status == 503);
    begin_put(&proxy, "/a", "r", 33).finish().problem(503, "not_ready");
    // What the first one may have in flight is waited for, and that it learns of its end.
    assert_eq!(begin_put(&copy, "/a", "r", 34).finish().status, 204);
    assert!(began.elapsed() >= Duration::from_secs(3), "it passed after {:?}", began.elapsed());
    begin_put(&copy, "/a", "r", 33).finish().problem(412, "stale_token");
    begin_put(&proxy, "/a", "r", 33).finish().problem(503, "not_ready");
}

#[test]
fn a_write_that_waited_while_the_lock_was_lost_is_not_begun_in_the_next_tenure() {
    let (service, upstream) = (service(), Scripted::start());
    let proxy = trusting(&service, &upstream.url())
        .flag("--lock-ttl", "2s")
        .flag("--upstream-settle", "4s")
        .start();
    let _older = begin_put(&proxy, "/older", "r", 33);
    let mut link = upstream.accept();
    link.request();
    let mut newer = begin_put(&proxy, "/newer", "r", 34);
    eventually("the newer write waits", || proxy.metric("waiting") == 1.0);
    let resource = format!("fence-proxy/{}", upstream.url());
    let token = held(&service, &resource).expect("it is held");
    let body = leasehold_harness::json!({
        "resource": resource, "token": token, "reason": "a test", "when": "now"
    });
    assert_eq!(service.client().post("/v1/lock/force-release", &body).status, 200);
    link.closed();
    eventually("it holds another grant", || {
        held(&service, &resource).is_some_and(|now| now > token)
    });
    // The write was let through in a tenure that is over.
    newer.finish().problem(503, "not_ready");
    assert!(upstream.try_accept().is_none());
    let mut newer = begin_put(&proxy, "/newer", "r", 34);
    let mut link = upstream.accept();
    assert_eq!(link.request().line, "PUT /newer HTTP/1.1");
    link.answer("201 Created", "");
    assert_eq!(newer.finish().status, 201);
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
fn a_name_that_fits_into_no_lock_is_refused_at_once() {
    let service = service();
    let proxy = |bytes| {
        trusting(&service, "http://127.0.0.1:1").flag("--upstream-name", &"x".repeat(bytes))
    };
    let refused = proxy(495).refused();
    assert_eq!(refused.status.code(), Some(64), "{}", refused.output);
    assert!(refused.output.contains("--upstream-name"), "{}", refused.output);
    let mut longest = proxy(494).start();
    assert!(longest.stop().success());
    assert!(!longest.said().contains("could not be told"), "{}", longest.said());
}

#[test]
fn a_start_that_its_settings_forbid_leaves_nothing_behind() {
    let (service, nginx) = (service(), Nginx::start());
    let long = "x".repeat(495);
    for (flag, wrong) in
        [("--upstream-ca", "/nowhere"), ("--credential-file", "/nowhere"), ("--server", "nowhere")]
    {
        let refused = trusting(&service, &nginx.url()).flag(flag, wrong).standby();
        assert_eq!(refused.1.status.code(), Some(64), "{}", refused.1.output);
        assert!(!refused.0.data().exists(), "{flag}");
    }
    let (mut proxy, refused) =
        trusting(&service, &nginx.url()).flag("--upstream-name", &long).standby();
    assert_eq!(refused.status.code(), Some(64), "{}", refused.output);
    proxy.set("--upstream-name", "short");
    proxy.start_again();
    let said = proxy.said();
    assert!(!said.contains("is a copy") && !said.contains("another data directory"), "{said}");
}

#[test]
fn a_first_start_that_was_refused_binds_its_directory_to_no_upstream() {
    let (service, taken, free) = (service(), Nginx::start(), Nginx::start());
    let _first = trusting(&service, &taken.url()).start();
    let (mut proxy, refused) = trusting(&service, &taken.url()).standby();
    assert_eq!(refused.status.code(), Some(75), "{}", refused.output);
    proxy.set("--upstream", &free.url());
    proxy.start_again();
    let said = proxy.said();
    assert!(!said.contains("is a copy") && !said.contains("another data directory"), "{said}");
    assert_eq!(begin_put(&proxy, "/a", "r", 1).finish().status, 201);
}

#[test]
fn the_ttl_of_the_lock_can_be_changed_at_every_start() {
    let (service, nginx) = (service(), Nginx::start());
    let mut proxy = trusting(&service, &nginx.url()).flag("--lock-ttl", "30m").start();
    let before = holder(&service, &nginx);
    assert!(proxy.stop().success());
    proxy.set("--lock-ttl", "40m");
    proxy.start_again();
    let again = holder(&service, &nginx);
    assert!(again > before);
    proxy.kill9();
    proxy.set("--lock-ttl", "50m");
    proxy.start_again();
    assert!(holder(&service, &nginx) > again, "the one before is found, and ended");
    assert_eq!(proxy.ops("/readyz").status, 200);
}

#[test]
fn a_killed_proxy_comes_back_to_its_own_lock_at_once() {
    let (service, nginx) = (service(), Nginx::start());
    let mut proxy = trusting(&service, &nginx.url()).flag("--lock-ttl", "1h").start();
    let before = holder(&service, &nginx);
    proxy.kill9();
    // Waiting for the lock to end would take an hour.
    proxy.start_again();
    assert!(holder(&service, &nginx) > before, "under a grant of its own");
}

#[test]
fn an_orderly_stop_gives_the_lock_back() {
    let (service, nginx) = (service(), Nginx::start());
    let mut proxy = trusting(&service, &nginx.url()).flag("--lock-ttl", "1h").start();
    assert!(proxy.stop().success());
    assert_eq!(holder(&service, &nginx), None);
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
    let (resource, token) = (lock(&nginx), holder(&service, &nginx).expect("it is held"));
    let body = leasehold_harness::json!({
        "resource": resource, "token": token, "reason": "a test", "when": "now"
    });
    let forced = service.client().post("/v1/lock/force-release", &body);
    assert_eq!(forced.status, 200, "{forced}");
    eventually("it holds another grant", || {
        holder(&service, &nginx).is_some_and(|now| now > token)
    });
    eventually("it is ready", || proxy.ops("/readyz").status == 200);
    assert_eq!(begin_put(&proxy, "/a", "r", 33).finish().status, 201);
}

fn lock(nginx: &Nginx) -> String {
    format!("fence-proxy/{}", nginx.url())
}

/// The token of the proxy's lock, if it is held.
fn holder(service: &leasehold_harness::Server, nginx: &Nginx) -> Option<u64> {
    held(service, &lock(nginx))
}

pub(super) fn held(service: &leasehold_harness::Server, resource: &str) -> Option<u64> {
    let resource = leasehold_harness::encode(resource);
    let mut client: Client = service.client();
    client.get(&format!("/v1/lock?resource={resource}")).ok()["holders"][0]["token"].as_u64()
}

/// How many grants of a lock are on record.
pub(super) fn grants(service: &leasehold_harness::Server, resource: &str) -> usize {
    let resource = leasehold_harness::encode(resource);
    let mut client: Client = service.client();
    let page = client.get(&format!("/v1/grants?resource={resource}"));
    page.ok()["items"].as_array().map_or(0, Vec::len)
}
