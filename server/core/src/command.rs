//! What may be asked of the lock table.
//!
//! A command carries everything that its effect depends on: random ids and the wall clock come
//! from the proposer, limits from the replicated state. Commands that a leader decides from its
//! memory name the term of that decision and are void in an entry of any other term.

use crate::ids::{ClusterId, LeaseId, Revision, TicketId, Token};
use crate::limits::{DomainLimits, Limits};
use crate::name::{Owner, RequestId, ResourceName};
use std::sync::Arc;

/// What stands around the commands of one log entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The Raft term in which the entry was proposed.
    pub term: u64,
    /// The wall clock of the proposer, for display and retention by age only.
    pub at_ms: u64,
}

/// One or many holders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// One holder, whose token fences.
    Exclusive,
    /// Many holders and no exclusive one. Its tokens do not fence: it is for reading.
    Shared,
}

/// String pairs that a client attaches; bounded at the rim, counted here.
pub type Metadata = Arc<[(Arc<str>, Arc<str>)]>;

/// What one policy said about a request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyVerdict {
    /// The policy's name.
    pub name: Arc<str>,
    /// The version that was asked.
    pub version: Arc<str>,
    /// `allow`, `adjust`, ...
    pub verdict: Arc<str>,
}

/// On which lease a grant will stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// A lease opened for this grant alone; it ends with it.
    Single {
        /// The new lease's id.
        lease: LeaseId,
        /// Its time to live, in milliseconds.
        ttl_ms: u64,
    },
    /// A lease that its owner opened before.
    Explicit {
        /// Its id.
        lease: LeaseId,
    },
}

/// What a client says it already holds, so that waits for each other can be seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    /// The resource held.
    pub resource: ResourceName,
    /// The token of that grant.
    pub token: Token,
}

/// Asks for a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acquire {
    /// What to lock.
    pub resource: ResourceName,
    /// For whom.
    pub owner: Owner,
    /// On which lease.
    pub basis: Basis,
    /// Exclusive or shared.
    pub mode: Mode,
    /// Join the line if the lock is not free; a live request waits for the answer.
    pub wait: bool,
    /// Makes a repeat find the ticket or grant of the first request.
    pub request_id: Option<RequestId>,
    /// The grant passes on unless a renewal or release arrives within this many milliseconds.
    pub claim_ms: Option<u64>,
    /// Keep the place for the claim window when the wait ends without a grant.
    pub keep_place: bool,
    /// What the client holds already.
    pub holding: Vec<Holding>,
    /// What the client attached.
    pub metadata: Option<Metadata>,
    /// Higher goes first; 0 unless a policy set it.
    pub priority: u8,
    /// The longest TTL that the policies allow on this grant, in milliseconds.
    pub ttl_cap_ms: Option<u64>,
    /// What the policies said.
    pub policies: Option<Arc<[PolicyVerdict]>>,
}

/// Opens a lease that can hold many grants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenLease {
    /// The new lease's id.
    pub lease: LeaseId,
    /// Whom it belongs to.
    pub owner: Owner,
    /// Its time to live, in milliseconds.
    pub ttl_ms: u64,
    /// What the client attached.
    pub metadata: Option<Metadata>,
}

/// Names a grant and, as far as the caller said, who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantRef {
    /// The resource held.
    pub resource: ResourceName,
    /// The token of the grant.
    pub token: Token,
    /// The caller: the principal always counts, the client only if it was named.
    pub caller: Caller,
}

/// Who asks for a change of a grant or lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Who the service knows the caller to be.
    pub principal: crate::name::Principal,
    /// The label, if the caller gave one.
    pub client: Option<crate::name::ClientId>,
}

impl Caller {
    /// Whether this caller may act for `owner`.
    #[must_use]
    pub fn is(&self, owner: &Owner) -> bool {
        self.principal == owner.principal && self.client.as_ref().is_none_or(|c| *c == owner.client)
    }
}

/// When a forced release lets the next client in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForceWhen {
    /// At the deadline: no renewal is accepted any more, and nobody overlaps.
    Drain,
    /// At once. The holder may still believe to hold: the only allowed overlap.
    Now,
}

/// What an operator does, and what the audit keeps of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Administer {
    /// Who does it.
    pub by: crate::name::Principal,
    /// The address that the request came from.
    pub source: Arc<str>,
    /// Why, in the operator's words.
    pub reason: Arc<str>,
    /// What is done.
    pub action: Action,
}

/// What an operator may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Ends a grant against its holder's will.
    ForceRelease {
        /// Which resource.
        resource: ResourceName,
        /// The token that the operator saw: nothing happens if it is not the holder's any more.
        token: Token,
        /// When the next client is let in.
        when: ForceWhen,
    },
    /// Ends a lease with all that is on it, whoever it belongs to.
    RevokeLease {
        /// Which lease.
        lease: LeaseId,
    },
    /// Replaces, or with `None` removes, the limits of one domain.
    SetDomain {
        /// Which domain.
        domain: Arc<str>,
        /// Its limits.
        limits: Option<DomainLimits>,
        /// What must be there before.
        expected: Expected,
    },
    /// Changes which nodes there are, or which one leads. That is a matter of the log itself, not
    /// of this state: here it is only recorded.
    ChangeCluster {
        /// What is changed.
        change: ClusterChange,
        /// How far it has come.
        stage: Stage,
    },
}

/// A change of the nodes of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterChange {
    /// A node becomes a learner.
    Add {
        /// Which one.
        node: u64,
    },
    /// A learner gets a vote.
    Promote {
        /// Which one.
        node: u64,
    },
    /// A node is no member any more.
    Remove {
        /// Which one.
        node: u64,
    },
    /// Another node leads.
    Transfer {
        /// Which one, if it was named.
        node: Option<u64>,
    },
}

/// How far a change has come that this state does not decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It is about to be made.
    Begun,
    /// It was not made.
    Refused,
}

/// What a change is conditional on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// Nothing.
    Any,
    /// That there is none yet.
    Absent,
    /// That the last change is this one.
    Version(Revision),
}

/// Why a ticket leaves the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LeftHow {
    /// Its wait is over.
    TimedOut,
    /// Its connection is gone.
    Disconnected,
    /// Its client said so.
    Cancelled,
    /// Its lease ended.
    LeaseEnded,
    /// It would have waited for itself.
    Deadlock,
}

/// How a grant or lease ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EndedHow {
    /// Its holder gave it back.
    Released,
    /// Its deadline passed.
    Expired,
    /// An operator ended it.
    Forced,
    /// Its lease was ended by an operator.
    Revoked,
    /// Nobody claimed it within the window.
    PassedOn,
    /// A restore or recovery ended it.
    Restored,
    /// The wait was cancelled before there was a grant.
    Cancelled,
}

/// What may be asked. New variants are appended; stored entries number them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Asks for a lock.
    Acquire(Box<Acquire>),
    /// Gives a grant back.
    Release(GrantRef),
    /// Opens a lease.
    OpenLease(OpenLease),
    /// Changes the TTL of a lease that was opened for one grant.
    Renew {
        /// Which grant.
        grant: GrantRef,
        /// The new TTL, in milliseconds.
        ttl_ms: u64,
    },
    /// Ends a lease with all that is on it.
    EndLease {
        /// Which lease.
        lease: LeaseId,
        /// Who asks.
        caller: Caller,
    },
    /// Leaves the line on purpose.
    CancelWait {
        /// Who waits.
        owner: Owner,
        /// The request that waits.
        request_id: RequestId,
    },
    /// Does something to what is not the caller's own. Recorded, also where it is refused.
    Administer(Box<Administer>),
    /// Deadlines passed on the leader's clock.
    Expire {
        /// Which leases.
        leases: Vec<LeaseId>,
        /// The term of the decision.
        term: u64,
    },
    /// The deadline of a draining grant passed on the leader's clock.
    EndDrained {
        /// Which grant.
        token: Token,
        /// The term of the decision.
        term: u64,
    },
    /// A grant that was never handed out, or not claimed in the time asked for, goes on.
    PassOn {
        /// Which grant.
        token: Token,
        /// The request that was not told of it; if a newer one was, nothing happens.
        attachment: u32,
        /// The term of the decision.
        term: u64,
    },
    /// The connection behind a ticket is gone; its place is kept for a while.
    Detach {
        /// Which ticket.
        ticket: TicketId,
        /// The attachment that was lost; a newer one is not touched.
        attachment: u32,
        /// The term of the decision.
        term: u64,
    },
    /// A ticket leaves the line.
    Leave {
        /// Which ticket.
        ticket: TicketId,
        /// The attachment that ends; a newer one is not touched.
        attachment: u32,
        /// Why.
        how: LeftHow,
        /// The term of the decision.
        term: u64,
    },
    /// Goes on ending a lease that has more on it than one step may end.
    Continue {
        /// Which lease.
        lease: LeaseId,
    },
    /// Forgets ended requests and leases older than the cut-off.
    Trim {
        /// What ended before this wall-clock instant is forgotten.
        ended_before_ms: u64,
        /// History records that ended before this instant are dropped.
        history_before_ms: u64,
    },
    /// Founds the cluster, once.
    Found {
        /// Its name.
        cluster: ClusterId,
        /// The limits that it starts with.
        limits: Box<Limits>,
    },
    /// Replaces the limits.
    SetLimits(Box<Limits>),
    /// The owner has seen the list of grants that ended without its doing.
    ConfirmEnded {
        /// Which lease.
        lease: LeaseId,
        /// The tokens of the grants that it was told of.
        tokens: Vec<Token>,
    },
    /// From here on the log may hold commands up to a version, as every member applies them.
    RaiseLevel {
        /// That version. One that is not above the present level changes nothing.
        to: u16,
    },
    /// Whoever held a lock before the state was restored cannot believe in it any more, by the
    /// leader's clock: from here on locks are granted.
    EndHold {
        /// The term of the decision.
        term: u64,
    },
}

impl Command {
    /// The version that every cluster begins with.
    pub const FIRST: u16 = 1;
    /// The highest version that this build applies.
    pub const NEWEST: u16 = 1;

    /// The lowest version that a node must know to apply this one as it was meant.
    ///
    /// A command whose fields or effect change counts as a new one: what was written under the
    /// old version keeps its effect, or nodes of two releases would disagree about one log. To
    /// raise the level to a version takes a node that knows that version.
    #[must_use]
    pub fn version(&self) -> u16 {
        match self {
            Self::RaiseLevel { to } => *to,
            Self::Acquire(_)
            | Self::Release(_)
            | Self::OpenLease(_)
            | Self::Renew { .. }
            | Self::EndLease { .. }
            | Self::CancelWait { .. }
            | Self::Administer(_)
            | Self::Expire { .. }
            | Self::EndDrained { .. }
            | Self::PassOn { .. }
            | Self::Detach { .. }
            | Self::Leave { .. }
            | Self::Continue { .. }
            | Self::Trim { .. }
            | Self::Found { .. }
            | Self::SetLimits(_)
            | Self::ConfirmEnded { .. }
            | Self::EndHold { .. } => Self::FIRST,
        }
    }
}
