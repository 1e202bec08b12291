//! Three nodes in one process, over real connections.

use super::{Line, LineError, framed};
use crate::administer::Operator;
use crate::answer::Call;
use crate::change::{Change, ChangeKind};
use crate::codec::{self, Told, Welcome};
use crate::config::{NodeConfig, PeerConfig};
use crate::history::{Filter, History, Next};
use crate::metrics::Metrics;
use crate::node::tests::acquire;
use crate::node::{Node, StartError};
use crate::runtime;
use crate::types::{CommittedLeader, LeaderId, LogId, Vote, VoteAsk};
use crate::watch::{WatchFilter, Watched};
use bytes::Bytes;
use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use leasehold_core::{Principal, ResourceName, Token, command};
use openraft::async_runtime::WatchReceiver as _;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::TcpStream;

mod golden;
mod versions;

pub(crate) async fn open(config: &NodeConfig) -> Node {
    let metrics = Metrics::new(&prometheus::Registry::new()).expect("a fresh registry");
    Node::open(config, metrics).await.expect("the node opens its files")
}

pub(crate) async fn start(config: NodeConfig) -> Node {
    let node = open(&config).await;
    node.take_part(&config).await.expect("the node has its place");
    node
}

/// Takes a lock with the help of whoever leads, and answers its token.
pub(crate) async fn token(node: &Node, resource: &str) -> u64 {
    node.acquire(Call::now(), acquire(node, resource), 0).await.expect("a grant").grant.token.0
}

/// A port that was free a moment ago, and is not among those that the system gives to whoever
/// connects: until a node listens there, another test may have made many connections.
pub(crate) fn free_port() -> TcpListener {
    let tried = (0..1_000).map(|_| 20_000 + (runtime::random() % 12_000) as u16);
    let mut bound = tried.filter_map(|port| TcpListener::bind(("127.0.0.1", port)).ok());
    bound.next().expect("a free port")
}

pub(crate) struct Cluster {
    pub(crate) dirs: Vec<TempDir>,
    pub(crate) founders: BTreeMap<u64, String>,
    events_max: u64,
    pub(crate) nodes: BTreeMap<u64, Node>,
}

impl Cluster {
    pub(crate) async fn of(size: u64) -> Self {
        Self::keeping(size, 262_144).await
    }

    /// With a number of changes that watchers can still be told of.
    async fn keeping(size: u64, events_max: u64) -> Self {
        Self::adjusted(size, events_max, |_| {}).await
    }

    pub(crate) async fn adjusted(
        size: u64,
        events_max: u64,
        adjust: impl Fn(&mut NodeConfig),
    ) -> Self {
        let ports: Vec<TcpListener> = (0..size).map(|_| free_port()).collect();
        let founders = (1..)
            .zip(&ports)
            .map(|(id, port)| (id, port.local_addr().expect("bound").to_string()))
            .collect();
        drop(ports);
        let dirs = (0..size).map(|_| TempDir::new().expect("a directory")).collect();
        let mut cluster = Self { dirs, founders, events_max, nodes: BTreeMap::new() };
        let configs = (1..=size).map(|id| {
            let mut config = cluster.config(id);
            adjust(&mut config);
            config
        });
        let starting = configs.map(start);
        let started = futures_util::future::join_all(starting).await;
        cluster.nodes = (1..).zip(started).collect();
        cluster
    }

    pub(crate) fn config(&self, id: u64) -> NodeConfig {
        let dir = self.dirs[id as usize - 1].path().join("data");
        let mut config = NodeConfig {
            reserve_bytes: 0,
            events_max: self.events_max,
            snapshot_log_bytes: 16 << 10,
            digest_every: 64,
            ..NodeConfig::new(id, dir)
        };
        let address = self.founders[&id].clone();
        config.peers = Some(PeerConfig {
            listen: address.clone(),
            advertise: address,
            founders: self.founders.clone(),
        });
        config
    }

    /// Stops one of them.
    pub(crate) async fn stop(&mut self, id: u64) {
        self.nodes.remove(&id).expect("it runs").shutdown().await;
    }

    /// Starts those that were stopped, which may need each other.
    pub(crate) async fn start_again(&mut self) {
        let stopped: Vec<u64> =
            self.founders.keys().copied().filter(|id| !self.nodes.contains_key(id)).collect();
        let starting = stopped.iter().map(|id| start(self.config(*id)));
        let started = futures_util::future::join_all(starting).await;
        self.nodes.extend(stopped.into_iter().zip(started));
    }

    /// One more node, that belongs to no cluster yet.
    pub(crate) fn newcomer(&mut self) -> NodeConfig {
        let id = self.founders.len() as u64 + 1;
        let port = free_port();
        self.founders.insert(id, port.local_addr().expect("bound").to_string());
        self.dirs.push(TempDir::new().expect("a directory"));
        let mut config = self.config(id);
        if let Some(peers) = &mut config.peers {
            peers.founders = BTreeMap::new();
        }
        config
    }

    pub(crate) async fn shutdown(self) {
        for node in self.nodes.into_values() {
            node.shutdown().await;
        }
    }

    pub(crate) async fn leader(&self) -> u64 {
        loop {
            let leading = self.nodes.iter().find(|(_, node)| node.check_leading().is_ok());
            if let Some((id, _)) = leading {
                return *id;
            }
            runtime::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_replicate_and_outlive_their_leader() {
    let mut cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    let node = cluster.nodes.remove(&leader).expect("it is one of them");
    let first = token(&node, "r/1").await;
    let upto = node.revision();
    node.shutdown().await;
    drop(node);

    let next = cluster.leader().await;
    assert_ne!(next, leader);
    let node = &cluster.nodes[&next];
    assert!(node.revision() >= upto, "what was acknowledged is there");
    let second = token(node, "r/2").await;
    assert!(second > first, "{second} > {first}");

    // The third one comes back and catches up.
    let again = start(cluster.config(leader)).await;
    while again.revision() < node.revision() {
        runtime::sleep(Duration::from_millis(20)).await;
    }
    cluster.nodes.insert(leader, again);
    cluster.shutdown().await;
}

/// Locks that are taken, given back and, now and then, taken away by an operator.
async fn work(node: &Node, rounds: u64) {
    for round in 0..rounds {
        let name = format!("r/{}", round % 40);
        let token = token(node, &name).await;
        let resource = ResourceName::parse(&name).expect("a name");
        if round % 50 == 7 {
            let now = command::ForceWhen::Now;
            let forced = node.force_release(Call::now(), operator(), resource, Token(token), now);
            forced.await.expect("it is held");
        } else {
            let principal = Principal::parse("anonymous").expect("a name");
            let caller = command::Caller { principal, client: None };
            let grant = command::GrantRef { resource, token: Token(token), caller };
            node.release(Call::now(), grant).await.expect("it is held");
        }
    }
}

fn operator() -> Operator {
    let by = Principal::parse("anonymous").expect("a name");
    Operator { by, source: Arc::from("127.0.0.1"), reason: Arc::from("stuck") }
}

/// Leaves nothing in the leader's log that a snapshot covers.
async fn purge(node: &Node) {
    let raft = node.inner_raft();
    raft.trigger().snapshot().await.expect("raft runs");
    let applied = raft.data_metrics().borrow_watched().last_applied;
    let index = applied.expect("entries").index;
    while raft.data_metrics().borrow_watched().snapshot.is_none_or(|s| s.index < index) {
        runtime::sleep(Duration::from_millis(20)).await;
    }
    raft.trigger().purge_log(index).await.expect("raft runs");
    while raft.data_metrics().borrow_watched().purged.is_none_or(|id| id.index < index) {
        runtime::sleep(Duration::from_millis(20)).await;
    }
}

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

/// Waits until a node has all that another one has.
pub(crate) async fn caught_up(node: &Node, with: &Node) {
    let mut news = history(node).follow();
    while node.revision() < with.revision() {
        news.changed().await.expect("it lives");
    }
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
    let oldest = history(node).oldest_change().expect("readable").expect("some are kept");
    assert!(oldest > seen + 1, "{oldest} and {seen}");
    assert_eq!(told[0], Err(oldest - 1), "what is missing is told first");
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

/// openraft keeps the newest thousand entries beyond a snapshot, and purges 500 at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_node_snapshots_and_purges_by_itself() {
    let cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    work(&cluster.nodes[&leader], 900).await;
    for node in cluster.nodes.values() {
        let mut purged = node.inner_raft().data_metrics();
        let limit = runtime::now() + Duration::from_secs(120);
        while purged.borrow_watched().purged.is_none_or(|id| id.index < 500) {
            let changed = runtime::timeout_at(limit, purged.changed()).await;
            changed.expect("it purges its log within two minutes").expect("raft runs");
        }
    }
    cluster.shutdown().await;
}

/// A vote that would depose any leader, were it taken.
fn usurping(by: u64) -> VoteAsk {
    VoteAsk {
        vote: Vote { leader_id: LeaderId { term: 1_000, voted_for: by }, committed: false },
        last_log_id: Some(LogId::new(CommittedLeader::new(999), 1_000_000)),
        leadership_transfer: true,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_is_greeted_and_may_ask_for_nothing() {
    let mut cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    let stranger = open(&cluster.newcomer()).await;
    let node = &cluster.nodes[&leader];
    let term =
        |node: &Node| node.inner_raft().server_metrics().borrow_watched().vote.leader_id.term;
    let before = term(node);
    let vote = usurping(4);
    for message in [
        codec::encode_vote_ask(&vote, false),
        codec::encode_vote_ask(&vote, true),
        codec::encode_read_index(),
        codec::encode_session(),
    ] {
        let us = stranger.inner.identity.clone();
        let mut line = Line::unmet(us, leader, cluster.founders[&leader].clone());
        let told = line.call(message, Duration::from_secs(60)).await;
        assert!(matches!(told, Err(LineError::Unable { .. })), "{told:?}");
    }
    assert_eq!(term(node), before);
    // How a node is anybody may ask; where a stranger says that it is, is not kept.
    let us = stranger.inner.identity.clone();
    let ask = codec::encode_status_ask(&us.status_ask());
    let mut line = Line::unmet(us, leader, cluster.founders[&leader].clone());
    let told = line.call(ask, Duration::from_secs(60)).await;
    assert!(matches!(told, Ok(Told::Status(_))), "{told:?}");
    assert_eq!(node.inner.identity.told().get(&4), None);
    token(node, "r/1").await;
    stranger.shutdown().await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_that_asks_nothing_keeps_no_place() {
    let mut cluster = Cluster::of(1).await;
    let stranger = open(&cluster.newcomer()).await;
    let connected = TcpStream::connect(&cluster.founders[&1]).await.expect("it listens");
    let mut frames = framed(connected).expect("tuned");
    let hello = codec::encode_hello(&stranger.inner.identity.hello(1));
    frames.send(Bytes::from(hello)).await.expect("it is there");
    let heard = frames.next().await.expect("it is greeted").expect("a frame");
    assert!(matches!(codec::decode_welcome(&heard), Ok(Welcome::Protocol { .. })));
    let closed = runtime::timeout_at(runtime::now() + Duration::from_secs(120), frames.next());
    assert!(matches!(closed.await, Some(None)), "the connection is closed");
    stranger.shutdown().await;
    cluster.shutdown().await;
}

/// Nothing is applied on the one that waits, which knows its members from its log all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_lost_its_data_is_told_so_by_one_that_has_no_quorum_itself() {
    let mut cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    token(&cluster.nodes[&leader], "r/1").await;
    for id in 1..=3 {
        cluster.stop(id).await;
    }
    std::fs::remove_dir_all(cluster.config(2).dir).expect("it can be removed");
    let waits = open(&cluster.config(1)).await;
    let config = cluster.config(2);
    let wiped = open(&config).await;
    let refused = wiped.take_part(&config).await.expect_err("its votes are gone");
    assert!(matches!(refused, StartError::LostData { id: 2 }), "{refused}");
    wiped.shutdown().await;
    waits.shutdown().await;
}

/// A bit that fell over in the memory of one node, as it were.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_state_diverges_stops_and_the_others_go_on() {
    let mut cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    let odd = if leader == 3 { 1 } else { 3 };
    // First they agree.
    let compared = |node: &Node| node.inner.metrics.digests_compared.get();
    while cluster.nodes.values().any(|node| compared(node) == 0) {
        work(&cluster.nodes[&leader], 16).await;
    }
    {
        let mut table = cluster.nodes[&odd].inner.shared.table.write();
        let mut limits = (**table.limits()).clone();
        limits.history_max += 1;
        let header = leasehold_core::Header { term: 0, at_ms: 0 };
        table.apply(header, &[leasehold_core::Command::SetLimits(Box::new(limits))]);
    }
    let fault = {
        let working = async {
            loop {
                work(&cluster.nodes[&leader], 16).await;
            }
        };
        tokio::select! {
            fault = cluster.nodes[&odd].storage_failed() => fault,
            () = working => unreachable!("it goes on"),
        }
    };
    assert!(fault.is_divergence(), "{fault}");
    let stopped = cluster.nodes.remove(&odd).expect("it is one of them");
    stopped.shutdown().await;
    drop(stopped);

    // The others work on, agree, and nobody starts on what is left of the third.
    let upto = compared(&cluster.nodes[&leader]);
    work(&cluster.nodes[&leader], 200).await;
    for node in cluster.nodes.values() {
        assert!(node.storage_failed().now_or_never().is_none());
    }
    assert!(compared(&cluster.nodes[&leader]) >= upto);
    let config = cluster.config(odd);
    let metrics = Metrics::new(&prometheus::Registry::new()).expect("a fresh registry");
    let refused = Node::open(&config, metrics).await.expect_err("its data is kept for a look");
    assert!(refused.to_string().contains("did not give the same state"), "{refused}");
    cluster.shutdown().await;
}

/// A number that cannot be counted past would stop the nodes, and again at every start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_that_no_log_has_are_refused() {
    let cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    let term_of =
        |node: &Node| node.inner_raft().server_metrics().borrow_watched().vote.leader_id.term;
    let before = term_of(&cluster.nodes[&leader]);
    let vote = |term, index| VoteAsk {
        vote: Vote { leader_id: LeaderId { term, voted_for: 2 }, committed: false },
        last_log_id: Some(LogId::new(CommittedLeader::new(9), index)),
        leadership_transfer: true,
    };
    let us = cluster.nodes[&leader].inner.identity.clone();
    let to = *cluster.nodes.keys().find(|id| **id != leader).expect("three nodes");
    for ask in [vote(u64::MAX, 9), vote(1 << 62, 9), vote(9, u64::MAX)] {
        let mut line = Line::unmet(us.clone(), to, cluster.founders[&to].clone());
        let told = line.call(codec::encode_vote_ask(&ask, false), Duration::from_secs(60)).await;
        assert!(matches!(told, Err(LineError::Unable { .. })), "{told:?}");
    }
    assert_eq!(term_of(&cluster.nodes[&to]), before);
    cluster.shutdown().await;
}
