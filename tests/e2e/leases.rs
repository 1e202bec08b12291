//! Leases that clients open themselves: many grants, one heartbeat, one end.

use leasehold_harness::{Answer, Client, ask, ask_on, eventually, json, with};

use crate::server;

fn end(client: &mut Client, lease: &str) -> Answer {
    client.call("DELETE", &format!("/v1/leases/{lease}"), &[], b"")
}

#[test]
fn ending_a_lease_ends_all_its_grants_and_tickets_and_serves_who_waits() {
    let server = server();
    let mut client = server.client();
    let lease = client.open_lease("a", 60_000);
    for i in 0..50 {
        client.acquire(&ask_on(&format!("r{i}"), "a", &lease)).token();
    }
    let other = client.acquire(&ask("other", "b", 60_000)).token();
    let mut own_ticket = server.client();
    own_ticket.begin_acquire(&with(ask_on("other", "a", &lease), json!({"wait_ms": 30_000})));
    eventually("its ticket is in line", || client.queue_length("other") == 1);
    let mut next = server.client();
    next.begin_acquire(&with(ask("r7", "b", 60_000), json!({"wait_ms": 30_000})));
    eventually("somebody waits for it", || client.queue_length("r7") == 1);

    assert_eq!(end(&mut client, &lease).ok()["ended"], true);

    assert_eq!(next.finish().ok()["client_id"], "b");
    own_ticket.finish().problem(410, "lease_ended");
    eventually("all are free", || client.lock("r49")["state"] == "free");
    assert_eq!(client.lock("r0")["state"], "free");
    assert_eq!(client.holders("other"), [other]);
    client.keep_alive(&lease).problem(410, "lease_ended");
    client.acquire(&ask_on("late", "a", &lease)).problem(410, "lease_ended");
}

#[test]
fn a_lease_shows_what_is_on_it_and_when_it_ends() {
    let server = server();
    let mut client = server.client();
    let opened = json!({"client_id": "a", "ttl_ms": 60_000, "metadata": {"host": "h1"}});
    let opened = client.post("/v1/leases", &opened).json();
    let lease = opened["lease_id"].as_str().expect("an id");
    assert_eq!(opened["ttl_ms"], 60_000, "{opened}");
    assert!(opened["valid_for_ms"].as_u64() <= opened["expires_in_ms"].as_u64(), "{opened}");
    let token = client.acquire(&ask_on("r", "a", lease)).token();

    let shown = client.get(&format!("/v1/leases/{lease}")).ok();
    assert_eq!((&shown["lease_id"], &shown["client_id"]), (&json!(lease), &json!("a")));
    assert_eq!((&shown["grants"][0]["token"], &shown["grants_total"]), (&json!(token), &json!(1)));
    let ends = ["earliest_end_in_ms", "latest_end_in_ms"].map(|end| shown[end].as_u64());
    assert!(ends[0].is_some() && ends[0] <= ends[1], "{shown}");

    // A release ends the grant; a lease opened on purpose lives on.
    client.let_go("r", token);
    assert_eq!(client.keep_alive(lease).status, 200);
}

#[test]
fn a_lease_that_nobody_keeps_alive_ends_with_everything_on_it() {
    let server = server();
    let mut client = server.client();
    let lease = client.open_lease("a", 700);
    for resource in ["x", "y"] {
        client.acquire(&ask_on(resource, "a", &lease)).token();
    }
    for resource in ["x", "y"] {
        eventually("it comes free", || client.lock(resource)["state"] == "free");
    }
    client.keep_alive(&lease).problem(410, "lease_ended");
}

#[test]
fn a_lease_belongs_to_its_client_and_an_unknown_one_is_not_found() {
    let server = server();
    let mut client = server.client();
    let lease = client.open_lease("a", 60_000);
    let stolen = client.acquire(&ask_on("r", "b", &lease)).problem_of_any_kind();
    assert_ne!(stolen["code"], "internal", "{stolen}");
    assert_eq!(client.lock("r")["state"], "free");

    let unknown = "0".repeat(lease.len());
    client.get(&format!("/v1/leases/{unknown}")).problem(404, "not_found");
    client.get("/v1/leases/not-an-id").problem_of_any_kind();
    // Whoever acts on an id that is not known any more cannot know whether it ever was.
    let acted = client.keep_alive(&unknown).problem_of_any_kind();
    assert!(acted["code"] == "lease_ended" || acted["code"] == "not_found", "{acted}");
}

#[test]
fn a_lease_survives_a_restart_with_its_full_ttl_and_its_grants() {
    let mut server = server();
    let mut client = server.client();
    let lease = client.open_lease("a", 10_000);
    let token = client.acquire(&ask_on("r", "a", &lease)).token();

    server.kill9();
    server.restart();

    let mut client = server.client();
    assert_eq!(client.holders("r"), [token]);
    let kept = client.keep_alive(&lease).ok();
    assert!(kept["expires_in_ms"].as_u64().is_some_and(|ms| ms > 8_000), "{kept}");
}
