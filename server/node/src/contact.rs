//! How lately this node was in touch with the rest of its cluster.
//!
//! A leader is in touch as of the sending of the newest heartbeat that a quorum answered; any
//! other node as of the newest word of its leader. From this follows what is said of a leader: one
//! that has been silent for so long that an election may have begun is not named any more.
//!
//! The age of a stale answer never trusts that a word was quick: a follower counts it from an
//! instant that certainly lies before the leader spoke, an answer of its own that the leader had
//! heard by then, and from when a quorum followed that leader (`peers::echo`). Time in which the
//! machine itself is suspended is not in it.

use crate::config::Timing;
use crate::node::Node;
use crate::runtime;
use crate::types::{DataMetrics, LeaderId};
use openraft::async_runtime::{Instant as _, WatchReceiver as _};
use parking_lot::Mutex;
use std::fmt;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// What this node last heard of the others.
pub(crate) struct Contact {
    heard: Mutex<Heard>,
    /// Of this node's own Raft, which begins later than this.
    raft: OnceLock<DataMetrics>,
}

#[derive(Debug)]
struct Heard {
    /// Whose word was the newest, and when it came.
    leader: Option<(LeaderId, Instant)>,
    /// When a quorum, or whoever leads one, was last known to be there.
    touched: Instant,
    /// The state holds everything that was committed at this instant.
    fresh: Option<Instant>,
    /// What the leader had committed at an instant, while it is not applied here.
    awaited: Option<(u64, Instant)>,
}

impl fmt::Debug for Contact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.heard.fmt(f)
    }
}

impl Contact {
    pub(crate) fn new() -> Self {
        let touched = runtime::now();
        let heard = Heard { leader: None, touched, fresh: None, awaited: None };
        Self { heard: Mutex::new(heard), raft: OnceLock::new() }
    }

    pub(crate) fn follow(&self, raft: DataMetrics) {
        self.raft.get_or_init(|| raft);
    }

    /// When this node, its leader, sent the newest message that a quorum has answered.
    pub(crate) fn last_quorum_acked(&self) -> Option<Instant> {
        // Read before: so it comes out a little earlier than it was rather than later.
        let now = runtime::now();
        let acked = self.raft.get()?.borrow_watched().last_quorum_acked?;
        now.checked_sub(acked.elapsed())
    }

    /// How long ago that was.
    pub(crate) fn quorum_age(&self) -> Option<Duration> {
        self.last_quorum_acked().map(runtime::since)
    }

    /// A word of `leader` at `now`, and up to which entry it had committed at a known instant.
    pub(crate) fn heard(
        &self,
        now: Instant,
        leader: LeaderId,
        committed: Option<(u64, Instant)>,
        applied: u64,
    ) {
        let mut heard = self.heard.lock();
        heard.leader = Some((leader, now));
        heard.touched = now;
        heard.applied(applied);
        match committed {
            Some((committed, at)) if committed <= applied => {
                heard.fresh = heard.fresh.max(Some(at));
            }
            Some(_) if heard.awaited.is_none() => heard.awaited = committed,
            _ => {}
        }
    }

    /// A quorum answered what this node sent at that instant.
    pub(crate) fn touch(&self, at: Instant) {
        let mut heard = self.heard.lock();
        heard.touched = heard.touched.max(at);
    }

    /// The same of a leader whose state holds all that earlier ones had committed.
    pub(crate) fn acknowledged(&self, at: Instant) {
        let mut heard = self.heard.lock();
        heard.touched = heard.touched.max(at);
        heard.fresh = heard.fresh.max(Some(at));
        heard.awaited = None;
    }

    fn hears(&self, now: Instant, leader: u64, within: Duration) -> bool {
        let heard = self.heard.lock().leader.filter(|(of, _)| of.voted_for == leader);
        heard.is_some_and(|(_, at)| now.saturating_duration_since(at) < within)
    }

    /// How old the state is at most, if anything was ever heard.
    fn age(&self, now: Instant, applied: u64) -> Option<Duration> {
        let mut heard = self.heard.lock();
        heard.applied(applied);
        heard.fresh.map(|at| now.saturating_duration_since(at))
    }

    fn touched(&self) -> Instant {
        self.heard.lock().touched
    }
}

impl Heard {
    fn applied(&mut self, applied: u64) {
        if let Some((_, at)) = self.awaited.filter(|(committed, _)| *committed <= applied) {
            self.fresh = self.fresh.max(Some(at));
            self.awaited = None;
        }
    }
}

impl Timing {
    /// A follower that has heard nothing for less than this has not stood for election yet: first
    /// the leader's lease runs out, then its own patience.
    fn election_begins(&self) -> Duration {
        Duration::from_millis(self.election_max_ms + self.election_min_ms)
    }

    /// An election at its longest, from the last word of the leader before.
    pub(crate) fn election(&self) -> Duration {
        Duration::from_millis(2 * self.election_max_ms)
    }

    /// What a process that has just been woken needs, to hear what came in the meantime.
    pub(crate) fn awake(&self) -> Duration {
        Duration::from_millis(2 * self.heartbeat_ms)
    }
}

impl Node {
    /// The node that leads, as far as this one knows; nobody from the moment at which an election
    /// may have begun until there is a leader who has confirmed that it is one.
    #[must_use]
    pub fn leader(&self) -> Option<u64> {
        let inner = &self.inner;
        if inner.hub.is_stopped() || inner.raft.metrics().borrow_watched().running_state.is_err() {
            return None;
        }
        let leader = inner.raft.server_metrics().borrow_watched().current_leader?;
        let known = if leader == inner.id {
            inner.leading.borrow().is_some()
        } else {
            inner.contact.hears(runtime::now(), leader, inner.timing.election_begins())
        };
        known.then_some(leader)
    }

    /// How far in the past the state of this node may lie: the time since it sent what a quorum
    /// answered, or since its leader must have said what is applied here. `None` if neither has
    /// ever happened.
    #[must_use]
    pub fn age(&self) -> Option<Duration> {
        let inner = &self.inner;
        let leads = inner.leading.borrow().is_some();
        if leads && inner.raft.voter_ids().eq([inner.id]) {
            return Some(Duration::ZERO);
        }
        if let Some(at) = inner.contact.last_quorum_acked().filter(|_| leads) {
            inner.contact.acknowledged(at);
        }
        inner.contact.age(runtime::now(), inner.shared.applied().map_or(0, |id| id.index))
    }

    /// Returns when this node has been out of touch for as long as two elections take: what it
    /// could tell is not the present any more, and others can tell better.
    pub(crate) async fn cut_off(&self) {
        let timing = self.inner.timing;
        loop {
            let at = self.inner.contact.touched() + 2 * timing.election();
            runtime::sleep_until(at).await;
            // The process itself may have stood still.
            runtime::sleep(timing.awake()).await;
            if self.inner.contact.touched() + 2 * timing.election() <= runtime::now() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEADER: LeaderId = LeaderId { term: 3, voted_for: 2 };
    const S: Duration = Duration::from_secs(1);

    #[test]
    fn a_state_is_as_old_as_the_word_whose_entries_it_holds() {
        let (contact, start) = (Contact::new(), Instant::now());
        assert_eq!(contact.age(start, 0), None, "nothing was ever heard");
        let told = |at, committed, applied| {
            contact.heard(start + 4 * S, LEADER, Some((committed, at)), applied);
        };
        told(start, 10, 10);
        told(start + S, 20, 10);
        told(start + 2 * S, 30, 15);
        assert_eq!(contact.age(start + 2 * S, 15), Some(2 * S), "what came later is missing");
        assert_eq!(contact.age(start + 2 * S, 20), Some(S));
        told(start + 3 * S, 30, 30);
        assert_eq!(contact.age(start + 3 * S, 30), Some(Duration::ZERO));
        told(start + S, 30, 30);
        assert_eq!(contact.age(start + 3 * S, 30), Some(Duration::ZERO), "an older word");
    }

    #[test]
    fn a_word_of_unknown_age_says_who_leads_and_no_more() {
        let (contact, start) = (Contact::new(), Instant::now());
        contact.heard(start, LEADER, None, 7);
        assert!(contact.hears(start, 2, S));
        assert_eq!(contact.age(start, 7), None);
    }

    #[test]
    fn the_state_of_a_leader_is_as_old_as_the_last_word_of_a_quorum() {
        let (contact, start) = (Contact::new(), Instant::now());
        contact.acknowledged(start + S);
        contact.acknowledged(start);
        assert_eq!(contact.age(start + 5 * S, 7), Some(4 * S));
        contact.touch(start + 3 * S);
        assert_eq!(contact.age(start + 5 * S, 7), Some(4 * S), "it may lack something");
        assert_eq!(contact.touched(), start + 3 * S);
    }

    #[test]
    fn a_silent_leader_is_not_named() {
        let (contact, start) = (Contact::new(), Instant::now());
        let patience = Timing::LAN.election_begins();
        contact.heard(start, LEADER, None, 0);
        assert!(contact.hears(start, 2, patience) && !contact.hears(start, 1, patience));
        assert!(!contact.hears(start + patience, 2, patience));
    }
}
