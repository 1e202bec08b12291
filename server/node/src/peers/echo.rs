//! What a follower may conclude of when its leader sent something.
//!
//! How long a message was on its way nobody knows: it may have lain in a socket while either end
//! stood still, or been lost and sent again. But a leader that says which answers it had heard
//! spoke after those were given, by the follower's own clock. The leader makes up a heartbeat
//! before it sends it, and may do so while the one before is not answered: so it says what it had
//! heard when it sent the append before, which is certainly earlier than what this one tells.

use std::collections::VecDeque;
use std::time::Instant;

/// Answers whose time is remembered: more than a leader lets stand. Beyond it the oldest goes,
/// and the state counts as older than it is.
const ANSWERS_MAX: usize = 1_024;

/// The end of a connection at which the leader is.
#[derive(Debug, Default)]
pub(super) struct Asking {
    answered: u64,
    before: u64,
}

impl Asking {
    /// An append is sent now. How many had been answered when the one before was?
    pub(super) fn asks(&mut self) -> u64 {
        std::mem::replace(&mut self.before, self.answered)
    }

    pub(super) fn answered(&mut self) {
        self.answered += 1;
    }
}

/// The end at which the follower is.
#[derive(Debug, Default)]
pub(super) struct Answering {
    answered: u64,
    at: VecDeque<(u64, Instant)>,
}

impl Answering {
    pub(super) fn answers(&mut self, now: Instant) {
        self.answered += 1;
        if self.at.len() == ANSWERS_MAX {
            self.at.pop_front();
        }
        self.at.push_back((self.answered, now));
    }

    /// What a leader tells that had heard so many answers is not older than this.
    pub(super) fn told_since(&mut self, answered: u64) -> Option<Instant> {
        while self.at.front().is_some_and(|(nth, _)| *nth < answered) {
            self.at.pop_front();
        }
        self.at.front().filter(|(nth, _)| *nth == answered).map(|(_, at)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_is_told_is_as_old_as_the_answer_before_the_append_before() {
        let (mut leader, mut follower) = (Asking::default(), Answering::default());
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        let mut told = Vec::new();
        for second in 1..=4 {
            told.push(follower.told_since(leader.asks()));
            follower.answers(at(second));
            leader.answered();
        }
        assert_eq!(told, [None, None, Some(at(1)), Some(at(2))]);
    }

    #[test]
    fn what_was_sent_together_is_equally_old_however_late_it_is_read() {
        let (mut leader, mut follower) = (Asking::default(), Answering::default());
        let start = Instant::now();
        leader.asks();
        follower.answers(start);
        leader.answered();
        let together: Vec<_> = (0..5).map(|_| leader.asks()).collect();
        assert_eq!(together, [0, 1, 1, 1, 1]);
        let late = start + Duration::from_secs(60);
        for answered in &together[1..] {
            assert_eq!(follower.told_since(*answered), Some(start));
            follower.answers(late);
        }
        assert_eq!(follower.told_since(5), Some(late));
    }

    #[test]
    fn what_was_never_answered_or_is_long_ago_says_nothing() {
        let (mut follower, start) = (Answering::default(), Instant::now());
        assert_eq!(follower.told_since(u64::MAX), None);
        for _ in 0..=ANSWERS_MAX {
            follower.answers(start);
        }
        assert_eq!(follower.at.len(), ANSWERS_MAX);
        assert_eq!((follower.told_since(0), follower.told_since(1)), (None, None));
        assert_eq!(follower.told_since(2), Some(start));
        assert_eq!(follower.told_since(ANSWERS_MAX as u64 + 2), None);
    }
}
