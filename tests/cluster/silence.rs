//! Nodes that are silent for a while, and for less than an election.

use std::time::Duration;

use leasehold_harness::{Client, Cluster, ask, eventually, json, with};

use crate::nodes;

/// Of the profile that the nodes have, whose times a busy machine does not reach by itself.
const LEASE: Duration = Duration::from_secs(3);
/// A refusal would have come in less.
const REFUSED_WITHIN: Duration = Duration::from_millis(300);
/// The machine may be too slow for some of them.
const ATTEMPTS: usize = 10;

/// Longer than nodes wait for a word about what they have passed on.
const LOST: Duration = Duration::from_millis(1_500);

/// It is sent to the same leader again, which knows it by its id.
#[test]
fn a_wait_through_another_node_outlives_a_moment_without_its_leader() {
    let cluster = nodes().flag("--raft-profile", "wan").start(3);
    let (leader, follower) = (cluster.leader(), cluster.follower());
    let mut client = cluster.client(leader);
    let held = client.acquire(&ask("q", "a", 60_000)).token();
    let waits = with(ask("q", "b", 60_000), json!({"wait_ms": 60_000, "request_id": "b"}));
    let mut waiter = cluster.client(follower);
    waiter.begin_acquire(&waits);
    eventually("it stands in line", || client.queue_length("q") == 1);

    cluster.node(leader).freeze();
    let mut beside = cluster.client(follower);
    eventually("the leader is lost", || silent_for(&mut beside) > LOST || waiter.has_answer());
    cluster.node(leader).thaw();
    client.let_go("q", held);
    assert!(waiter.finish().token() > held);
}

#[test]
fn a_lease_that_has_run_out_is_waited_for_while_the_term_lasts() {
    let cluster = nodes().flag("--raft-profile", "wan").start(3);
    assert!(
        (0..ATTEMPTS).any(|attempt| was_waited_for(&cluster, &format!("r/{attempt}"))),
        "no leader kept its term over {LEASE:?} of silence in {ATTEMPTS} attempts"
    );
}

/// Whether the leader outlived the silence, and if so, has granted what was asked meanwhile.
fn was_waited_for(cluster: &Cluster, resource: &str) -> bool {
    let leader = cluster.leader();
    let mut client = cluster.client(leader);
    let led = term(&mut client);
    let followers: Vec<u64> = cluster.up().into_iter().filter(|id| *id != leader).collect();
    followers.iter().for_each(|id| cluster.node(*id).freeze());
    eventually("the lease has run out", || silent_for(&mut client) > LEASE);
    let mut asking = cluster.client(leader);
    asking.begin_acquire(&ask(resource, "a", 60_000));
    let asked_at = silent_for(&mut client);
    eventually("a refusal would be there", || {
        asking.has_answer() || silent_for(&mut client) > asked_at + REFUSED_WITHIN
    });
    followers.iter().for_each(|id| cluster.node(*id).thaw());
    let answer = asking.finish();
    if cluster.leader() != leader || term(&mut client) != led {
        return false;
    }
    assert_eq!(answer.status, 200, "it led all the time: {answer}");
    true
}

/// For how long no quorum has answered this node, or its leader has said nothing.
fn silent_for(client: &mut Client) -> Duration {
    let answer = client.get("/v1/locks?consistency=stale");
    let age = answer.header("leasehold-age-ms").and_then(|age| age.parse().ok());
    Duration::from_millis(age.unwrap_or_else(|| panic!("an age: {answer}")))
}

fn term(client: &mut Client) -> u64 {
    let mut term = None;
    eventually("the cluster is described", || {
        let answer = client.get("/v1/cluster");
        term = (answer.status == 200).then(|| answer.json()["term"].as_u64()).flatten();
        term.is_some()
    });
    term.expect("a term")
}
