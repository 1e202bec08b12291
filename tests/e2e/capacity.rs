//! What a node takes on at once, bounded by its settings: the bound is reached, named, and passes.

use std::time::Duration;

use leasehold_harness::{Answer, Client, Value, ask, ask_on, eventually, json, with};

use crate::configured;

#[track_caller]
fn assert_no_room(answer: &Answer) {
    let problem = answer.problem(429, "shed");
    assert_eq!(problem["reason"], "capacity", "{problem}");
    assert!(problem["retry_after_ms"].is_u64(), "{problem}");
}

#[test]
fn the_leases_in_all_are_bounded_whether_opened_by_acquire_or_on_purpose() {
    let server = configured().flag("--leases-max", 4).start();
    let mut client = server.client();
    let lease = client.open_lease("a", 60_000);
    let tokens: Vec<u64> =
        (0..3).map(|i| client.acquire(&ask(&format!("r{i}"), "a", 60_000)).token()).collect();
    let open = json!({"client_id": "b", "ttl_ms": 60_000});
    assert_no_room(&client.acquire(&ask("r3", "b", 60_000)));
    assert_no_room(&client.post("/v1/leases", &open));
    // A waiter opens a lease as well, so it must not get into line without one.
    let wait = with(ask("r0", "b", 60_000), json!({"wait_ms": 10_000}));
    assert_no_room(&client.acquire(&wait));
    assert_eq!(client.queue_length("r0"), 0);
    // What needs no new lease is not concerned.
    client.acquire(&ask_on("r3", "a", &lease)).token();
    client.renew("r0", tokens[0]).ok();
    client.keep_alive(&lease).ok();

    client.let_go("r0", tokens[0]);
    client.acquire(&ask("r4", "b", 60_000)).token();
    assert_no_room(&client.post("/v1/leases", &open));
    client.call("DELETE", &format!("/v1/leases/{lease}"), &[], b"").ok();
    eventually("the lease is gone", || client.post("/v1/leases", &open).status < 300);
}

#[test]
fn the_metadata_of_all_clients_is_bounded_and_who_brings_none_is_not_concerned() {
    let server = configured().flag("--metadata-max-bytes", 100).start();
    let mut client = server.client();
    let with_metadata = |resource: &str, bytes: usize| -> Value {
        let metadata = json!({"k": "v".repeat(bytes - 1)});
        with(ask(resource, "a", 60_000), json!({"metadata": metadata}))
    };
    let token = client.acquire(&with_metadata("r0", 60)).token();
    assert_no_room(&client.acquire(&with_metadata("r1", 60)));
    let open = json!({"client_id": "b", "ttl_ms": 60_000, "metadata": {"k": "v".repeat(59)}});
    assert_no_room(&client.post("/v1/leases", &open));
    assert_eq!(client.lock("r1")["state"], "free");
    client.acquire(&ask("r1", "a", 60_000)).token();
    client.acquire(&with_metadata("r2", 20)).token();

    client.let_go("r0", token);
    client.acquire(&with_metadata("r3", 60)).token();
}

#[test]
fn a_full_queue_in_front_of_the_log_refuses_acquires_at_once_and_no_answer_hangs() {
    let server = configured()
        .flag("--propose-queue-max", 1)
        .flag("--batch-max", 1)
        .flag("--batches-in-flight-max", 1)
        .start();
    let mut clients: Vec<Client> = (0..40).map(|_| server.client()).collect();
    let mut refused = 0;
    // How many arrive at the same moment is up to the machine.
    for round in 0..50 {
        for (i, client) in clients.iter_mut().enumerate() {
            client.begin_acquire(&ask(&format!("r{round}/{i}"), "a", 60_000));
        }
        // Reading every answer is the test that none hangs.
        let answers: Vec<Answer> = clients.iter_mut().map(Client::finish).collect();
        let mut granted = Vec::new();
        for (i, answer) in answers.iter().enumerate() {
            let took = answer.received - answer.sent;
            assert!(took < Duration::from_secs(20), "{took:?} until {answer}");
            let resource = format!("r{round}/{i}");
            if answer.status == 200 {
                granted.push((resource, answer.token()));
            } else {
                let problem = answer.problem(503, "overloaded");
                assert!(problem["retry_after_ms"].is_u64(), "{problem}");
                assert_eq!(server.client().lock(&resource)["state"], "free", "{resource}");
                refused += 1;
            }
        }
        assert!(!granted.is_empty(), "somebody is always served");
        // One after the other: what frees locks has a queue of its own, and that is small as well.
        for (resource, token) in &granted {
            clients[0].let_go(resource, *token);
        }
        if refused > 0 {
            break;
        }
    }
    assert!(refused > 0, "the queue was never full");
    clients[0].acquire(&ask("afterwards", "a", 60_000)).token();
}

#[test]
fn a_connection_beyond_the_bound_is_served_when_another_one_ends() {
    let server = configured().flag("--http-workers", 1).flag("--connections-max", 4).start();
    let mut inside: Vec<Client> = (0..4).map(|_| server.client()).collect();
    for client in &mut inside {
        assert_eq!(client.get("/livez").status, 200);
    }
    let mut outside = server.client();
    outside.send(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("the kernel takes it");
    // Nothing announces that an answer does not come; many others come in the meantime.
    for _ in 0..200 {
        for client in &mut inside {
            assert_eq!(client.get("/livez").status, 200);
        }
    }
    assert!(!outside.has_answer(), "a fifth connection was served");
    inside.pop();
    assert_eq!(outside.finish().status, 200);
    assert_eq!(inside[0].get("/livez").status, 200);
}
