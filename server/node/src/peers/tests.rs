//! Three nodes in one process, over real connections.

use crate::administer::Operator;
use crate::answer::Call;
use crate::config::{NodeConfig, PeerConfig};
use crate::metrics::Metrics;
use crate::node::Node;
use crate::node::tests::acquire;
use crate::runtime;
use futures_util::FutureExt as _;
use leasehold_core::{Principal, ResourceName, Token, command};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

mod compaction;
mod golden;
mod history;
mod strangers;
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

/// Waits until a node has all that another one has.
pub(crate) async fn caught_up(node: &Node, with: &Node) {
    let mut news = node.inner.history.follow();
    while node.revision() < with.revision() {
        news.changed().await.expect("it lives");
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
            give_back(node, resource, token).await;
        }
    }
}

async fn give_back(node: &Node, resource: ResourceName, token: u64) {
    let principal = Principal::parse("anonymous").expect("a name");
    let caller = command::Caller { principal, client: None };
    let grant = command::GrantRef { resource, token: Token(token), caller };
    node.release(Call::now(), grant).await.expect("it is held");
}

fn operator() -> Operator {
    let by = Principal::parse("anonymous").expect("a name");
    Operator { by, source: Arc::from("127.0.0.1"), reason: Arc::from("stuck") }
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
    let upto: BTreeMap<u64, u64> =
        cluster.nodes.iter().map(|(id, node)| (*id, compared(node))).collect();
    while cluster.nodes.iter().any(|(id, node)| compared(node) == upto[id]) {
        work(&cluster.nodes[&leader], 16).await;
    }
    for node in cluster.nodes.values() {
        assert!(node.storage_failed().now_or_never().is_none());
    }
    let config = cluster.config(odd);
    let metrics = Metrics::new(&prometheus::Registry::new()).expect("a fresh registry");
    let refused = Node::open(&config, metrics).await.expect_err("its data is kept for a look");
    assert!(refused.to_string().contains("did not give the same state"), "{refused}");
    cluster.shutdown().await;
}
