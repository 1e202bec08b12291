//! The rule: stale tokens are refused before the upstream knows of them.

use super::scripted::Scripted;
use super::{begin_put, put, service, trusting};
use leasehold_harness::nginx::Nginx;

#[test]
fn a_stale_token_is_refused_before_a_byte_reaches_the_upstream() {
    let (service, upstream) = (service(), Scripted::start());
    let proxy = trusting(&service, &upstream.url()).start();
    let mut newer = begin_put(&proxy, "/a", "invoice/42", 34);
    let mut link = upstream.accept();
    link.request();
    link.answer("201 Created", "");
    assert_eq!(newer.finish().status, 201);

    let mut stale = proxy.client();
    // Waits to be asked for its body, which must not happen.
    let expects = "PUT /a HTTP/1.1\r\nHost: a\r\nFencing-Resource: invoice/42\r\nFencing-Token: 33\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    stale.send(expects.as_bytes()).expect("sent");
    let problem = stale.finish().problem(412, "stale_token");
    assert_eq!((&problem["token"], &problem["highest_token"]), (&33.into(), &34.into()));
    assert_eq!(problem["resource"], "invoice/42");
    let mut stale = begin_put(&proxy, "/a", "invoice/42", 33);
    stale.finish().problem(412, "stale_token");
    assert!(upstream.try_accept().is_none(), "the upstream was connected to");
    assert_eq!(proxy.metric("fence_refused_total{reason=\"stale_token\"}"), 2.0);

    // The same connection carries the next write of the present holder, and nothing before it.
    let mut equal = begin_put(&proxy, "/b", "invoice/42", 34);
    assert_eq!(link.request().line, "PUT /b HTTP/1.1");
    link.answer("204 No Content", "");
    assert_eq!(equal.finish().status, 204);
}

#[test]
fn storage_keeps_what_the_newer_holder_wrote() {
    let (service, nginx) = (service(), Nginx::start());
    let proxy = trusting(&service, &nginx.url()).start();
    let mut client = proxy.client();
    for (token, body, status) in
        [(33, "first", 201), (34, "second", 204), (33, "late", 412), (34, "third", 204)]
    {
        client.send(&put("/invoices/42", "invoice/42", token, body)).expect("sent");
        assert_eq!(client.finish().status, status, "{token}");
    }
    assert_eq!(nginx.stored("invoices/42").as_deref(), Some(&b"third"[..]));
    assert_eq!(client.get("/invoices/42").body, b"third");
}

#[test]
fn a_protected_path_wants_both_headers_and_others_want_none() {
    let (service, nginx) = (service(), Nginx::start());
    let proxy = trusting(&service, &nginx.url())
        .flag("--protect", "/invoices/{id}=invoice/{id}")
        .flag("--protect", "/ledger/**")
        .start();
    let mut client = proxy.client();
    let (resource, token) = (("Fencing-Resource", "invoice/42"), ("Fencing-Token", "34"));
    let mut put = |path, headers: &[_]| client.call("PUT", path, headers, b"x");

    assert_eq!(put("/invoices/42", &[]).problem(428, "token_required")["field"], "Fencing-Token");
    put("/invoices/42", &[resource]).problem(428, "token_required");
    put("/invoices/42", &[token]).problem(428, "token_required");
    put("/ledger/x", &[]).problem(428, "token_required");
    put("/invoices/42", &[resource, token, token]).problem(400, "invalid_request");
    put("/invoices/42", &[resource, ("Fencing-Token", "34x")]).problem(400, "invalid_request");
    let shared = ("Fencing-Mode", "shared");
    put("/invoices/42", &[resource, token, shared]).problem(403, "shared_token");
    put("/invoices/43", &[resource, token]).problem(403, "wrong_resource");
    put("/x/../invoices/43", &[]).problem(400, "ambiguous_path");
    put("/invoices%2f43", &[]).problem(400, "ambiguous_path");
    assert_eq!(nginx.stored("invoices/42"), None);

    assert_eq!(put("/invoices/42", &[resource, token]).status, 201);
    assert_eq!(put("/ledger/x", &[resource, token]).status, 201);
    assert_eq!(put("/elsewhere", &[]).status, 201);
    assert_eq!(client.get("/invoices/42").status, 200);
    let moved = [("Destination", "http://localhost/invoices/44"), resource, token];
    client.call("MOVE", "/elsewhere", &moved[..1], b"").problem(428, "token_required");
    client.call("MOVE", "/elsewhere", &moved, b"").problem(403, "wrong_resource");
    client.call("DELETE", "/invoices/", &moved[1..], b"").problem(403, "wrong_resource");
    assert_eq!(nginx.stored("elsewhere").as_deref(), Some(&b"x"[..]));
}

#[test]
fn nobody_makes_a_collection_of_what_belongs_to_a_holder() {
    let (service, nginx) = (service(), Nginx::start());
    let proxy =
        trusting(&service, &nginx.url()).flag("--protect", "/invoices/{id}=invoice/{id}").start();
    let mut client = proxy.client();
    // The storage makes the collections on the way.
    client.call("PUT", "/invoices/79/x", &[], b"x").problem(428, "token_required");
    assert_eq!(begin_put(&proxy, "/invoices/79", "invoice/79", 34).finish().status, 201);
    let below = begin_put(&proxy, "/invoices/80/x", "invoice/79", 34).finish();
    below.problem(403, "wrong_resource");
    assert_eq!(begin_put(&proxy, "/invoices/80/x", "invoice/80", 35).finish().status, 201);
}

#[test]
fn methods_that_read_are_chosen_in_any_case() {
    let (service, upstream) = (service(), Scripted::start());
    let proxy =
        trusting(&service, &upstream.url()).flag("--read-methods", "get,head, report").start();
    let mut client = proxy.client();
    client.send(b"REPORT /a HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
    let mut link = upstream.accept();
    assert_eq!(link.request().line, "REPORT /a HTTP/1.1");
    link.answer("200 OK", "");
    for method in ["PROPFIND", "OPTIONS", "report", "get"] {
        proxy.client().call(method, "/a", &[], b"").problem(428, "token_required");
    }
}

#[test]
fn new_items_are_made_in_a_collection_where_that_was_allowed() {
    let (service, upstream) = (service(), Scripted::start());
    let invoice = "/invoices/{id}=invoice/{id}";
    let proxy = trusting(&service, &upstream.url())
        .flag("--protect", invoice)
        .flag("--makes-only", "POST /invoices")
        .start();
    let mut client = proxy.client();
    client
        .send(b"POST /invoices HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nnew")
        .expect("sent");
    let mut link = upstream.accept();
    let received = link.request();
    assert_eq!((&*received.line, &received.body[..]), ("POST /invoices HTTP/1.1", &b"new"[..]));
    link.answer("201 Created", "");
    assert_eq!(client.finish().status, 201);
    client.call("DELETE", "/invoices", &[], b"").problem(428, "token_required");
    drop(proxy);

    let other = super::service();
    let careful = trusting(&other, &upstream.url()).flag("--protect", invoice).start();
    let under = [("Fencing-Resource", "invoices"), ("Fencing-Token", "34")];
    let refused = careful.client().call("POST", "/invoices", &under, b"new");
    let problem = refused.problem(403, "wrong_resource");
    let detail = problem["detail"].as_str().unwrap_or_default();
    assert!(detail.contains("--makes-only 'POST /invoices'"), "{detail}");
    assert!(upstream.try_accept().is_none());
}

#[test]
fn settings_come_from_a_file_and_from_the_environment_as_well() {
    let (service, nginx) = (service(), Nginx::start());
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("proxy.toml");
    std::fs::write(&file, "protect = [\"/ledger/**\"]\nwait_max = \"77s\"\ndrain = \"66s\"\n")
        .expect("written");
    let proxy = trusting(&service, &nginx.url())
        .flag("--config", file.to_str().expect("a plain path"))
        .variable("LEASEHOLD_FENCE_PROXY_DRAIN", "55s")
        .start();
    assert_eq!(proxy.metric("bound_seconds{of=\"wait_max\"}"), 77.0);
    assert_eq!(proxy.metric("bound_seconds{of=\"drain\"}"), 55.0);
    let mut client = proxy.client();
    assert_eq!(client.call("PUT", "/elsewhere", &[], b"x").status, 201);
    client.call("PUT", "/ledger/x", &[], b"x").problem(428, "token_required");
}

#[test]
fn a_read_under_a_token_seals() {
    let (service, nginx) = (service(), Nginx::start());
    let proxy = trusting(&service, &nginx.url()).start();
    let mut client = proxy.client();
    client.send(&put("/a", "r", 33, "first")).expect("sent");
    assert_eq!(client.finish().status, 201);
    let under = [("Fencing-Resource", "r"), ("Fencing-Token", "34")];
    assert_eq!(client.call("GET", "/a", &under, b"").body, b"first");
    // What 34 has read stays what it read.
    client.send(&put("/a", "r", 33, "late")).expect("sent");
    client.finish().problem(412, "stale_token");
    assert_eq!(client.get("/a").body, b"first");
}

#[test]
fn a_strict_proxy_lets_each_token_pass_once() {
    let (service, nginx) = (service(), Nginx::start());
    let proxy = trusting(&service, &nginx.url()).switch("--strict").start();
    let mut client = proxy.client();
    for (token, status) in [(33, 201), (34, 204)] {
        client.send(&put("/a", "r", token, "x")).expect("sent");
        assert_eq!(client.finish().status, status, "{token}");
    }
    client.send(&put("/a", "r", 34, "again")).expect("sent");
    assert_eq!(client.finish().problem(412, "token_used")["token"], 34);
    assert_eq!(nginx.stored("a").as_deref(), Some(&b"x"[..]));
}
