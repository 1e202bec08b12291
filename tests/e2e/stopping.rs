//! What a stop leaves behind in the lines, and that a restart serves only who is there.

use std::time::{Duration, Instant};

use leasehold_harness::{Client, Server, Value, ask, eventually, json, with};

use crate::server;

const DRAIN: Duration = Duration::from_secs(12);

fn patient(client: &str, more: Value) -> Value {
    with(with(ask("r", client, 60_000), json!({"wait_ms": 60_000})), more)
}

#[track_caller]
fn queue(server: &Server, body: &Value, place: u64) -> Client {
    let mut waiter = server.client();
    waiter.begin_acquire(body);
    let mut watcher = server.client();
    eventually("the waiter is in line", || watcher.queue_length("r") == place);
    waiter
}

#[track_caller]
fn line(client: &mut Client) -> Vec<String> {
    let lock = client.lock("r");
    let queue = lock["queue"].as_array().cloned().unwrap_or_default();
    queue.iter().filter_map(|ticket| ticket["client_id"].as_str()).map(str::to_owned).collect()
}

#[test]
fn after_a_stop_a_named_waiter_finds_its_place_again_and_a_nameless_one_has_left() {
    let mut server = server();
    let token = server.client().acquire(&ask("r", "a", 60_000)).token();
    let named = patient("named", json!({"request_id": "1"}));
    let mut first = queue(&server, &patient("nameless", json!({})), 1);
    let mut second = queue(&server, &named, 2);
    let mut third = queue(&server, &patient("nameless too", json!({})), 3);
    server.begin_stop();
    for waiter in [&mut first, &mut second, &mut third] {
        waiter.finish().problem(503, "shutting_down");
    }
    let status = server.finish_stop(DRAIN);
    assert!(status.success(), "{status}");

    server.restart();
    let mut client = server.client();
    let mut back = server.client();
    back.begin_acquire(&named);
    // Nobody can come back for a request without a name, so its place serves nobody.
    eventually("only the named one is in line", || line(&mut client) == ["named"]);
    client.let_go("r", token);
    let grant = back.finish();
    assert_eq!(grant.ok()["client_id"], "named");
    // Two seconds are the window for which a lost place is kept; nobody else may turn up.
    client.let_go("r", grant.token());
    assert_eq!(client.lock("r")["state"], "free");
    assert_eq!(client.lock("r")["last_token"], grant.token());
}

#[test]
fn a_release_right_after_a_restart_grants_to_nobody_who_is_gone() {
    let mut server = server();
    let token = server.client().acquire(&ask("r", "a", 60_000)).token();
    let mut waiters = [
        queue(&server, &patient("nameless", json!({})), 1),
        queue(&server, &patient("named", json!({"request_id": "1"})), 2),
    ];
    server.begin_stop();
    for waiter in &mut waiters {
        waiter.finish().problem(503, "shutting_down");
    }
    server.finish_stop(DRAIN);

    server.restart();
    let mut client = server.client();
    client.let_go("r", token);
    let lock = client.lock("r");
    assert_eq!((&lock["state"], &lock["last_token"]), (&json!("free"), &json!(token)), "{lock}");
    // Who is there does not wait for who is not.
    let asked = Instant::now();
    let grant = client.acquire(&patient("live", json!({})));
    assert_eq!(grant.ok()["client_id"], "live");
    assert!(asked.elapsed() < Duration::from_secs(2), "it took {:?}", asked.elapsed());
}

#[test]
fn a_release_during_the_stop_is_done_or_refused_and_grants_to_nobody_either_way() {
    let mut server = server();
    let mut holder = server.client();
    let token = holder.acquire(&ask("r", "a", 60_000)).token();
    let mut waiters: Vec<Client> = (1..=5)
        .map(|i| queue(&server, &patient(&format!("w{i}"), json!({"request_id": "1"})), i))
        .collect();
    server.begin_stop();
    // The answer of one shows that the stop has begun, so the release comes after that.
    waiters[0].finish().problem(503, "shutting_down");
    let release = holder.try_post("/v1/release-lock", &json!({"resource": "r", "token": token}));
    let mut granted = Vec::new();
    for waiter in &mut waiters[1..] {
        let answer = waiter.finish();
        match answer.status {
            200 => granted.push(answer.token()),
            _ => drop(answer.problem(503, "shutting_down")),
        }
    }
    assert_eq!(granted, [0; 0], "who was told to come back later must not hold it");
    let status = server.finish_stop(DRAIN);
    assert!(status.success(), "{status}");

    server.restart();
    let mut client = server.client();
    match release {
        Ok(answer) if answer.status == 200 => assert_eq!(client.holders("r"), [0; 0]),
        Ok(answer) => {
            answer.problem(503, "shutting_down");
            assert_eq!(client.holders("r"), [token]);
            client.let_go("r", token);
        }
        // No answer: either is right, but nothing else.
        Err(_) => drop(client.release("r", token).ok()),
    }
    let lock = client.lock("r");
    assert_eq!((&lock["state"], &lock["last_token"]), (&json!("free"), &json!(token)), "{lock}");
}

/// Nobody saw them hang up, so each may be granted once and costs a window; but their places end
/// with the TTL that a takeover gives them, however many they are.
#[test]
fn ghosts_of_a_killed_node_delay_a_live_waiter_by_their_ttl_at_most() {
    let mut server = server();
    let token = server.client().acquire(&ask("r", "a", 60_000)).token();
    let ghosts: Vec<Client> = (1..=20)
        .map(|i| {
            // A name is what keeps a place; without one there is nothing to come back to.
            let more = if i % 2 == 0 { json!({"request_id": "1"}) } else { json!({}) };
            let body = with(patient(&format!("g{i}"), more), json!({"ttl_ms": 5_000}));
            queue(&server, &body, i)
        })
        .collect();
    server.kill9();
    drop(ghosts);

    server.restart();
    let mut client = server.client();
    let mut live = server.client();
    live.begin_acquire(&patient("live", json!({})));
    eventually("it is in line", || line(&mut client).iter().any(|who| who == "live"));
    let released = Instant::now();
    client.let_go("r", token);
    assert_eq!(live.finish().ok()["client_id"], "live");
    // The last one to be granted adds its window, and the machine may be loaded.
    let delay = released.elapsed();
    assert!(delay < Duration::from_secs(11), "the live one waited {delay:?}");
}
