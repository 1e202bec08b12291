//! Which term each entry of the file belongs to.
//!
//! Terms change rarely, so a few numbers answer for the whole log whether it holds an entry.

use crate::types::LogId;

/// What the file holds, at the point that the writer has reached.
#[derive(Debug, Default)]
pub(crate) struct Durable {
    /// First index of a term and the term, both increasing.
    runs: Vec<(u64, u64)>,
    last: Option<LogId>,
    purged: Option<LogId>,
    /// Entries below this were purged and may still have to be removed from the file.
    garbage: bool,
}

impl Durable {
    pub(super) fn new(purged: Option<LogId>) -> Self {
        Self { last: purged, purged, ..Self::default() }
    }

    pub(super) fn last(&self) -> Option<LogId> {
        self.last
    }

    pub(super) fn next_index(&self) -> u64 {
        self.last.map_or(0, |id| id.index + 1)
    }

    pub(super) fn appended(&mut self, id: LogId) {
        let term = id.leader_id.term;
        if self.runs.last().is_none_or(|(_, last)| *last != term) {
            self.runs.push((id.index, term));
        }
        self.last = Some(id);
    }

    pub(super) fn truncated_after(&mut self, keep: Option<LogId>) {
        let next = keep.map_or(0, |id| id.index + 1);
        if next >= self.next_index() {
            return;
        }
        while self.runs.last().is_some_and(|(first, _)| *first >= next) {
            self.runs.pop();
        }
        self.last = keep.max(self.purged);
    }

    pub(super) fn purged_upto(&mut self, upto: LogId) {
        self.purged = self.purged.max(Some(upto));
        self.garbage = true;
        if self.next_index() <= upto.index + 1 {
            self.last = self.purged;
            self.runs.clear();
        }
        while self.runs.get(1).is_some_and(|(first, _)| *first <= upto.index + 1) {
            self.runs.remove(0);
        }
    }

    /// The first index that must stay, if there may be entries below it.
    pub(super) fn garbage_below(&self) -> Option<u64> {
        self.purged.filter(|_| self.garbage).map(|id| id.index + 1)
    }

    pub(super) fn set_garbage(&mut self, garbage: bool) {
        self.garbage = garbage;
    }

    /// Whether exactly this entry is in the file, or was and is purged.
    pub(super) fn holds(&self, id: LogId) -> bool {
        if self.purged.is_some_and(|purged| id.index <= purged.index) {
            return true;
        }
        let after = self.runs.partition_point(|(first, _)| *first <= id.index);
        let term = after.checked_sub(1).and_then(|at| self.runs.get(at)).map(|(_, term)| *term);
        id.index < self.next_index() && term == Some(id.leader_id.term)
    }
}
