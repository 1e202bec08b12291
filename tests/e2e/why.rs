//! Why somebody waits, or would.

use leasehold_harness::{Client, Server, Value, ask, ask_on, encode, eventually, json, with};

use crate::server;

#[track_caller]
fn why(client: &mut Client, resource: &str, query: &str) -> Value {
    let answer = client.get(&format!("/v1/lock/why?resource={}&{query}", encode(resource)));
    assert!(answer.header("leasehold-revision").is_some(), "{answer}");
    answer.ok()
}

#[track_caller]
fn waiting(server: &Server, body: &Value, place: u64) -> Client {
    let mut waiter = server.client();
    waiter.begin_acquire(&with(body.clone(), json!({"wait_ms": 30_000})));
    let resource = body["resource"].as_str().expect("a name");
    let mut watcher = server.client();
    eventually("it is in line", || watcher.queue_length(resource) == place);
    waiter
}

#[test]
fn a_client_learns_whether_it_holds_or_waits_and_for_whom() {
    let server = server();
    let mut client = server.client();
    let free = why(&mut client, "r", "client_id=a");
    assert_eq!((&free["state"], &free["client_id"]), (&json!("free"), &json!("a")), "{free}");
    assert!(free.get("code").is_none() && free.get("cycle").is_none(), "{free}");

    let token = client.acquire(&with(ask("r", "a", 60_000), json!({"request_id": "one"}))).token();
    let holds = why(&mut client, "r", "client_id=a");
    assert_eq!((&holds["state"], &holds["token"]), (&json!("holds"), &json!(token)), "{holds}");
    assert_eq!(holds["request_id"], "one");

    let would = why(&mut client, "r", "client_id=b");
    assert_eq!(
        (&would["state"], &would["code"]),
        (&json!("would_wait"), &json!("held")),
        "{would}"
    );
    assert_eq!(
        (&would["holders"][0]["token"], &would["holders_total"]),
        (&json!(token), &json!(1))
    );
    let text = would["explanation"].as_str().expect("a sentence");
    assert!(
        text.contains("client a holds the lock") && text.contains(&token.to_string()),
        "{text}"
    );

    let _first = waiting(&server, &ask("r", "b", 60_000), 1);
    let _second = waiting(&server, &with(ask("r", "c", 60_000), json!({"request_id": "two"})), 2);
    let waits = why(&mut client, "r", "client_id=c");
    assert_eq!(
        (&waits["state"], &waits["waiter"]["position"]),
        (&json!("waits"), &json!(2)),
        "{waits}"
    );
    assert_eq!((&waits["ahead"][0]["client_id"], &waits["ahead_total"]), (&json!("b"), &json!(1)));
    let used = |why: &Value, name: &str| {
        let limits = why["limits"].as_array().expect("limits").clone();
        limits.into_iter().find(|limit| limit["name"] == name).unwrap_or_else(|| panic!("{why}"))
    };
    assert_eq!(
        (&used(&waits, "queue_max")["used"], &used(&waits, "queue_max")["max"]),
        (&json!(2), &json!(256))
    );
    assert_eq!(used(&waits, "client_waiters_max")["used"], 1);
}

#[test]
fn a_request_is_found_by_its_id_with_and_without_its_client() {
    let server = server();
    let mut client = server.client();
    client.acquire(&with(ask("r", "a", 60_000), json!({"request_id": "one"}))).token();
    let _waiter = waiting(&server, &with(ask("r", "b", 60_000), json!({"request_id": "two"})), 1);
    for (query, state, who) in [
        ("request_id=one", "holds", json!("a")),
        ("request_id=two", "waits", json!("b")),
        ("client_id=b&request_id=two", "waits", json!("b")),
        ("client_id=a&request_id=two", "would_wait", json!("a")),
        ("request_id=three", "would_wait", Value::Null),
    ] {
        let found = why(&mut client, "r", query);
        assert_eq!(
            (&found["state"], &found["client_id"]),
            (&json!(state), &who),
            "{query}: {found}"
        );
    }
    // The same id at another resource is not meant.
    assert_eq!(why(&mut client, "s", "client_id=a&request_id=one")["state"], "free");
}

#[test]
fn the_nearest_eight_are_named_and_all_are_counted() {
    let server = server();
    let mut client = server.client();
    client.acquire(&ask("r", "a", 60_000)).token();
    let _line: Vec<Client> =
        (0..10).map(|i| waiting(&server, &ask("r", &format!("w{i}"), 60_000), i + 1)).collect();
    let last = why(&mut client, "r", "client_id=w9");
    let ahead: Vec<&str> = last["ahead"]
        .as_array()
        .expect("a line")
        .iter()
        .filter_map(|waiter| waiter["client_id"].as_str())
        .collect();
    assert_eq!(ahead, ["w0", "w1", "w2", "w3", "w4", "w5", "w6", "w7"]);
    assert_eq!((&last["ahead_total"], &last["waiter"]["position"]), (&json!(9), &json!(10)));
}

#[test]
fn a_place_that_is_kept_without_a_request_is_said_to_be_one() {
    let server = server();
    let mut client = server.client();
    client.acquire(&ask("r", "a", 60_000)).token();
    let body = with(ask("r", "b", 60_000), json!({"request_id": "one", "claim_ms": 60_000}));
    let waiter = waiting(&server, &body, 1);
    drop(waiter);
    eventually("nobody waits any more", || {
        why(&mut client, "r", "client_id=b")["state"] == "detached"
    });
}

#[test]
fn a_circle_is_shown_even_if_no_request_said_what_it_holds() {
    let server = server();
    let mut client = server.client();
    client.acquire(&ask("a", "one", 60_000)).token();
    let lease = client.open_lease("two", 60_000);
    client.acquire(&ask_on("b", "two", &lease)).token();
    // On an explicit lease, so that what it waits for is known to be its owner's.
    let _waits = waiting(&server, &ask_on("a", "two", &lease), 1);
    let would = why(&mut client, "b", "client_id=one");
    assert_eq!(would["state"], "would_wait", "{would}");
    let steps: Vec<_> = would["cycle"]
        .as_array()
        .unwrap_or_else(|| panic!("no cycle in {would}"))
        .iter()
        .map(|step| (step["client_id"].clone(), step["resource"].clone()))
        .collect();
    assert_eq!(steps, [(json!("one"), json!("b")), (json!("two"), json!("a"))]);
    assert!(why(&mut client, "b", "client_id=three").get("cycle").is_none());
}

#[test]
fn a_question_about_nobody_or_nothing_is_refused() {
    let server = server();
    let mut client = server.client();
    for (query, field) in [
        ("resource=r", "client_id"),
        ("client_id=a", "resource"),
        ("resource=r&client_id=", "client_id"),
        ("resource=r&request_id=", "request_id"),
        ("resource=r&client_id=a&token=3", "token"),
    ] {
        let answer = client.get(&format!("/v1/lock/why?{query}"));
        assert_eq!(answer.problem(400, "invalid_request")["field"], field, "{query}");
    }
}
