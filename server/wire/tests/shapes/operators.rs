//! What operators ask for and see.

use super::*;

#[test]
fn what_operators_ask_for_and_get() {
    let force = ForceRelease {
        resource: "invoice/42".into(),
        token: 33,
        reason: "the job hangs".into(),
        when: ForceWhen::Drain,
    };
    check("force_release_drain", &force);
    check("force_release_now", &ForceRelease { when: ForceWhen::Now, ..force });
    check("force_released", &ForceReleased { ended: true, expires_in_ms: 0, overlap: true });
    check("set_domain_least", &SetDomain { queue_max: None });
    check("set_domain_most", &SetDomain { queue_max: Some(16) });
    let domain = Domain { domain: "invoice".into(), queue_max: Some(16), version: "7".into() };
    check("domain", &domain);
    let plain = Domain { domain: "default".into(), queue_max: None, version: "1".into() };
    check("domains", &Page { items: vec![plain, domain], next_cursor: None, total: Some(2) });
}

fn node(id: u64, role: NodeRole) -> ClusterNode<'static> {
    ClusterNode {
        id,
        peer_addr: format!("10.0.0.{id}:7171").into(),
        http_addr: format!("http://10.0.0.{id}:7070").into(),
        role,
        voter: role != NodeRole::Learner,
        log_index: Some(1_042),
        committed_index: Some(1_042),
        applied_index: Some(1_041),
        snapshot_index: Some(900),
        revision: Some("880".into()),
        version: Some("0.1.0".into()),
        commit: Some("0123456789ab".into()),
        commands_version: Some(1),
        raft_profile: Some("lan".into()),
        uptime_ms: Some(60_000),
        disk_free_bytes: Some(9_000_000_000),
        storage_full: Some(false),
        clock_ahead_ms: Some(-3),
        waits_for: None,
        unreachable: None,
    }
}

#[test]
fn a_cluster_and_its_changes() {
    let away = ClusterNode {
        unreachable: Some("no answer within 1000 ms".into()),
        log_index: None,
        committed_index: None,
        applied_index: None,
        snapshot_index: None,
        revision: None,
        version: None,
        commit: None,
        commands_version: None,
        raft_profile: None,
        uptime_ms: None,
        disk_free_bytes: None,
        storage_full: None,
        clock_ahead_ms: None,
        ..node(3, NodeRole::Unreachable)
    };
    let starting = ClusterNode { waits_for: Some("its log".into()), ..node(4, NodeRole::Learner) };
    let leader = ClusterNode { clock_ahead_ms: None, ..node(1, NodeRole::Leader) };
    let most = Cluster {
        cluster_id: Some("0123456789abcdef0011223344556677".into()),
        leader: Some(1),
        term: 7,
        this_node: 1,
        nodes: vec![leader, node(2, NodeRole::Follower), away, starting],
    };
    check("cluster_most", &most);
    let least = Cluster { cluster_id: None, leader: None, nodes: vec![], ..most };
    check("cluster_least", &least);
    let add = AddNode { id: 4, peer_addr: "10.0.0.4:7171".into(), reason: None };
    check("add_node_least", &add);
    check("add_node_most", &AddNode { reason: Some("node 3 is gone".into()), ..add });
    check("change_node", &ChangeNode { id: 4, reason: Some("node 3 is gone".into()) });
    let standings = [NodeStanding::Learner, NodeStanding::Voter, NodeStanding::Removed];
    check("nodes_changed", &standings.map(|standing| NodeChanged { id: 4, standing }).to_vec());
    check("transfer_least", &TransferLeadership { to: None, reason: None });
    check("transfer_most", &TransferLeadership { to: Some(2), reason: Some("patching".into()) });
    check("transferred", &LeadershipTransferred { leader: 2 });
}

#[test]
fn audit_as_operators_read_it() {
    let forced = AuditRecord {
        revision: "240".into(),
        happened_at: AT,
        principal: "alice".into(),
        source: "10.0.0.7:40022".into(),
        action: "force_release_now".into(),
        target: "invoice/42".into(),
        token: Some(33),
        reason: "the job hangs".into(),
        result: "done".into(),
    };
    let refused = AuditRecord {
        action: "set_domain".into(),
        target: "invoice".into(),
        token: None,
        result: "precondition_failed".into(),
        ..forced.clone()
    };
    check("audit", &Page { items: vec![forced, refused], next_cursor: None, total: None });
}

#[test]
fn the_service_about_itself() {
    let latency = Latency { route: "acquire-lock".into(), count: 1_000, p50_ms: 0.5, p99_ms: 2.5 };
    let most = Stats {
        node_id: 1,
        cluster_id: Some("0f1e2d3c4b5a69788796a5b4c3d2e1f0".into()),
        leader: Some(1),
        version: "0.1.0".into(),
        uptime_ms: 60_000,
        revision: "240".into(),
        last_token: 34,
        locks: 1,
        grants: 1,
        waiters: 2,
        leases: 1,
        clients: 3,
        oldest_event: Some("118".into()),
        watch_streams: 4,
        usage: vec![usage()],
        latency: vec![latency],
    };
    check("stats_most", &most);
    let least = Stats {
        cluster_id: None,
        leader: None,
        oldest_event: None,
        usage: vec![],
        latency: vec![],
        ..most
    };
    check("stats_least", &least);
    let concern = Concern {
        severity: Severity::Critical,
        code: "grants_max".into(),
        message: "nearly all grants that there may be are taken".into(),
        value: 1_990_000,
        threshold: 1_900_000,
    };
    let soon = Concern { severity: Severity::Warning, ..concern.clone() };
    check("attention", &Attention { items: vec![concern, soon] });
    let setting =
        Setting { name: "ttl-max-ms".into(), value: "86400000".into(), origin: "cluster".into() };
    check("config", &Config { settings: vec![setting] });
}
