//! What readers and watchers see.

use super::*;

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
