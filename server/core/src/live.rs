//! Pages of live grants, newest first. Each looks at a bounded number of them, like the other
//! lists.

use crate::ids::Token;
use crate::index::Piece;
use crate::list::{LOOKS_MAX, Slice};
use crate::machine::LockTable;
use crate::name::{ClientId, ResourceName};
use crate::outcome::Grant;
use crate::state::Item;
use std::ops::Bound;
use std::sync::Arc;

impl LockTable {
    /// Live grants with tokens below `before`, the highest first; with `at_ms` those only that
    /// were granted at that instant or before.
    #[must_use]
    pub fn newest_grants(
        &self,
        before: Option<Token>,
        at_ms: Option<u64>,
        limit: usize,
    ) -> Slice<Arc<Grant>, Token> {
        let later = at_ms.map(|at_ms| self.first_granted_after(at_ms));
        let end = before.into_iter().chain(later).min();
        let all = self.state.grants.downwards_from(end);
        cut(all.map(|(token, grant)| (*token, Some(grant))), limit, |_| true)
    }

    /// Tokens and times of grants rise together, so one splits the other in two.
    fn first_granted_after(&self, at_ms: u64) -> Token {
        let (mut low, mut high) = (0, self.last_token().0 + 1);
        while low < high {
            let middle = Token(low.midpoint(high));
            match self.state.grants.range_from(Bound::Included(&middle)).next() {
                Some((token, grant)) if grant.granted_at_ms <= at_ms => low = token.0 + 1,
                _ => high = middle.0,
            }
        }
        Token(low)
    }

    /// Live grants of a resource with tokens below `before`, the highest first.
    pub fn newest_grants_on(
        &self,
        resource: &ResourceName,
        before: Option<Token>,
        limit: usize,
        wanted: impl Fn(&Grant) -> bool,
    ) -> Slice<Arc<Grant>, Token> {
        let lock = self.state.locks.get(resource);
        let tokens = lock.into_iter().flat_map(|lock| lock.holders.downwards_from(before));
        cut(tokens.map(|token| (token, self.state.grants.get(&token))), limit, wanted)
    }

    /// Live grants of a client before `before`: those on leases for many things first, and of
    /// each kind the highest token first.
    pub fn newest_grants_of(
        &self,
        client: &ClientId,
        before: Option<Piece>,
        limit: usize,
        wanted: impl Fn(&Grant) -> bool,
    ) -> Slice<Arc<Grant>, Piece> {
        let all = self.state.index.things_of_downwards(client, before);
        let grants = all.map(|piece| match piece.item() {
            Item::Grant(token) => (piece, self.state.grants.get(&token)),
            Item::Ticket(_) => (piece, None),
        });
        cut(grants, limit, wanted)
    }
}

fn cut<'a, K: Copy>(
    grants: impl Iterator<Item = (K, Option<&'a Arc<Grant>>)>,
    limit: usize,
    wanted: impl Fn(&Grant) -> bool,
) -> Slice<Arc<Grant>, K> {
    let (mut items, mut last) = (Vec::new(), None);
    for (looked_at, (key, grant)) in grants.enumerate() {
        if items.len() == limit || looked_at == LOOKS_MAX {
            return Slice { items, next: last };
        }
        last = Some(key);
        items.extend(grant.filter(|grant| wanted(grant)).cloned());
    }
    Slice { items, next: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Acquire, Basis, Command, GrantRef, Header, Mode};
    use crate::ids::LeaseId;
    use crate::limits::Limits;
    use crate::name::{Owner, Principal};

    fn owner() -> Owner {
        Owner {
            principal: Principal::parse("p").expect("a name"),
            client: ClientId::parse("c").expect("a name"),
        }
    }

    fn resource(i: u64) -> ResourceName {
        ResourceName::parse(&format!("r{i}")).expect("a name")
    }

    fn take(i: u64) -> Command {
        Command::Acquire(Box::new(Acquire {
            resource: resource(i),
            owner: owner(),
            basis: Basis::Single { lease: LeaseId(i.into()), ttl_ms: 1_000 },
            mode: Mode::Exclusive,
            wait: false,
            request_id: None,
            claim_ms: None,
            keep_place: false,
            holding: Vec::new(),
            metadata: None,
            priority: 0,
            ttl_cap_ms: None,
            policies: None,
        }))
    }

    /// Three grants at each of many instants, of which every fourth is given back again.
    #[test]
    fn an_instant_splits_the_live_grants_where_it_should() {
        let mut table = LockTable::new(Limits::default());
        for i in 1..=300 {
            table.apply(Header { term: 1, at_ms: 10 * (i / 3) }, &[take(i)]);
        }
        for token in (4..=300).step_by(4).map(Token) {
            let caller = crate::command::Caller { principal: owner().principal, client: None };
            let grant = GrantRef { resource: resource(token.0), token, caller };
            table.apply(Header { term: 1, at_ms: 5_000 }, &[Command::Release(grant)]);
        }
        for at_ms in (0..1_010).step_by(5) {
            let wanted = |grant: &Arc<Grant>| grant.granted_at_ms <= at_ms;
            let mut expected: Vec<_> = table.grants().filter(|grant| wanted(grant)).collect();
            expected.sort_by_key(|grant| std::cmp::Reverse(grant.token));
            let slice = table.newest_grants(None, Some(at_ms), 1_000);
            assert!(slice.items.iter().eq(expected), "at {at_ms}");
            let some = table.newest_grants(Some(Token(50)), Some(at_ms), 7);
            assert!(some.items.iter().all(|grant| grant.token < Token(50) && wanted(grant)));
        }
    }
}
