//! What the node answers to the rim: values that carry a validity, and the few ways in which a
//! question stays undecided.

use leasehold_core::command::Mode;
use leasehold_core::outcome::{Grant, GrantRecord, Refusal};
use leasehold_core::row::LostGrant;
use leasehold_core::{LeaseId, RequestId, ResourceName, Token};
use std::sync::Arc;
use std::time::Instant;

/// When a request came, and until when its sender still wants an answer.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    /// Read from the monotonic clock after the first byte of the request was there.
    pub received: Instant,
    /// Work whose time is over is not begun.
    pub deadline: Option<Instant>,
}

impl Call {
    /// A call received now, without a deadline.
    #[must_use]
    pub fn now() -> Self {
        Self { received: crate::runtime::now(), deadline: None }
    }
}

/// How long something is valid.
///
/// `expires_in` is what the service counts, from now. `valid_for` is for how long the client may
/// act, counted from the instant at which it sent this request; a margin for the difference of
/// clock rates is already taken off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// Milliseconds until the service may end it, from now.
    pub expires_in_ms: u64,
    /// Milliseconds for which the client may act, from the sending of this request.
    pub valid_for_ms: u64,
}

/// A lock that was granted.
#[derive(Debug, Clone)]
pub struct Granted {
    /// The grant.
    pub grant: Arc<Grant>,
    /// The TTL of its lease, in milliseconds.
    pub ttl_ms: u64,
    /// How long it is valid.
    pub validity: Validity,
    /// From the receipt of this request to the hand-over of the granting entry.
    pub waited_ms: u64,
    /// The state's revision at the grant or later.
    pub revision: u64,
}

/// How an acquire ended without a grant, after it had waited.
#[derive(Debug, Clone)]
pub struct WaitTimeout {
    /// From the receipt of this request.
    pub waited_ms: u64,
    /// Its place in line when its time was over, from 1.
    pub position: usize,
    /// At most eight of the holders.
    pub holders: Vec<Holder>,
    /// How many there are.
    pub holders_total: usize,
    /// How many stand in line.
    pub queue_length: usize,
}

/// A holder as others may see it: its lease's id is not in it.
#[derive(Debug, Clone)]
pub struct Holder {
    /// The grant.
    pub grant: Arc<Grant>,
    /// Milliseconds until its lease may end, where that is known: only the leader has a clock.
    pub expires_in_ms: Option<u64>,
}

/// A renewal that was answered.
#[derive(Debug, Clone)]
pub struct Renewed {
    /// How long the lease is valid now.
    pub validity: Validity,
    /// Grants of the lease that ended without the client's doing.
    pub lost: Vec<LostGrant>,
    /// Grants of the lease that an operator lets run out: this renewal does not keep them.
    pub draining: Vec<DrainingGrant>,
    /// The state's revision that it reflects.
    pub revision: u64,
}

/// A grant that is not renewed any more while its lease is.
#[derive(Debug, Clone)]
pub struct DrainingGrant {
    /// What is held.
    pub resource: ResourceName,
    /// Its token.
    pub token: Token,
    /// How long it is still valid.
    pub validity: Validity,
}

/// A lease that was opened.
#[derive(Debug, Clone, Copy)]
pub struct Opened {
    /// How long it is valid.
    pub validity: Validity,
    /// Its TTL, in milliseconds.
    pub ttl_ms: u64,
}

/// What became of a release.
#[derive(Debug, Clone)]
pub enum Released {
    /// The grant was given back by this request.
    Now,
    /// The caller had given it back before.
    Before,
}

/// How a grant that is asked about has ended.
#[derive(Debug, Clone)]
pub enum Gone {
    /// It is in the history.
    Known(Arc<GrantRecord>),
    /// It was given out, and its record was trimmed.
    Forgotten,
    /// This token was never a grant of this resource, or not of this client.
    Never {
        /// The present holders.
        holders: Vec<Holder>,
    },
}

/// A question that the service could not decide, or decided to refuse.
#[derive(Debug, Clone)]
pub enum Failure {
    /// The lock rules say no.
    Refused(Refusal),
    /// Like [`Refusal::Held`], with the time that the holders have left.
    Held {
        /// At most eight of the holders.
        holders: Vec<Holder>,
        /// How many there are.
        holders_total: usize,
        /// How many stand in line.
        queue_length: usize,
    },
    /// The wait is over without a grant.
    WaitTimeout(Box<WaitTimeout>),
    /// The grant asked about is not live.
    Gone(Gone),
    /// Nobody leads.
    NoLeader,
    /// The node has not applied its log yet.
    NotReady,
    /// Not every member of the cluster is new enough for it.
    AboveLevel {
        /// The version of commands that it takes.
        needs: u16,
        /// The version that is in force.
        level: u16,
    },
    /// The queue of proposals is full.
    Overloaded,
    /// The entry may or may not take effect.
    OutcomeUnknown {
        /// Repeating with it settles the question.
        request_id: Option<RequestId>,
    },
    /// The disk has only its reserve left.
    StorageFull,
    /// The node is stopping.
    ShuttingDown,
    /// The time that the client gave is over.
    DeadlinePassed,
    /// The answer is longer than what one node sends to another.
    AnswerTooLarge,
    /// A fault of the service itself.
    Internal(String),
}

/// A lock as a reader sees it.
#[derive(Debug, Clone)]
pub struct LockStatus {
    /// Its resource.
    pub resource: ResourceName,
    /// All holders.
    pub holders: Vec<Holder>,
    /// The line, first first, at most as many as were asked for.
    pub queue: Vec<WaiterStatus>,
    /// How many stand in line.
    pub queue_length: usize,
    /// The newest token of this resource that is still known.
    pub last_token: Option<Token>,
}

/// A place in line as a reader sees it.
#[derive(Debug, Clone)]
pub struct WaiterStatus {
    /// From 1.
    pub position: usize,
    /// Who waits.
    pub client_id: String,
    /// Exclusive or shared.
    pub mode: Mode,
    /// Higher goes first.
    pub priority: u8,
    /// For how long, by the service's wall clocks.
    pub waiting_ms: u64,
    /// Whether a live request waits for it.
    pub attached: bool,
}

/// One page of something.
#[derive(Debug, Clone)]
pub struct Page<T> {
    /// Its items.
    pub items: Vec<T>,
    /// Where the next page starts, opaque to clients.
    pub next: Option<String>,
    /// How many there are in all, where that is known cheaply.
    pub total: Option<u64>,
}

/// An answer that reflects the state at a revision.
#[derive(Debug, Clone)]
pub struct AtRevision<T> {
    /// The answer.
    pub value: T,
    /// The revision that it reflects.
    pub revision: u64,
}

/// A lease as its owner sees it.
#[derive(Debug, Clone)]
pub struct LeaseStatus {
    /// Its id.
    pub id: LeaseId,
    /// The owner's label.
    pub client_id: String,
    /// Its TTL, in milliseconds.
    pub ttl_ms: u64,
    /// When it was opened, by the proposer's wall clock.
    pub opened_at_ms: u64,
    /// Opened for one grant, and ends with it.
    pub single: bool,
    /// Milliseconds until the earliest possible end, from now, with no further renewal. Zero
    /// where that is not known.
    pub earliest_end_in_ms: u64,
    /// Milliseconds until the latest possible end, from now, with no further renewal and no
    /// further change of leader.
    pub latest_end_in_ms: u64,
    /// Its grants (at most 1,000 are listed).
    pub grants: Vec<Arc<Grant>>,
    /// How many there are.
    pub grants_total: usize,
    /// The resources of its tickets (at most 1,000 are listed).
    pub waiting_for: Vec<ResourceName>,
    /// How many there are.
    pub waiting_total: usize,
}

/// Whether a token is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FenceStatus {
    /// It is the token of a live exclusive grant.
    pub current: bool,
    /// The highest exclusive token of the resource, if it is still known: not where a higher one
    /// may have been lost, as before a restore.
    pub highest_token: Option<Token>,
}

impl Failure {
    /// Names the request whose repetition settles an unknown outcome.
    pub(crate) fn of_request(self, id: Option<&RequestId>) -> Self {
        match self {
            Self::OutcomeUnknown { request_id: None } => {
                Self::OutcomeUnknown { request_id: id.cloned() }
            }
            other => other,
        }
    }
}
