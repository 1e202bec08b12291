//! Requests that are wrong as HTTP: each gets the one error shape, and none harms the next.

use leasehold_harness::{Client, Server, ask};

use crate::server;

const ACQUIRE: &str = "/v1/acquire-lock";

fn body() -> Vec<u8> {
    ask("r", "a", 10_000).to_string().into_bytes()
}

#[test]
fn a_wrong_method_is_told_the_right_one() {
    let server = server();
    let mut client = server.client();
    let wrong = [
        ("GET", ACQUIRE, "POST"),
        ("PUT", ACQUIRE, "POST"),
        ("DELETE", "/v1/renew-lock", "POST"),
        ("PATCH", "/release-lock", "POST"),
        ("GET", "/v1/batch", "POST"),
        ("POST", "/v1/lock", "GET"),
        ("DELETE", "/v1/locks", "GET"),
        ("POST", "/livez", "GET"),
        ("PUT", "/v1/leases", "POST"),
    ];
    for (method, path, allowed) in wrong {
        let answer = client.call(method, path, &[], b"");
        answer.problem(405, "method_not_allowed");
        let allow = answer.header("allow").unwrap_or_default();
        assert!(allow.split(',').any(|one| one.trim() == allowed), "{method} {path}: {answer}");
    }
}

#[test]
fn an_unknown_route_is_not_found() {
    let server = server();
    let mut client = server.client();
    let unknown = [
        "/v1",
        "/v1/nothing",
        "/v2/lock",
        "/v1/acquire-lock/",
        "/v1/acquire-lock/x",
        "/v1//lock",
        "/V1/lock",
        "/acquire_lock",
        "/..",
        "/%00",
        "/v1/locks/%2e%2e/lock",
    ];
    for path in unknown {
        client.get(path).problem(404, "not_found");
        client.call("POST", path, &[], b"{}").problem(404, "not_found");
    }
}

#[test]
fn a_body_with_no_type_or_with_curls_default_type_is_read_as_json() {
    let server = server();
    let mut client = server.client();
    let fine: [&[(&str, &str)]; 5] = [
        &[],
        &[("Content-Type", "application/x-www-form-urlencoded")],
        &[("Content-Type", "application/json")],
        &[("Content-Type", "application/json; charset=utf-8")],
        &[("content-type", "APPLICATION/JSON")],
    ];
    for headers in fine {
        let token = client.call("POST", ACQUIRE, headers, &body()).token();
        client.let_go("r", token);
    }
    for kind in
        ["text/xml", "application/xml", "multipart/form-data; boundary=x", "application/cbor"]
    {
        let answer = client.call("POST", ACQUIRE, &[("Content-Type", kind)], &body());
        answer.problem(415, "unsupported_media_type");
    }
}

#[test]
fn a_body_over_the_limit_is_refused_without_being_read_to_its_end() {
    let server = server();
    let mut declared = server.client();
    let head =
        format!("POST {ACQUIRE} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n");
    declared.send(head.as_bytes()).expect("the head is sent");
    declared.send(&[b' '; 1_000]).expect("some of the body is sent");
    declared.finish().problem(413, "too_large");

    // With an unknown length only counting helps.
    let mut chunked = server.client();
    let head =
        format!("POST {ACQUIRE} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
    chunked.send(head.as_bytes()).expect("the head is sent");
    let chunk = [b"10000\r\n".to_vec(), vec![b' '; 0x10000], b"\r\n".to_vec()].concat();
    // The server may stop reading at any time, so a failed write says nothing.
    let _unread = (0..64).try_for_each(|_| chunked.send(&chunk));
    chunked.finish().problem(413, "too_large");

    assert_still_serves(&server);
}

#[test]
fn a_flood_of_headers_is_refused() {
    let server = server();
    let many: String = (0..400).map(|i| format!("X-{i}: {}\r\n", "v".repeat(100))).collect();
    let large = format!("X-Large: {}\r\n", "v".repeat(80_000));
    for flood in [many, large] {
        let mut client = server.client();
        let head = format!("GET /v1/lock?resource=r HTTP/1.1\r\nHost: localhost\r\n{flood}\r\n");
        let _unread = client.send(head.as_bytes());
        client.finish().problem(431, "headers_too_large");
    }
    assert_still_serves(&server);
}

#[test]
fn bytes_that_are_no_http_harm_nobody() {
    let server = server();
    let noise: [&[u8]; 6] = [
        b"\r\n\r\n",
        b"GARBAGE\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"POST /v1/acquire-lock HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/acquire-lock HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n{}",
    ];
    for bytes in noise {
        let mut client = server.client();
        client.send(bytes).expect("the noise is sent");
        // Hanging up in the middle is part of the noise.
        drop(client);
    }
    assert_still_serves(&server);
}

#[test]
fn requests_sent_in_one_go_are_answered_in_their_order() {
    let server = server();
    let mut client = server.client();
    let mut bytes = Vec::new();
    for i in 0..50 {
        let body = ask(&format!("r{i}"), "a", 10_000).to_string();
        let head = format!(
            "POST {ACQUIRE} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        bytes.extend_from_slice(head.as_bytes());
        bytes.extend_from_slice(body.as_bytes());
    }
    client.send(&bytes).expect("all are sent");
    for i in 0..50 {
        assert_eq!(client.finish().ok()["resource"], format!("r{i}"));
    }
}

#[track_caller]
fn assert_still_serves(server: &Server) {
    let mut client: Client = server.client();
    let token = client.acquire(&ask("still", "a", 10_000)).token();
    client.let_go("still", token);
}
