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
    /// that of the request which did not get it: a newer one keeps the grant. With `claim` it was
    /// handed out, and a renewal of its lease keeps it.
    PassOn(PassOn),
    /// A draining grant's deadline.
    EndDrained { token: Token, outages: Duration },
    /// A lease that is ended in pieces.
    Continue(LeaseId),
    /// The hold after a restore is over.
    EndHold,
}

/// A grant that goes on to the next in line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PassOn {
    pub(crate) token: Token,
    pub(crate) attachment: u32,
    pub(crate) lease: LeaseId,
    pub(crate) single: bool,
    pub(crate) claim: bool,
}

impl PassOn {
    pub(crate) fn of(grant: &Grant, claim: bool) -> Self {
        let Grant { token, attachment, lease, single, .. } = *grant;
        Self { token, attachment, lease, single, claim }
    }
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
        if let Due::PassOn(pass_on) = due {
            self.kept(pass_on.token);
            self.passing_on.insert(pass_on.token, (at, self.seq));
            if pass_on.claim {
                self.claims.entry(pass_on.lease).or_default().push(pass_on.token);
            }
        }
        self.list.insert((at, self.seq), due);
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
        if let Some(Due::PassOn(pass_on)) = self.list.remove(&key) {
            self.forget_claim(pass_on);
        }
        Some(key.0)
    }

    fn forget_claim(&mut self, pass_on: PassOn) {
        if let Some(tokens) = self.claims.get_mut(&pass_on.lease) {
            tokens.retain(|token| *token != pass_on.token);
            if tokens.is_empty() {
                self.claims.remove(&pass_on.lease);
            }
        }
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.list.first_key_value().map(|((at, _), _)| *at)
    }

    pub(crate) fn pop(&mut self, now: Instant) -> Option<Due> {
        let entry = self.list.first_entry().filter(|entry| entry.key().0 <= now)?;
        let due = entry.remove();
        if let Due::PassOn(pass_on) = due {
            self.passing_on.remove(&pass_on.token);
            self.forget_claim(pass_on);
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
        Due::PassOn(PassOn { token: TOKEN, attachment, lease: LEASE, single: true, claim: false })
    }

    fn claim(token: u64) -> Due {
        let (token, lease) = (Token(token), LEASE);
        Due::PassOn(PassOn { token, attachment: 1, lease, single: false, claim: true })
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
    fn a_renewal_claims_what_waits_for_a_claim_and_nothing_else() {
        let (mut list, now) = (DueList::default(), Instant::now());
        list.add(now, pass_on(1));
        list.add(now, claim(40));
        list.add(now + Duration::from_secs(4), claim(41));
        assert_eq!(list.pop(now), Some(pass_on(1)));
        assert_eq!(list.pop(now), Some(claim(40)), "one claim has run out");
        list.add(now, claim(40));
        list.claimed(LEASE);
        assert_eq!(list.pop(now + Duration::from_secs(9)), None, "the renewal claimed both");
        assert!(list.claims.is_empty() && list.passing_on.is_empty());
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
