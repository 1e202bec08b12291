//! What a follower may conclude of when its leader sent something.
//!
//! How long a message was on its way nobody knows: it may have lain in a socket while either end
//! stood still, or been lost and sent again. But a leader that says which answers it had heard
//! spoke after those were given, by the follower's own clock. The leader makes up a heartbeat
//! before it sends it, and may do so while the one before is not answered: so it says what it had
//! heard when it sent the append before, which is certainly earlier than what this one tells.
//!
//! And a leader may be one of the past, and not know it yet. So it says as well how long ago a
//! quorum followed it: what was committed until then it knows of, whoever leads by now.

use crate::codec::Dating;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

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
    /// An append is sent now, by a leader that had a quorum so long ago.
    pub(super) fn asks(&mut self, quorum_age: Option<Duration>) -> Dating {
        let answered = std::mem::replace(&mut self.before, self.answered);
        let quorum_ms = quorum_age.map(|age| age.as_micros().div_ceil(1_000));
        let quorum_ms = quorum_ms.map(|ms| u64::try_from(ms).unwrap_or(u64::MAX));
        Dating { answered, quorum_ms }
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

    /// A leader that dates so what it tells knows of all that was committed until then.
    pub(super) fn knows_until(&mut self, dating: Dating) -> Option<Instant> {
        while self.at.front().is_some_and(|(nth, _)| *nth < dating.answered) {
            self.at.pop_front();
        }
        let (_, at) = self.at.front().filter(|(nth, _)| *nth == dating.answered)?;
        at.checked_sub(Duration::from_millis(dating.quorum_ms?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn dated(answered: u64) -> Dating {
        Dating { answered, quorum_ms: Some(0) }
    }

    #[test]
    fn what_is_told_is_as_old_as_the_answer_before_the_append_before() {
        let (mut leader, mut follower) = (Asking::default(), Answering::default());
        let start = Instant::now();
        let mut known = Vec::new();
        for second in 1..=4 {
            known.push(follower.knows_until(leader.asks(Some(Duration::ZERO))));
            follower.answers(start + second * S);
            leader.answered();
        }
        assert_eq!(known, [None, None, Some(start + S), Some(start + 2 * S)]);
    }

    #[test]
    fn what_was_sent_together_is_equally_old_however_late_it_is_read() {
        let (mut leader, mut follower) = (Asking::default(), Answering::default());
        let start = Instant::now();
        leader.asks(None);
        follower.answers(start);
        leader.answered();
        let together: Vec<Dating> = (0..5).map(|_| leader.asks(Some(Duration::ZERO))).collect();
        assert_eq!(together, [0, 1, 1, 1, 1].map(dated));
        for dating in &together[1..] {
            assert_eq!(follower.knows_until(*dating), Some(start));
            follower.answers(start + 60 * S);
        }
        assert_eq!(follower.knows_until(dated(5)), Some(start + 60 * S));
    }

    #[test]
    fn a_leader_without_a_quorum_knows_what_was_until_it_had_one() {
        let (mut leader, mut follower) = (Asking::default(), Answering::default());
        let start = Instant::now() + 10 * S;
        for _ in 0..2 {
            leader.asks(None);
            follower.answers(start);
            leader.answered();
        }
        let of_the_past = leader.asks(Some(3 * S + Duration::from_micros(1)));
        assert_eq!(of_the_past.quorum_ms, Some(3_001));
        assert_eq!(follower.knows_until(of_the_past), Some(start - Duration::from_millis(3_001)));
        assert_eq!(follower.knows_until(leader.asks(None)), None, "it never had one");
    }

    #[test]
    fn what_was_never_answered_or_is_long_ago_says_nothing() {
        let (mut follower, start) = (Answering::default(), Instant::now());
        assert_eq!(follower.knows_until(dated(u64::MAX)), None);
        for _ in 0..=ANSWERS_MAX {
            follower.answers(start);
        }
        assert_eq!(follower.at.len(), ANSWERS_MAX);
        assert_eq!((follower.knows_until(dated(0)), follower.knows_until(dated(1))), (None, None));
        assert_eq!(follower.knows_until(dated(2)), Some(start));
        assert_eq!(follower.knows_until(dated(ANSWERS_MAX as u64 + 2)), None);
        let ages = Dating { answered: 3, quorum_ms: Some(u64::MAX) };
        assert_eq!(follower.knows_until(ages), None, "before the clock began");
    }
}
