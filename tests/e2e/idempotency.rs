//! An answer that got lost: the same request again must have the effect of once.

use leasehold_harness::{Value, ask, eventually, json, with};

use crate::server;

fn named(resource: &str, request_id: &str, ttl_ms: u64) -> Value {
    with(ask(resource, "a", ttl_ms), json!({"request_id": request_id}))
}

#[test]
fn a_repeated_request_gets_the_same_grant_and_not_a_second_one() {
    let server = server();
    let mut client = server.client();
    let first = client.acquire(&named("r", "1", 10_000));
    // The answer is lost with its connection; the client comes back on another one.
    let repeat = server.client().acquire(&named("r", "1", 10_000));
    assert_eq!(repeat.token(), first.token());
    assert_eq!(repeat.ok()["lease_id"], first.ok()["lease_id"]);
    assert_eq!(client.lock("r")["last_token"], first.token());
    client.let_go("r", first.token());
}

#[test]
fn a_repeat_renews_the_grant_that_it_finds() {
    let server = server();
    let mut client = server.client();
    let first = client.acquire(&named("r", "1", 1_000));
    let deadline = first.received + std::time::Duration::from_millis(2_500);
    while std::time::Instant::now() < deadline {
        let repeat = client.acquire(&named("r", "1", 1_000));
        assert_eq!(repeat.token(), first.token());
        assert!(repeat.ok()["expires_in_ms"].as_u64().is_some_and(|ms| ms > 500), "{repeat}");
    }
}

#[test]
fn a_repeat_after_the_end_of_the_grant_gets_its_token_and_no_new_grant() {
    let server = server();
    let mut client = server.client();
    let released = client.acquire(&named("released", "1", 10_000)).token();
    client.let_go("released", released);
    let expired = client.acquire(&named("expired", "2", 500)).token();
    eventually("the grant expires", || client.lock("expired")["state"] == "free");

    for (resource, id, ttl, token) in
        [("released", "1", 10_000, released), ("expired", "2", 500, expired)]
    {
        let problem = client.acquire(&named(resource, id, ttl)).problem(410, "grant_ended");
        assert_eq!((&problem["how"], &problem["token"]), (&json!(resource), &json!(token)));
        assert_eq!(client.lock(resource)["state"], "free");
    }
}

#[test]
fn the_same_request_id_with_other_content_is_refused() {
    let server = server();
    let mut client = server.client();
    let token = client.acquire(&named("r", "1", 10_000)).token();
    let others = [
        named("other", "1", 10_000),
        named("r", "1", 20_000),
        with(named("r", "1", 10_000), json!({"mode": "shared"})),
    ];
    for other in &others {
        client.acquire(other).problem(422, "request_id_reused");
    }
    client.let_go("r", token);
    // Also after the end, while the id is remembered.
    client.acquire(&others[0]).problem(422, "request_id_reused");
    // The id belongs to one client: another one may use it for what it likes.
    let body = json!({"resource": "r", "client_id": "b", "ttl_ms": 10_000, "request_id": "1"});
    assert!(client.acquire(&body).token() > token);
}

#[test]
fn the_header_and_the_field_are_the_same_thing() {
    let server = server();
    let mut client = server.client();
    let body = ask("r", "a", 10_000).to_string();
    let by_header =
        client.call("POST", "/v1/acquire-lock", &[("Idempotency-Key", "k")], body.as_bytes());
    let by_field = client.acquire(&named("r", "k", 10_000));
    assert_eq!(by_field.token(), by_header.token());

    // A request that says two different things is a mistake that must not go unnoticed.
    let body = named("r2", "k2", 10_000).to_string();
    let both =
        client.call("POST", "/v1/acquire-lock", &[("Idempotency-Key", "k3")], body.as_bytes());
    both.problem(400, "invalid_request");
}

#[test]
fn without_a_request_id_a_second_acquire_by_the_same_client_is_a_conflict() {
    let server = server();
    let mut client = server.client();
    let token = client.acquire(&ask("r", "a", 10_000)).token();
    let problem = client.acquire(&ask("r", "a", 10_000)).problem(409, "held");
    assert_eq!(problem["holders"][0]["client_id"], "a", "{problem}");
    client.let_go("r", token);
}

#[test]
fn request_ids_are_remembered_across_a_restart() {
    let mut server = server();
    let mut client = server.client();
    let live = client.acquire(&named("live", "1", 60_000)).token();
    let ended = client.acquire(&named("ended", "2", 60_000)).token();
    client.let_go("ended", ended);

    server.kill9();
    server.restart();

    let mut client = server.client();
    assert_eq!(client.acquire(&named("live", "1", 60_000)).token(), live);
    let problem = client.acquire(&named("ended", "2", 60_000)).problem(410, "grant_ended");
    assert_eq!(problem["token"], ended);
    client.acquire(&named("other", "1", 60_000)).problem(422, "request_id_reused");
}
