//! Nodes in one process that join, get a vote, move and leave.

use super::MembershipError;
use crate::config::{NodeConfig, Timing};
use crate::node::Node;
use crate::peers::tests::{Cluster, caught_up, free_port, open, start, token};
use crate::runtime;
use crate::status::{NodeRole, NodeView};
use openraft::async_runtime::WatchReceiver as _;
use std::future::Future;
use std::net::TcpListener;
use std::time::Duration;

/// Generous: a loaded machine takes seconds for what takes a tenth of one.
const PATIENCE: Duration = Duration::from_secs(60);

/// Looks until it is so.
async fn until<F: Future<Output = bool>>(what: &str, mut look: impl FnMut() -> F) {
    let give_up_at = runtime::now() + PATIENCE;
    while !look().await {
        assert!(runtime::now() < give_up_at, "{what}: not within {PATIENCE:?}");
        runtime::sleep(Duration::from_millis(50)).await;
    }
}

/// Adds a new node as a learner, and waits until it serves.
async fn join(cluster: &mut Cluster, by: u64) -> u64 {
    let config = cluster.newcomer();
    let (id, new) = (config.id, open(&config).await);
    let address = cluster.founders[&id].clone();
    let (taken, added) =
        tokio::join!(new.take_part(&config), cluster.nodes[&by].add_learner(id, &address));
    added.expect("it is empty and there");
    taken.expect("it is taken in");
    cluster.nodes.insert(id, new);
    id
}

async fn promote(node: &Node, id: u64) {
    until("the learner catches up", || async {
        match node.promote(id).await {
            Ok(()) => true,
            Err(MembershipError::Behind { .. } | MembershipError::NotHeardOf { .. }) => false,
            Err(other) => panic!("{other}"),
        }
    })
    .await;
}

async fn roles(node: &Node) -> Vec<(u64, NodeRole, bool)> {
    let view = node.cluster_view().await;
    view.nodes.iter().map(|node| (node.id, node.role, node.voter)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_grows_into_three_that_outlive_it() {
    let mut cluster = Cluster::of(1).await;
    let first = cluster.leader().await;
    assert_eq!(cluster.nodes[&1].limits().ttl_min_ms, 500);
    let held = token(&cluster.nodes[&first], "r/1").await;
    for _ in 0..2 {
        let id = join(&mut cluster, first).await;
        assert!(roles(&cluster.nodes[&first]).await.contains(&(id, NodeRole::Learner, false)));
        promote(&cluster.nodes[&first], id).await;
    }
    let [one, two, three] = [1, 2, 3].map(|id| &cluster.nodes[&id]);
    caught_up(two, one).await;
    caught_up(three, one).await;
    assert_eq!(one.limits().ttl_min_ms, 1_600, "two elections");
    let expected =
        [(1, NodeRole::Leader, true), (2, NodeRole::Follower, true), (3, NodeRole::Follower, true)];
    assert_eq!(roles(two).await, expected);
    let view = two.cluster_view().await;
    let timing = |node: &NodeView| node.status.as_ref().and_then(|status| status.timing);
    assert!(view.nodes.iter().all(|node| timing(node) == Some(Timing::LAN)), "{view:?}");

    let gone = cluster.nodes.remove(&1).expect("it is one of them");
    gone.shutdown().await;
    let next = cluster.leader().await;
    assert!(token(&cluster.nodes[&next], "r/2").await > held);
    let seen = roles(&cluster.nodes[&next]).await;
    assert!(seen.contains(&(1, NodeRole::Unreachable, true)), "{seen:?}");
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_must_not_be_a_member_is_refused_and_told_why() {
    let mut cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    let other = *cluster.nodes.keys().find(|id| **id != leader).expect("three nodes");
    let config = cluster.newcomer();
    let (new, at) = (open(&config).await, cluster.founders[&4].clone());
    let node = &cluster.nodes[&leader];
    let other_at = cluster.founders[&other].clone();
    let nobody = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let nowhere = nobody.local_addr().expect("it is bound").to_string();
    drop(nobody);

    let refused = node.add_learner(5, &at).await.expect_err("it is node 4");
    assert!(matches!(refused, MembershipError::OtherNode { id: 5, found: 4, .. }), "{refused}");
    let refused = node.add_learner(4, &nowhere).await.expect_err("nobody is there");
    assert!(matches!(refused, MembershipError::Unreachable { .. }), "{refused}");
    let refused = node.add_learner(4, &other_at).await.expect_err("another node is there");
    assert!(matches!(refused, MembershipError::OtherNode { .. }), "{refused}");
    let refused = node.promote(4).await.expect_err("it is no member");
    assert_eq!(refused, MembershipError::NoSuchNode { id: 4 });
    assert_eq!(node.remove(4).await, Err(MembershipError::NoSuchNode { id: 4 }));
    node.add_learner(other, &other_at).await.expect("it is a member already, and stays one");
    let refused = cluster.nodes[&other].remove(leader).await.expect_err("it does not lead");
    assert_eq!(refused, MembershipError::NotLeading { leader: Some(leader) });

    let turn = node.inner.changes.begin("promoting node 9".to_owned()).expect("none is on its way");
    let refused = node.add_learner(4, &at).await.expect_err("one at a time");
    assert_eq!(refused, MembershipError::InProgress { change: "promoting node 9".to_owned() });
    drop(turn);
    new.shutdown().await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_data_is_not_taken_in() {
    let cluster = Cluster::of(1).await;
    let mut other = Cluster::of(1).await;
    other.founders.insert(2, other.founders[&1].clone());
    let node = &cluster.nodes[&cluster.leader().await];
    let refused = node.add_learner(1, &other.founders[&1]).await.expect_err("another cluster's");
    assert!(matches!(refused, MembershipError::NotEmpty { id: 1, .. }), "{refused}");
    assert_eq!(node.remove(1).await, Err(MembershipError::LastVoter { id: 1 }));
    cluster.shutdown().await;
    other.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_follower_hears_of_it_and_the_rest_goes_on() {
    let mut cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    let gone = *cluster.nodes.keys().find(|id| **id != leader).expect("three nodes");
    cluster.nodes[&leader].remove(gone).await.expect("two are left");
    let told = runtime::timeout_at(runtime::now() + PATIENCE, cluster.nodes[&gone].removed());
    let told = told.await.expect("it hears of it");
    assert_eq!(told.id, gone);
    let removed = cluster.nodes.remove(&gone).expect("it is one of them");
    removed.shutdown().await;
    drop(removed);

    // It is told again whenever it comes back, and has no voice.
    let config = cluster.config(gone);
    let again = open(&config).await;
    let told = tokio::select! {
        told = again.removed() => told,
        placed = again.take_part(&config) => panic!("it has no place: {placed:?}"),
    };
    assert_eq!(told.id, gone);
    assert!(again.waits_for().is_some_and(|what| what.contains("was removed")));
    let refused = cluster.nodes[&leader].add_learner(gone, &cluster.founders[&gone]).await;
    assert!(matches!(refused, Err(MembershipError::NotEmpty { .. })), "{refused:?}");
    again.shutdown().await;
    assert_eq!(cluster.leader().await, leader, "nobody was disturbed");
    token(&cluster.nodes[&leader], "r/1").await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_leader_sees_to_it_that_another_one_is_there() {
    let mut cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    let held = token(&cluster.nodes[&leader], "r/1").await;
    cluster.nodes[&leader].remove(leader).await.expect("two are left");
    let told = runtime::timeout_at(runtime::now() + PATIENCE, cluster.nodes[&leader].removed());
    assert_eq!(told.await.expect("it hears of it").id, leader);
    let old = cluster.nodes.remove(&leader).expect("it is one of them");
    let next = cluster.leader().await;
    assert!(token(&cluster.nodes[&next], "r/2").await > held);
    old.shutdown().await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_node_is_replaced_and_no_live_one_given_up_for_it() {
    let mut cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    let others: Vec<u64> = cluster.nodes.keys().copied().filter(|id| *id != leader).collect();
    let (dead, alive) = (others[0], others[1]);
    let gone = cluster.nodes.remove(&dead).expect("it is one of them");
    gone.shutdown().await;
    drop(gone);
    let refused = cluster.nodes[&leader].remove(alive).await.expect_err("no quorum would be left");
    let at_risk = MembershipError::QuorumAtRisk { voters: 2, needed: 2, silent: vec![dead] };
    assert_eq!(refused, at_risk);

    let new = join(&mut cluster, leader).await;
    let node = &cluster.nodes[&leader];
    node.remove(dead).await.expect("a quorum of the rest is there");
    promote(node, new).await;
    caught_up(&cluster.nodes[&new], node).await;
    let view = node.cluster_view().await;
    let voters: Vec<u64> = view.nodes.iter().filter(|one| one.voter).map(|one| one.id).collect();
    assert_eq!(voters.len(), 3);
    assert!(voters.contains(&new) && !voters.contains(&dead), "{voters:?}");
    until("what the dead one said of itself is forgotten", || async {
        let told = node.inner.identity.told();
        told.contains_key(&new) && !told.contains_key(&dead)
    })
    .await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_moves_is_found_again() {
    let mut cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    let moving = *cluster.nodes.keys().find(|id| **id != leader).expect("three nodes");
    let node = cluster.nodes.remove(&moving).expect("it is one of them");
    node.shutdown().await;
    drop(node);
    let port = free_port();
    let elsewhere = port.local_addr().expect("it is bound").to_string();
    drop(port);
    let mut config: NodeConfig = cluster.config(moving);
    let peers = config.peers.as_mut().expect("it has peers");
    (peers.listen, peers.advertise) = (elsewhere.clone(), elsewhere.clone());
    config.http = "10.0.0.9:7070".to_owned();
    // It gets its place only if the leader finds out where it is.
    let starting = runtime::timeout_at(runtime::now() + PATIENCE, start(config));
    let node = starting.await.expect("the leader finds it");
    until("the members say where it is", || async {
        let view = cluster.nodes[&leader].cluster_view().await;
        let seen = view.nodes.iter().find(|one| one.id == moving).expect("it is a member");
        seen.peer_addr == elsewhere && seen.http_addr == "10.0.0.9:7070"
    })
    .await;
    cluster.nodes.insert(moving, node);
    cluster.shutdown().await;
}

async fn addresses(node: &Node) -> Vec<String> {
    node.cluster_view().await.nodes.into_iter().map(|node| node.peer_addr).collect()
}

/// With all of them elsewhere, only the settings say where they are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_that_all_changed_places_find_each_other() {
    let mut cluster = Cluster::of(3).await;
    let held = token(&cluster.nodes[&cluster.leader().await], "r/1").await;
    for id in 1..=3 {
        cluster.stop(id).await;
    }
    let old = cluster.founders.clone();
    cluster.founders = [(1, 2), (2, 3), (3, 1)].map(|(id, at)| (id, old[&at].clone())).into();
    let starting = runtime::timeout_at(runtime::now() + PATIENCE, cluster.start_again());
    starting.await.expect("they find each other");
    let leader = cluster.leader().await;
    assert!(token(&cluster.nodes[&leader], "r/2").await > held);
    let now: Vec<String> = cluster.founders.values().cloned().collect();
    until("the members say where they are", || async {
        addresses(&cluster.nodes[&leader]).await == now
    })
    .await;
    cluster.shutdown().await;
}

/// The leader that was adding it is lost before the others have heard of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_adding_was_never_decided_waits_and_was_not_removed() {
    // A leader without a quorum leads for long enough to tell the new node.
    let patient = |config: &mut NodeConfig| config.timing = Timing::WAN;
    let mut cluster = Cluster::adjusted(3, 262_144, patient).await;
    let leader = cluster.leader().await;
    let others: Vec<u64> = cluster.nodes.keys().copied().filter(|id| *id != leader).collect();
    let config = cluster.newcomer();
    let new = open(&config).await;
    for id in &others {
        cluster.stop(*id).await;
    }
    let gone = cluster.nodes.remove(&leader).expect("it is one of them");
    let adding = gone.inner_raft().add_learner(4, new.inner.identity.member(), false);
    let hears = until("it is told of itself", || async {
        let raft = new.inner_raft().server_metrics();
        raft.borrow_watched().membership_config.get_node(&4).is_some()
    });
    tokio::select! {
        added = adding => panic!("there is no quorum: {added:?}"),
        () = hears => {}
    }
    gone.shutdown().await;
    drop(gone);
    let [one, two] = [others[0], others[1]].map(|id| start(cluster.config(id)));
    let (one, two) = tokio::join!(one, two);
    cluster.nodes.extend([(others[0], one), (others[1], two)]);
    cluster.leader().await;

    let waits = until("it is told that it is no member", || async {
        new.waits_for().is_some_and(|what| what.contains("does not count it among the members"))
    });
    tokio::select! {
        placed = new.take_part(&config) => panic!("it has no place: {placed:?}"),
        removed = new.removed() => panic!("it never was a member: {removed}"),
        () = waits => {}
    }
    new.shutdown().await;
    cluster.shutdown().await;
}
