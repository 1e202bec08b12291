//! Records in memory, findable like those in the file.

use super::tables::{client_key, resource_key};
use leasehold_core::Token;
use leasehold_core::outcome::GrantRecord;
use std::collections::HashMap;
use std::sync::Arc;

/// Ends a chain.
const NONE: u32 = u32::MAX;

/// Records in the order in which they ended, findable by token, resource and client.
#[derive(Default)]
pub(super) struct Generation {
    records: Vec<Arc<GrantRecord>>,
    tokens: HashMap<u64, u32>,
    resources: Chains,
    clients: Chains,
}

/// For each key the newest record, and from each record the one before it with the same key. No
/// allocation a record, since this is filled while the lock table is locked.
#[derive(Default)]
struct Chains {
    newest: HashMap<u64, u32>,
    before: Vec<u32>,
}

impl Chains {
    fn push(&mut self, key: u64, at: u32) {
        self.before.push(self.newest.insert(key, at).unwrap_or(NONE));
    }

    fn walk(&self, key: u64) -> impl Iterator<Item = usize> + '_ {
        let first = self.newest.get(&key).copied();
        let next = |at: &u32| self.before.get(*at as usize).copied().filter(|at| *at != NONE);
        std::iter::successors(first, next).map(|at| at as usize)
    }
}

impl Generation {
    pub(super) fn push(&mut self, record: &Arc<GrantRecord>) {
        // Far below `NONE`: applying waits for the writer long before.
        let at = u32::try_from(self.records.len()).unwrap_or(NONE);
        self.tokens.insert(record.grant.token.0, at);
        self.resources.push(resource_key(&record.grant.resource), at);
        self.clients.push(client_key(&record.grant.owner.client), at);
        self.records.push(Arc::clone(record));
    }

    /// Oldest first.
    pub(super) fn records(&self) -> &[Arc<GrantRecord>] {
        &self.records
    }

    pub(super) fn by_token(&self, token: Token) -> Option<&Arc<GrantRecord>> {
        self.tokens.get(&token.0).and_then(|at| self.records.get(*at as usize))
    }

    /// Newest first; other resources with the same hash are among them.
    pub(super) fn by_resource(&self, key: u64) -> impl Iterator<Item = &Arc<GrantRecord>> + '_ {
        self.resources.walk(key).filter_map(|at| self.records.get(at))
    }

    /// Newest first; other clients with the same hash are among them.
    pub(super) fn by_client(&self, key: u64) -> impl Iterator<Item = &Arc<GrantRecord>> + '_ {
        self.clients.walk(key).filter_map(|at| self.records.get(at))
    }
}
