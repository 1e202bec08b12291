//! The state as rows, and its digest.

use crate::command::EndedHow;
use crate::ids::{LeaseId, Token};
use crate::machine::LockTable;
use crate::row::{Head, LeaseRow, LiveRequest, Row};
use crate::state::{Lease, Request, State};

/// How [`Frozen::digest`] counts. Digests of different versions say nothing about each other, so
/// this goes up with every change of what is fed into one.
pub const DIGEST_VERSION: u16 = 1;

/// A copy of the state at one instant. It shares what the table has not changed since.
#[derive(Debug, Clone)]
pub struct Frozen(State);

impl LockTable {
    /// Copies the state without stopping writers for longer than it takes to copy a directory.
    #[must_use]
    pub fn freeze(&self) -> Frozen {
        Frozen(self.state.clone())
    }
}

impl Frozen {
    /// The state in its canonical order.
    pub fn rows(&self) -> impl Iterator<Item = Row> + '_ {
        let state = &self.0;
        let head = [Row::Head(state.head), Row::Limits(Box::new((*state.limits).clone()))];
        let domains = state
            .domains
            .iter()
            .map(|(domain, settings)| Row::Domain { domain: domain.clone(), settings: *settings });
        let leases = state.leases.iter().map(|(id, lease)| Row::Lease(lease.row(*id)));
        let grants = state.grants.iter().map(|(_, grant)| Row::Grant(grant.clone()));
        let tickets = state.tickets.iter().map(|(_, ticket)| Row::Ticket(ticket.clone()));
        let live = state.requests.iter().filter_map(|(key, request)| match *request {
            Request::Live { fingerprint, got } => Some(Row::Live(LiveRequest {
                owner: key.owner.clone(),
                id: key.id.clone(),
                fingerprint,
                got,
            })),
            Request::Ended(_) => None,
        });
        let ended = state.ended.iter().map(|(_, row)| Row::Ended((**row).clone()));
        head.into_iter()
            .chain(domains)
            .chain(leases)
            .chain(grants)
            .chain(tickets)
            .chain(live)
            .chain(ended)
    }

    /// A number that two states share only if their rows are equal, as far as 128 bits can tell.
    /// It guards against faults, not against an adversary.
    #[must_use]
    pub fn digest(&self) -> u128 {
        let mut digest = crate::digest::Digest::new();
        for row in self.rows() {
            digest.row(&row);
        }
        digest.finish()
    }

    /// The highest version of commands that its log may hold.
    #[must_use]
    pub fn level(&self) -> u16 {
        self.0.head.level
    }

    /// The counters in it.
    #[must_use]
    pub fn head(&self) -> Head {
        self.0.head
    }

    /// The number of the newest change in it.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.0.head.revision
    }
}

impl Lease {
    fn row(&self, id: LeaseId) -> LeaseRow {
        let extra = self.extra.as_deref();
        LeaseRow {
            id,
            owner: self.owner.clone(),
            ttl_ms: self.ttl_ms,
            longest_ttl_ms: self.longest_ttl_ms,
            single: self.single(),
            opened_at_ms: self.opened_at_ms,
            metadata: extra.and_then(|extra| extra.metadata.clone()),
            ending: extra.and_then(|extra| extra.ending),
            lost: extra.map(|extra| extra.lost.clone()).unwrap_or_default(),
        }
    }
}

/// Numbers for the digest; never renumbered.
pub(crate) fn how_number(how: EndedHow) -> u64 {
    match how {
        EndedHow::Released => 1,
        EndedHow::Expired => 2,
        EndedHow::Forced => 3,
        EndedHow::Revoked => 4,
        EndedHow::PassedOn => 5,
        EndedHow::Restored => 6,
        EndedHow::Cancelled => 7,
    }
}

/// The token of a request that ended, as the digest counts it.
pub(crate) fn token_number(token: Option<Token>) -> u64 {
    token.map_or(0, |token| token.0)
}
