//! Waits that could never end are refused, with the circle that they would close.

use leasehold_harness::{Answer, Client, Server, Value, ask, ask_on, eventually, json, with};

use crate::server;

#[test]
fn two_leases_that_would_wait_for_each_other_are_told_so() {
    let server = server();
    let mut client = server.client();
    let (one, two) = (client.open_lease("one", 30_000), client.open_lease("two", 30_000));
    client.acquire(&ask_on("a", "one", &one)).token();
    let b = client.acquire(&ask_on("b", "two", &two)).token();
    let mut first = waiting(&server, &ask_on("b", "one", &one), 1);

    let answer = client.acquire(&with(ask_on("a", "two", &two), json!({"wait_ms": 30_000})));
    assert_cycle(&answer, &["a", "b"]);
    assert_eq!(client.queue_length("a"), 0, "the refused one does not stand in line");
    // Trying once is no wait, so there is nothing to refuse but the lock itself.
    client.acquire(&ask_on("a", "two", &two)).problem(409, "held");

    client.let_go("b", b);
    assert_eq!(first.finish().ok()["lease_id"], one, "the first wait was not harmed");
}

#[test]
fn a_circle_of_three_is_seen_as_well() {
    let server = server();
    let mut client = server.client();
    let names = ["a", "b", "c"];
    let leases: Vec<String> = names.iter().map(|name| client.open_lease(name, 30_000)).collect();
    for (name, lease) in names.iter().zip(&leases) {
        client.acquire(&ask_on(name, name, lease)).token();
    }
    let _first = waiting(&server, &ask_on("b", "a", &leases[0]), 1);
    let _second = waiting(&server, &ask_on("c", "b", &leases[1]), 1);
    let third = with(ask_on("a", "c", &leases[2]), json!({"wait_ms": 30_000}));
    assert_cycle(&client.acquire(&third), &names);
}

#[test]
fn locks_with_leases_of_their_own_are_known_by_what_the_request_says_it_holds() {
    let server = server();
    let mut client = server.client();
    let a = client.acquire(&ask("a", "one", 30_000)).token();
    let b = client.acquire(&ask("b", "two", 30_000)).token();
    let holding =
        |resource: &str, token: u64| json!({"holding": [{"resource": resource, "token": token}]});
    let mut first = waiting(&server, &with(ask("b", "one", 30_000), holding("a", a)), 1);
    let second = with(ask("a", "two", 30_000), holding("b", b));
    assert_cycle(&client.acquire(&with(second, json!({"wait_ms": 30_000}))), &["a", "b"]);
    client.let_go("b", b);
    assert_eq!(first.finish().ok()["client_id"], "one");
}

#[test]
fn a_lease_that_waits_for_what_it_holds_itself_is_the_shortest_circle() {
    let server = server();
    let mut client = server.client();
    let lease = client.open_lease("one", 30_000);
    client.acquire(&ask_on("a", "one", &lease)).token();
    let again = with(ask_on("a", "one", &lease), json!({"wait_ms": 30_000}));
    assert_cycle(&client.acquire(&again), &["a"]);
}

#[test]
fn waiting_in_one_direction_is_no_circle() {
    let server = server();
    let mut client = server.client();
    let (one, two) = (client.open_lease("one", 30_000), client.open_lease("two", 30_000));
    client.acquire(&ask_on("a", "one", &one)).token();
    let b = client.acquire(&ask_on("b", "one", &one)).token();
    let _on_a = waiting(&server, &ask_on("a", "two", &two), 1);
    let mut on_b = waiting(&server, &ask_on("b", "two", &two), 1);
    client.let_go("b", b);
    assert_eq!(on_b.finish().ok()["lease_id"], two);
}

#[track_caller]
fn waiting(server: &Server, body: &Value, place: u64) -> Client {
    let mut waiter = server.client();
    waiter.begin_acquire(&with(body.clone(), json!({"wait_ms": 30_000})));
    let resource = body["resource"].as_str().expect("a name");
    let mut watcher = server.client();
    eventually("the waiter is in line", || watcher.queue_length(resource) == place);
    waiter
}

#[track_caller]
fn assert_cycle(answer: &Answer, resources: &[&str]) {
    let problem = answer.problem(409, "would_deadlock");
    let cycle = problem["cycle"].as_array().unwrap_or_else(|| panic!("no cycle in {problem}"));
    assert_eq!(cycle.len(), resources.len(), "{problem}");
    for resource in resources {
        assert!(cycle.iter().any(|step| step["resource"] == *resource), "{resource} in {problem}");
    }
}
