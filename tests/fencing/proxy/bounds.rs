//! Bounds that are reached: each one says so, and costs nobody else anything.

use super::process::Proxy;
use super::scripted::Scripted;
use super::{begin_put, service, trusting};
use leasehold_harness::nginx::Nginx;
use leasehold_harness::{eventually, json};

#[test]
fn a_client_that_does_not_come_to_its_point_is_let_go() {
    let (service, nginx) = (service(), Nginx::start());
    let proxy = trusting(&service, &nginx.url()).flag("--head-timeout", "300ms").start();
    let mut slow = proxy.client();
    slow.send(b"PUT /a HTTP/1.1\r\nHost: a\r\n").expect("the kernel takes it");
    let mut silent = proxy.client();
    eventually("both are let go", || proxy.metric("connections") == 0.0);
    assert!(slow.read().is_err(), "no answer to half a head");
    assert!(silent.read().is_err());
    assert_eq!(proxy.client().get("/missing").status, 404, "others are served");
}

#[test]
fn tokens_beyond_those_that_are_being_asked_about_wait_for_their_turn_and_not_for_ever() {
    let (service, nginx) = (service(), Nginx::start());
    let proxy = Proxy::builder(&service, &nginx.url())
        .flag("--checks-max", "1")
        .flag("--check-timeout", "2s")
        .flag("--lock-ttl", "1h")
        .start();
    let token = |resource: &str| {
        let asked = json!({"resource": resource, "client_id": "me", "ttl_ms": 60_000});
        service.client().post("/v1/acquire-lock", &asked).token()
    };
    let tokens = ["r", "s", "t"].map(|resource| (resource, token(resource)));
    service.freeze();
    let mut clients =
        tokens.map(|(resource, token)| begin_put(&proxy, &format!("/{resource}"), resource, token));
    eventually("one is asked about", || proxy.metric("checks_in_flight") == 1.0);
    for client in &mut clients {
        let answer = client.finish();
        answer.problem(503, "check_unavailable");
        assert!(answer.header("retry-after").is_some(), "{answer}");
        assert!(proxy.metric("checks_in_flight") <= 1.0);
    }
    service.thaw();
    for (resource, token) in tokens {
        let status = begin_put(&proxy, &format!("/{resource}"), resource, token).finish().status;
        assert_eq!(status, 201, "{resource}");
    }
}

#[test]
fn writes_that_lost_their_clients_are_bounded_as_well() {
    let (service, upstream) = (service(), Scripted::start());
    let proxy = trusting(&service, &upstream.url())
        .flag("--connections-max", "2")
        .flag("--upstream-idle", "0s")
        .start();
    let mut links = Vec::new();
    for resource in ["r", "s"] {
        let client = begin_put(&proxy, "/a", resource, 33);
        let mut link = upstream.accept();
        link.request();
        links.push(link);
        drop(client);
        eventually("the client is gone", || proxy.metric("connections") == 0.0);
    }
    let full = begin_put(&proxy, "/a", "t", 33).finish();
    full.problem(503, "overloaded");
    assert!(full.header("retry-after").is_some(), "{full}");
    for link in &mut links {
        link.answer("201 Created", "");
    }
    eventually("they are over", || proxy.metric("writes_in_flight") == 0.0);
    let mut client = begin_put(&proxy, "/a", "t", 33);
    let mut link = upstream.accept();
    link.request();
    link.answer("201 Created", "");
    assert_eq!(client.finish().status, 201);
}

#[test]
fn a_client_that_hangs_up_while_it_waits_writes_nothing() {
    let (service, upstream) = (service(), Scripted::start());
    let proxy = trusting(&service, &upstream.url()).flag("--wait-max", "1h").start();
    let older = begin_put(&proxy, "/a", "r", 33);
    let mut link = upstream.accept();
    link.request();
    // Whoever stops a worker at the end of its validity relies on this.
    let waiting = begin_put(&proxy, "/a", "r", 34);
    eventually("it waits", || proxy.metric("waiting") == 1.0);
    drop(waiting);
    eventually("only the older one is left", || {
        proxy.metric("waiting") == 0.0 && proxy.metric("connections") == 1.0
    });
    link.answer("201 Created", "");
    drop(older);
    eventually("nobody is left", || proxy.metric("connections") == 0.0);
    assert_eq!(proxy.metric("writes_in_flight"), 0.0);
    assert!(upstream.try_accept().is_none(), "nothing more was sent");
}

#[test]
fn a_stop_waits_for_a_write_no_longer_than_it_may() {
    let (service, upstream) = (service(), Scripted::start());
    let mut proxy = trusting(&service, &upstream.url())
        .flag("--drain", "300ms")
        .flag("--upstream-settle", "1h")
        .flag("--wait-max", "100ms")
        .start();
    let mut stuck = begin_put(&proxy, "/a", "r", 33);
    let mut link = upstream.accept();
    link.request();
    assert_eq!(proxy.stop().code(), Some(79));
    link.closed();
    assert!(stuck.read().is_err(), "the write was cut");
    // What it did is not known, so whoever comes next waits as after a crash.
    proxy.start_again();
    begin_put(&proxy, "/a", "r", 34).finish().problem(503, "older_in_flight");
}

#[test]
fn a_full_house_of_waiters_keeps_nobody_out_who_need_not_wait() {
    let (service, upstream) = (service(), Scripted::start());
    let proxy = trusting(&service, &upstream.url())
        .flag("--waiting-max", "1")
        .flag("--upstream-idle", "0s")
        .start();
    let mut older = begin_put(&proxy, "/a", "r", 33);
    let mut link = upstream.accept();
    link.request();
    let mut newer = begin_put(&proxy, "/a", "r", 34);
    eventually("it waits", || proxy.metric("waiting") == 1.0);
    begin_put(&proxy, "/a", "r", 35).finish().problem(503, "overloaded");
    // First writes wait for the disk, and not in that house.
    for (at, resource) in ["s", "t", "u"].into_iter().enumerate() {
        let mut client = begin_put(&proxy, "/b", resource, 40 + at as u64);
        let mut link = upstream.accept();
        assert_eq!(link.request().line, "PUT /b HTTP/1.1");
        link.answer("201 Created", "");
        assert_eq!(client.finish().status, 201);
    }
    link.answer("201 Created", "");
    assert_eq!(older.finish().status, 201);
    let mut link = upstream.accept();
    link.request();
    link.answer("201 Created", "");
    assert_eq!(newer.finish().status, 201);
}

#[test]
fn resources_beyond_the_bound_share_a_floor() {
    let (service, nginx) = (service(), Nginx::start());
    let proxy = trusting(&service, &nginx.url()).flag("--resources-max", "2").start();
    for (resource, token) in [("a", 10), ("b", 20), ("c", 30)] {
        let status = begin_put(&proxy, &format!("/{resource}"), resource, token).finish().status;
        assert_eq!(status, 201, "{resource}");
    }
    assert_eq!(proxy.metric("folded_total"), 1.0);
    // Older than everything that is kept apart: taken for stale, though nobody overtook it.
    let problem = begin_put(&proxy, "/d", "d", 9).finish().problem(412, "stale_token");
    assert_eq!(problem["highest_token"], 10);
    let detail = problem["detail"].as_str().unwrap_or_default();
    assert!(detail.contains("token 9 is older than 10, the floor"), "{detail}");
    begin_put(&proxy, "/a", "a", 9).finish().problem(412, "stale_token");
    assert_eq!(begin_put(&proxy, "/d", "d", 11).finish().status, 201);
}

#[test]
fn an_upstream_with_a_certificate_is_asked_who_it_is() {
    let (service, nginx) = (service(), Nginx::start_tls());
    let authority = nginx.authority().display().to_string();
    let proxy = trusting(&service, &nginx.url()).flag("--upstream-ca", &authority).start();
    assert_eq!(begin_put(&proxy, "/a", "r", 33).finish().status, 201);
    assert_eq!(nginx.stored("a").as_deref(), Some(&b"body"[..]));
    drop(proxy);

    let service = super::service();
    let wary = trusting(&service, &nginx.url()).start();
    let problem = begin_put(&wary, "/b", "r", 34).finish().problem(502, "upstream_failed");
    assert!(
        problem["detail"].as_str().is_some_and(|text| text.contains("certificate")),
        "{problem}"
    );
    assert_eq!(nginx.stored("b"), None);
}
