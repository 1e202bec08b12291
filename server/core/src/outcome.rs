//! What may be answered, and what happened meanwhile.
//!
//! A refusal is an answer, not an error: "held by another" is the service at work. The core
//! never fails; every command has an outcome.

use crate::command::{Administer, EndedHow, LeftHow, Metadata, Mode, PolicyVerdict};
use crate::ids::{LeaseId, Revision, TicketId, Token};
use crate::name::{Owner, RequestId, ResourceName};
use std::sync::Arc;

/// A live grant. Shared, because the state, the answer and the event all name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Its number.
    pub token: Token,
    /// What is held.
    pub resource: ResourceName,
    /// By whom.
    pub owner: Arc<Owner>,
    /// On which lease.
    pub lease: LeaseId,
    /// Whether the lease was opened for this grant alone.
    pub single: bool,
    /// Exclusive or shared.
    pub mode: Mode,
    /// The ticket that waited for it.
    pub ticket: Option<TicketId>,
    /// Counts the requests that have asked for it: the first, and each repeat.
    pub attachment: u32,
    /// The request that asked for it.
    pub request_id: Option<RequestId>,
    /// When it was asked for, by the proposer's wall clock.
    pub asked_at_ms: u64,
    /// When it was granted, by the proposer's wall clock.
    pub granted_at_ms: u64,
    /// The window in which it must be claimed, if the client asked for one.
    pub claim_ms: Option<u64>,
    /// The longest TTL that its policies allowed.
    pub ttl_cap_ms: Option<u64>,
    /// What the policies said.
    pub policies: Option<Arc<[PolicyVerdict]>>,
    /// What the client attached.
    pub metadata: Option<Metadata>,
    /// An operator asked for its end: it is not renewed any more.
    pub draining: bool,
}

/// A grant that ended, for the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantRecord {
    /// The grant as it was.
    pub grant: Arc<Grant>,
    /// How it ended.
    pub how: EndedHow,
    /// When, by the proposer's wall clock.
    pub ended_at_ms: u64,
}

/// What an operator did, for the audit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRecord {
    /// Who, from where, why and what.
    pub order: Administer,
    /// What became of it.
    pub result: AuditResult,
}

/// What became of something that an operator did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AuditResult {
    /// It is done.
    Done,
    /// The token was not a live grant of the resource.
    NotLive,
    /// The lease had ended, or never was.
    NoLease,
    /// The present version was not the expected one.
    VersionDiffers,
    /// A bound was reached.
    Full,
    /// It is about to be done, outside of this state.
    Begun,
    /// It was not done, outside of this state.
    Refused,
}

/// One step of a cycle of waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CycleStep {
    /// Who waits.
    pub owner: Arc<Owner>,
    /// For what.
    pub resource: ResourceName,
}

/// Who stands in the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blockers {
    /// At most [`Blockers::SHOWN`] of the holders.
    pub holders: Vec<Arc<Grant>>,
    /// How many there are.
    pub holders_total: usize,
    /// How many stand in line.
    pub queue_length: usize,
}

impl Blockers {
    /// How many holders an answer names.
    pub const SHOWN: usize = 8;
}

/// Which bound stands in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// Tickets in line for the resource.
    Queue,
    /// Tickets of the client.
    ClientTickets,
    /// Tickets in all.
    Tickets,
    /// Grants in all.
    Grants,
    /// Leases in all.
    Leases,
    /// Grants and tickets on the lease.
    LeaseItems,
    /// Bytes of metadata in all.
    Metadata,
    /// Every number below 2^53 was given out.
    Tokens,
    /// Domains with settings of their own.
    Domains,
}

/// Why a command changed nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Somebody else holds the lock, or stands in line for it.
    Held(Blockers),
    /// A bound is reached.
    Full {
        /// Which.
        bound: Bound,
        /// Its value.
        max: u64,
        /// How many stand in line for the resource.
        queue_length: usize,
    },
    /// The wait would never end.
    WouldDeadlock {
        /// Who waits for whom, starting with the caller.
        cycle: Vec<CycleStep>,
    },
    /// The TTL is outside the limits.
    TtlOutOfRange {
        /// The shortest.
        min_ms: u64,
        /// The longest.
        max_ms: u64,
    },
    /// The lease's TTL is longer than the policies allow for this grant.
    TtlAboveCap {
        /// The longest they allow.
        cap_ms: u64,
    },
    /// Only a lease that was opened for one grant changes its TTL this way.
    LeaseIsExplicit,
    /// A lease that acquire opened for one grant takes no second one.
    LeaseIsSingle,
    /// The lease has ended.
    LeaseEnded {
        /// How, as far as it is still known.
        how: Option<EndedHow>,
        /// When.
        ended_at_ms: Option<u64>,
    },
    /// No such lease is known.
    LeaseUnknown,
    /// The lease belongs to somebody else.
    NotOwner,
    /// The token is not a live grant of this resource.
    NotLive,
    /// The token is a live grant, and the caller is not its owner.
    NotHolder,
    /// An operator asked for the grant's end: it is not renewed any more.
    Draining,
    /// The grant that is asked about, or that this request id got before, has ended.
    RequestEnded {
        /// The token that it had, if it had one.
        token: Option<Token>,
        /// How it ended.
        how: EndedHow,
        /// When.
        ended_at_ms: u64,
    },
    /// The request id was used with other content.
    RequestReused,
    /// No such ticket waits.
    NotWaiting,
    /// The present version is not the one that the change is conditional on.
    VersionDiffers {
        /// The present one; `None` if there is none.
        current: Option<Revision>,
    },
    /// The state was restored, and somebody may still believe in what was granted before.
    OnHold {
        /// For how long yet, in milliseconds: as the state has it from the leader's takeover on, or
        /// as its clock says.
        hold_ms: u64,
    },
    /// The command was decided in another term, or its subject changed since.
    Void,
}

/// The answer to one command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The lock is the caller's.
    Granted {
        /// The grant.
        grant: Arc<Grant>,
        /// The TTL of its lease, in milliseconds.
        ttl_ms: u64,
        /// The request had been made before.
        repeat: bool,
    },
    /// The caller stands in line.
    Queued {
        /// Its place.
        ticket: TicketId,
        /// Which of the connections that waited for it this is.
        attachment: u32,
        /// The lease that the ticket stands on.
        lease: LeaseId,
        /// How many stand in line.
        queue_length: usize,
    },
    /// The lease is open.
    LeaseOpened {
        /// Its TTL, in milliseconds.
        ttl_ms: u64,
    },
    /// The lease's TTL is changed.
    Renewed {
        /// The lease.
        lease: LeaseId,
        /// The new TTL, in milliseconds.
        ttl_ms: u64,
    },
    /// The grant is given back.
    Released,
    /// The lease, grant or ticket is gone, or what was asked is done.
    Done {
        /// There is more on the lease than one step may end: propose [`crate::Command::Continue`].
        more: bool,
    },
    /// The domain has set this for itself.
    DomainSet {
        /// The version of its settings; `None` if there are none any more.
        version: Option<Revision>,
    },
    /// Nothing changed.
    Refused(Refusal),
}

/// One change of the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its number.
    pub revision: Revision,
    /// When, by the proposer's wall clock.
    pub at_ms: u64,
    /// What changed.
    pub kind: EventKind,
}

/// What changed. A lease opened for one grant is told by that grant's own events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventKind {
    /// A lease for many grants was opened.
    LeaseOpened {
        /// Its id.
        lease: LeaseId,
        /// Whose it is.
        owner: Arc<Owner>,
        /// Its TTL, in milliseconds.
        ttl_ms: u64,
    },
    /// The TTL of a lease changed.
    LeaseChanged {
        /// Its id.
        lease: LeaseId,
        /// The new TTL, in milliseconds.
        ttl_ms: u64,
    },
    /// A lease for many grants ended; what was on it has events of its own.
    LeaseEnded {
        /// Its id.
        lease: LeaseId,
        /// Whose it was.
        owner: Arc<Owner>,
        /// How.
        how: EndedHow,
    },
    /// Somebody stands in line.
    Queued {
        /// The place.
        ticket: TicketId,
        /// For what.
        resource: ResourceName,
        /// Who.
        owner: Arc<Owner>,
        /// Exclusive or shared.
        mode: Mode,
        /// Its priority.
        priority: u8,
    },
    /// Somebody left the line without a grant.
    Left {
        /// The place.
        ticket: TicketId,
        /// For what.
        resource: ResourceName,
        /// Who.
        owner: Arc<Owner>,
        /// Why.
        how: LeftHow,
    },
    /// A lock was granted.
    Granted {
        /// The grant.
        grant: Arc<Grant>,
        /// The TTL of its lease, in milliseconds.
        ttl_ms: u64,
    },
    /// A grant ended.
    Ended(Arc<GrantRecord>),
    /// An operator asked for the end of a grant.
    Draining {
        /// The grant.
        grant: Arc<Grant>,
    },
    /// An operator did something, or tried to. Comes after what it changed.
    Audited(Arc<AuditRecord>),
    /// A lease has more on it than one step could end.
    Ending {
        /// Its id.
        lease: LeaseId,
    },
    /// The limits changed.
    LimitsChanged,
    /// The limits of a domain changed.
    DomainChanged {
        /// Which.
        domain: Arc<str>,
    },
    /// History records that ended before this instant are dropped.
    HistoryTrimmed {
        /// The cut-off, by the proposer's wall clock.
        before_ms: u64,
    },
}

/// All that one log entry did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Applied {
    /// One a command, in order.
    pub outcomes: Vec<Outcome>,
    /// One a change, in order.
    pub events: Vec<Event>,
}
