//! Every bound, reached: refused at once and by name, and the service goes on.

use leasehold_harness::{Answer, Client, Server, ask, ask_on, eventually, json, with};

use crate::{configured, server};

#[track_caller]
fn assert_shed(answer: &Answer, reason: &str) {
    let problem = answer.problem(429, "shed");
    assert_eq!(problem["reason"], reason, "{problem}");
    assert!(problem["retry_after_ms"].is_u64(), "{problem}");
}

fn wait_in(server: &Server, resource: &str, client: &str) -> Client {
    let mut waiter = server.client();
    waiter.begin_acquire(&with(ask(resource, client, 30_000), json!({"wait_ms": 30_000})));
    waiter
}

#[test]
fn a_full_line_refuses_the_next_waiter_and_has_room_again_when_one_leaves() {
    let server = server();
    let mut client = server.client();
    client.acquire(&ask("r", "holder", 60_000)).token();
    let mut waiters: Vec<Client> =
        (0..256).map(|i| wait_in(&server, "r", &format!("w{i}"))).collect();
    eventually("the line is full", || client.queue_length("r") == 256);

    let one_more = with(ask("r", "late", 30_000), json!({"wait_ms": 30_000}));
    let answer = client.acquire(&one_more);
    assert_shed(&answer, "queue_full");
    assert_eq!(answer.json()["queue_length"], 256);
    // Who does not wait is told what it asked for; other locks do not notice.
    client.acquire(&ask("r", "late", 30_000)).problem(409, "held");
    client.acquire(&ask("other", "late", 30_000)).token();

    waiters.truncate(255);
    eventually("one has left", || client.queue_length("r") == 255);
    let _last = wait_in(&server, "r", "late");
    eventually("the line is full again", || client.queue_length("r") == 256);
}

#[test]
fn the_tickets_of_one_client_are_bounded_and_another_client_is_not_concerned() {
    let server = configured().flag("--client-waiters-max", 3).start();
    let mut client = server.client();
    for i in 0..5 {
        client.acquire(&ask(&format!("r{i}"), "holder", 60_000)).token();
    }
    let _waiters: Vec<Client> =
        (0..3).map(|i| wait_in(&server, &format!("r{i}"), "greedy")).collect();
    for i in 0..3 {
        eventually("it is in line", || client.queue_length(&format!("r{i}")) == 1);
    }
    let wait = json!({"wait_ms": 30_000});
    assert_shed(&client.acquire(&with(ask("r3", "greedy", 30_000), wait)), "client");
    let _modest = wait_in(&server, "r3", "modest");
    eventually("the other one is in line", || client.queue_length("r3") == 1);
}

#[test]
fn the_tickets_of_all_clients_are_bounded() {
    let server = configured().flag("--waiters-max", 4).start();
    let mut client = server.client();
    client.acquire(&ask("r", "holder", 60_000)).token();
    let mut waiters: Vec<Client> =
        (0..4).map(|i| wait_in(&server, "r", &format!("w{i}"))).collect();
    eventually("all are in line", || client.queue_length("r") == 4);
    let one_more = with(ask("r", "late", 30_000), json!({"wait_ms": 30_000}));
    assert_shed(&client.acquire(&one_more), "capacity");
    waiters.pop();
    eventually("one has left", || client.queue_length("r") == 3);
    let _late = wait_in(&server, "r", "late");
    eventually("there is room", || client.queue_length("r") == 4);
}

#[test]
fn the_grants_in_all_are_bounded_and_a_release_makes_room() {
    let server = configured().flag("--grants-max", 10).start();
    let mut client = server.client();
    let tokens: Vec<u64> =
        (0..10).map(|i| client.acquire(&ask(&format!("r{i}"), "a", 60_000)).token()).collect();
    assert_shed(&client.acquire(&ask("r10", "a", 60_000)), "capacity");
    client.renew("r0", tokens[0]).ok();
    client.let_go("r0", tokens[0]);
    client.acquire(&ask("r10", "a", 60_000)).token();
}

#[test]
fn what_one_lease_can_hold_is_bounded() {
    let server = configured().flag("--lease-grants-max", 5).start();
    let mut client = server.client();
    let lease = client.open_lease("a", 60_000);
    let tokens: Vec<u64> =
        (0..5).map(|i| client.acquire(&ask_on(&format!("r{i}"), "a", &lease)).token()).collect();
    assert_shed(&client.acquire(&ask_on("r5", "a", &lease)), "capacity");
    client.let_go("r0", tokens[0]);
    client.acquire(&ask_on("r5", "a", &lease)).token();
}

#[test]
fn the_memory_of_a_clients_ended_requests_is_bounded_and_forgets_the_oldest() {
    let server = server();
    let mut client = server.client();
    let named = |i: u64| with(ask("r", "a", 60_000), json!({"request_id": format!("{i}")}));
    let mut first = 0;
    for i in 0..65 {
        let token = client.acquire(&named(i)).token();
        client.let_go("r", token);
        if i == 1 {
            first = token;
        }
    }
    assert_eq!(client.acquire(&named(1)).problem(410, "grant_ended")["token"], first);
    // The very first is forgotten, so the same id is a new request.
    assert!(client.acquire(&named(0)).token() > first);
}

#[test]
fn a_keep_alive_names_a_thousand_leases_at_most() {
    let server = server();
    let ids: Vec<String> = (0..1_001).map(|i| format!("{i:032x}")).collect();
    let answer = server.client().post("/v1/leases/keep-alive", &json!({"lease_ids": ids}));
    assert_eq!(answer.problem(400, "invalid_request")["field"], "lease_ids");
    let answer = server.client().post("/v1/leases/keep-alive", &json!({"lease_ids": ids[1..]}));
    assert_eq!(answer.status, 200, "{answer}");
}
