//! Every shape has a file that shows it. A change of a shape is a change of its file, which a
//! reviewer sees. `LEASEHOLD_REWRITE=1 cargo test -p leasehold-wire` writes the files anew.

use leasehold_wire::batch::{RawOperation, Verb};
use leasehold_wire::health::HealthStatus;
use leasehold_wire::*;
use serde::{Deserialize, Serialize};
use std::fmt::Debug;
use std::path::Path;

const AT: Time = Time(1_700_000_000_123);
const LEASE: HexId = HexId(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);

/// Writes as the file says, and reads what the file says.
fn check<T: Serialize + Deserialize<'static> + PartialEq + Debug>(name: &str, shape: &T) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.json"));
    let written = serde_json::to_string_pretty(shape).expect("shapes can be written") + "\n";
    if std::env::var_os("LEASEHOLD_REWRITE").is_some() {
        std::fs::write(&path, &written).expect("the golden file can be written");
    }
    let golden: &'static str = std::fs::read_to_string(&path)
        .expect("the golden file is there; LEASEHOLD_REWRITE=1 writes it")
        .leak(); // Requests borrow from the text that they were read from.
    assert_eq!(written, golden, "{name} changed; LEASEHOLD_REWRITE=1 accepts the change");
    let read: T = serde_json::from_str(golden).expect("the golden file can be read");
    assert_eq!(&read, shape, "{name} is read as it was written");
}

fn metadata() -> Metadata<'static> {
    Metadata(vec![("build".into(), "1492".into()), ("host".into(), "web-7".into())])
}

fn holder() -> Holder<'static> {
    Holder {
        client_id: "w1".into(),
        token: 33,
        mode: Mode::Exclusive,
        granted_at: AT,
        expires_in_ms: Some(9_500),
        draining: false,
        metadata: None,
    }
}

fn grant() -> Grant<'static> {
    Grant {
        resource: "invoice/42".into(),
        token: 34,
        lease_id: LEASE,
        client_id: "w1".into(),
        mode: Mode::Exclusive,
        ttl_ms: 10_000,
        expires_in_ms: 9_990,
        valid_for_ms: 9_900,
        granted_at: AT,
        waited_ms: 0,
        policies: vec![],
    }
}

fn acquire() -> Acquire<'static> {
    Acquire {
        resource: "invoice/42".into(),
        client_id: "w1".into(),
        ttl_ms: Some(10_000),
        lease_id: None,
        mode: Mode::Exclusive,
        wait_ms: 0,
        request_id: None,
        claim_ms: None,
        keep_place: false,
        holding: vec![],
        metadata: None,
    }
}

fn draining_grant() -> DrainingGrant<'static> {
    DrainingGrant {
        resource: "invoice/43".into(),
        token: 13,
        expires_in_ms: 4_000,
        valid_for_ms: 3_900,
    }
}

fn ended_grant() -> EndedGrant<'static> {
    EndedGrant { resource: "invoice/41".into(), token: 12, how: "forced".into(), ended_at: AT }
}

fn raw(op: Verb) -> RawOperation<'static> {
    RawOperation {
        op,
        resource: "invoice/42".into(),
        client_id: None,
        token: None,
        ttl_ms: None,
        lease_id: None,
        mode: None,
        request_id: None,
        claim_ms: None,
        holding: None,
        metadata: None,
    }
}

#[test]
fn acquire_and_its_answer() {
    check("acquire_least", &acquire());
    check(
        "acquire_most",
        &Acquire {
            ttl_ms: None,
            lease_id: Some(LEASE.to_string().into()),
            mode: Mode::Shared,
            wait_ms: 5_000,
            request_id: Some("r-1".into()),
            claim_ms: Some(1_000),
            keep_place: true,
            holding: vec![Holding { resource: "invoice/41".into(), token: 12 }],
            metadata: Some(metadata()),
            ..acquire()
        },
    );
    check("grant", &grant());
    let verdict =
        PolicyVerdict { name: "hours".into(), version: "3".into(), verdict: "adjust".into() };
    check("grant_with_policies", &Grant { policies: vec![verdict], waited_ms: 1_250, ..grant() });
}

#[test]
fn renew_and_its_answer() {
    let least = Renew { resource: "invoice/42".into(), token: 34, client_id: None, ttl_ms: None };
    check("renew_least", &least);
    check("renew_most", &Renew { client_id: Some("w1".into()), ttl_ms: Some(20_000), ..least });
    let renewed = Renewed {
        expires_in_ms: 10_000,
        valid_for_ms: 9_990,
        ended_grants: vec![],
        draining_grants: vec![],
    };
    check("renewed", &renewed);
    check(
        "renewed_with_losses",
        &Renewed {
            ended_grants: vec![ended_grant()],
            draining_grants: vec![draining_grant()],
            ..renewed
        },
    );
}

#[test]
fn release_and_its_answer() {
    let least = Release { resource: "invoice/42".into(), token: 34, client_id: None };
    check("release_least", &least);
    check("release_most", &Release { client_id: Some("w1".into()), ..least });
    check("released", &Released { released: true, reason: None });
    let again = Released { released: false, reason: Some(NotReleased::AlreadyReleased) };
    check("released_before", &again);
}

#[test]
fn cancel_wait_and_fence_check_and_their_answers() {
    check("cancel_wait", &CancelWait { client_id: "w1".into(), request_id: "r-1".into() });
    check("wait_cancelled", &WaitCancelled { cancelled: true });
    check("fence_check", &FenceCheck { resource: "invoice/42".into(), token: 33 });
    check("fence_checked", &FenceChecked { current: false, highest_token: Some(34) });
    check("fence_checked_unknown", &FenceChecked { current: false, highest_token: None });
}

#[test]
fn batch_and_its_answer() {
    let acquire = RawOperation {
        client_id: Some("w1".into()),
        ttl_ms: Some(10_000),
        mode: Some(Mode::Shared),
        ..raw(Verb::Acquire)
    };
    let renew = RawOperation { token: Some(33), ttl_ms: Some(20_000), ..raw(Verb::Renew) };
    let release = RawOperation { token: Some(34), ..raw(Verb::Release) };
    check("batch", &Batch { operations: vec![acquire, renew, release] });
    let renewed = Renewed {
        expires_in_ms: 10_000,
        valid_for_ms: 9_990,
        ended_grants: vec![],
        draining_grants: vec![],
    };
    let problem = Problem::new(409, Code::Held, "somebody else holds the lock");
    check(
        "batch_results",
        &BatchResults {
            results: vec![
                BatchResult { status: 200, grant: Some(grant()), ..BatchResult::default() },
                BatchResult { status: 200, renewed: Some(renewed), ..BatchResult::default() },
                BatchResult {
                    status: 200,
                    released: Some(Released { released: true, reason: None }),
                    ..BatchResult::default()
                },
                BatchResult {
                    status: 409,
                    problem: Some(Box::new(problem)),
                    ..BatchResult::default()
                },
            ],
        },
    );
}

#[test]
fn leases_and_their_answers() {
    let open = OpenLease { client_id: "w1".into(), ttl_ms: 30_000, metadata: Some(metadata()) };
    check("open_lease", &open);
    check(
        "lease_opened",
        &LeaseOpened {
            lease_id: LEASE,
            client_id: "w1".into(),
            ttl_ms: 30_000,
            expires_in_ms: 29_990,
            valid_for_ms: 29_900,
        },
    );
    check("keep_alive", &KeepAlive { client_id: Some("w1".into()) });
    let many = KeepAliveMany { lease_ids: vec![LEASE.to_string().into()], client_id: None };
    check("keep_alive_many", &many);
    let kept = KeptAlive {
        lease_id: LEASE,
        expires_in_ms: Some(30_000),
        valid_for_ms: Some(29_990),
        code: None,
        ended_grants: vec![ended_grant()],
        draining_grants: vec![draining_grant()],
    };
    let lost = KeptAlive {
        lease_id: HexId(7),
        expires_in_ms: None,
        valid_for_ms: None,
        code: Some(Code::LeaseEnded),
        ended_grants: vec![],
        draining_grants: vec![],
    };
    check("kept_alive_many", &KeptAliveMany { results: vec![kept, lost] });
    check("lease_ended", &LeaseEnded { ended: true });
}

#[test]
fn a_lease_as_a_reader_sees_it() {
    let lease = Lease {
        lease_id: LEASE,
        client_id: "w1".into(),
        ttl_ms: 30_000,
        opened_at: AT,
        single: false,
        earliest_end_in_ms: 12_000,
        latest_end_in_ms: 14_000,
        grants_total: 1,
        waiting_total: 1,
        grants: Some(vec![LeaseGrant {
            resource: "invoice/42".into(),
            token: 34,
            mode: Mode::Exclusive,
            granted_at: AT,
        }]),
        waiting_for: Some(vec!["invoice/43".into()]),
    };
    check("lease", &lease);
    let short = Lease { grants: None, waiting_for: None, ..lease };
    check("leases", &Page { items: vec![short], next_cursor: None, total: Some(1) });
}

#[test]
fn locks_as_readers_see_them() {
    let waiter = Waiter {
        position: 1,
        client_id: "w2".into(),
        mode: Mode::Shared,
        priority: 0,
        waiting_ms: 800,
        attached: true,
    };
    let held = Lock {
        resource: "invoice/42".into(),
        state: LockState::Held,
        holders: vec![Holder { draining: true, metadata: Some(metadata()), ..holder() }],
        queue: vec![waiter],
        queue_length: 1,
        last_token: Some(33),
    };
    check("lock_held", &held);
    let free = Lock {
        state: LockState::Free,
        holders: vec![],
        queue: vec![],
        queue_length: 0,
        last_token: None,
        ..held
    };
    check("lock_free", &free);
    let summary = LockSummary {
        resource: "invoice/42".into(),
        state: LockState::Held,
        holders: vec![holder()],
        holders_total: 1,
        queue_length: 0,
    };
    let page = Page { items: vec![summary], next_cursor: Some("invoice/42".into()), total: None };
    check("locks", &page);
    check("health", &Health { status: HealthStatus::Ok });
}

#[test]
fn a_problem_with_every_field() {
    let mut problem = Problem::new(409, Code::Held, "somebody else holds the lock");
    check("problem_least", &problem);
    problem.trace_id = Some("4bf92f3577b34da6a3ce929d0e0e4736".into());
    problem.field = Some("ttl_ms".into());
    problem.allowed = Some("500 to 86400000".into());
    problem.min = Some(500);
    problem.max = Some(86_400_000);
    problem.expected = Some("application/json".into());
    problem.policy = Some("hours".into());
    problem.version = Some("3".into());
    problem.reason_code = Some("closed".into());
    problem.reason = Some("closed at night".into());
    problem.domain = Some("invoice".into());
    problem.holders = Some(vec![holder()]);
    problem.holders_total = Some(1);
    problem.queue_length = Some(2);
    problem.waited_ms = Some(5_000);
    problem.position = Some(2);
    problem.cycle = Some(vec![CycleStep { client_id: "w1".into(), resource: "invoice/42".into() }]);
    problem.how = Some("expired".into());
    problem.ended_at = Some(AT);
    problem.token = Some(33);
    problem.current = Some("7".into());
    problem.request_id = Some("r-1".into());
    problem.retry_after_ms = Some(1_000);
    check("problem_most", &problem);
}

#[test]
fn events_as_a_watcher_sees_them() {
    let least = Event::new(118, EventKind::HistoryTrimmed, AT);
    check("event_least", &least);
    check(
        "event_most",
        &Event {
            event: EventKind::Forced,
            resource: Some("invoice/42".into()),
            domain: Some("invoice".into()),
            client_id: Some("w1".into()),
            token: Some(33),
            mode: Some(Mode::Exclusive),
            priority: Some(3),
            ttl_ms: Some(10_000),
            granted_at: Some(AT),
            how: Some("forced".into()),
            by: Some("alice".into()),
            action: Some("force_release_now".into()),
            reason: Some("the job hangs".into()),
            result: Some("done".into()),
            ..least
        },
    );
    check("event_kinds", &EventKind::ALL.to_vec());
    check("gap", &Gap { from: "118".into(), to: "240".into() });
    assert_eq!(Gap::EVENT, "gap");
}

#[test]
fn every_kind_of_event_reads_as_it_is_written_and_an_unknown_one_is_read() {
    for kind in EventKind::ALL {
        let text = format!("\"{}\"", kind.as_str());
        assert_eq!(serde_json::to_string(kind).expect("written"), text);
    }
    let newer: EventKind = serde_json::from_str("\"of_a_newer_service\"").expect("skipped");
    assert_eq!(newer, EventKind::Other);
}

#[test]
fn grants_as_the_history_has_them() {
    let live = GrantRecord {
        resource: "invoice/42".into(),
        token: 34,
        client_id: "w1".into(),
        principal: "anonymous".into(),
        mode: Mode::Exclusive,
        state: GrantState::Live,
        asked_at: AT,
        granted_at: AT,
        ended_at: None,
        how: None,
        expires_in_ms: Some(9_990),
        valid: None,
        policies: vec![],
        metadata: None,
    };
    let verdict =
        PolicyVerdict { name: "hours".into(), version: "3".into(), verdict: "allow".into() };
    let ended = GrantRecord {
        token: 33,
        state: GrantState::Ended,
        ended_at: Some(AT),
        how: Some(EndedHow::PassedOn),
        expires_in_ms: None,
        valid: Some(true),
        policies: vec![verdict],
        metadata: Some(metadata()),
        ..live.clone()
    };
    let page = Page { items: vec![live, ended], next_cursor: Some("33".into()), total: None };
    check("grants", &page);
    use EndedHow::{Cancelled, Expired, Forced, PassedOn, Released, Restored, Revoked};
    let ends = vec![Released, Expired, Forced, Revoked, PassedOn, Restored, Cancelled];
    check("ends", &ends);
}

#[test]
fn why_a_client_waits() {
    let waiter = Waiter {
        position: 2,
        client_id: "w2".into(),
        mode: Mode::Exclusive,
        priority: 0,
        waiting_ms: 800,
        attached: true,
    };
    let free = Why {
        resource: "invoice/42".into(),
        client_id: None,
        request_id: None,
        state: WhyState::Free,
        explanation: "the lock is free".into(),
        code: None,
        token: None,
        waiter: None,
        ahead: vec![],
        ahead_total: 0,
        holders: vec![],
        holders_total: 0,
        limits: vec![],
        cycle: None,
        policies: vec![],
    };
    check("why_free", &free);
    let verdict =
        PolicyVerdict { name: "hours".into(), version: "3".into(), verdict: "allow".into() };
    check(
        "why_waits",
        &Why {
            client_id: Some("w2".into()),
            request_id: Some("r-1".into()),
            state: WhyState::Waits,
            explanation: "w1 holds the lock, and w3 stands before".into(),
            code: Some(Code::Held),
            token: Some(33),
            waiter: Some(waiter.clone()),
            ahead: vec![Waiter { position: 1, client_id: "w3".into(), ..waiter }],
            ahead_total: 1,
            holders: vec![holder()],
            holders_total: 1,
            limits: vec![usage()],
            cycle: Some(vec![CycleStep { client_id: "w2".into(), resource: "a".into() }]),
            policies: vec![verdict],
            ..free
        },
    );
    use WhyState::{Detached, Free, Holds, Waits, WouldBeRefused, WouldWait};
    check("why_states", &vec![Holds, Waits, Detached, Free, WouldWait, WouldBeRefused]);
}

fn usage() -> Usage<'static> {
    Usage { name: "queue-max".into(), used: 2, max: 256 }
}

#[test]
fn clients_as_readers_see_them() {
    let client = ClientSummary {
        client_id: "w1".into(),
        principal: "anonymous".into(),
        leases: 1,
        grants: 2,
        waiting: 3,
    };
    check("clients", &Page { items: vec![client], next_cursor: None, total: Some(1) });
}

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

#[test]
fn every_code_reads_as_it_is_written() {
    let codes: Vec<Code> = Code::ALL.to_vec();
    check("codes", &codes);
    for code in codes {
        assert_eq!(serde_json::to_string(&code).expect("written"), format!("\"{code}\""));
        assert_eq!(code.urn(), format!("urn:leasehold:problem:{code}"));
        assert!(!code.title().is_empty());
    }
}
