//! How much was written since an index, without keeping a number for each entry.

use std::collections::VecDeque;

/// Marks are this many bytes apart, which bounds the error of an answer.
const STEP: u64 = 64 << 10;

#[derive(Debug, Default)]
pub(crate) struct Growth {
    /// Index of an entry and the bytes up to and with it, both increasing.
    marks: VecDeque<(u64, u64)>,
    last: Option<u64>,
    total: u64,
}

impl Growth {
    pub(super) fn wrote(&mut self, index: u64, bytes: usize) {
        self.total += bytes as u64;
        self.last = Some(index);
        if self.marks.back().is_none_or(|(_, total)| self.total - total >= STEP) {
            self.marks.push_back((index, self.total));
        }
    }

    /// Bytes written above `index`; all of them without one.
    pub(super) fn since(&self, index: Option<u64>) -> u64 {
        let first = self.marks.front().map_or(self.total, |(_, total)| *total);
        let Some(index) = index else { return self.total };
        if self.last.is_none_or(|last| last <= index) {
            return 0;
        }
        let after = self.marks.partition_point(|(at, _)| *at <= index);
        let before = after.checked_sub(1).and_then(|at| self.marks.get(at));
        self.total - before.map_or(first, |(_, total)| *total)
    }

    pub(super) fn truncated(&mut self, next: u64) {
        while self.marks.back().is_some_and(|(at, _)| *at >= next) {
            self.marks.pop_back();
        }
        self.last = next.checked_sub(1).min(self.last);
    }

    pub(super) fn purged(&mut self, upto: u64) {
        while self.marks.get(1).is_some_and(|(at, _)| *at <= upto) {
            self.marks.pop_front();
        }
    }
}
