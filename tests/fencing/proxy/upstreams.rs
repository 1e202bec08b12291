//! Upstreams that fail: each failure is told for what it is.

use super::scripted::Scripted;
use super::{begin_put, put, service, trusting};
use leasehold_harness::eventually;
use leasehold_harness::nginx::Nginx;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[track_caller]
fn says(problem: &leasehold_harness::Value, text: &str) {
    let detail = problem["detail"].as_str().unwrap_or_default();
    assert!(detail.contains(text), "{detail:?} does not say {text:?}");
}

#[test]
fn what_is_no_answer_is_a_failure_of_the_upstream() {
    let (service, upstream) = (service(), Scripted::start());
    let proxy = trusting(&service, &upstream.url()).flag("--upstream-settle", "1ms").start();
    for answer in [
        "",
        "HTTP/1.1 20",
        "garbage\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
    ] {
        let mut client = begin_put(&proxy, "/a", "r", 34);
        let mut link = upstream.accept();
        link.request();
        link.send(answer);
        drop(link);
        says(&client.finish().problem(502, "upstream_failed"), "may have happened");
    }
}

#[test]
fn an_answer_that_is_cut_short_is_cut_short_for_the_client_too() {
    let (service, upstream) = (service(), Scripted::start());
    let proxy = trusting(&service, &upstream.url()).flag("--upstream-settle", "1ms").start();
    for head in ["Content-Length: 20", "Transfer-Encoding: chunked"] {
        let mut client = begin_put(&proxy, "/a", "r", 34);
        let mut link = upstream.accept();
        link.request();
        link.send(&format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n5\r\nhello\r\n"));
        drop(link);
        assert!(client.read().is_err(), "{head}");
    }
}

#[test]
fn a_silent_upstream_is_given_up_and_what_it_may_still_do_is_waited_for() {
    let (service, upstream) = (service(), Scripted::start());
    let proxy = trusting(&service, &upstream.url())
        .flag("--upstream-timeout", "500ms")
        .flag("--upstream-settle", "1s")
        .start();
    let began = Instant::now();
    let mut client = begin_put(&proxy, "/a", "r", 33);
    let mut link = upstream.accept();
    link.request();
    says(&client.finish().problem(504, "upstream_timeout"), "may have happened");
    assert!(began.elapsed() >= Duration::from_millis(500));
    link.closed();
    let mut newer = begin_put(&proxy, "/b", "r", 34);
    let mut link = upstream.accept();
    link.request();
    assert!(began.elapsed() >= Duration::from_millis(1500), "{:?}", began.elapsed());
    link.answer("201 Created", "");
    assert_eq!(newer.finish().status, 201);
}

#[test]
fn a_slow_client_is_not_taken_for_a_silent_upstream() {
    let (service, upstream) = (service(), Scripted::start());
    let proxy = trusting(&service, &upstream.url())
        .flag("--upstream-timeout", "500ms")
        .flag("--client-timeout", "2s")
        .flag("--upstream-settle", "1ms")
        .start();
    let mut client = proxy.client();
    let whole = put("/a", "r", 33, "0123456789");
    client.send(&whole[..whole.len() - 5]).expect("sent");
    let mut link = upstream.accept();
    link.head();
    let problem = client.finish().problem(408, "request_timeout");
    says(&problem, "did not arrive in time");
    link.closed();
}

#[test]
fn an_early_answer_is_passed_on_and_the_rest_of_the_body_after_it() {
    let (service, upstream) = (service(), Scripted::start());
    let proxy = trusting(&service, &upstream.url()).start();
    let mut client = proxy.client();
    let whole = put("/a", "r", 33, "0123456789");
    client.send(&whole[..whole.len() - 5]).expect("sent");
    let mut link = upstream.accept();
    link.head();
    link.answer("200 OK", "early");
    assert_eq!(client.finish().body, b"early");
    // The write is not over before the upstream has all of it.
    let mut newer = begin_put(&proxy, "/b", "r", 34);
    eventually("it waits", || proxy.metric("waiting") == 1.0);
    client.send(&whole[whole.len() - 5..]).expect("sent");
    assert_eq!(link.take(10), b"0123456789");
    let mut link = upstream.accept();
    assert_eq!(link.request().line, "PUT /b HTTP/1.1");
    link.answer("201 Created", "");
    assert_eq!(newer.finish().status, 201);
}

#[test]
fn a_kept_connection_that_the_upstream_closes_costs_nothing() {
    let (service, upstream) = (service(), Scripted::start());
    let proxy = trusting(&service, &upstream.url()).flag("--upstream-idle", "1h").start();
    for _ in 0..20 {
        let mut client = begin_put(&proxy, "/a", "r", 33);
        let mut link = upstream.accept();
        link.request();
        link.answer("201 Created", "");
        assert_eq!(client.finish().status, 201);
        // Closed while nobody uses it, so the next write finds it closed and takes another.
        drop(link);
    }
}

#[test]
fn an_upstream_that_closes_every_connection_gets_one_for_each_request() {
    const WRITES: usize = 50;
    let (service, upstream) = (service(), Scripted::start());
    let proxy = trusting(&service, &upstream.url()).flag("--upstream-settle", "1ms").start();
    let over = AtomicBool::new(false);
    let (statuses, connections) = std::thread::scope(|scope| {
        let closing = scope.spawn(|| {
            let mut connections = 0;
            while !over.load(Ordering::Relaxed) {
                connections += usize::from(upstream.try_accept().is_some());
                std::thread::yield_now();
            }
            connections
        });
        let statuses: Vec<_> = (0..WRITES)
            .map(|_| begin_put(&proxy, "/a", "r", 33).read().map(|answer| answer.status).ok())
            .collect();
        over.store(true, Ordering::Relaxed);
        (statuses, closing.join().expect("it counts"))
    });
    assert_eq!(statuses, [Some(502); WRITES]);
    assert!(connections <= WRITES, "{connections} connections");
}

#[test]
fn the_errors_of_the_upstream_are_its_own() {
    let (service, nginx) = (service(), Nginx::start());
    let proxy = trusting(&service, &nginx.url()).start();
    let mut client = proxy.client();
    assert_eq!(client.get("/missing").status, 404);
    let under = [("Fencing-Resource", "r"), ("Fencing-Token", "1")];
    assert_eq!(client.call("DELETE", "/missing", &under, b"").status, 404);
    let answer = client.call("FROB", "/a", &under, b"");
    assert_eq!(answer.status, 405, "{answer}");
}

#[test]
fn a_write_that_was_sent_whole_goes_on_without_its_client() {
    let (service, upstream) = (service(), Scripted::start());
    let proxy = trusting(&service, &upstream.url())
        .flag("--upstream-idle", "0s")
        .flag("--upstream-settle", "1h")
        .start();
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody";
    // Gone before the answer, and in the middle of it.
    for (token, sent) in [(33, 0), (34, answer.len() - 2)] {
        let mut client = begin_put(&proxy, "/a", "r", token);
        let mut link = upstream.accept();
        link.request();
        link.send(&answer[..sent]);
        eventually("what was sent arrives", || sent == 0 || client.has_answer());
        drop(client);
        eventually("the client is gone", || proxy.metric("connections") == 0.0);
        link.send(&answer[sent..]);
        eventually("it is over", || proxy.metric("writes_in_flight") == 0.0);
    }
    assert_eq!(proxy.metric("cut_total"), 0.0);
}

#[test]
fn no_write_takes_longer_than_a_write_may() {
    let (service, upstream) = (service(), Scripted::start());
    let proxy = trusting(&service, &upstream.url())
        .flag("--write-max", "700ms")
        .flag("--upstream-settle", "1ms")
        .start();
    let mut client = begin_put(&proxy, "/a", "r", 33);
    let mut link = upstream.accept();
    link.request();
    says(&client.finish().problem(504, "upstream_timeout"), "took too long");
    link.closed();
}

#[test]
fn a_client_that_reads_nothing_does_not_keep_its_write_in_flight() {
    let (service, upstream) = (service(), Scripted::start());
    let proxy = trusting(&service, &upstream.url())
        .flag("--client-timeout", "500ms")
        .flag("--upstream-settle", "1h")
        .start();
    let client = begin_put(&proxy, "/a", "r", 33);
    let mut link = upstream.accept();
    link.request();
    // More than all the buffers on the way hold.
    let body = "x".repeat(64 * 1024 * 1024);
    link.answer("200 OK", &body);
    eventually("the write is over", || proxy.metric("writes_in_flight") == 0.0);
    assert_eq!(proxy.metric("cut_total"), 0.0);
    drop(client);
}
