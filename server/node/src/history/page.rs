//! Pages of the history, newest first, over memory and file together.

use super::History;
use super::read::{AnyError, record_in, unreadable};
use super::tables::{Key, Partition, client_key, resource_key};
use crate::fatal::StorageFault;
use leasehold_core::outcome::GrantRecord;
use leasehold_core::{ClientId, Principal, ResourceName};
use redb::{Range, Value};
use std::fmt;
use std::iter::Rev;
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
    Client {
        /// Its label.
        client: ClientId,
        /// Its principal, if that is to count.
        principal: Option<Principal>,
    },
    /// Those that ended at this instant or before, the last to end first.
    EndedUntil(u64),
    /// Those that ended after this instant, the last to end first.
    EndedAfter(u64),
}

/// Where a page ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cursor {
    /// When it ended, for pages by time; 0 else.
    major: u64,
    token: u64,
}

impl Cursor {
    /// Whether it is of a list by time.
    pub(crate) fn by_time(self) -> bool {
        self.major > 0
    }

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
            Self::EndedAfter(ms) => record.ended_at_ms > *ms,
        }
    }

    pub(super) fn place(&self, record: &GrantRecord) -> Cursor {
        let major = if self.by_time() { record.ended_at_ms } else { 0 };
        Cursor { major, token: record.grant.token.0 }
    }

    fn by_time(&self) -> bool {
        matches!(self, Self::EndedUntil(_) | Self::EndedAfter(_))
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
        self.page_where(filter, before, limit, &|_| true)
    }

    /// Like [`History::page`], of those records only that are `wanted`.
    pub(crate) fn page_where(
        &self,
        filter: &Filter,
        before: Option<Cursor>,
        limit: usize,
        wanted: &dyn Fn(&GrantRecord) -> bool,
    ) -> Result<HistoryPage, StorageFault> {
        let limit = limit.max(1);
        // Memory first: what moves to the file in between is then seen twice rather than never.
        let mut records = self.pending_matches(filter, before, limit, wanted);
        let slice = self.slice(filter, before, limit, wanted).map_err(unreadable)?;
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

    fn pending_matches(
        &self,
        filter: &Filter,
        before: Option<Cursor>,
        limit: usize,
        also: &dyn Fn(&GrantRecord) -> bool,
    ) -> Vec<Arc<GrantRecord>> {
        let before_ms = self.core.pending.before_ms();
        let wanted = |record: &&Arc<GrantRecord>| {
            filter.matches(record)
                && also(record)
                && record.ended_at_ms >= before_ms
                && before.is_none_or(|before| filter.place(record) < before)
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
                Filter::EndedUntil(_) | Filter::EndedAfter(_) => {
                    newest(generation.records().iter().rev().filter(wanted), limit)
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
        wanted: &dyn Fn(&GrantRecord) -> bool,
    ) -> Result<Slice, AnyError> {
        let view = self.view();
        let partitions = view.partitions.iter();
        let below = before.map_or(u64::MAX, |before| before.token);
        match filter {
            Filter::Resource(resource) => {
                let hash = resource_key(resource);
                let rows =
                    partitions.map(|p| Ok((p, p.by_resource.range((hash, 0)..(hash, below))?)));
                self.collect(filter, Merged::new(rows)?, limit, wanted)
            }
            Filter::Client { client, .. } => {
                let hash = client_key(client);
                let rows =
                    partitions.map(|p| Ok((p, p.by_client.range((hash, 0)..(hash, below))?)));
                self.collect(filter, Merged::new(rows)?, limit, wanted)
            }
            Filter::EndedUntil(_) | Filter::EndedAfter(_) => {
                let (after, until) = match filter {
                    Filter::EndedUntil(ms) => (0, *ms),
                    Filter::EndedAfter(ms) => (ms.saturating_add(1), u64::MAX),
                    Filter::Resource(_) | Filter::Client { .. } => (0, u64::MAX),
                };
                let end = before.map_or((until, u64::MAX), |before| (before.major, before.token));
                let end = end.min((until, u64::MAX));
                let start = (self.core.pending.before_ms().max(after), 0).min(end);
                let rows = partitions.map(|p| Ok((p, p.by_time.range(start..end)?)));
                self.collect(filter, Merged::new(rows)?, limit, wanted)
            }
        }
    }

    /// Reads the records behind rows of an index.
    fn collect<V: Copying>(
        &self,
        filter: &Filter,
        mut rows: Merged<'_, V>,
        limit: usize,
        wanted: &dyn Fn(&GrantRecord) -> bool,
    ) -> Result<Slice, AnyError> {
        let before_ms = self.core.pending.before_ms();
        let mut slice = Slice { records: Vec::new(), down_to: None };
        let mut misses = 0;
        while slice.records.len() <= limit
            && let Some((partition, (major, token), _)) = rows.next()?
        {
            let record = record_in(partition, token)?;
            let shown =
                |r: &GrantRecord| filter.matches(r) && r.ended_at_ms >= before_ms && wanted(r);
            match record.filter(shown) {
                Some(record) => slice.records.push(Arc::new(record)),
                None => misses += 1,
            }
            if misses > MISSES_MAX {
                let major = if filter.by_time() { major } else { 0 };
                slice.down_to = Some(Cursor { major, token });
                break;
            }
        }
        Ok(slice)
    }
}

/// The first `limit` of records that come the last to end first, and those that ended with the
/// last of them: which of these goes first is not told by where they stand.
fn newest<'a>(
    records: impl Iterator<Item = &'a Arc<GrantRecord>>,
    limit: usize,
) -> Vec<Arc<GrantRecord>> {
    let mut newest: Vec<Arc<GrantRecord>> = Vec::new();
    for record in records {
        let last_ms = newest.last().map(|last| last.ended_at_ms);
        if newest.len() > limit && last_ms.is_some_and(|last_ms| record.ended_at_ms < last_ms) {
            break;
        }
        newest.push(Arc::clone(record));
    }
    newest
}

/// A value of an index that is read by copying it.
pub(super) trait Copying: for<'a> Value<SelfType<'a> = Self> + 'static {}

impl<V: for<'a> Value<SelfType<'a> = V> + 'static> Copying for V {}

/// Rows of one index over all partitions, the highest key first.
pub(super) struct Merged<'p, V: Copying> {
    sources: Vec<Source<'p, V>>,
}

struct Source<'p, V: Copying> {
    partition: &'p Partition,
    rows: Rev<Range<'static, Key, V>>,
    head: (Key, V),
}

impl<'p, V: Copying> Merged<'p, V> {
    pub(super) fn new(
        parts: impl Iterator<Item = Result<(&'p Partition, Range<'static, Key, V>), redb::StorageError>>,
    ) -> Result<Self, redb::StorageError> {
        let mut sources = Vec::new();
        for part in parts {
            let (partition, rows) = part?;
            let mut rows = rows.rev();
            if let Some(head) = advance(&mut rows)? {
                sources.push(Source { partition, rows, head });
            }
        }
        Ok(Self { sources })
    }

    pub(super) fn next(&mut self) -> Result<Option<(&'p Partition, Key, V)>, redb::StorageError> {
        let highest = (0..self.sources.len()).max_by_key(|at| self.sources[*at].head.0);
        let Some(at) = highest else { return Ok(None) };
        let source = &mut self.sources[at];
        let partition = source.partition;
        let (key, value) = match advance(&mut source.rows)? {
            Some(next) => std::mem::replace(&mut source.head, next),
            None => self.sources.swap_remove(at).head,
        };
        Ok(Some((partition, key, value)))
    }
}

fn advance<V: Copying>(
    rows: &mut Rev<Range<'static, Key, V>>,
) -> Result<Option<(Key, V)>, redb::StorageError> {
    let Some(row) = rows.next() else { return Ok(None) };
    let (key, value) = row?;
    Ok(Some((key.value(), value.value())))
}
