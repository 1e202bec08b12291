//! What is not needed any more goes.

use super::{Cluster, give_back, work};
use crate::answer::Call;
use crate::node::Node;
use crate::node::tests::acquire;
use crate::runtime;
use leasehold_core::Limits;
use openraft::async_runtime::WatchReceiver as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Leaves nothing in the leader's log that a snapshot covers.
pub(super) async fn purge(node: &Node) {
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

/// Bytes of all files in the directory of a node.
fn bytes(dir: &Path) -> u64 {
    let files = std::fs::read_dir(dir).expect("it is there");
    files.map(|file| file.and_then(|file| file.metadata()).map_or(0, |about| about.len())).sum()
}

/// Takes locks and gives them back, each with as much metadata as a request may carry.
async fn heavy_work(node: &Node, rounds: u64) {
    let text: Arc<str> = "x".repeat(4_000).into();
    for round in 0..rounds {
        let mut asked = acquire(node, &format!("r/{}", round % 40));
        asked.metadata = Some([(Arc::from("note"), text.clone())].into());
        let resource = asked.resource.clone();
        let granted = node.acquire(Call::now(), asked, 0).await.expect("a grant");
        give_back(node, resource, granted.grant.token.0).await;
    }
}

/// Four times as much work, and the files are as large as before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_files_of_a_node_that_goes_on_working_stay_as_large_as_they_are() {
    const ROUNDS: u64 = 1_200;
    let limits = Limits { history_max: 100, ..Limits::default() };
    let cluster = Cluster::adjusted(3, 1_024, |config| {
        config.limits = limits.clone();
        config.snapshot_log_bytes = 256 << 10;
    })
    .await;
    let leader = &cluster.nodes[&cluster.leader().await];
    let sizes =
        || -> Vec<u64> { cluster.dirs.iter().map(|dir| bytes(&dir.path().join("data"))).collect() };
    heavy_work(leader, ROUNDS).await;
    let before = sizes();
    heavy_work(leader, 3 * ROUNDS).await;
    let after = sizes();
    for (before, after) in before.iter().zip(&after) {
        assert!(*after <= before + before / 2, "{before} bytes became {after}");
    }
    cluster.shutdown().await;
}
