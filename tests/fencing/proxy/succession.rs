//! What a proxy takes for an orderly end of the one before it, and what it waits for otherwise.

use super::lock::held;
use super::process::{Builder, Proxy};
use super::scripted::Scripted;
use super::{begin_put, service, trusting};
use leasehold_harness::{Server, Value, encode, eventually, json, process};
use rustix::process::Signal;

/// It waits for nothing, or for longer than any test.
pub(super) fn patient(service: &Server, upstream: &Scripted) -> Builder {
    trusting(service, &upstream.url())
        .flag("--upstream-settle", "1h")
        .flag("--lock-ttl", "1h")
        .flag("--wait-max", "100ms")
}

fn lock_of(upstream: &Scripted) -> String {
    format!("fence-proxy/{}", upstream.url())
}

/// Anybody who knows the token can do that.
fn release(service: &Server, resource: &str) {
    let token = held(service, resource).expect("it is held");
    let body = json!({ "resource": resource, "token": token });
    assert_eq!(service.client().post("/v1/release-lock", &body).status, 200);
}

/// A newer token passes at once.
#[track_caller]
fn passes(proxy: &Proxy, upstream: &Scripted, token: u64) {
    let mut client = begin_put(proxy, "/a", "r", token);
    let mut link = upstream.accept();
    link.request();
    link.answer("201 Created", "");
    assert_eq!(client.finish().status, 201);
}

/// A newer token waits for what may be in flight.
#[track_caller]
pub(super) fn waits(proxy: &Proxy, upstream: &Scripted, token: u64) {
    let problem = begin_put(proxy, "/a", "r", token).finish().problem(503, "older_in_flight");
    let detail = problem["detail"].as_str().unwrap_or_default();
    assert!(detail.contains("every newer token waits for another"), "{detail}");
    assert!(upstream.try_accept().is_none());
}

#[test]
fn a_standby_that_was_refused_waits_for_nothing_after_an_orderly_stop() {
    let (service, upstream) = (service(), Scripted::start());
    let mut first = patient(&service, &upstream).start();
    let (mut standby, refused) = patient(&service, &upstream).standby();
    assert_eq!(refused.status.code(), Some(75), "{}", refused.output);
    passes(&first, &upstream, 33);
    assert!(first.stop().success());
    standby.start_again();
    assert!(!standby.said().contains("did not give the lock back"), "{}", standby.said());
    passes(&standby, &upstream, 34);
}

#[test]
fn a_start_while_the_service_is_away_leaves_nothing_to_be_waited_for() {
    let (mut service, upstream) = (service(), Scripted::start());
    let mut proxy = patient(&service, &upstream).start();
    passes(&proxy, &upstream, 33);
    assert!(proxy.stop().success());
    service.kill9();
    let refused = proxy.try_start_again().expect_err("nobody serves");
    assert_eq!(refused.status.code(), Some(69), "{}", refused.output);
    service.restart();
    proxy.turn_to(&service);
    proxy.start_again();
    let said = proxy.said();
    assert!(!said.contains("did not give the lock back") && !said.contains("another"), "{said}");
    passes(&proxy, &upstream, 34);
}

#[test]
fn a_lock_that_somebody_released_is_no_orderly_stop() {
    let (service, upstream) = (service(), Scripted::start());
    let mut first = patient(&service, &upstream).start();
    first.kill9();
    release(&service, &lock_of(&upstream));
    waits(&patient(&service, &upstream).start(), &upstream, 34);
}

#[test]
fn a_successor_with_shorter_times_waits_for_as_long_as_the_one_before_it_said() {
    let (service, upstream) = (service(), Scripted::start());
    let mut first = patient(&service, &upstream).start();
    first.kill9();
    release(&service, &lock_of(&upstream));
    // By its own times it would wait for a second and a half.
    let short = trusting(&service, &upstream.url())
        .flag("--upstream-settle", "1ms")
        .flag("--upstream-timeout", "500ms")
        .flag("--lock-ttl", "1s")
        .flag("--wait-max", "4s")
        .start();
    assert!(short.said().contains("wait=7200s"), "{}", short.said());
    waits(&short, &upstream, 34);
}

#[test]
fn a_stop_that_the_service_cannot_be_told_of_ends_and_the_next_start_waits() {
    let (service, upstream) = (service(), Scripted::start());
    let mut first = patient(&service, &upstream).start();
    let witness = format!("fence-proxy-clean/{}", upstream.url());
    let body = json!({
        "resource": witness, "ttl_ms": 600_000, "client_id": "somebody", "request_id": "1"
    });
    let taken = service.client().post("/v1/acquire-lock", &body);
    assert_eq!(taken.status, 200, "{taken}");
    assert!(first.stop().success());
    assert!(first.said().contains("the service could not be told"), "{}", first.said());
    assert_eq!(held(&service, &lock_of(&upstream)), None);
    waits(&patient(&service, &upstream).start(), &upstream, 34);
}

#[test]
fn one_that_waits_in_line_is_not_let_in_by_the_restart_of_one_that_was_killed() {
    let (service, upstream) = (service(), Scripted::start());
    let lock = lock_of(&upstream);
    // It loses its lock, and waits for it. Of what it had in flight itself, nothing is left.
    let waiting = trusting(&service, &upstream.url())
        .flag("--wait-max", "100ms")
        .flag("--upstream-settle", "1ms")
        .flag("--upstream-timeout", "500ms")
        .flag("--lock-ttl", "1s")
        .start();
    process::freeze(waiting.pid());
    eventually("its lock is over", || held(&service, &lock).is_none());
    let mut killed = trusting(&service, &upstream.url())
        .flag("--upstream-settle", "4s")
        .flag("--upstream-timeout", "4s")
        .flag("--lock-ttl", "1h")
        .start();
    process::signal(waiting.pid(), Signal::CONT);
    let query = format!("/v1/lock?resource={}", encode(&lock));
    eventually("it stands in line", || {
        let seen: Value = service.client().get(&query).ok();
        seen["queue_length"].as_u64() == Some(1)
    });
    // It passes once the time for what was before is over, and the upstream is at work on it.
    let _older = begin_put(&killed, "/a", "r", 33);
    let mut link = upstream.accept();
    link.request();
    let before = held(&service, &lock);
    killed.kill9();
    let refused = killed.try_start_again().expect_err("the other one was first");
    assert_eq!(refused.status.code(), Some(75), "{}", refused.output);
    assert!(held(&service, &lock) > before);
    eventually("it is ready", || waiting.ops("/readyz").status == 200);
    waits(&waiting, &upstream, 34);
}
