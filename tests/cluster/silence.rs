//! Nodes that are silent for a while, and for less than an election.

use std::time::{Duration, Instant};

use leasehold_harness::{Answer, Client, Cluster, ask, eventually, json, with, within};

use crate::faults::wires;
use crate::nodes;

/// Of the profile that the nodes have, whose times a busy machine does not reach by itself.
const LEASE: Duration = Duration::from_secs(3);
/// A refusal would have come in less.
const REFUSED_WITHIN: Duration = Duration::from_millis(300);
/// Above any election, so that only a hang exhausts it.
const PATIENCE: Duration = Duration::from_secs(90);
/// The machine may be too slow for some of them.
const ATTEMPTS: usize = 10;

/// Longer than nodes wait for a word about what they have passed on, by the age of what a follower
/// holds: that is up to three heartbeats more than its leader has been silent for.
const LOST: Duration = Duration::from_millis(3_000);

/// How long a node stands still whose answers are read then, and how many of them.
const STOOD_STILL: Duration = Duration::from_secs(1);
const STALE_READS: usize = 64;
const PAGE: usize = 500;
const ASK_STALE: &str = "GET /v1/locks?prefix=late&limit=1000&consistency=stale HTTP/1.1\r\n\
    Host: localhost\r\n\r\n";

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

/// The words of the leader that lay in its sockets meanwhile are not news.
#[test]
fn a_node_that_stood_still_is_not_younger_than_what_it_lacks() {
    let cluster = nodes().start(3);
    let (leader, follower) = (cluster.leader(), cluster.follower());
    let mut client = cluster.client(leader);
    let mut stale = cluster.client(follower);
    stale.get("/v1/locks?consistency=stale").ok();
    // A page that takes a while to write: meanwhile the node hears of more.
    for nth in 0..PAGE {
        client.acquire(&ask(&format!("late/page/{nth}"), "a", 600_000)).token();
    }
    let mut lacked = 0;
    for attempt in 0..ATTEMPTS {
        let resource = format!("late/{attempt}");
        cluster.node(follower).freeze();
        stale.send(ASK_STALE.repeat(STALE_READS).as_bytes()).expect("its socket takes them");
        client.acquire(&ask(&resource, "a", 60_000)).token();
        let written_at = Instant::now();
        while written_at.elapsed() < STOOD_STILL {
            let token = client.acquire(&ask("other", "a", 60_000)).token();
            client.let_go("other", token);
        }
        let without_it = written_at.elapsed();
        cluster.node(follower).thaw();
        for _ in 0..STALE_READS {
            let answer = stale.read().expect("it goes on");
            let page = answer.ok();
            let items = page["items"].as_array().expect("a page");
            if items.iter().all(|lock| lock["resource"] != *resource) {
                lacked += 1;
                assert!(
                    age(&answer) >= without_it,
                    "{without_it:?} without it: {:?}",
                    age(&answer)
                );
            }
        }
        eventually("it is up to date", || silent_for(&mut stale) < STOOD_STILL);
    }
    assert!(lacked > 0, "none of the answers was old");
}

/// It speaks until it notices that nobody follows it any more, and knows nothing new.
#[test]
fn who_hears_a_leader_of_the_past_is_not_younger_than_what_it_lacks() {
    let Some(network) = wires(5) else { return };
    let cluster = nodes().on(&network).start(5);
    let (past, beside) = (cluster.leader(), cluster.follower());
    let others: Vec<u64> =
        cluster.up().into_iter().filter(|id| ![past, beside].contains(id)).collect();
    for (one, other) in
        [past, beside].iter().flat_map(|one| others.iter().map(move |id| (*one, *id)))
    {
        network.cut(one, other);
        network.cut(other, one);
    }
    cluster.node(past).freeze();
    let leader = cluster.leader_among(&others);
    let mut client = cluster.client(leader);
    within(PATIENCE, "the next leader grants", || {
        (client.acquire(&ask("late", "a", 60_000)).status == 200).then_some(())
    });
    let written_at = Instant::now();
    let mut stale = cluster.client(beside);
    stale.get("/v1/locks?consistency=stale").ok();
    let mut old = cluster.client(past);
    cluster.node(past).thaw();
    let mut speaks = true;
    while std::mem::replace(&mut speaks, old.metric("leasehold_leading") == 1) {
        let without_it = written_at.elapsed();
        let answer = stale.get("/v1/locks?prefix=late&consistency=stale");
        assert!(answer.ok()["items"].as_array().is_some_and(Vec::is_empty), "{answer}");
        assert!(age(&answer) >= without_it, "{without_it:?} without it: {answer}");
    }
    network.heal();
    within(PATIENCE, "it hears of it", || {
        let answer = stale.get("/v1/locks?prefix=late&consistency=stale");
        answer.ok()["items"].as_array().is_some_and(|items| !items.is_empty()).then_some(())
    });
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

/// For how long no quorum has answered this node, or it may lack what its leader has done.
fn silent_for(client: &mut Client) -> Duration {
    age(&client.get("/v1/locks?consistency=stale"))
}

fn age(answer: &Answer) -> Duration {
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
