//! One value of every kind that is stored, with nothing left at its default.

use crate::change::{Change, ChangeKind, Named};
use crate::codec::{About, Hello, SlotHead, Standing, Welcome};
use crate::types::{
    Batch, CommittedLeader, Entry, LeaderId, LogId, Member, Membership, Payload, SnapshotMeta,
    StoredMembership, Vote,
};
use leasehold_core::command::{
    Acquire, Action, Administer, Basis, Caller, ClusterChange, EndedHow, Expected, ForceWhen,
    GrantRef, Holding, LeftHow, Metadata, Mode, OpenLease, PolicyVerdict, Stage,
};
use leasehold_core::limits::{DomainLimits, DomainSettings};
use leasehold_core::outcome::{AuditRecord, AuditResult, Grant, GrantRecord};
use leasehold_core::row::{
    EndedRow, EndedWhat, Got, Head, LeaseRow, LiveRequest, LostGrant, Row, Ticket,
};
use leasehold_core::{
    ClientId, ClusterId, Command, LeaseId, Limits, Owner, Principal, RequestId, ResourceName,
    Revision, TicketId, Token,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const LEASE: LeaseId = LeaseId(0x0123_4567_89ab_cdef_0011_2233_4455_6677);
const AT_MS: u64 = 1_767_225_600_123;

pub(crate) fn resource(text: &str) -> ResourceName {
    ResourceName::parse(text).expect("a legal name")
}

fn principal() -> Principal {
    Principal::parse("team-a").expect("a legal name")
}

pub(crate) fn owner(client: &str) -> Owner {
    Owner { principal: principal(), client: ClientId::parse(client).expect("a legal name") }
}

fn request() -> RequestId {
    RequestId::parse("req-7").expect("a legal name")
}

fn metadata() -> Metadata {
    Arc::from([(Arc::from("host"), Arc::from("worker-é"))])
}

fn verdicts() -> Arc<[PolicyVerdict]> {
    let verdict = PolicyVerdict {
        name: Arc::from("hours"),
        version: Arc::from("3"),
        verdict: Arc::from("adjust"),
    };
    Arc::from([verdict])
}

fn caller() -> Caller {
    Caller { principal: principal(), client: Some(owner("worker-1").client) }
}

fn grant_ref() -> GrantRef {
    GrantRef { resource: resource("payments/invoice/42"), token: Token(41), caller: caller() }
}

pub(crate) fn log_id(term: u64, index: u64) -> LogId {
    LogId::new(CommittedLeader::new(term), index)
}

pub(crate) fn vote() -> Vote {
    Vote { leader_id: LeaderId { term: 9, voted_for: 3 }, committed: true }
}

pub(crate) fn acquire(name: &str) -> Acquire {
    Acquire {
        resource: resource(name),
        owner: owner("worker-1"),
        basis: Basis::Single { lease: LEASE, ttl_ms: 30_000 },
        mode: Mode::Shared,
        wait: true,
        request_id: Some(request()),
        claim_ms: Some(250),
        keep_place: true,
        holding: vec![Holding { resource: resource("a"), token: Token(7) }],
        metadata: Some(metadata()),
        priority: 5,
        ttl_cap_ms: Some(60_000),
        policies: Some(verdicts()),
    }
}

pub(crate) fn administer(action: Action) -> Administer {
    Administer {
        by: principal(),
        source: Arc::from("10.0.0.7:4711"),
        reason: Arc::from("stuck"),
        action,
    }
}

fn order(action: Action) -> Command {
    Command::Administer(Box::new(administer(action)))
}

fn cluster(change: ClusterChange, stage: Stage) -> Command {
    order(Action::ChangeCluster { change, stage })
}

/// Every command, in the order of their numbers on disk.
pub(crate) fn commands() -> Vec<Command> {
    let explicit = Acquire {
        basis: Basis::Explicit { lease: LEASE },
        request_id: None,
        policies: None,
        ..acquire("b")
    };
    vec![
        Command::Acquire(Box::new(acquire("payments/invoice/42"))),
        Command::Acquire(Box::new(explicit)),
        Command::Release(grant_ref()),
        Command::OpenLease(OpenLease {
            lease: LEASE,
            owner: owner("worker-1"),
            ttl_ms: 30_000,
            metadata: Some(metadata()),
        }),
        Command::Renew { grant: grant_ref(), ttl_ms: 45_000 },
        Command::EndLease { lease: LEASE, caller: caller() },
        Command::CancelWait { owner: owner("worker-1"), request_id: request() },
        order(Action::ForceRelease {
            resource: resource("b"),
            token: Token(40),
            when: ForceWhen::Now,
        }),
        order(Action::RevokeLease { lease: LEASE }),
        order(Action::SetDomain {
            domain: Arc::from("payments"),
            limits: Some(DomainLimits { queue_max: Some(9) }),
            expected: Expected::Version(Revision(880)),
        }),
        cluster(ClusterChange::Add { node: 4 }, Stage::Begun),
        cluster(ClusterChange::Promote { node: 4 }, Stage::Refused),
        cluster(ClusterChange::Remove { node: 2 }, Stage::Begun),
        cluster(ClusterChange::Transfer { node: Some(3) }, Stage::Begun),
        cluster(ClusterChange::Transfer { node: None }, Stage::Refused),
        Command::Expire { leases: vec![LEASE, LeaseId(1)], term: 9 },
        Command::EndDrained { token: Token(40), term: 9 },
        Command::PassOn { token: Token(40), attachment: 2, term: 9 },
        Command::Detach { ticket: TicketId(12), attachment: 2, term: 9 },
        Command::Leave { ticket: TicketId(12), attachment: 2, how: LeftHow::TimedOut, term: 9 },
        Command::Continue { lease: LEASE },
        Command::Trim { ended_before_ms: AT_MS, history_before_ms: AT_MS - 1 },
        Command::SetLimits(Box::new(Limits { queue_max: 7, ..Limits::default() })),
        Command::Found {
            cluster: ClusterId(0x0123_4567_89ab_cdef_0011_2233_4455_6677),
            limits: Box::new(Limits { queue_max: 7, ..Limits::default() }),
        },
        Command::ConfirmEnded { lease: LEASE, tokens: vec![Token(39), Token(40)] },
        Command::RaiseLevel { to: 3 },
        Command::EndHold { term: 9 },
    ]
}

pub(crate) fn batch(commands: Vec<Command>) -> Arc<Batch> {
    Arc::new(Batch { proposer: 0xfeed, seq: 17, at_ms: AT_MS, commands })
}

pub(crate) fn membership() -> Membership {
    let member = |id: u64| Member {
        http: format!("http://n{id}:8080"),
        peer: format!("n{id}:8081"),
        incarnation: u128::from(id) << 100,
    };
    let members: BTreeMap<u64, Member> = (1..=4).map(|id| (id, member(id))).collect();
    let voters = vec![BTreeSet::from([1, 2, 3]), BTreeSet::from([2, 3, 4])];
    Membership::new(voters, members).expect("every voter has its addresses")
}

pub(crate) fn entries() -> Vec<Entry> {
    let entry = |index, payload| Entry { log_id: log_id(9, index), payload };
    vec![
        entry(300, Payload::Blank),
        entry(301, Payload::Normal(batch(commands()))),
        entry(302, Payload::Membership(membership())),
    ]
}

pub(crate) fn grant(token: u64, name: &str, client: &str) -> Grant {
    Grant {
        token: Token(token),
        resource: resource(name),
        owner: Arc::new(owner(client)),
        lease: LEASE,
        single: true,
        mode: Mode::Exclusive,
        ticket: Some(TicketId(12)),
        attachment: 1,
        request_id: Some(request()),
        asked_at_ms: AT_MS,
        granted_at_ms: AT_MS + 20,
        claim_ms: Some(250),
        ttl_cap_ms: Some(60_000),
        policies: Some(verdicts()),
        metadata: Some(metadata()),
        draining: true,
    }
}

pub(crate) fn record(token: u64, name: &str, client: &str, ended_at_ms: u64) -> GrantRecord {
    let grant = Arc::new(grant(token, name, client));
    GrantRecord { grant, how: EndedHow::PassedOn, ended_at_ms }
}

/// Every kind of row.
pub(crate) fn rows() -> Vec<Row> {
    let ticket = Ticket {
        id: TicketId(12),
        resource: resource("b"),
        owner: Arc::new(owner("worker-2")),
        lease: LEASE,
        mode: Mode::Shared,
        priority: 3,
        overtaken: 4,
        attached: true,
        attachment: 2,
        request_id: Some(request()),
        asked_at_ms: AT_MS,
        claim_ms: Some(250),
        keep_place: true,
        behalf: Some(Arc::from([LeaseId(5)])),
        metadata: Some(metadata()),
        ttl_cap_ms: Some(60_000),
        policies: Some(verdicts()),
    };
    let lost = LostGrant {
        resource: resource("c"),
        token: Token(30),
        how: EndedHow::Forced,
        ended_at_ms: AT_MS,
    };
    let live = |got| LiveRequest {
        owner: Arc::new(owner("worker-1")),
        id: request(),
        fingerprint: u64::MAX - 1,
        got,
    };
    let ended = |what| EndedRow { seq: 77, how: EndedHow::Expired, ended_at_ms: AT_MS, what };
    vec![
        Row::Head(Head {
            cluster: Some(ClusterId(0x0123_4567_89ab_cdef_0011_2233_4455_6677)),
            revision: 900,
            last_token: 41,
            last_ticket: 12,
            last_ended: 77,
            at_ms: AT_MS,
            level: 3,
            hold_ms: 30_000,
        }),
        Row::Limits(Box::default()),
        Row::Domain {
            domain: Arc::from("payments"),
            settings: DomainSettings {
                limits: DomainLimits { queue_max: Some(9) },
                version: Revision(880),
            },
        },
        Row::Lease(LeaseRow {
            id: LEASE,
            owner: Arc::new(owner("worker-1")),
            ttl_ms: 30_000,
            longest_ttl_ms: 60_000,
            single: false,
            opened_at_ms: AT_MS,
            metadata: Some(metadata()),
            ending: Some(EndedHow::Revoked),
            lost: vec![lost],
        }),
        Row::Grant(Arc::new(grant(41, "payments/invoice/42", "worker-1"))),
        Row::Ticket(Arc::new(ticket)),
        Row::Live(live(Got::Ticket(TicketId(12)))),
        Row::Live(live(Got::Grant(Token(41)))),
        Row::Ended(ended(EndedWhat::Request {
            owner: Arc::new(owner("worker-1")),
            id: request(),
            fingerprint: 3,
            token: Some(Token(38)),
        })),
        Row::Ended(ended(EndedWhat::Lease { id: LEASE })),
    ]
}

pub(crate) fn slot_head() -> SlotHead {
    SlotHead {
        slot: 1,
        meta: SnapshotMeta {
            last_log_id: Some(log_id(9, 301)),
            last_membership: StoredMembership::new(Some(log_id(8, 250)), membership()),
        },
        chunks: 2,
        rows: 10,
        bytes: 270_000,
        digest: 0xfeed_face_cafe_beef_0123_4567_89ab_cdef,
        level: 3,
    }
}

fn about() -> About {
    About {
        incarnation: 3 << 100,
        commands: 4,
        http: "http://n3:8080".to_owned(),
        peer: "n3:8081".to_owned(),
    }
}

pub(crate) fn hello() -> Hello {
    Hello {
        protocols: (1, 2),
        cluster: Some([7; 16]),
        from: 3,
        to: 1,
        caller: about(),
        founders: Some(0xfeed),
        level: 3,
    }
}

pub(crate) fn welcome() -> Welcome {
    let standing = Standing { empty: false, cluster: Some([7; 16]), member: true };
    Welcome::Protocol { version: 1, about: about(), standing }
}

/// Every kind of change, numbered from 880.
pub(crate) fn changes() -> Vec<Change> {
    let client = || owner("worker-1").client;
    let named = || Named {
        resource: resource("payments/invoice/42"),
        client: client(),
        token: Token(41),
        mode: Mode::Shared,
    };
    let kinds = [
        ChangeKind::LeaseOpened { client: client(), ttl_ms: 30_000 },
        ChangeKind::LeaseChanged { ttl_ms: 45_000 },
        ChangeKind::LeaseEnding,
        ChangeKind::LeaseEnded { client: client(), how: EndedHow::Revoked },
        ChangeKind::Queued {
            resource: resource("b"),
            client: client(),
            mode: Mode::Exclusive,
            priority: 3,
        },
        ChangeKind::Left { resource: resource("b"), client: client(), how: LeftHow::TimedOut },
        ChangeKind::Granted { grant: named(), ttl_ms: 30_000 },
        ChangeKind::Ended { grant: named(), granted_at_ms: AT_MS, how: EndedHow::PassedOn },
        ChangeKind::Draining { grant: named() },
        ChangeKind::Audited {
            by: principal(),
            action: Arc::from("force_release_now"),
            resource: Some(resource("b")),
            domain: Some(Arc::from("payments")),
            token: Some(Token(41)),
            reason: Arc::from("stuck"),
            result: AuditResult::NotLive,
        },
        ChangeKind::LimitsChanged,
        ChangeKind::DomainChanged { domain: Arc::from("payments") },
        ChangeKind::HistoryTrimmed { before_ms: AT_MS },
    ];
    let numbered = kinds.into_iter().zip(880..);
    numbered.map(|(kind, revision)| Change { revision, at_ms: AT_MS, kind }).collect()
}

/// Every result of a deed.
pub(crate) fn deeds() -> Vec<AuditRecord> {
    let action = || Action::SetDomain {
        domain: Arc::from("payments"),
        limits: None,
        expected: Expected::Absent,
    };
    let results = [
        AuditResult::Done,
        AuditResult::NotLive,
        AuditResult::NoLease,
        AuditResult::VersionDiffers,
        AuditResult::Full,
        AuditResult::Begun,
        AuditResult::Refused,
    ];
    results.map(|result| AuditRecord { order: administer(action()), result }).to_vec()
}

/// One of each kind of row.
pub(crate) fn parcel() -> crate::history::Parcel {
    let bytes = |encode: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        encode(&mut out);
        out
    };
    let ended = record(41, "payments/invoice/42", "worker-1", AT_MS);
    crate::history::Parcel {
        dropped_ms: AT_MS - 2,
        before_ms: AT_MS - 1,
        records: vec![bytes(&|out| super::encode_record(&ended, out))],
        audits: vec![(77, bytes(&|out| super::encode_audit(AT_MS, &deeds()[0], out)))],
        changes: vec![(880, bytes(&|out| super::encode_changes(&changes()[..2], out)))],
        last: true,
    }
}

pub(crate) fn status_ask() -> super::StatusAsk {
    let about = super::About {
        incarnation: 2 << 100,
        commands: 1,
        http: "n2:8080".to_owned(),
        peer: "n2:8081".to_owned(),
    };
    super::StatusAsk { from: 2, about }
}

pub(crate) fn report() -> super::Report {
    let status = crate::status::NodeStatus {
        version: "0.1.0".to_owned(),
        commit: "58a9013".to_owned(),
        commands: 1,
        uptime_ms: 86_400_000,
        state: crate::status::RaftState::Candidate,
        term: 9,
        leader: Some(3),
        log_index: Some(303),
        committed_index: Some(302),
        applied_index: Some(301),
        snapshot_index: Some(300),
        revision: 900,
        disk_free_bytes: 1 << 40,
        reserve_bytes: 64 << 20,
        storage_full: true,
        wall_clock_ms: AT_MS,
        waits_for: Some("a leader and its log".to_owned()),
        timing: Some(crate::config::Timing::WAN),
    };
    let lives = (1..=4).map(|id| (id, u128::from(id) << 100)).collect();
    super::Report {
        status,
        members: crate::membership::Members { at: Some(log_id(9, 302)), lives },
    }
}

pub(crate) fn digests() -> crate::digests::KnownDigests {
    let known = vec![(16_384, 7), (32_768, u128::MAX - 1)];
    crate::digests::KnownDigests { version: 1, known }
}

pub(crate) fn backup_head() -> crate::backup::BackupHead {
    crate::backup::BackupHead {
        cluster: Some(ClusterId(0x0123_4567_89ab_cdef_0011_2233_4455_6677)),
        revision: 900,
        last_token: 41,
        term: 9,
        index: 301,
        taken_at_ms: AT_MS,
        node: 2,
        version: "0.1.0".to_owned(),
        level: 3,
    }
}

pub(crate) fn backup_end() -> crate::backup::BackupEnd {
    let head = slot_head();
    let SlotHead { chunks, rows, bytes, digest, level, .. } = head;
    crate::backup::BackupEnd {
        state: crate::state::Totals { chunks, rows, bytes, digest, level },
        pieces: 1,
        history_rows: 3,
        sum: 0xdead_beef,
    }
}

/// The start of a file, and a frame.
pub(crate) fn backup_frames() -> Vec<u8> {
    let (mut framer, mut bytes) = crate::backup::Framer::begin();
    let frame = framer.frame(2, |out| out.extend_from_slice(b"a chunk"));
    bytes.extend(frame.expect("a short frame"));
    bytes
}
