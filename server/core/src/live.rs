//! Pages of live grants, newest first. Each looks at a bounded number of them, like the other
//! lists.

use crate::ids::Token;
use crate::index::Piece;
use crate::list::{LOOKS_MAX, Slice};
use crate::machine::LockTable;
use crate::name::ClientId;
use crate::outcome::Grant;
use crate::state::Item;
use std::sync::Arc;

impl LockTable {
    /// Live grants with tokens below `before`, the highest first.
    pub fn newest_grants(
        &self,
        before: Option<Token>,
        limit: usize,
        wanted: impl Fn(&Grant) -> bool,
    ) -> Slice<Arc<Grant>, Token> {
        let all = self.state.grants.downwards_from(before);
        cut(all.map(|(token, grant)| (*token, Some(grant))), limit, wanted)
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
