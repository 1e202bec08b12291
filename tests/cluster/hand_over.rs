//! Leadership changes hands in good order when a node is stopped.

use std::time::Duration;

use leasehold_harness::{ask, eventually, json, with};

use crate::nodes;

/// What the drain may take, and a little for a loaded machine.
const DRAIN: Duration = Duration::from_secs(30);

#[test]
fn a_leader_that_is_stopped_has_an_heir_before_it_is_gone() {
    let mut cluster = nodes().start(3);
    let leader = cluster.leader();
    let follower = cluster.follower();
    let mut client = cluster.client(leader);
    let held = client.acquire(&ask("r", "a", 600_000)).token();
    let waits = with(ask("r", "b", 600_000), json!({"wait_ms": 60_000, "request_id": "q"}));
    let mut waiter = cluster.client(leader);
    waiter.begin_acquire(&waits);
    eventually("it stands in line", || client.queue_length("r") == 1);

    cluster.node(leader).begin_stop();
    waiter.finish().problem(503, "shutting_down");
    let status = cluster.node_mut(leader).finish_stop(DRAIN);
    assert!(status.success(), "{status}");
    // Asked once, at once: nobody has to be elected first.
    let mut client = cluster.client(follower);
    assert!(client.acquire(&ask("s", "a", 60_000)).token() > held);
    assert_eq!(client.queue_length("r"), 1, "its place is kept");
    let mut waiter = cluster.client(follower);
    waiter.begin_acquire(&waits);
    client.let_go("r", held);
    assert!(waiter.finish().token() > held);
}
