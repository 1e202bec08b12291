//! Stops of every kind: what the fence knew it still knows, and what was in flight is waited for.

use super::lock::{grants, held};
use super::process::Proxy;
use super::scripted::Scripted;
use super::{BINARY, begin_put, put, service, trusting};
use leasehold_harness::nginx::Nginx;
use leasehold_harness::{Server, eventually, process};
use rustix::process::Signal;
use std::net::TcpStream;
use std::time::{Duration, Instant};

const SETTLE: Duration = Duration::from_millis(1500);

#[test]
fn killed_between_persisting_and_forwarding_it_still_refuses_the_older_token() {
    let (service, upstream) = (service(), Scripted::start());
    let mut proxy = trusting(&service, &upstream.url())
        .flag("--upstream-settle", "1500ms")
        .flag("--upstream-timeout", "5s")
        .start();
    let _older = begin_put(&proxy, "/older", "r", 33);
    let mut link = upstream.accept();
    link.request();
    // 34 is recorded, and not forwarded: the older write is in flight.
    let _newer = begin_put(&proxy, "/newer", "r", 34);
    eventually("34 is recorded", || proxy.metric("raises_total") == 2.0);
    proxy.kill9();
    link.closed();
    let died = Instant::now();

    proxy.start_again();
    let problem = begin_put(&proxy, "/older", "r", 33).finish().problem(412, "stale_token");
    assert_eq!(problem["highest_token"], 34);
    // The upstream may still be at work on 33: 34 waits out the settle time, and so does 35.
    let mut newer = begin_put(&proxy, "/newer", "r", 34);
    let mut link = upstream.accept();
    let received = link.request();
    assert_eq!((&*received.line, &received.body[..]), ("PUT /newer HTTP/1.1", &b"body"[..]));
    assert!(died.elapsed() >= SETTLE, "it passed after {:?}", died.elapsed());
    link.answer("201 Created", "");
    assert_eq!(newer.finish().status, 201);
}

#[test]
fn what_the_upstream_may_take_for_an_answer_is_waited_out_as_well() {
    let (service, upstream) = (service(), Scripted::start());
    let patient_for = |timeout: &str| {
        trusting(&service, &upstream.url())
            .flag("--upstream-settle", "1ms")
            .flag("--upstream-timeout", timeout)
            .flag("--lock-ttl", "1s")
            .flag("--wait-max", "100ms")
    };
    let mut proxy = patient_for("1h").start();
    let _older = begin_put(&proxy, "/a", "r", 33);
    upstream.accept().request();
    proxy.kill9();
    // For longer than it settles, or the lock lasts.
    let waits = |proxy: &Proxy| {
        assert!(proxy.metric("held_seconds") > 3_000.0, "{}", proxy.said());
        begin_put(proxy, "/a", "r", 34).finish().problem(503, "older_in_flight");
        assert!(upstream.try_accept().is_none());
    };
    proxy.start_again();
    waits(&proxy);
    proxy.kill9();
    let lock = format!("fence-proxy/{}", upstream.url());
    eventually("the lock of the dead is over", || held(&service, &lock).is_none());
    // A successor that would not wait for so long itself.
    waits(&patient_for("500ms").start());
}

#[test]
fn every_acknowledged_write_is_remembered_through_many_kills() {
    let (service, nginx) = (service(), Nginx::start());
    let mut proxy = trusting(&service, &nginx.url())
        .flag("--upstream-settle", "10ms")
        .flag("--upstream-timeout", "1s")
        .flag("--lock-ttl", "1s")
        .start();
    for token in (10..60).step_by(10) {
        let mut client = proxy.client();
        client.send(&put("/a", "r", token, &token.to_string())).expect("sent");
        assert!(client.finish().status < 300);
        proxy.kill9();
        proxy.start_again();
        let problem = begin_put(&proxy, "/a", "r", token - 1).finish().problem(412, "stale_token");
        assert_eq!(problem["highest_token"], token);
        assert_eq!(nginx.stored("a"), Some(token.to_string().into_bytes()));
    }
}

#[test]
fn after_an_orderly_stop_nothing_has_to_settle() {
    let (service, nginx) = (service(), Nginx::start());
    let mut proxy = trusting(&service, &nginx.url()).flag("--upstream-settle", "1h").start();
    assert_eq!(begin_put(&proxy, "/a", "r", 33).finish().status, 201);
    assert!(proxy.stop().success());
    proxy.start_again();
    begin_put(&proxy, "/a", "r", 32).finish().problem(412, "stale_token");
    // It would wait for an hour.
    assert_eq!(begin_put(&proxy, "/a", "r", 34).finish().status, 204);
}

#[test]
fn a_stop_lets_what_is_under_way_end() {
    let (service, upstream) = (service(), Scripted::start());
    let mut proxy = trusting(&service, &upstream.url()).start();
    let mut client = begin_put(&proxy, "/a", "r", 33);
    let mut link = upstream.accept();
    link.request();
    proxy.ask_to_stop();
    let addr = proxy.addr();
    eventually("nobody new is let in", || TcpStream::connect(addr).is_err());
    link.answer("201 Created", "");
    assert_eq!(client.finish().status, 201);
    assert!(proxy.ended().success());
}

#[test]
fn a_stop_waits_for_a_write_whose_client_is_gone() {
    let (service, upstream) = (service(), Scripted::start());
    let mut proxy = trusting(&service, &upstream.url()).flag("--upstream-settle", "1h").start();
    let client = begin_put(&proxy, "/a", "r", 33);
    let mut link = upstream.accept();
    link.request();
    drop(client);
    eventually("the client is gone", || proxy.metric("connections") == 0.0);
    let addr = proxy.addr();
    proxy.ask_to_stop();
    eventually("nobody new is let in", || TcpStream::connect(addr).is_err());
    link.answer("201 Created", "");
    assert!(proxy.ended().success());
    assert!(!proxy.said().contains("in flight"), "{}", proxy.said());
}

#[test]
fn a_stop_waits_for_what_settles_within_its_time() {
    let (service, upstream) = (service(), Scripted::start());
    let mut proxy = trusting(&service, &upstream.url()).flag("--upstream-settle", "1500ms").start();
    let mut client = begin_put(&proxy, "/a", "r", 33);
    let mut link = upstream.accept();
    link.request();
    drop(link);
    client.finish().problem(502, "upstream_failed");
    assert!(proxy.stop().success(), "{}", proxy.said());
    assert!(!proxy.said().contains("in flight"), "{}", proxy.said());
    proxy.set("--upstream-settle", "1h");
    proxy.start_again();
    // It would wait for an hour.
    let mut newer = begin_put(&proxy, "/a", "r", 34);
    let mut link = upstream.accept();
    link.request();
    link.answer("201 Created", "");
    assert_eq!(newer.finish().status, 201);
}

#[test]
fn a_start_on_a_file_that_cannot_be_opened_says_why() {
    let (service, nginx) = (service(), Nginx::start());
    let mut proxy = trusting(&service, &nginx.url()).start();
    assert!(proxy.stop().success());
    let fence = proxy.data().join("fence.redb");
    std::fs::remove_file(&fence).expect("it is there");
    std::fs::create_dir(&fence).expect("it is gone");
    let refused = proxy.try_start_again().expect_err("no file");
    assert_eq!(refused.status.code(), Some(70), "{}", refused.output);
    assert!(refused.output.contains("os error"), "{}", refused.output);
}

#[test]
fn a_write_that_never_settles_is_asked_for_with_a_warning() {
    let (service, nginx) = (service(), Nginx::start());
    let proxy = trusting(&service, &nginx.url()).flag("--upstream-settle", "0s").start();
    assert!(proxy.said().contains("--upstream-settle is 0s"), "{}", proxy.said());
    let proxy = trusting(&super::service(), &nginx.url()).start();
    assert!(!proxy.said().contains("--upstream-settle"), "{}", proxy.said());
}

#[test]
fn a_start_that_comes_to_nothing_leaves_the_directory_as_it_was() {
    let (service, nginx) = (service(), Nginx::start());
    let mut proxy = trusting(&service, &nginx.url()).flag("--upstream-settle", "1h").start();
    assert!(proxy.stop().success());
    proxy.set("--upstream-name", "another");
    let refused = proxy.try_start_again().expect_err("it belongs to another upstream");
    assert_eq!(refused.status.code(), Some(64), "{}", refused.output);
    proxy.set("--upstream-name", &nginx.url());
    proxy.start_again();
    // It would wait for an hour.
    assert_eq!(begin_put(&proxy, "/a", "r", 34).finish().status, 201);
}

#[test]
fn a_successor_on_another_directory_trusts_nobody_from_before() {
    let (service, nginx) = (service(), Nginx::start());
    let mut proxy = trusting(&service, &nginx.url())
        .flag("--upstream-settle", "1s")
        .flag("--upstream-timeout", "1s")
        .flag("--lock-ttl", "1s")
        .start();
    assert_eq!(begin_put(&proxy, "/a", "r", 33).finish().status, 201);
    proxy.kill9();
    proxy.forget();
    let mut began = Instant::now();
    leasehold_harness::within(Duration::from_secs(60), "the lock of the dead is over", || {
        began = Instant::now();
        proxy.try_start_again().ok()
    });
    // Nothing is known of what was in flight, so every token is a newer one.
    assert_eq!(begin_put(&proxy, "/a", "r", 34).finish().status, 204);
    assert!(began.elapsed() >= Duration::from_secs(1), "it passed after {:?}", began.elapsed());

    // It is told once, with what is to be done.
    let warning = "had another data directory";
    let said = proxy.said();
    assert!(said.contains(warning) && said.contains("--check-tokens on"), "{said}");
    proxy.kill9();
    proxy.start_again();
    assert!(!proxy.said().contains(warning), "{}", proxy.said());
}

#[test]
fn a_record_that_does_not_reach_back_is_no_proof_of_order() {
    let service = Server::builder(BINARY).flag("--history-max", 20).start();
    let nginx = Nginx::start();
    let mut proxy = trusting(&service, &nginx.url()).flag("--lock-ttl", "1s").start();
    assert_eq!(begin_put(&proxy, "/a", "r", 33).finish().status, 201);
    proxy.kill9();
    proxy.forget();
    let lock = format!("fence-proxy/{}", nginx.url());
    eventually("the lock of the dead is over", || held(&service, &lock).is_none());
    let mut client = service.client();
    eventually("its grant is forgotten", || {
        let asked = serde_json::json!({ "resource": "x", "client_id": "c", "ttl_ms": 60_000 });
        let token = client.acquire(&asked).token();
        client.release("x", token).ok();
        grants(&service, &lock) == 0
    });
    proxy.start_again();
    assert!(proxy.said().contains("was not left in order"), "{}", proxy.said());
    assert!(proxy.metric("held_seconds") > 0.0);
}

#[test]
fn a_service_with_long_leases_hears_of_an_orderly_stop() {
    let service = Server::builder(BINARY).flag("--ttl-min-ms", 5_000).start();
    let nginx = Nginx::start();
    let mut proxy = trusting(&service, &nginx.url()).flag("--upstream-settle", "1h").start();
    assert_eq!(begin_put(&proxy, "/a", "r", 33).finish().status, 201);
    assert!(proxy.stop().success());
    proxy.start_again();
    // It would wait for an hour.
    assert_eq!(begin_put(&proxy, "/a", "r", 34).finish().status, 204);
}

#[test]
fn a_stop_after_the_lock_was_lost_speaks_of_no_writes() {
    let (mut service, nginx) = (service(), Nginx::start());
    let mut proxy = trusting(&service, &nginx.url()).flag("--lock-ttl", "1s").start();
    service.kill9();
    eventually("the lock is lost", || proxy.ops("/readyz").status == 503);
    eventually("and known to be", || proxy.said().contains("is lost: no more writes"));
    assert!(proxy.stop().success(), "{}", proxy.said());
    assert!(proxy.said().contains("could not be told"), "{}", proxy.said());
}

#[test]
fn a_start_after_a_kill_says_what_it_found_and_raises_no_alarm() {
    let (service, nginx) = (service(), Nginx::start());
    let mut proxy = trusting(&service, &nginx.url()).flag("--lock-ttl", "1h").start();
    // In its first tenure, and in the one after a kill.
    for _ in 0..2 {
        proxy.kill9();
        proxy.start_again();
        let said = proxy.said();
        assert!(said.contains("did not give the lock back"), "{said}");
        assert!(!said.contains("another data directory") && !said.contains("is a copy"), "{said}");
    }
}

#[test]
fn a_frozen_proxy_passes_nothing_on_when_it_wakes_up_without_its_lock() {
    let (service, upstream) = (service(), Scripted::start());
    let proxy = trusting(&service, &upstream.url())
        .flag("--lock-ttl", "1s")
        .flag("--upstream-settle", "1ms")
        .start();
    let mut client = proxy.client();
    let whole = put("/a", "r", 33, "0123456789");
    client.send(&whole[..whole.len() - 5]).expect("sent");
    let mut link = upstream.accept();
    link.head();
    assert_eq!(link.take(5), b"01234");
    process::freeze(proxy.pid());
    client.send(&whole[whole.len() - 5..]).expect("the kernel takes it");
    let lock = format!("fence-proxy/{}", upstream.url());
    eventually("its lock is over", || held(&service, &lock).is_none());
    process::signal(proxy.pid(), Signal::CONT);
    assert_eq!(link.rest(), b"");
    client.finish().problem(503, "not_ready");
}

#[test]
fn a_stop_before_all_has_settled_says_so_and_speaks_of_no_writes_of_its_own() {
    let (service, nginx) = (service(), Nginx::start());
    let mut proxy = trusting(&service, &nginx.url()).flag("--upstream-settle", "1h").start();
    proxy.kill9();
    proxy.start_again();
    assert!(proxy.stop().success());
    let said = proxy.said();
    assert!(said.contains("before the writes from before its start had settled"), "{said}");
    assert!(!said.contains("in flight"), "{said}");
    // The next one waits as well: nothing is known better.
    proxy.set("--wait-max", "100ms");
    proxy.start_again();
    begin_put(&proxy, "/a", "r", 34).finish().problem(503, "older_in_flight");
}
