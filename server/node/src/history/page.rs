//! Pages of the history, newest first, over memory and file together.

use super::tables::{BY_CLIENT, BY_RESOURCE, BY_TIME, RECORDS, client_key, resource_key};
use super::{FILE, History};
use crate::codec;
use crate::fatal::StorageFault;
use leasehold_core::outcome::GrantRecord;
use leasehold_core::{ClientId, Principal, ResourceName};
use redb::{ReadOnlyTable, ReadTransaction, ReadableDatabase, Value};
use std::fmt;
use std::sync::Arc;

/// Rows of an index that one page looks at beyond those that it shows: rows of other names with
/// the same hash, or of records that are gone.
const MISSES_MAX: usize = 1000;

/// Which records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Filter {
    /// Of one resource, the highest token first.
    Resource(ResourceName),
    /// Of one client, the highest token first.
    Client { client: ClientId, principal: Option<Principal> },
    /// Those that ended at this instant or before, the last to end first.
    EndedUntil(u64),
}

/// Where a page ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cursor {
    /// When it ended, for pages by time; 0 else.
    major: u64,
    token: u64,
}

impl Cursor {
    /// Reads what [`fmt::Display`] writes.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (major, token) = text.split_once('-')?;
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        Some(Self { major: number(major)?, token: number(token)? })
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:x}", self.major, self.token)
    }
}

/// One page. With `next` there is more, even if this page is short or empty.
#[derive(Debug, Clone)]
pub(crate) struct HistoryPage {
    pub(crate) records: Vec<Arc<GrantRecord>>,
    pub(crate) next: Option<Cursor>,
}

impl Filter {
    pub(super) fn matches(&self, record: &GrantRecord) -> bool {
        match self {
            Self::Resource(resource) => record.grant.resource == *resource,
            Self::Client { client, principal } => {
                let owner = &record.grant.owner;
                owner.client == *client && principal.as_ref().is_none_or(|p| *p == owner.principal)
            }
            Self::EndedUntil(ms) => record.ended_at_ms <= *ms,
        }
    }

    pub(super) fn place(&self, record: &GrantRecord) -> Cursor {
        let major = if matches!(self, Self::EndedUntil(_)) { record.ended_at_ms } else { 0 };
        Cursor { major, token: record.grant.token.0 }
    }
}

/// What the file had for a page.
struct Slice {
    records: Vec<Arc<GrantRecord>>,
    /// Everything at or above this place was looked at; `None`: everything was.
    down_to: Option<Cursor>,
}

impl History {
    /// Up to `limit` records below `before`. Blocks on the disk for what is not cached.
    pub(crate) fn page(
        &self,
        filter: &Filter,
        before: Option<Cursor>,
        limit: usize,
    ) -> Result<HistoryPage, StorageFault> {
        let limit = limit.max(1);
        // Memory first: what moves to the file in between is then seen twice rather than never.
        let mut records = self.pending_matches(filter, before);
        let slice = self
            .slice(filter, before, limit)
            .map_err(|cause| StorageFault::new(FILE, "read", cause))?;
        records.extend(slice.records);
        records.sort_by_key(|record| std::cmp::Reverse(filter.place(record)));
        records.dedup_by_key(|record| record.grant.token);
        if let Some(down_to) = slice.down_to {
            records.retain(|record| filter.place(record) >= down_to);
        }
        let more = records.len() > limit;
        records.truncate(limit);
        let last = records.last().filter(|_| more).map(|record| filter.place(record));
        Ok(HistoryPage { records, next: last.or(slice.down_to) })
    }

    fn pending_matches(&self, filter: &Filter, before: Option<Cursor>) -> Vec<Arc<GrantRecord>> {
        let wanted = |record: &&Arc<GrantRecord>| {
            filter.matches(record) && before.is_none_or(|before| filter.place(record) < before)
        };
        let (mut newer, older) = self.core.pending.read(|generation| -> Vec<_> {
            match filter {
                Filter::Resource(resource) => {
                    let found = generation.by_resource(resource_key(resource));
                    found.filter(wanted).cloned().collect()
                }
                Filter::Client { client, .. } => {
                    let found = generation.by_client(client_key(client));
                    found.filter(wanted).cloned().collect()
                }
                Filter::EndedUntil(_) => {
                    generation.records().iter().filter(wanted).cloned().collect()
                }
            }
        });
        newer.extend(older.into_iter().flatten());
        newer
    }

    fn slice(
        &self,
        filter: &Filter,
        before: Option<Cursor>,
        limit: usize,
    ) -> Result<Slice, Box<dyn std::error::Error + Send + Sync>> {
        let txn = self.core.db.begin_read()?;
        let below = before.map_or(u64::MAX, |before| before.token);
        match filter {
            Filter::Resource(resource) => {
                let hash = resource_key(resource);
                let rows = txn.open_table(BY_RESOURCE)?;
                collect(&txn, filter, &rows, (hash, 0), (hash, below), limit)
            }
            Filter::Client { client, .. } => {
                let hash = client_key(client);
                let rows = txn.open_table(BY_CLIENT)?;
                collect(&txn, filter, &rows, (hash, 0), (hash, below), limit)
            }
            Filter::EndedUntil(ms) => {
                let end = before.map_or((*ms, u64::MAX), |before| (before.major, before.token));
                let rows = txn.open_table(BY_TIME)?;
                collect(&txn, filter, &rows, (0, 0), end.min((*ms, u64::MAX)), limit)
            }
        }
    }
}

/// Walks an index down from before `end` and reads the records behind it.
fn collect<V: Value + 'static>(
    txn: &ReadTransaction,
    filter: &Filter,
    rows: &ReadOnlyTable<(u64, u64), V>,
    start: (u64, u64),
    end: (u64, u64),
    limit: usize,
) -> Result<Slice, Box<dyn std::error::Error + Send + Sync>> {
    let stored = txn.open_table(RECORDS)?;
    let mut slice = Slice { records: Vec::new(), down_to: None };
    let mut misses = 0;
    for row in rows.range(start..end)?.rev() {
        let (major, token) = row?.0.value();
        if slice.records.len() > limit {
            break;
        }
        let record = stored.get(token)?.map(|bytes| codec::decode_record(bytes.value()));
        match record.transpose()?.filter(|record| filter.matches(record)) {
            Some(record) => slice.records.push(Arc::new(record)),
            None => misses += 1,
        }
        if misses > MISSES_MAX {
            let major = if matches!(filter, Filter::EndedUntil(_)) { major } else { 0 };
            slice.down_to = Some(Cursor { major, token });
            break;
        }
    }
    Ok(slice)
}
