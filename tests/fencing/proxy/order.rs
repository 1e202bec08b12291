//! A newer write never overtakes an older one that is in flight.

use super::scripted::Scripted;
use super::{begin_put, put, service, trusting};
use leasehold_harness::eventually;
use std::time::{Duration, Instant};

#[test]
fn a_newer_write_waits_for_the_older_one_and_older_ones_are_refused_meanwhile() {
    let (service, upstream) = (service(), Scripted::start());
    // Each write comes on a connection of its own.
    let proxy = trusting(&service, &upstream.url()).flag("--upstream-idle", "0s").start();
    let mut older = begin_put(&proxy, "/older", "r", 33);
    let mut link = upstream.accept();
    assert_eq!(link.request().line, "PUT /older HTTP/1.1");

    let mut newer = begin_put(&proxy, "/newer", "r", 34);
    eventually("the newer write waits", || proxy.metric("waiting") == 1.0);
    begin_put(&proxy, "/again", "r", 33).finish().problem(412, "stale_token");
    // Another resource has nothing to wait for.
    let mut other = begin_put(&proxy, "/other", "s", 5);
    let mut second = upstream.accept();
    assert_eq!(second.request().line, "PUT /other HTTP/1.1");
    second.answer("201 Created", "");
    assert_eq!(other.finish().status, 201);
    assert!(!newer.has_answer());

    // Half an answer is none.
    link.send("HTTP/1.1 201 Created\r\nContent-Length: 4\r\n\r\nbo");
    eventually("half of it arrives", || older.has_answer());
    assert_eq!(proxy.metric("waiting"), 1.0);
    link.send("dy");
    assert_eq!(older.finish().body, b"body");
    let mut link = upstream.accept();
    assert_eq!(link.request().line, "PUT /newer HTTP/1.1");
    link.answer("201 Created", "");
    assert_eq!(newer.finish().status, 201);
}

#[test]
fn equal_tokens_go_side_by_side() {
    let (service, upstream) = (service(), Scripted::start());
    let proxy = trusting(&service, &upstream.url()).start();
    let clients = ["/a", "/b", "/c"].map(|path| begin_put(&proxy, path, "r", 33));
    let mut links = [(); 3].map(|()| upstream.accept());
    for link in &mut links {
        link.request();
    }
    for link in &mut links {
        link.answer("201 Created", "");
    }
    for mut client in clients {
        assert_eq!(client.finish().status, 201);
    }
}

#[test]
fn a_write_without_an_answer_counts_as_in_flight_until_it_has_settled() {
    let settle = Duration::from_millis(1500);
    let (service, upstream) = (service(), Scripted::start());
    let proxy = trusting(&service, &upstream.url()).flag("--upstream-settle", "1500ms").start();
    let mut older = begin_put(&proxy, "/older", "r", 33);
    let mut link = upstream.accept();
    link.request();
    let cut = Instant::now();
    drop(link);
    let detail = older.finish().problem(502, "upstream_failed")["detail"].clone();
    assert!(detail.as_str().is_some_and(|text| text.contains("may have happened")), "{detail}");

    let mut newer = begin_put(&proxy, "/newer", "r", 34);
    let mut link = upstream.accept();
    assert_eq!(link.request().line, "PUT /newer HTTP/1.1");
    assert!(cut.elapsed() >= settle, "it passed after {:?}", cut.elapsed());
    link.answer("201 Created", "");
    assert_eq!(newer.finish().status, 201);
    assert_eq!(proxy.metric("cut_total"), 1.0);
}

#[test]
fn the_holder_itself_need_not_wait_for_its_own_write_to_settle() {
    let (service, upstream) = (service(), Scripted::start());
    let proxy = trusting(&service, &upstream.url()).flag("--upstream-settle", "1h").start();
    let mut first = begin_put(&proxy, "/a", "r", 33);
    let mut link = upstream.accept();
    link.request();
    drop(link);
    first.finish().problem(502, "upstream_failed");
    let mut again = begin_put(&proxy, "/a", "r", 33);
    let mut link = upstream.accept();
    link.request();
    link.answer("201 Created", "");
    assert_eq!(again.finish().status, 201);
}

#[test]
fn a_wait_ends_with_the_advice_to_come_again_and_a_full_house_is_said_at_once() {
    let (service, upstream) = (service(), Scripted::start());
    let proxy = trusting(&service, &upstream.url())
        .flag("--wait-max", "3s")
        .flag("--waiting-max", "2")
        .start();
    let mut older = begin_put(&proxy, "/older", "r", 33);
    let mut link = upstream.accept();
    link.request();
    let mut waiting = [(); 2].map(|()| begin_put(&proxy, "/newer", "r", 34));
    eventually("both wait", || proxy.metric("waiting") == 2.0);
    let full = begin_put(&proxy, "/newer", "r", 34).finish();
    full.problem(503, "overloaded");
    assert!(full.header("retry-after").is_some(), "{full}");
    for client in &mut waiting {
        let answer = client.finish();
        answer.problem(503, "older_in_flight");
        assert!(answer.header("retry-after").is_some(), "{answer}");
    }
    assert!(upstream.try_accept().is_none(), "a newer write overtook the older one");
    link.answer("201 Created", "");
    assert_eq!(older.finish().status, 201);
}

#[test]
fn nothing_that_was_not_sent_has_to_settle() {
    let service = service();
    let gone = Scripted::start().url();
    let proxy = trusting(&service, &gone).flag("--upstream-settle", "1h").start();
    let detail = begin_put(&proxy, "/a", "r", 33).finish().problem(502, "upstream_failed");
    assert!(detail["detail"].as_str().is_some_and(|text| text.contains("nothing was sent")));
    // It would wait for an hour.
    begin_put(&proxy, "/a", "r", 34).finish().problem(502, "upstream_failed");
}

#[test]
fn a_client_that_goes_away_in_its_body_cuts_the_write_off() {
    let (service, upstream) = (service(), Scripted::start());
    let proxy = trusting(&service, &upstream.url()).flag("--upstream-settle", "700ms").start();
    let mut client = proxy.client();
    let whole = put("/a", "r", 33, "0123456789");
    client.send(&whole[..whole.len() - 5]).expect("sent");
    let mut link = upstream.accept();
    link.head();
    assert_eq!(link.take(5), b"01234");
    drop(client);
    // The upstream sees an end in the middle, and never the whole of a body that is not whole.
    link.closed();
    let cut = Instant::now();
    let mut newer = begin_put(&proxy, "/newer", "r", 34);
    let mut link = upstream.accept();
    assert_eq!(link.request().line, "PUT /newer HTTP/1.1");
    // The settle time began before the end was seen here, so a little may be missing.
    assert!(cut.elapsed() >= Duration::from_millis(500), "it passed after {:?}", cut.elapsed());
    link.answer("201 Created", "");
    assert_eq!(newer.finish().status, 201);
}
