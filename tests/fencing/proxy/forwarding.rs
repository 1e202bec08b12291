//! What reaches the upstream, and what comes back: headers, bodies, and the shapes of HTTP.

use super::scripted::Scripted;
use super::{service, trusting};
use leasehold_harness::eventually;

const UNDER: &str = "Fencing-Resource: a%20b\r\nFencing-Token: 34\r\n";

#[test]
fn hop_by_hop_and_forged_headers_go_no_further() {
    let (service, upstream) = (service(), Scripted::start());
    let proxy = trusting(&service, &upstream.url()).start();
    let mut client = proxy.client();
    let request = format!(
        "PUT /a?b=c HTTP/1.1\r\nHost: store.example\r\n{UNDER}Connection: keep-alive, X-Hop\r\n\
         X-Hop: 1\r\nTE: trailers\r\nKeep-Alive: timeout=5\r\nProxy-Authorization: secret\r\n\
         Forwarded: for=10.0.0.1\r\nX-Forwarded-For: 10.0.0.1\r\nX-Real-IP: 10.0.0.1\r\n\
         X-HTTP-Method-Override: DELETE\r\nX_Method_Override: DELETE\r\nX-Original-URL: /admin\r\nLeasehold-Leader: me\r\n\
         X-Mine: kept\r\nContent-Length: 4\r\n\r\nbody"
    );
    client.send(request.as_bytes()).expect("sent");
    let mut link = upstream.accept();
    let received = link.request();
    assert_eq!(received.line, "PUT /a?b=c HTTP/1.1");
    assert_eq!(received.body, b"body");
    for (name, value) in [
        ("host", Some("store.example")),
        ("x-mine", Some("kept")),
        ("x-forwarded-for", Some("127.0.0.1")),
        ("x-real-ip", Some("127.0.0.1")),
        ("forwarded", Some("for=127.0.0.1;host=\"store.example\";proto=http")),
        ("fencing-resource", Some("a%20b")),
        ("fencing-token", Some("34")),
        ("content-length", Some("4")),
        ("x-hop", None),
        ("te", None),
        ("keep-alive", None),
        ("connection", None),
        ("proxy-authorization", None),
        ("x-http-method-override", None),
        ("x_method_override", None),
        ("x-original-url", None),
        ("leasehold-leader", None),
    ] {
        assert_eq!(received.header(name), value, "{name}");
    }
    link.send(
        "HTTP/1.1 201 Created\r\nConnection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n\
         Fencing-Token: 99\r\nLeasehold-Revision: 7\r\nETag: \"kept\"\r\nContent-Length: 2\r\n\r\nok",
    );
    let answer = client.finish();
    assert_eq!((answer.status, &answer.body[..]), (201, &b"ok"[..]));
    assert_eq!(answer.header("etag"), Some("\"kept\""));
    for gone in ["x-hop", "keep-alive", "fencing-token", "leasehold-revision"] {
        assert_eq!(answer.header(gone), None, "{gone}");
    }
}

#[test]
fn a_chunked_body_arrives_without_its_trailers() {
    let (service, upstream) = (service(), Scripted::start());
    let proxy = trusting(&service, &upstream.url()).start();
    let mut client = proxy.client();
    let head = format!(
        "PUT /a HTTP/1.1\r\nHost: a\r\n{UNDER}Trailer: Fencing-Token\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    client.send(head.as_bytes()).expect("sent");
    client.send(b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nFencing-Token: 99\r\n\r\n").expect("sent");
    let mut link = upstream.accept();
    let received = link.request();
    assert_eq!(received.body, b"abcde");
    assert_eq!(received.header("transfer-encoding"), Some("chunked"));
    link.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n1\r\ny\r\n0\r\nX: 1\r\n\r\n");
    assert_eq!(client.finish().body, b"hey");
}

#[test]
fn what_could_be_read_as_two_requests_is_refused() {
    let (service, upstream) = (service(), Scripted::start());
    let proxy = trusting(&service, &upstream.url()).start();
    for (request, status) in [
        (
            format!(
                "PUT /a HTTP/1.1\r\nHost: a\r\n{UNDER}Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"
            ),
            400,
        ),
        (format!("PUT /a HTTP/1.1\r\nHost: a\r\n{UNDER}Transfer-Encoding: gzip\r\n\r\n"), 400),
        (
            format!(
                "PUT /a HTTP/1.1\r\nHost: a\r\n{UNDER}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"
            ),
            501,
        ),
        (
            format!(
                "PUT /a HTTP/1.1\r\nHost: a\r\n{UNDER}Content-Length: 0\r\nContent_Length: 5\r\n\r\n"
            ),
            400,
        ),
        (
            format!(
                "PUT /a HTTP/1.1\r\nHost: a\r\n{UNDER}Connection: Content-Range\r\n\
                 Content-Range: bytes 0-0/9\r\nContent-Length: 1\r\n\r\nx"
            ),
            400,
        ),
        (format!("PUT /a HTTP/1.1\r\nHost: a\r\nHost: b\r\n{UNDER}Content-Length: 0\r\n\r\n"), 400),
        (format!("PUT /a HTTP/1.1\r\n{UNDER}Content-Length: 0\r\n\r\n"), 400),
        (format!("PUT /a HTTP/1.1\r\nHost : a\r\n{UNDER}\r\n"), 400),
        (format!("PUT /a HTTP/1.1\r\nHost: a\r\n{UNDER}X: 1\r\n folded\r\n\r\n"), 400),
        (
            format!(
                "PUT /a HTTP/1.1\r\nHost: a\r\n{UNDER}Upgrade: websocket\r\nConnection: upgrade\r\n\r\n"
            ),
            501,
        ),
        (
            format!(
                "PUT /a HTTP/1.1\r\nHost: a\r\n{UNDER}Expect: miracles\r\nContent-Length: 0\r\n\r\n"
            ),
            417,
        ),
        ("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n".to_owned(), 501),
        (format!("GET /a HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(70_000)), 431),
    ] {
        let mut client = proxy.client();
        // The refusal may come before all of it was sent.
        let _ = client.send(request.as_bytes());
        let answer = client.read().unwrap_or_else(|error| panic!("{request:.200}: {error}"));
        assert_eq!(answer.status, status, "{request:.200}");
        assert!(upstream.try_accept().is_none(), "{request:.200} got through");
    }
}

#[test]
fn a_read_stays_a_read_whatever_else_it_asks_for() {
    let (service, upstream) = (service(), Scripted::start());
    let proxy = trusting(&service, &upstream.url()).start();
    let mut client = proxy.client();
    let overrides = ["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method", "x_http_method"];
    let overrides = overrides.map(|name| format!("{name}: DELETE\r\n")).concat();
    let get = format!("GET /a HTTP/1.1\r\nHost: a\r\n{overrides}\r\n");
    client.send(get.as_bytes()).expect("sent");
    let mut link = upstream.accept();
    let received = link.request();
    assert_eq!(received.line, "GET /a HTTP/1.1");
    assert!(received.headers.iter().all(|(_, value)| value != "DELETE"), "{received:?}");
    link.answer("200 OK", "read");
    assert_eq!(client.finish().body, b"read");
}

#[test]
fn a_second_length_makes_no_second_request() {
    let (service, upstream) = (service(), Scripted::start());
    let proxy = trusting(&service, &upstream.url()).flag("--upstream-idle", "0s").start();
    for lengths in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
    ] {
        let mut client = proxy.client();
        // Whoever believes the length sees the next request begin behind five bytes.
        let two = format!(
            "PUT /a HTTP/1.1\r\nHost: a\r\n{UNDER}{lengths}\r\n\r\n\
         0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
        );
        client.send(two.as_bytes()).expect("sent");
        let mut link = upstream.accept();
        let received = link.request();
        assert_eq!(received.header("content-length"), None);
        assert_eq!(
            (received.header("transfer-encoding"), &received.body[..]),
            (Some("chunked"), &b""[..])
        );
        link.answer("201 Created", "");
        assert_eq!(client.finish().header("connection"), Some("close"));
        assert!(client.read().is_err(), "the connection goes on");
        assert!(upstream.try_accept().is_none());
    }
}

#[test]
fn old_and_absolute_forms_become_what_servers_know() {
    let (service, upstream) = (service(), Scripted::start());
    let proxy = trusting(&service, &upstream.url()).flag("--upstream-idle", "0s").start();
    for (request, line, host) in [
        (
            "GET http://real.example/a?b HTTP/1.1\r\nHost: other\r\n\r\n",
            "GET /a?b HTTP/1.1",
            "real.example",
        ),
        ("GET /a HTTP/1.0\r\n\r\n", "GET /a HTTP/1.1", &upstream.url()["http://".len()..]),
        ("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "OPTIONS * HTTP/1.1", "a"),
    ] {
        let mut client = proxy.client();
        client.send(request.as_bytes()).expect("sent");
        let mut link = upstream.accept();
        let received = link.request();
        assert_eq!((&*received.line, received.header("host")), (line, Some(host)));
        link.answer("200 OK", "ok");
        assert_eq!(client.finish().body, b"ok");
    }
}

#[test]
fn answers_without_a_body_end_where_they_end() {
    let (service, upstream) = (service(), Scripted::start());
    let proxy = trusting(&service, &upstream.url()).start();
    let mut client = proxy.client();
    client.send(b"HEAD /a HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
    let mut link = upstream.accept();
    link.request();
    link.send("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 12345\r\n\r\n");
    eventually("the head arrives", || client.has_answer());
    drop(client);

    let mut client = proxy.client();
    for status in ["204 No Content", "304 Not Modified"] {
        let put = format!("PUT /a HTTP/1.1\r\nHost: a\r\n{UNDER}Content-Length: 0\r\n\r\n");
        client.send(put.as_bytes()).expect("sent");
        link.request();
        link.send(&format!("HTTP/1.1 {status}\r\nETag: x\r\n\r\n"));
        let answer = client.finish();
        assert_eq!(answer.status.to_string(), status[..3]);
        assert_eq!(answer.header("etag"), Some("x"));
    }
    // Whatever they were, they are over: a newer token passes at once.
    let newer = "PUT /a HTTP/1.1\r\nHost: a\r\nFencing-Resource: a%20b\r\nFencing-Token: 35\r\nContent-Length: 0\r\n\r\n";
    client.send(newer.as_bytes()).expect("sent");
    link.request();
    link.answer("201 Created", "");
    assert_eq!(client.finish().status, 201);
}

#[test]
fn a_client_is_told_to_continue_only_when_its_body_is_wanted() {
    let (service, upstream) = (service(), Scripted::start());
    let proxy = trusting(&service, &upstream.url()).start();
    let mut client = proxy.client();
    let head = format!(
        "PUT /a HTTP/1.1\r\nHost: a\r\n{UNDER}Expect: 100-continue\r\nContent-Length: 4\r\n\r\n"
    );
    client.send(head.as_bytes()).expect("sent");
    let mut link = upstream.accept();
    assert_eq!(link.head().header("expect"), None);
    assert_eq!(client.finish().status, 100);
    client.send(b"body").expect("sent");
    assert_eq!(link.take(4), b"body");
    link.answer("201 Created", "");
    assert_eq!(client.finish().status, 201);
}
