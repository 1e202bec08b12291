//! What the lock table remembers.

use crate::command::{EndedHow, Mode};
use crate::cow_map::CowMap;
use crate::ids::{LeaseId, TicketId, Token};
use crate::index::Index;
use crate::limits::{DomainSettings, Limits};
use crate::name::{Owner, RequestId, ResourceName};
use crate::outcome::Grant;
use crate::row::{EndedRow, Got, Head, LostGrant, Ticket};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// The state. Every map is copy-on-write, so that a snapshot never stops a writer.
///
/// Grants and tickets stand once, under their numbers; `locks`, `leases` and `requests` point to
/// them. A free resource without a line, and a client without anything, leave no trace.
#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    pub(crate) head: Head,
    pub(crate) limits: Arc<Limits>,
    pub(crate) domains: BTreeMap<Arc<str>, DomainSettings>,
    pub(crate) locks: CowMap<ResourceName, Lock>,
    pub(crate) grants: CowMap<Token, Arc<Grant>>,
    pub(crate) tickets: CowMap<TicketId, Arc<Ticket>>,
    pub(crate) leases: CowMap<LeaseId, Lease>,
    /// What stands on leases that can hold many things. A set beside the leases, so that a lease
    /// with 10,000 grants is not copied as one piece.
    pub(crate) on_lease: CowMap<(LeaseId, Item), ()>,
    /// Tickets whose owner said that it holds a grant on this lease too.
    pub(crate) on_behalf: CowMap<(LeaseId, TicketId), ()>,
    pub(crate) clients: CowMap<Arc<Owner>, Client>,
    pub(crate) requests: CowMap<RequestKey, Request>,
    /// Ended requests and leases in the order in which they are forgotten.
    pub(crate) ended: CowMap<u64, Arc<EndedRow>>,
    pub(crate) ended_leases: CowMap<LeaseId, u64>,
    pub(crate) metadata_bytes: u64,
    /// Leases that are being ended in pieces.
    pub(crate) ending: BTreeSet<LeaseId>,
    /// What lists are read from.
    pub(crate) index: Index,
}

/// Who holds a resource and who waits for it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lock {
    pub(crate) holders: Holders,
    pub(crate) shared: bool,
    pub(crate) line: Option<Box<Line>>,
}

/// Nearly every lock has one holder: it should not cost an allocation.
#[derive(Debug, Clone, Default)]
pub(crate) enum Holders {
    #[default]
    None,
    One(Token),
    Many(BTreeSet<Token>),
}

/// Sorts waiters: the highest priority first, then the earliest arrival.
pub(crate) type Place = (Reverse<u8>, TicketId);

/// The waiters of one resource.
#[derive(Debug, Clone, Default)]
pub(crate) struct Line {
    /// All of them.
    pub(crate) all: BTreeMap<Place, Mode>,
    /// Those a live request waits for. A set of its own, so that a hundred ghosts in front cost
    /// a grant nothing.
    pub(crate) attached: BTreeMap<Place, Mode>,
    /// Whether any priority was ever set here: only then can anybody be overtaken.
    pub(crate) mixed: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Lease {
    pub(crate) owner: Arc<Owner>,
    pub(crate) ttl_ms: u64,
    /// The longest that it ever was: a promise given under it may still stand.
    pub(crate) longest_ttl_ms: u64,
    pub(crate) opened_at_ms: u64,
    pub(crate) content: Content,
    pub(crate) extra: Option<Arc<LeaseExtra>>,
}

/// What only some leases have.
#[derive(Debug, Clone, Default)]
pub(crate) struct LeaseExtra {
    pub(crate) metadata: Option<crate::command::Metadata>,
    pub(crate) ending: Option<EndedHow>,
    pub(crate) lost: Vec<LostGrant>,
}

/// What stands on a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// Opened for one thing, and this is it.
    Single(Item),
    /// Counts of what `on_lease` lists.
    Many { grants: u32, tickets: u32 },
}

/// Tickets sort before grants: a lease that ends leaves its lines before its grants go on, so it
/// never gets a grant while it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Item {
    Ticket(TicketId),
    Grant(Token),
}

/// What one owner uses up.
#[derive(Debug, Clone, Default)]
pub(crate) struct Client {
    pub(crate) leases: u32,
    pub(crate) grants: u32,
    pub(crate) tickets: u32,
    /// Its ended requests, oldest first.
    pub(crate) ended: VecDeque<u64>,
    /// Its live requests that carry an id.
    pub(crate) requests: u32,
}

impl Client {
    pub(crate) fn is_idle(&self) -> bool {
        self.leases == 0 && self.tickets == 0 && self.requests == 0 && self.ended.is_empty()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RequestKey {
    pub(crate) owner: Arc<Owner>,
    pub(crate) id: RequestId,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Request {
    Live {
        fingerprint: u64,
        got: Got,
    },
    /// Points into `ended`.
    Ended(u64),
}

impl Holders {
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::None)
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::One(_) => 1,
            Self::Many(tokens) => tokens.len(),
        }
    }

    pub(crate) fn contains(&self, token: Token) -> bool {
        match self {
            Self::None => false,
            Self::One(one) => *one == token,
            Self::Many(tokens) => tokens.contains(&token),
        }
    }

    pub(crate) fn iter(&self) -> Box<dyn Iterator<Item = Token> + '_> {
        match self {
            Self::None => Box::new(std::iter::empty()),
            Self::One(token) => Box::new(std::iter::once(*token)),
            Self::Many(tokens) => Box::new(tokens.iter().copied()),
        }
    }

    pub(crate) fn highest(&self) -> Option<Token> {
        self.downwards_from(None).next()
    }

    /// Those below `before`, the highest first.
    pub(crate) fn downwards_from(
        &self,
        before: Option<Token>,
    ) -> Box<dyn Iterator<Item = Token> + '_> {
        let before = before.unwrap_or(Token(u64::MAX));
        match self {
            Self::None => Box::new(std::iter::empty()),
            Self::One(token) => Box::new(std::iter::once(*token).filter(move |t| *t < before)),
            Self::Many(tokens) => Box::new(tokens.range(..before).rev().copied()),
        }
    }

    pub(crate) fn add(&mut self, token: Token) {
        *self = match std::mem::take(self) {
            Self::None => Self::One(token),
            Self::One(first) => Self::Many(BTreeSet::from([first, token])),
            Self::Many(mut tokens) => {
                tokens.insert(token);
                Self::Many(tokens)
            }
        };
    }

    pub(crate) fn remove(&mut self, token: Token) {
        match self {
            Self::One(one) if *one == token => *self = Self::None,
            Self::Many(tokens) => {
                tokens.remove(&token);
                if tokens.is_empty() {
                    *self = Self::None;
                }
            }
            _ => {}
        }
    }
}

impl Lock {
    /// Whether a grant of this mode can stand beside the present holders.
    pub(crate) fn admits(&self, mode: Mode) -> bool {
        self.holders.is_empty() || (self.shared && mode == Mode::Shared)
    }

    pub(crate) fn line_len(&self) -> usize {
        self.line.as_ref().map_or(0, |line| line.all.len())
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.holders.is_empty() && self.line.is_none()
    }
}

impl Lease {
    pub(crate) fn single(&self) -> bool {
        matches!(self.content, Content::Single(_))
    }

    pub(crate) fn ending(&self) -> Option<EndedHow> {
        self.extra.as_ref().and_then(|extra| extra.ending)
    }

    pub(crate) fn extra_mut(&mut self) -> &mut LeaseExtra {
        Arc::make_mut(self.extra.get_or_insert_default())
    }
}
