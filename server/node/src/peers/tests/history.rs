//! What has happened, and is kept, on nodes that were away or came late.

use super::compaction::purge;
use super::{Cluster, caught_up, open, start, token, work};
use crate::answer::Call;
use crate::change::{Change, ChangeKind};
use crate::history::{Filter, History, Next};
use crate::node::Node;
use crate::runtime;
use crate::watch::{WatchFilter, Watched};
use std::time::Duration;

fn history(node: &Node) -> &History {
    &node.inner.history
}

/// Tokens of all grants on record, in the order of a list.
fn ended(node: &Node) -> Vec<u64> {
    let (mut tokens, mut before) = (Vec::new(), None);
    loop {
        let page = history(node).page(&Filter::EndedUntil(u64::MAX), before, 100);
        let page = page.expect("readable");
        tokens.extend(page.records.iter().map(|record| record.grant.token.0));
        before = page.next;
        if before.is_none() {
            return tokens;
        }
    }
}

fn deeds(node: &Node) -> Vec<u64> {
    let deeds = history(node).audit(None, 10_000).expect("readable");
    deeds.into_iter().map(|deed| deed.revision).collect()
}

/// What a watcher is told after a change: changes, or the end of a gap.
fn told(node: &Node, after: u64) -> Vec<Result<Change, u64>> {
    let (mut at, mut told) = (after, Vec::new());
    while at < node.revision() {
        match history(node).changes(at, node.revision(), 512).expect("readable") {
            Next::Changes(changes) => {
                at = changes.last().expect("there is more").revision;
                told.extend(changes.into_iter().map(Ok));
            }
            Next::Gap { to } => {
                told.push(Err(to));
                at = to;
            }
        }
    }
    told
}

/// A cluster of which one node was away for long, and who leads.
async fn with_one_away(events_max: u64) -> (Cluster, u64, u64, u64) {
    let mut cluster = Cluster::keeping(3, events_max).await;
    let leader = cluster.leader().await;
    work(&cluster.nodes[&leader], 20).await;
    let away = *cluster.nodes.keys().find(|id| **id != leader).expect("three nodes");
    let gone = cluster.nodes.remove(&away).expect("it is one of them");
    caught_up(&gone, &cluster.nodes[&leader]).await;
    let seen = gone.revision();
    gone.shutdown().await;
    drop(gone);
    let node = &cluster.nodes[&leader];
    work(node, 400).await;
    purge(node).await;
    work(node, 20).await;
    (cluster, leader, away, seen)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_follows_streams_what_it_applies() {
    let cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    let node = &cluster.nodes[&leader];
    let (_, other) = cluster.nodes.iter().find(|(id, _)| **id != leader).expect("three nodes");
    token(node, "r/1").await;
    // What was just seen on the leader may not be there yet, and is no gap.
    let seen = node.revision();
    while other.leader() != Some(leader) {
        runtime::sleep(Duration::from_millis(20)).await;
    }
    let filter = WatchFilter::Prefix("r/".to_owned());
    let mut watch = other.watch(Call::now(), filter, Some(seen)).await.expect("it follows");
    assert_eq!(watch.at(), seen);
    let second = token(node, "r/2").await;
    let Watched::Changes(changes) = watch.next().await.expect("it is read") else {
        panic!("a gap")
    };
    let kinds: Vec<_> = changes.iter().map(|change| &change.kind).collect();
    assert!(
        matches!(kinds[..], [ChangeKind::Granted { grant, .. }] if grant.token.0 == second),
        "{kinds:?}"
    );
    for (_, node) in cluster.nodes {
        node.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_away_for_long_gets_a_snapshot_and_its_history() {
    let (mut cluster, leader, away, seen) = with_one_away(262_144).await;
    let again = start(cluster.config(away)).await;
    let node = &cluster.nodes[&leader];
    caught_up(&again, node).await;
    assert_eq!(again.digest(), node.digest());
    assert_eq!(ended(&again), ended(node));
    assert_eq!(ended(&again).len(), 440);
    assert_eq!(deeds(&again), deeds(node));
    assert!(deeds(&again).len() > 8);
    let missed = told(&again, seen);
    assert!(missed.iter().all(Result::is_ok), "nothing is missing");
    assert_eq!(missed, told(node, seen));
    assert_eq!(told(&again, 0), told(node, 0));
    assert_eq!(history(&again).complete_since_ms(), 0);
    cluster.nodes.insert(away, again);
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_hears_of_a_gap_where_the_leader_had_dropped_changes() {
    let (mut cluster, leader, away, seen) = with_one_away(300).await;
    let again = start(cluster.config(away)).await;
    let node = &cluster.nodes[&leader];
    caught_up(&again, node).await;
    let told = told(&again, seen);
    let Err(missing) = told[0] else { panic!("what is missing is told first: {told:?}") };
    // The leader may have dropped more since.
    let kept = history(node).oldest_change().expect("readable").expect("some are kept");
    assert!(missing > seen && missing < kept, "{missing}, {seen} and {kept}");
    let oldest = missing + 1;
    let rest: Vec<u64> = told[1..].iter().flatten().map(|change| change.revision).collect();
    assert_eq!(rest, (oldest..=node.revision()).collect::<Vec<_>>());
    assert_eq!(ended(&again), ended(node), "grants are kept for longer");
    cluster.nodes.insert(away, again);
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_node_gets_all_of_the_history() {
    let mut cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    work(&cluster.nodes[&leader], 100).await;
    purge(&cluster.nodes[&leader]).await;
    let config = cluster.newcomer();
    let node = &cluster.nodes[&leader];
    let new = open(&config).await;
    let (taken, joined) =
        tokio::join!(new.take_part(&config), node.add_learner(4, &cluster.founders[&4]));
    taken.expect("it is taken in");
    joined.expect("it may learn");
    caught_up(&new, node).await;
    assert_eq!((ended(&new), deeds(&new)), (ended(node), deeds(node)));
    assert_eq!(told(&new, 0), told(node, 0));
    cluster.nodes.insert(4, new);
    cluster.shutdown().await;
}
