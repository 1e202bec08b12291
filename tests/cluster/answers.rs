//! Any node answers: requests go to the leader, and clients need not know who that is.

use std::time::Duration;

use leasehold_harness::{Watcher, ask, eventually, json, with};

use crate::nodes;

#[test]
fn a_node_that_does_not_lead_passes_everything_on() {
    let cluster = nodes().start(3);
    let (leader, follower) = (cluster.leader(), cluster.follower());
    let mut client = cluster.client(follower);
    let answer = client.acquire(&ask("pay/1", "a", 30_000));
    assert_eq!(answer.header("leasehold-leader"), Some(&*leader.to_string()), "{answer}");
    let token = answer.token();
    assert_eq!(cluster.client(leader).holders("pay/1"), [token]);
    assert_eq!(client.holders("pay/1"), [token]);
    let refused = client.acquire(&ask("pay/1", "b", 30_000));
    assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("held")), "{refused}");
    assert!(refused.json()["holders"][0]["expires_in_ms"].as_u64() > Some(0), "{refused}");
    let renewed = client.renew("pay/1", token);
    assert!(renewed.valid_for() > Duration::from_secs(20), "{renewed}");
    client.let_go("pay/1", token);
    let malformed = client.post("/v1/acquire-lock", &json!({"resource": "a", "ttl": 1}));
    assert_eq!(malformed.status, 400, "{malformed}");
}

#[test]
fn a_wait_through_another_node_ends_with_a_grant_or_with_its_connection() {
    let cluster = nodes().start(3);
    let (leader, follower) = (cluster.leader(), cluster.follower());
    let mut holder = cluster.client(leader);
    let first = holder.acquire(&ask("q", "a", 60_000)).token();
    let wait = |who: &str| with(ask("q", who, 60_000), json!({"wait_ms": 60_000}));
    let mut gone = cluster.client(follower);
    gone.begin_acquire(&wait("b"));
    eventually("it stands in line", || holder.queue_length("q") == 1);
    let mut stays = cluster.client(follower);
    stays.begin_acquire(&wait("c"));
    eventually("both stand in line", || holder.queue_length("q") == 2);
    drop(gone);
    eventually("who hung up has left", || holder.queue_length("q") == 1);
    holder.let_go("q", first);
    let granted = stays.finish();
    assert!(granted.token() > first, "{granted}");
    assert_eq!(granted.ok()["client_id"], "c");
}

/// Transitions that a watcher follows while it is cut and moved.
const TRANSITIONS: usize = 600;

#[test]
fn a_watcher_that_moves_between_nodes_is_told_every_change_once_and_in_order() {
    let cluster = nodes().start(3);
    let addresses = cluster.addresses();
    let mut watcher = Watcher::new(addresses[0], "prefix=w/", None);
    watcher.connect();
    let mut client = cluster.client(cluster.leader());
    let worked = std::thread::scope(|scope| {
        let working = scope.spawn(move || {
            let mut expected = Vec::new();
            for round in 0..TRANSITIONS / 2 {
                let resource = format!("w/{}", round % 3);
                let token = client.acquire(&ask(&resource, "a", 30_000)).token();
                client.let_go(&resource, token);
                expected.extend([("granted".to_owned(), token), ("released".to_owned(), token)]);
            }
            expected
        });
        let mut told = Vec::new();
        while told.len() < TRANSITIONS {
            let event = watcher.wait().event();
            let kind = event["event"].as_str().expect("a kind").to_owned();
            told.push((kind, event["token"].as_u64().expect("a token")));
            if told.len() % 20 == 0 {
                watcher.moved_to(addresses[told.len() / 20 % addresses.len()]);
            }
        }
        (told, working.join().expect("the worker ends"))
    });
    assert_eq!(worked.0, worked.1);
}
