//! The state as a stream of plain rows, for snapshots and digests.
//!
//! The order is canonical: [`Row::Head`], limits, domains, then leases, grants, tickets, live
//! requests and ended ones, each by key. Two equal states give equal streams, whatever
//! happened on the way to them.

use crate::command::{Command, EndedHow, Metadata, Mode, PolicyVerdict};
use crate::ids::{ClusterId, LeaseId, TicketId, Token};
use crate::limits::{DomainSettings, Limits};
use crate::name::{Owner, RequestId, ResourceName};
use crate::outcome::Grant;
use std::sync::Arc;

/// One piece of the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Row {
    /// The counters. Always first.
    Head(Head),
    /// The limits.
    Limits(Box<Limits>),
    /// The limits of one domain.
    Domain {
        /// Which.
        domain: Arc<str>,
        /// Its limits and their version.
        settings: DomainSettings,
    },
    /// A lease.
    Lease(LeaseRow),
    /// A live grant.
    Grant(Arc<Grant>),
    /// A place in a line.
    Ticket(Arc<Ticket>),
    /// The request behind a live ticket or grant.
    Live(LiveRequest),
    /// A request or lease that ended and is still remembered.
    Ended(EndedRow),
}

/// The counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Which cluster this is; nothing before it is founded.
    pub cluster: Option<ClusterId>,
    /// The number of the newest change.
    pub revision: u64,
    /// The newest token given out.
    pub last_token: u64,
    /// The newest ticket given out.
    pub last_ticket: u64,
    /// The number of the newest thing remembered as ended.
    pub last_ended: u64,
    /// The largest wall clock seen, in milliseconds.
    pub at_ms: u64,
    /// The highest version of commands that the log may hold. See [`Command::version`].
    pub level: u16,
    /// After a restore: for how long a leader grants nothing from its takeover on, in
    /// milliseconds.
    pub hold_ms: u64,
}

impl Default for Head {
    fn default() -> Self {
        Self {
            cluster: None,
            revision: 0,
            last_token: 0,
            last_ticket: 0,
            last_ended: 0,
            at_ms: 0,
            level: Command::FIRST,
            hold_ms: 0,
        }
    }
}

/// A lease, without what is on it: grants and tickets name their lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRow {
    /// Its id.
    pub id: LeaseId,
    /// Whose it is.
    pub owner: Arc<Owner>,
    /// Its TTL, in milliseconds.
    pub ttl_ms: u64,
    /// The longest TTL that it ever had: what a new leader grants it from its takeover on.
    pub longest_ttl_ms: u64,
    /// Opened for one grant, and ends with it.
    pub single: bool,
    /// When it was opened, by the proposer's wall clock.
    pub opened_at_ms: u64,
    /// What the client attached.
    pub metadata: Option<Metadata>,
    /// It is being ended in pieces.
    pub ending: Option<EndedHow>,
    /// Grants that ended without the client's doing, until it confirms that it knows.
    pub lost: Vec<LostGrant>,
}

/// A grant that ended without its client's doing while its lease lives on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostGrant {
    /// What was held.
    pub resource: ResourceName,
    /// The token of the grant.
    pub token: Token,
    /// How it ended.
    pub how: EndedHow,
    /// When, by the proposer's wall clock.
    pub ended_at_ms: u64,
}

/// A place in a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket {
    /// Its number, which is its order of arrival.
    pub id: TicketId,
    /// What it waits for.
    pub resource: ResourceName,
    /// Who waits.
    pub owner: Arc<Owner>,
    /// On which lease.
    pub lease: LeaseId,
    /// Exclusive or shared.
    pub mode: Mode,
    /// Higher goes first.
    pub priority: u8,
    /// How often a later arrival went first since its priority last rose.
    pub overtaken: u32,
    /// Whether a live request waits for it; only then is it granted.
    pub attached: bool,
    /// Counts the requests that have waited for it.
    pub attachment: u32,
    /// The request that makes it findable.
    pub request_id: Option<RequestId>,
    /// When it was asked for, by the proposer's wall clock.
    pub asked_at_ms: u64,
    /// The claim window asked for, in milliseconds.
    pub claim_ms: Option<u64>,
    /// Keep the place when the wait ends without a grant.
    pub keep_place: bool,
    /// Leases that its owner holds other grants on.
    pub behalf: Option<Arc<[LeaseId]>>,
    /// What the client attached.
    pub metadata: Option<Metadata>,
    /// The longest TTL that the policies allow.
    pub ttl_cap_ms: Option<u64>,
    /// What the policies said.
    pub policies: Option<Arc<[PolicyVerdict]>>,
}

/// The request behind a live ticket or grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveRequest {
    /// Who asked.
    pub owner: Arc<Owner>,
    /// The id that the client gave it.
    pub id: RequestId,
    /// Tells other content under the same id.
    pub fingerprint: u64,
    /// What it has become.
    pub got: Got,
}

/// What a live request has become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Got {
    /// It stands in line.
    Ticket(TicketId),
    /// It holds the lock.
    Grant(Token),
}

/// A request or lease that ended and is still remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedRow {
    /// Its number: the order in which things are forgotten.
    pub seq: u64,
    /// How it ended.
    pub how: EndedHow,
    /// When, by the proposer's wall clock.
    pub ended_at_ms: u64,
    /// What ended.
    pub what: EndedWhat,
}

/// What ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndedWhat {
    /// A request.
    Request {
        /// Who asked.
        owner: Arc<Owner>,
        /// The id that the client gave it.
        id: RequestId,
        /// Tells other content under the same id.
        fingerprint: u64,
        /// The token it had, if it had one.
        token: Option<Token>,
    },
    /// A lease for many grants.
    Lease {
        /// Its id.
        id: LeaseId,
    },
}
