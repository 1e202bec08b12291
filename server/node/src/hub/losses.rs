//! What the owner of a lease has to be told beside its renewal: grants that have ended without its
//! doing, and grants that an operator lets run out.
//!
//! An answer may be lost, and its sender does not know. So a loss is named in every answer until
//! no belief can be left that does not know of it: whoever heard none of the answers of a whole
//! TTL believes nothing any more.

use leasehold_core::outcome::Grant;
use leasehold_core::{LeaseId, ResourceName, Token};
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// Losses by lease, and when each was first named.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    named: HashMap<LeaseId, BTreeMap<Token, Instant>>,
}

impl Losses {
    /// These are about to be named; answers those that were named first so long ago that every
    /// belief from before is over.
    pub(crate) fn name(
        &mut self,
        lease: LeaseId,
        tokens: &[Token],
        ttl: Duration,
        now: Instant,
    ) -> Vec<Token> {
        if tokens.is_empty() {
            self.named.remove(&lease);
            return Vec::new();
        }
        let named = self.named.entry(lease).or_default();
        named.retain(|token, _| tokens.contains(token));
        for token in tokens {
            named.entry(*token).or_insert(now);
        }
        let old = named.iter().filter(|(_, first)| now.saturating_duration_since(**first) > ttl);
        old.map(|(token, _)| *token).collect()
    }

    pub(crate) fn forget(&mut self, lease: LeaseId) {
        self.named.remove(&lease);
    }

    pub(crate) fn clear(&mut self) {
        self.named.clear();
    }
}

/// A grant that runs out while its lease may live on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Draining {
    pub(crate) resource: ResourceName,
    pub(crate) token: Token,
    /// Until when an answer from before let its holder believe.
    pub(crate) promised: Instant,
    /// When it ends.
    pub(crate) ends: Instant,
}

/// Grants that run out, by lease.
#[derive(Debug, Default)]
pub(crate) struct Drains {
    all: BTreeMap<(LeaseId, Token), Draining>,
}

impl Drains {
    pub(crate) fn add(&mut self, grant: &Grant, promised: Instant, ends: Instant) {
        let (resource, token) = (grant.resource.clone(), grant.token);
        let draining = Draining { resource, token, promised, ends };
        self.all.insert((grant.lease, token), draining);
    }

    pub(crate) fn ended(&mut self, grant: &Grant) {
        self.all.remove(&(grant.lease, grant.token));
    }

    pub(crate) fn get(&self, lease: LeaseId, token: Token) -> Option<&Draining> {
        self.all.get(&(lease, token))
    }

    pub(crate) fn of(&self, lease: LeaseId) -> Vec<Draining> {
        let all = (lease, Token(0))..=(lease, Token(u64::MAX));
        self.all.range(all).map(|(_, draining)| draining.clone()).collect()
    }

    pub(crate) fn clear(&mut self) {
        self.all.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: LeaseId = LeaseId(7);
    const TTL: Duration = Duration::from_secs(3);

    #[test]
    fn a_loss_is_named_for_longer_than_any_belief_lasts() {
        let mut losses = Losses::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(losses.name(LEASE, &[Token(1)], TTL, at(0)), []);
        assert_eq!(losses.name(LEASE, &[Token(1)], TTL, at(1)), [], "an answer may be lost");
        assert_eq!(losses.name(LEASE, &[Token(1), Token(2)], TTL, at(3)), []);
        assert_eq!(losses.name(LEASE, &[Token(1), Token(2)], TTL, at(4)), [Token(1)]);
        // It is forgotten in the log a moment later; until then it is named once more.
        assert_eq!(losses.name(LEASE, &[Token(1), Token(2)], TTL, at(5)), [Token(1)]);
        assert_eq!(losses.name(LEASE, &[Token(2)], TTL, at(7)), [Token(2)]);
        assert_eq!(losses.name(LEASE, &[], TTL, at(8)), []);
        assert!(losses.named.is_empty(), "nothing is left of it");
    }
}
