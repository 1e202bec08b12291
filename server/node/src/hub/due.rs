//! Things to do at an instant of the leader's clock, other than ending leases.

use leasehold_core::outcome::Grant;
use leasehold_core::{LeaseId, TicketId, Token};
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// The window of a ticket whose connection is lost is over.
    Leave { ticket: TicketId, attachment: u32 },
    /// The connection of a ticket is lost and its place is kept: say so in the log.
    Detach { ticket: TicketId, attachment: u32, window_ends: Instant },
    /// A grant that was not handed out, or not claimed in the time asked for. `attachment` is
    /// that of the request which did not get it: a newer one keeps the grant.
    PassOn { token: Token, attachment: u32, lease: LeaseId, single: bool },
    /// A draining grant's deadline.
    EndDrained { token: Token, outages: Duration },
    /// A lease that is ended in pieces.
    Continue(LeaseId),
}

type Key = (Instant, u64);

/// A list ordered by instant, and within one by arrival.
#[derive(Debug, Default)]
pub(crate) struct DueList {
    list: BTreeMap<Key, Due>,
    seq: u64,
    /// Grants that pass on, to be found when they are claimed after all.
    passing_on: HashMap<Token, Key>,
    /// Grants with a claim window, by the lease whose renewal claims them.
    claims: HashMap<LeaseId, Vec<Token>>,
}

impl DueList {
    pub(crate) fn add(&mut self, at: Instant, due: Due) {
        self.seq += 1;
        if let Due::PassOn { token, .. } = due {
            self.kept(token);
            self.passing_on.insert(token, (at, self.seq));
        }
        self.list.insert((at, self.seq), due);
    }

    /// The grant passes on at `at` unless its lease is renewed before.
    pub(crate) fn add_claim(&mut self, at: Instant, grant: &Grant) {
        let Grant { token, attachment, lease, single, .. } = *grant;
        self.add(at, Due::PassOn { token, attachment, lease, single });
        self.claims.entry(lease).or_default().push(token);
    }

    /// The lease was renewed: what waits for a claim on it stays.
    pub(crate) fn claimed(&mut self, lease: LeaseId) {
        for token in self.claims.remove(&lease).unwrap_or_default() {
            self.kept(token);
        }
    }

    /// The grant does not pass on; answers when it would have.
    pub(crate) fn kept(&mut self, token: Token) -> Option<Instant> {
        let key = self.passing_on.remove(&token)?;
        self.list.remove(&key);
        Some(key.0)
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.list.first_key_value().map(|((at, _), _)| *at)
    }

    pub(crate) fn pop(&mut self, now: Instant) -> Option<Due> {
        let entry = self.list.first_entry().filter(|entry| entry.key().0 <= now)?;
        let due = entry.remove();
        if let Due::PassOn { token, lease, .. } = due {
            self.passing_on.remove(&token);
            self.claims.remove(&lease);
        }
        Some(due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: Token = Token(33);
    const LEASE: LeaseId = LeaseId(7);

    fn pass_on(attachment: u32) -> Due {
        Due::PassOn { token: TOKEN, attachment, lease: LEASE, single: true }
    }

    #[test]
    fn things_come_up_in_order_and_not_before_their_time() {
        let (mut list, now) = (DueList::default(), Instant::now());
        list.add(now + Duration::from_secs(2), Due::Continue(LeaseId(2)));
        list.add(now + Duration::from_secs(1), Due::Continue(LeaseId(1)));
        assert_eq!(list.pop(now), None);
        let later = now + Duration::from_secs(3);
        assert_eq!(list.pop(later), Some(Due::Continue(LeaseId(1))));
        assert_eq!(list.pop(later), Some(Due::Continue(LeaseId(2))));
        assert_eq!(list.pop(later), None);
    }

    #[test]
    fn a_grant_that_is_kept_does_not_pass_on() {
        let (mut list, now) = (DueList::default(), Instant::now());
        list.add(now, pass_on(1));
        assert_eq!(list.kept(TOKEN), Some(now));
        assert_eq!(list.pop(now), None);
        assert_eq!(list.kept(TOKEN), None);
    }

    #[test]
    fn a_grant_passes_on_once_however_often_that_was_decided() {
        let (mut list, now) = (DueList::default(), Instant::now());
        list.add(now, pass_on(1));
        list.add(now, pass_on(2));
        assert_eq!(list.pop(now), Some(pass_on(2)));
        assert_eq!(list.pop(now), None);
        assert!(list.passing_on.is_empty(), "nothing is left behind");
    }
}
