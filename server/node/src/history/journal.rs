//! Changes in order: the newest in memory, older ones in blocks in the file.
//!
//! Whoever watches reads from memory. Only who comes back after a while reads the file, and who
//! was away for longer than that is told of a gap.

use super::History;
use super::read::{AnyError, unreadable};
use crate::change::Change;
use crate::codec;
use crate::fatal::StorageFault;
use leasehold_core::outcome::AuditRecord;
use std::collections::VecDeque;
use std::sync::Arc;

/// Changes that stay in memory after they are in the file.
const TAIL: usize = 32_768;
/// Changes in one block of the file: a reader decodes a block at a time.
pub(super) const BLOCK: usize = 256;

/// What was done by an operator, with the number and time of the change.
#[derive(Debug, Clone)]
pub(crate) struct Audited {
    pub(crate) revision: u64,
    pub(crate) at_ms: u64,
    pub(crate) record: Arc<AuditRecord>,
}

/// The newest changes, a batch a log entry, and the audits that are not in the file.
#[derive(Default)]
pub(super) struct Tail {
    batches: VecDeque<Arc<[Change]>>,
    len: usize,
    audits: VecDeque<Audited>,
}

impl Tail {
    pub(super) fn push(&mut self, changes: &Arc<[Change]>, audits: &[Audited]) {
        self.len += changes.len();
        self.batches.push_back(Arc::clone(changes));
        self.audits.extend(audits.iter().cloned());
    }

    /// The file has everything up to this change.
    pub(super) fn written(&mut self, upto: u64) {
        while self.len > TAIL
            && let Some(front) = self.batches.front()
            && front.last().is_none_or(|last| last.revision <= upto)
        {
            self.len -= front.len();
            self.batches.pop_front();
        }
        while self.audits.front().is_some_and(|audited| audited.revision <= upto) {
            self.audits.pop_front();
        }
    }

    fn first(&self) -> Option<u64> {
        self.batches.front().and_then(|batch| batch.first()).map(|change| change.revision)
    }

    /// Changes after `after`, if none between is missing here.
    fn after(&self, after: u64, limit: usize) -> Option<Vec<Change>> {
        if self.first()? > after + 1 {
            return None;
        }
        let skip = |batch: &Arc<[Change]>| batch.last().is_none_or(|c| c.revision <= after);
        let from = self.batches.partition_point(skip);
        let rest = self.batches.range(from..).flat_map(|batch| batch.iter());
        let mut changes: Vec<Change> = Vec::new();
        for change in rest.filter(|change| change.revision > after).take(limit) {
            // A snapshot took the place of what lies between.
            if changes.last().is_some_and(|last| last.revision + 1 != change.revision) {
                break;
            }
            changes.push(change.clone());
        }
        match changes.first() {
            Some(first) if first.revision != after + 1 => None,
            _ => Some(changes),
        }
    }

    /// The first change after `after`, wherever it is.
    fn next_after(&self, after: u64) -> Option<u64> {
        let mut all = self.batches.iter().flat_map(|batch| batch.iter());
        all.find(|change| change.revision > after).map(|change| change.revision)
    }
}

/// What comes after a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Next {
    /// These, without a hole; none if nothing has happened since.
    Changes(Vec<Change>),
    /// What comes up to and with this one is not kept any more.
    Gap {
        /// The last one that is missing.
        to: u64,
    },
}

impl History {
    /// Up to `limit` changes after `after` from memory; `None` if they are not there.
    pub(crate) fn recent(&self, after: u64, limit: usize) -> Option<Vec<Change>> {
        self.core.pending.tail().after(after, limit)
    }

    /// What comes after `after`, when `newest` is known to have happened. Blocks on the disk.
    pub(crate) fn changes(
        &self,
        after: u64,
        newest: u64,
        limit: usize,
    ) -> Result<Next, StorageFault> {
        // Memory first: what leaves it in between is in the file by then.
        if let Some(changes) = self.recent(after, limit) {
            return Ok(Next::Changes(changes));
        }
        let kept = self.kept(after, limit).map_err(unreadable)?;
        if kept.first().is_some_and(|change| change.revision == after + 1) {
            return Ok(Next::Changes(kept));
        }
        let next = kept.first().map(|change| change.revision);
        match next.or_else(|| self.core.pending.tail().next_after(after)) {
            Some(next) if next == after + 1 => {
                Ok(Next::Changes(self.recent(after, limit).unwrap_or_default()))
            }
            Some(next) => Ok(Next::Gap { to: next - 1 }),
            None if newest > after => Ok(Next::Gap { to: newest }),
            None => Ok(Next::Changes(Vec::new())),
        }
    }

    /// Changes of the file after `after`, without a hole among them.
    fn kept(&self, after: u64, limit: usize) -> Result<Vec<Change>, AnyError> {
        let view = self.view();
        let mut kept: Vec<Change> = Vec::new();
        let Some(blocks) = &view.changes else { return Ok(kept) };
        let first = blocks.range(..=after + 1)?.next_back().transpose()?;
        let start = first.map_or(0, |(key, _)| key.value());
        for block in blocks.range(start..)? {
            let (key, value) = block?;
            for change in codec::decode_changes(key.value(), value.value())? {
                let follows = kept.last().is_none_or(|last| last.revision + 1 == change.revision);
                if kept.len() == limit || !follows {
                    return Ok(kept);
                }
                if change.revision > after {
                    kept.push(change);
                }
            }
        }
        Ok(kept)
    }

    /// The oldest change that is kept.
    pub(crate) fn oldest_change(&self) -> Result<Option<u64>, StorageFault> {
        let in_memory = self.core.pending.tail().first();
        let view = self.view();
        let Some(blocks) = &view.changes else { return Ok(in_memory) };
        let first = redb::ReadableTable::first(blocks).map_err(|cause| unreadable(cause.into()))?;
        Ok(first.map(|(key, _)| key.value()).or(in_memory))
    }

    /// What operators did, newest first, before the change `before`. Blocks on the disk.
    pub(crate) fn audit(
        &self,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<Audited>, StorageFault> {
        let before = before.unwrap_or(u64::MAX);
        let mut found: Vec<Audited> = {
            let tail = self.core.pending.tail();
            tail.audits.iter().filter(|audited| audited.revision < before).cloned().collect()
        };
        found.extend(self.kept_audits(before, limit).map_err(unreadable)?);
        found.sort_by_key(|audited| std::cmp::Reverse(audited.revision));
        found.dedup_by_key(|audited| audited.revision);
        found.truncate(limit);
        Ok(found)
    }

    fn kept_audits(&self, before: u64, limit: usize) -> Result<Vec<Audited>, AnyError> {
        let view = self.view();
        let Some(rows) = &view.audit else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for row in rows.range(..before)?.rev().take(limit) {
            let (key, value) = row?;
            let (at_ms, record) = codec::decode_audit(value.value())?;
            found.push(Audited { revision: key.value(), at_ms, record: Arc::new(record) });
        }
        Ok(found)
    }
}
