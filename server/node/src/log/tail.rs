//! The newest entries in memory, and what is known of the log as a whole.
//!
//! This is the log as openraft sees it: it runs ahead of the file by what waits in the queue.

use super::tables::Found;
use crate::types::{Entry, LogId};
use std::collections::VecDeque;
use std::io;

pub(super) struct Tail {
    /// Without gaps, up to and with `last`.
    slots: VecDeque<Slot>,
    /// Bytes of the durable ones among them.
    bytes: usize,
    bytes_max: usize,
    /// Where the log began: not at 0 if nobody ever wrote there.
    origin: u64,
    last: Option<LogId>,
    purged: Option<LogId>,
}

struct Slot {
    entry: Entry,
    /// Its encoded size once it is durable. Until then it must not leave memory.
    durable: Option<usize>,
}

/// Where the entries of a range are.
pub(super) enum Plan {
    /// All of them are here. Fewer than asked for if a limit was given.
    Memory(Vec<Entry>),
    /// Those from `start` to before `end` are only in the file; the rest are here.
    File { start: u64, end: u64, then: Vec<Entry> },
}

impl Tail {
    pub(super) fn new(found: &Found, bytes_max: usize) -> Self {
        let Found { origin, last, purged, .. } = *found;
        Self { slots: VecDeque::new(), bytes: 0, bytes_max, origin, last, purged }
    }

    pub(super) fn last(&self) -> Option<LogId> {
        self.last
    }

    pub(super) fn purged(&self) -> Option<LogId> {
        self.purged
    }

    pub(super) fn next_index(&self) -> u64 {
        self.last.map_or(0, |id| id.index + 1)
    }

    /// The first index that can be read.
    pub(super) fn first_index(&self) -> u64 {
        self.purged.map_or(self.origin, |id| id.index + 1)
    }

    fn first_in_memory(&self) -> u64 {
        self.slots.front().map_or_else(|| self.next_index(), |slot| slot.entry.log_id.index)
    }

    pub(super) fn append(&mut self, entries: &[Entry]) -> io::Result<()> {
        for entry in entries {
            if self.last.is_some_and(|last| last.index + 1 != entry.log_id.index) {
                let at = entry.log_id.index;
                return Err(io::Error::other(format!(
                    "an entry at {at} would leave a hole before {}",
                    self.next_index()
                )));
            }
            if self.last.is_none() {
                self.origin = entry.log_id.index;
            }
            self.last = Some(entry.log_id);
            self.slots.push_back(Slot { entry: entry.clone(), durable: None });
        }
        Ok(())
    }

    pub(super) fn truncate_after(&mut self, keep: Option<LogId>) {
        let next = keep.map_or(0, |id| id.index + 1);
        if next >= self.next_index() {
            return;
        }
        while self.slots.back().is_some_and(|slot| slot.entry.log_id.index >= next) {
            let slot = self.slots.pop_back();
            self.forget(slot);
        }
        self.last = keep.max(self.purged);
    }

    pub(super) fn purge(&mut self, upto: LogId) {
        while self.slots.front().is_some_and(|slot| slot.entry.log_id.index <= upto.index) {
            let slot = self.slots.pop_front();
            self.forget(slot);
        }
        self.purged = self.purged.max(Some(upto));
        // A snapshot can reach beyond the end of the log.
        if self.next_index() <= upto.index + 1 {
            self.last = self.purged;
        }
    }

    /// These are in the file now. An entry that was replaced meanwhile is another entry.
    pub(super) fn durable(&mut self, written: &[(LogId, usize)]) {
        for (id, bytes) in written {
            let Some(at) = id.index.checked_sub(self.first_in_memory()) else { continue };
            let slot = usize::try_from(at).ok().and_then(|at| self.slots.get_mut(at));
            if let Some(slot) = slot.filter(|slot| slot.entry.log_id == *id) {
                self.bytes += bytes - slot.durable.unwrap_or(0);
                slot.durable = Some(*bytes);
            }
        }
        while self.bytes > self.bytes_max && self.slots.front().is_some_and(|s| s.durable.is_some())
        {
            let slot = self.slots.pop_front();
            self.forget(slot);
        }
    }

    fn forget(&mut self, slot: Option<Slot>) {
        self.bytes -= slot.and_then(|slot| slot.durable).unwrap_or(0);
    }

    /// Says where the entries from `start` to before `end` are, as far as there are any.
    pub(super) fn plan(&self, start: u64, end: u64, count_max: usize) -> Plan {
        let start = start.max(self.first_index());
        let end = end.min(self.next_index());
        let memory = self.first_in_memory();
        if start >= end {
            return Plan::Memory(Vec::new());
        }
        if start >= memory {
            return Plan::Memory(self.copy(start, end, count_max));
        }
        let file_end = end.min(memory);
        let then = if count_max == usize::MAX { self.copy(memory, end, count_max) } else { vec![] };
        Plan::File { start, end: file_end, then }
    }

    fn copy(&self, start: u64, end: u64, count_max: usize) -> Vec<Entry> {
        let skip = usize::try_from(start - self.first_in_memory()).unwrap_or(usize::MAX);
        let count = usize::try_from(end.saturating_sub(start)).unwrap_or(usize::MAX);
        let slots = self.slots.iter().skip(skip).take(count.min(count_max));
        slots.map(|slot| slot.entry.clone()).collect()
    }
}
