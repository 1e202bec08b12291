//! The nodes of a cluster, as readers get them.

use leasehold_node::{ClusterView, NodeRole, NodeView};
use leasehold_wire as wire;

pub(crate) fn cluster(view: &ClusterView) -> wire::Cluster<'_> {
    wire::Cluster {
        cluster_id: view.cluster.map(|id| id.to_string().into()),
        leader: view.leader,
        term: view.term,
        this_node: view.this_node,
        nodes: view.nodes.iter().map(node).collect(),
    }
}

fn node(view: &NodeView) -> wire::ClusterNode<'_> {
    let status = view.status.as_ref();
    wire::ClusterNode {
        id: view.id,
        peer_addr: (&*view.peer_addr).into(),
        http_addr: (&*view.http_addr).into(),
        role: role(view.role),
        voter: view.voter,
        log_index: view.log_index,
        committed_index: status.and_then(|status| status.committed_index),
        applied_index: view.applied_index,
        snapshot_index: status.and_then(|status| status.snapshot_index),
        revision: status.map(|status| status.revision.to_string().into()),
        version: view.version.as_deref().map(Into::into),
        commit: status.map(|status| &*status.commit).filter(|it| !it.is_empty()).map(Into::into),
        commands_version: status.map(|status| status.commands),
        raft_profile: status.and_then(|status| status.timing?.profile()).map(Into::into),
        uptime_ms: status.map(|status| status.uptime_ms),
        disk_free_bytes: status.map(|status| status.disk_free_bytes),
        storage_full: status.map(|status| status.storage_full),
        clock_ahead_ms: view.clock_ahead_ms,
        waits_for: status.and_then(|status| status.waits_for.as_deref()).map(Into::into),
        unreachable: view.unreachable.as_deref().map(Into::into),
    }
}

fn role(role: NodeRole) -> wire::NodeRole {
    match role {
        NodeRole::Leader => wire::NodeRole::Leader,
        NodeRole::Follower => wire::NodeRole::Follower,
        NodeRole::Learner => wire::NodeRole::Learner,
        NodeRole::Unreachable => wire::NodeRole::Unreachable,
    }
}
