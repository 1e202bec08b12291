//! Three nodes in one process, over real connections.

use crate::answer::Call;
use crate::change::ChangeKind;
use crate::config::{NodeConfig, PeerConfig};
use crate::metrics::Metrics;
use crate::node::Node;
use crate::runtime;
use crate::watch::{WatchFilter, Watched};
use leasehold_core::{ClientId, Owner, Principal, ResourceName, command};
use openraft::async_runtime::WatchReceiver as _;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::time::Duration;
use tempfile::TempDir;

async fn start(config: NodeConfig) -> Node {
    let metrics = Metrics::new(&prometheus::Registry::new()).expect("a fresh registry");
    Node::start(config, metrics).await.expect("the node starts")
}

fn acquire(node: &Node, resource: &str) -> command::Acquire {
    command::Acquire {
        resource: ResourceName::parse(resource).expect("a name"),
        owner: Owner {
            principal: Principal::parse("anonymous").expect("a name"),
            client: ClientId::parse("w1").expect("a name"),
        },
        basis: command::Basis::Single { lease: node.new_lease_id(), ttl_ms: 600_000 },
        mode: command::Mode::Exclusive,
        wait: false,
        request_id: None,
        claim_ms: None,
        keep_place: false,
        holding: Vec::new(),
        metadata: None,
        priority: 0,
        ttl_cap_ms: None,
        policies: None,
    }
}

/// Takes a lock with the help of whoever leads, and answers its token.
async fn token(node: &Node, resource: &str) -> u64 {
    node.acquire(Call::now(), acquire(node, resource), 0).await.expect("a grant").grant.token.0
}

struct Cluster {
    dirs: Vec<TempDir>,
    founders: BTreeMap<u64, String>,
    nodes: BTreeMap<u64, Node>,
}

impl Cluster {
    async fn of(size: u64) -> Self {
        let ports: Vec<TcpListener> =
            (0..size).map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port")).collect();
        let founders = (1..)
            .zip(&ports)
            .map(|(id, port)| (id, port.local_addr().expect("bound").to_string()))
            .collect();
        drop(ports);
        let dirs = (0..size).map(|_| TempDir::new().expect("a directory")).collect();
        let mut cluster = Self { dirs, founders, nodes: BTreeMap::new() };
        let starting = (1..=size).map(|id| start(cluster.config(id)));
        let started = futures_util::future::join_all(starting).await;
        cluster.nodes = (1..).zip(started).collect();
        cluster
    }

    fn config(&self, id: u64) -> NodeConfig {
        let dir = self.dirs[id as usize - 1].path().join("data");
        let mut config = NodeConfig { reserve_bytes: 0, ..NodeConfig::new(id, dir) };
        let address = self.founders[&id].clone();
        config.peers = Some(PeerConfig {
            listen: address.clone(),
            advertise: address,
            founders: self.founders.clone(),
        });
        config
    }

    async fn leader(&self) -> u64 {
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
    for (_, node) in cluster.nodes {
        node.shutdown().await;
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
async fn a_node_that_was_away_for_long_gets_a_snapshot() {
    let mut cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    let away = *cluster.nodes.keys().find(|id| **id != leader).expect("three nodes");
    let gone = cluster.nodes.remove(&away).expect("it is one of them");
    gone.shutdown().await;
    drop(gone);
    let node = &cluster.nodes[&leader];
    for round in 0..1_500 {
        token(node, &format!("r/{round}")).await;
    }
    node.inner_raft().trigger().snapshot().await.expect("raft runs");
    let applied = node.inner_raft().data_metrics().borrow_watched().last_applied;
    let index = applied.expect("entries").index;
    while node.inner_raft().data_metrics().borrow_watched().snapshot.is_none_or(|s| s.index < index)
    {
        runtime::sleep(Duration::from_millis(20)).await;
    }
    node.inner_raft().trigger().purge_log(index).await.expect("raft runs");

    let again = start(cluster.config(away)).await;
    assert!(again.revision() >= node.revision());
    assert_eq!(again.digest(), node.digest());
    cluster.nodes.insert(away, again);
    for (_, node) in cluster.nodes {
        node.shutdown().await;
    }
}
