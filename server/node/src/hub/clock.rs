//! Deadlines of all leases, in the leader's memory, on its monotonic clock.
//!
//! A renewal changes one entry and touches no heap: the heap holds lower bounds, and an entry
//! whose bound comes up early is put back with its true deadline. So a renewal costs O(1) and a
//! million idle leases cost nothing between their ends.
//!
//! Time in which the service could not do its part (it could not commit, could not confirm its
//! leadership, or was frozen) is added to every deadline. It is kept as one growing sum, which
//! each entry compares with the sum at its last renewal.

use leasehold_core::LeaseId;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::time::{Duration, Instant};

/// The most that outages add to one deadline between two renewals.
const ADDED_MAX: Duration = Duration::from_secs(30);
/// After an outage nothing ends before a third of its TTL, but not more than this, has passed.
const FAIR_CHANCE_MAX: Duration = Duration::from_secs(5);
/// Shorter outages only add their length: a machine that is merely busy must not keep a dead
/// lease alive by giving it one fair chance after the other.
const FAIR_CHANCE_AFTER: Duration = Duration::from_secs(1);

/// When a lease is looked at again whose expiry a renewal holds back.
const HELD_BACK: Duration = Duration::from_millis(50);

/// A lease as the leader's clock sees it.
#[derive(Debug, Clone)]
pub(crate) struct Timed {
    /// The anchor: receipt of the last renewal, or hand-over of the granting entry.
    base: Instant,
    pub(super) ttl: Duration,
    /// The sum of outages at `base`.
    outages: Duration,
    /// A deadline that was promised before and is later than what `base` gives.
    floor: Instant,
    /// Its entry in the heap: any other one is a leftover.
    queued: Instant,
    /// Renewals received whose round has not ended: they hold the expiry back.
    pub(crate) renewing: u32,
    /// The expiry was handed to the queue of proposals.
    pub(crate) expiring: bool,
    /// Its only grant is on its way to the next in line.
    pub(crate) passing_on: bool,
    /// An operator asked for the end of its only grant.
    pub(crate) draining: bool,
}

impl Timed {
    /// What ends it is on its way to the log, so that no renewal is promised from memory.
    pub(crate) fn ends_soon(&self) -> bool {
        self.expiring || self.passing_on
    }
}

#[derive(Debug, Default)]
pub(crate) struct LeaseClock {
    leases: HashMap<LeaseId, Timed, BuildHasherDefault<LeaseHasher>>,
    /// Lower bounds of deadlines. An entry without a lease is dropped when it comes up.
    due: BinaryHeap<Reverse<(Instant, LeaseId)>>,
    outages: Duration,
    last_outage_end: Option<Instant>,
    /// Until when outages are counted, so that two reports of one stall count once.
    counted_until: Option<Instant>,
}

impl LeaseClock {
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn get(&self, id: LeaseId) -> Option<&Timed> {
        self.leases.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: LeaseId) -> Option<&mut Timed> {
        self.leases.get_mut(&id)
    }

    /// Starts a lease at its anchor, or starts it anew with another TTL. Never makes a deadline
    /// that was already promised earlier.
    pub(crate) fn start(&mut self, id: LeaseId, base: Instant, ttl_ms: u64) {
        let ttl = Duration::from_millis(ttl_ms);
        let before = self.deadline(id);
        let old = self.leases.get(&id);
        let bound = base + ttl;
        let queued = old.map_or(bound, |old| old.queued.min(bound));
        let timed = Timed {
            base,
            ttl,
            outages: self.outages,
            floor: before.unwrap_or(base),
            queued,
            renewing: old.map_or(0, |old| old.renewing),
            // What is on its way to the log cannot be called back.
            expiring: old.is_some_and(|old| old.expiring),
            passing_on: old.is_some_and(|old| old.passing_on),
            draining: old.is_some_and(|old| old.draining),
        };
        if old.is_none_or(|old| old.queued != queued) {
            self.due.push(Reverse((queued, id)));
        }
        self.leases.insert(id, timed);
    }

    /// Renews a lease from `received` on.
    pub(crate) fn renew(&mut self, id: LeaseId, received: Instant) {
        let before = self.deadline(id);
        let outages = self.outages;
        if let Some(timed) = self.leases.get_mut(&id)
            && received > timed.base
        {
            timed.base = received;
            timed.outages = outages;
            timed.floor = before.unwrap_or(received);
        }
    }

    pub(crate) fn remove(&mut self, id: LeaseId) {
        self.leases.remove(&id);
        // Many short leases leave many entries of longer ones behind.
        if self.due.len() > 1_024 && self.due.len() > 4 * self.leases.len() {
            let leases = &self.leases;
            self.due.retain(|Reverse((at, id))| {
                leases.get(id).is_some_and(|timed| timed.queued == *at)
            });
        }
    }

    /// What the service counts: outages included.
    pub(crate) fn deadline(&self, id: LeaseId) -> Option<Instant> {
        self.leases.get(&id).map(|timed| self.deadline_of(timed))
    }

    /// What the client may count on: outages are the service's gift, not its promise.
    pub(crate) fn promised(&self, id: LeaseId) -> Option<Instant> {
        self.leases.get(&id).map(|timed| timed.base + timed.ttl)
    }

    fn deadline_of(&self, timed: &Timed) -> Instant {
        let added = (self.outages.saturating_sub(timed.outages)).min(ADDED_MAX);
        let mut deadline = (timed.base + timed.ttl + added).max(timed.floor);
        if let Some(end) = self.last_outage_end.filter(|end| *end > timed.base) {
            deadline = deadline.max(end + (timed.ttl / 3).min(FAIR_CHANCE_MAX));
        }
        // A renewal received in the middle of an outage gains no more than it lost.
        let end = self.counted_until.map_or(timed.base, |until| until.max(timed.base));
        deadline.min(end + timed.ttl).max(timed.floor)
    }

    /// Adds an outage that ended at `end`. Never puts a deadline beyond `end` + TTL, because the
    /// time before the outage has already been counted.
    pub(crate) fn outage(&mut self, length: Duration, end: Instant) {
        let new = self
            .counted_until
            .map_or(length, |until| length.min(end.saturating_duration_since(until)));
        self.counted_until = Some(self.counted_until.map_or(end, |until| until.max(end)));
        self.outages += new;
        if length >= FAIR_CHANCE_AFTER {
            self.last_outage_end = Some(self.last_outage_end.map_or(end, |before| before.max(end)));
        }
    }

    pub(crate) fn outages(&self) -> Duration {
        self.outages
    }

    /// A lower bound of the next deadline.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    /// Leases whose deadline has passed, marked as expiring; at most `at_most` heap entries are
    /// looked at. Those with a renewal under way come up again a little later.
    pub(crate) fn expired(&mut self, now: Instant, at_most: usize) -> Vec<LeaseId> {
        let mut expired = Vec::new();
        for _ in 0..at_most {
            match self.due.peek() {
                Some(Reverse((at, _))) if *at <= now => {}
                _ => break,
            }
            let Some(Reverse((at, id))) = self.due.pop() else { break };
            let Some(deadline) = self.deadline(id) else { continue };
            let Some(timed) = self.leases.get_mut(&id) else { continue };
            if timed.queued != at {
                continue;
            }
            // A draining grant has a due entry of its own, so that its end is told as forced.
            if timed.expiring || timed.draining {
                continue;
            }
            if deadline > now || timed.renewing > 0 {
                // One that a renewal holds back is looked at again a little later.
                timed.queued = if deadline > now { deadline } else { now + HELD_BACK };
                self.due.push(Reverse((timed.queued, id)));
            } else {
                timed.expiring = true;
                expired.push(id);
            }
        }
        expired
    }

    /// The expiry did not reach the log: it is due again.
    pub(crate) fn not_expired(&mut self, id: LeaseId, again_at: Instant) {
        if let Some(timed) = self.leases.get_mut(&id) {
            timed.expiring = false;
            timed.queued = again_at;
            self.due.push(Reverse((again_at, id)));
        }
    }
}

/// Lease ids are random and not chosen by clients: their own bits are the best hash.
#[derive(Debug, Default)]
pub(crate) struct LeaseHasher(u64);

impl Hasher for LeaseHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u128(&mut self, id: u128) {
        self.0 = id as u64 ^ (id >> 64) as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn clock(ttl_ms: u64) -> (LeaseClock, LeaseId, Instant) {
        let (mut clock, id, start) = (LeaseClock::default(), LeaseId(7), Instant::now());
        clock.start(id, start, ttl_ms);
        (clock, id, start)
    }

    #[test]
    fn a_lease_ends_at_its_deadline_and_not_before() {
        let (mut clock, id, start) = clock(10_000);
        assert!(clock.expired(start + 10 * S - Duration::from_nanos(1), 10).is_empty());
        assert_eq!(clock.expired(start + 10 * S, 10), [id]);
        assert!(clock.expired(start + 11 * S, 10).is_empty(), "it is proposed once");
    }

    #[test]
    fn a_renewal_counts_from_its_receipt_and_never_shortens() {
        let (mut clock, id, start) = clock(10_000);
        clock.renew(id, start + 4 * S);
        assert_eq!(clock.deadline(id), Some(start + 14 * S));
        clock.renew(id, start + 2 * S);
        assert_eq!(clock.deadline(id), Some(start + 14 * S), "a late answer to an older renewal");
        clock.start(id, start + 5 * S, 1_000);
        assert_eq!(clock.deadline(id), Some(start + 14 * S), "a shorter TTL");
        assert!(clock.expired(start + 13 * S, 10).is_empty());
        assert_eq!(clock.expired(start + 14 * S, 10), [id]);
    }

    #[test]
    fn a_renewal_under_way_holds_the_expiry_back() {
        let (mut clock, id, start) = clock(1_000);
        clock.get_mut(id).expect("started").renewing = 1;
        assert!(clock.expired(start + 2 * S, 10).is_empty());
        clock.get_mut(id).expect("started").renewing = 0;
        assert_eq!(clock.expired(start + 3 * S, 10), [id]);
    }

    #[test]
    fn an_outage_is_added_but_at_most_thirty_seconds_between_renewals() {
        let (mut clock, id, start) = clock(60_000);
        clock.outage(20 * S, start + 25 * S);
        assert_eq!(clock.deadline(id), Some(start + 80 * S));
        clock.outage(20 * S, start + 50 * S);
        assert_eq!(clock.deadline(id), Some(start + 90 * S));
        clock.renew(id, start + 55 * S);
        assert_eq!(clock.deadline(id), Some(start + 115 * S), "a renewal starts anew");
    }

    #[test]
    fn two_reports_of_one_stall_count_once() {
        let (mut clock, id, start) = clock(60_000);
        clock.outage(10 * S, start + 20 * S);
        clock.outage(12 * S, start + 21 * S);
        clock.outage(5 * S, start + 18 * S);
        assert_eq!(clock.deadline(id), Some(start + 71 * S));
    }

    #[test]
    fn after_an_outage_clients_have_a_fair_chance_to_renew() {
        let (mut clock, id, start) = clock(9_000);
        clock.outage(30 * S, start + 100 * S);
        assert_eq!(clock.deadline(id), Some(start + 103 * S));
        assert!(clock.expired(start + 102 * S, 10).is_empty());
        assert_eq!(clock.expired(start + 103 * S, 10), [id]);
    }

    #[test]
    fn an_expiry_that_did_not_reach_the_log_is_due_again() {
        let (mut clock, id, start) = clock(1_000);
        assert_eq!(clock.expired(start + S, 10), [id]);
        clock.not_expired(id, start + 2 * S);
        assert_eq!(clock.expired(start + 2 * S, 10), [id]);
    }

    #[test]
    fn an_expiry_on_its_way_is_not_undone_by_a_new_ttl() {
        let (mut clock, id, start) = clock(1_000);
        assert_eq!(clock.expired(start + S, 10), [id]);
        clock.start(id, start + S, 60_000);
        assert!(clock.get(id).expect("it lives").expiring);
        assert!(clock.expired(start + 100 * S, 10).is_empty(), "nor proposed twice");
    }

    #[test]
    fn a_renewal_within_an_outage_gains_no_more_than_a_ttl() {
        let (mut clock, id, start) = clock(10_000);
        clock.renew(id, start + 19 * S);
        clock.outage(20 * S, start + 20 * S);
        assert_eq!(clock.deadline(id), Some(start + 30 * S));
    }

    #[test]
    fn changing_the_ttl_again_and_again_leaves_one_entry() {
        let (mut clock, id, start) = clock(10_000);
        for n in 0..10_000u64 {
            clock.start(id, start + Duration::from_millis(n), 10_000 + n % 7);
        }
        assert_eq!(clock.due.len(), 1);
    }

    #[test]
    fn the_heap_does_not_outgrow_the_leases() {
        let mut clock = LeaseClock::default();
        let start = Instant::now();
        for n in 0..100_000u128 {
            clock.start(LeaseId(n), start, 86_400_000);
            clock.remove(LeaseId(n));
        }
        assert!(clock.due.len() <= 1_025);
    }
}
