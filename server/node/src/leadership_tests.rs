//! Who leads, for how long, and who then.

use super::*;
use crate::answer::{Call, Failure, Granted};
use crate::node::Node;
use crate::node::tests::acquire;
use crate::peers::tests::{Cluster, token};
use crate::transfer::TransferError;
use crate::watch::WatchFilter;
use leasehold_core::command::{Caller, GrantRef};
use leasehold_core::{Principal, RequestId, ResourceName, Token};
use tokio::task::JoinHandle;

type Waiter = JoinHandle<Result<Granted, Failure>>;

/// Stands in line, with a request id, until it is granted or told otherwise.
fn waiter(node: &Node, resource: &str) -> Waiter {
    let (node, mut asked) = (node.clone(), acquire(node, resource));
    asked.request_id = RequestId::parse("q1").ok();
    tokio::spawn(async move { node.acquire(Call::now(), asked, 60_000).await })
}

fn waiters(node: &Node) -> usize {
    node.inner.shared.table.read().counts().tickets
}

async fn until(holds: impl Fn() -> bool) {
    while !holds() {
        runtime::sleep(Duration::from_millis(20)).await;
    }
}

fn term(node: &Node) -> u64 {
    node.inner_raft().server_metrics().borrow_watched().vote.leader_id.term
}

async fn give_back(node: &Node, resource: &str, token: u64) {
    let principal = Principal::parse("anonymous").expect("a name");
    let grant = GrantRef {
        resource: ResourceName::parse(resource).expect("a name"),
        token: Token(token),
        caller: Caller { principal, client: None },
    };
    node.release(Call::now(), grant).await.expect("it is held");
}

fn others(cluster: &Cluster, than: u64) -> Vec<u64> {
    cluster.nodes.keys().copied().filter(|id| *id != than).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_no_quorum_answers_steps_down_and_says_so() {
    let mut cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    let node = cluster.nodes[&leader].clone();
    let first = token(&node, "r/1").await;
    let waiting = waiter(&node, "r/1");
    until(|| waiters(&node) == 1).await;
    let mut watch = node.watch(Call::now(), WatchFilter::All, None).await.expect("it leads");
    let led = term(&node);
    for id in others(&cluster, leader) {
        cluster.stop(id).await;
    }
    let mut leading = node.inner.leading.clone();
    leading.wait_for(Option::is_none).await.expect("it lives");
    let told = waiting.await.expect("it ends");
    assert!(matches!(told, Err(Failure::OutcomeUnknown { request_id: Some(_) })), "{told:?}");
    let told = node.acquire(Call::now(), acquire(&node, "r/2"), 0).await;
    assert!(matches!(told, Err(Failure::NoLeader)), "{told:?}");
    assert_eq!(node.leader(), None);
    assert!(node.age() >= Some(node.inner.timing.election()), "{:?}", node.age());
    until(|| term(&node) > led).await;
    let told = watch.next().await;
    assert!(matches!(told, Err(Failure::NoLeader)), "{told:?}");

    cluster.start_again().await;
    let next = cluster.leader().await;
    assert!(term(&cluster.nodes[&next]) > led, "no term is led twice");
    assert!(token(&cluster.nodes[&next], "r/2").await > first);
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_leader_is_not_named_although_nobody_else_can_be_elected() {
    let mut cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    let [other, last] = others(&cluster, leader)[..] else { panic!("three nodes") };
    let node = cluster.nodes[&last].clone();
    until(|| node.leader() == Some(leader)).await;
    assert!(node.is_ready());
    cluster.stop(other).await;
    cluster.stop(leader).await;
    until(|| node.leader().is_none()).await;
    let by_its_vote = node.inner_raft().server_metrics().borrow_watched().current_leader;
    assert_eq!(by_its_vote, Some(leader), "Raft knows no better");
    let told = node.watch(Call::now(), WatchFilter::All, None).await;
    assert!(matches!(told, Err(Failure::NoLeader)), "{told:?}");
    assert!(node.is_ready(), "an election must not empty a load balancer");
    let age = node.age().expect("it has heard of a leader");
    until(|| node.age() > Some(age)).await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_goes_on_may_be_asked_again_and_one_that_is_lost_may_not() {
    let mut cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    let node = cluster.nodes[&others(&cluster, leader)[0]].clone();
    assert!(node.led_again(leader, Duration::from_secs(60)).await);
    for id in others(&cluster, node.inner.id) {
        cluster.stop(id).await;
    }
    until(|| node.leader().is_none()).await;
    assert!(!node.led_again(leader, Duration::from_millis(300)).await);
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_goes_to_whom_it_is_given() {
    let cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    let node = &cluster.nodes[&leader];
    let first = token(node, "r/1").await;
    let led = term(node);
    let heir = others(&cluster, leader)[1];
    assert_eq!(node.transfer(Some(9)).await, Err(TransferError::Unknown { id: 9 }));
    assert_eq!(node.transfer(Some(leader)).await, Ok(leader));
    assert_eq!(term(node), led, "nothing has changed so far");
    until(|| node.heir(Some(heir)).is_ok()).await;
    assert_eq!(node.transfer(Some(heir)).await, Ok(heir));
    assert_eq!(cluster.leader().await, heir);
    assert_eq!(term(&cluster.nodes[&heir]), led + 1, "the one election that was asked for");
    let told = node.transfer(None).await;
    assert!(matches!(told, Err(TransferError::NotLeader { .. })), "{told:?}");
    assert!(token(&cluster.nodes[&heir], "r/2").await > first);
    cluster.shutdown().await;
}

/// openraft itself would go on refusing every entry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_heir_does_not_take_over_steps_down() {
    let mut cluster = Cluster::of(2).await;
    let leader = cluster.leader().await;
    let node = cluster.nodes[&leader].clone();
    let led = term(&node);
    let heir = others(&cluster, leader)[0];
    cluster.stop(heir).await;
    let before = node.inner.leading.borrow().expect("it leads");
    let told = node.transfer_to(heir, before).await;
    assert!(matches!(told, Err(TransferError::NotDone { .. })), "{told:?}");
    until(|| term(&node) > led).await;
    assert_eq!(node.transfer(None).await, Err(TransferError::NotLeader { leader: None }));
    cluster.start_again().await;
    let next = cluster.leader().await;
    token(&cluster.nodes[&next], "r/1").await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_waits_at_a_leader_that_leaves_keeps_its_place() {
    let cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    let node = &cluster.nodes[&leader];
    let held = token(node, "r/1").await;
    let waiting = waiter(node, "r/1");
    until(|| waiters(node) == 1).await;
    until(|| node.heir(None).is_ok()).await;
    node.hand_over().await;
    let told = waiting.await.expect("it ends");
    assert!(matches!(told, Err(Failure::ShuttingDown)), "{told:?}");
    let next = cluster.leader().await;
    assert_ne!(next, leader);
    let next = &cluster.nodes[&next];
    let again = waiter(next, "r/1");
    until(|| {
        let table = next.inner.shared.table.read();
        table.tickets().all(|ticket| ticket.attached) && table.counts().tickets == 1
    })
    .await;
    give_back(next, "r/1", held).await;
    let granted = again.await.expect("it ends").expect("a grant");
    assert!(granted.grant.token.0 > held);
    cluster.shutdown().await;
}

#[test]
fn a_leader_that_was_frozen_first_hears_what_came_meanwhile() {
    let mut won = Won::now(CommittedLeader::new(3), Timing::LAN);
    let (acked, grace) = (won.at, won.silence.grace);
    let thawed = acked + Duration::from_secs(30);
    assert!(!won.silence.lasts(thawed, acked));
    let mut lasts = false;
    for at in (0..=grace.as_millis() as u64).step_by(50).map(Duration::from_millis) {
        lasts = won.silence.lasts(thawed + at, acked);
    }
    assert!(lasts, "nothing came");
    assert!(!won.silence.lasts(thawed + grace, thawed), "a word ends it");
}
