//! What was seen of leases that nobody renewed, and whether what was promised of their ends was
//! kept.
//!
//! All instants are those of one process on the machine of all nodes. What a look tells was true at
//! some instant between its sending and its arrival, so every comparison takes the end that is
//! generous to the service. Only the upper bounds know a slack, for what a busy machine adds.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The TTL that every lease begins with.
pub(crate) const TTL: Duration = Duration::from_secs(10);
/// The longest that an election takes, as clusters have it by default: nobody votes before the last
/// leader has been silent for the upper bound of an election time-out, and nobody stands for it
/// before a time-out of its own.
pub(crate) const ELECTION: Duration = Duration::from_millis(2 * 800);
/// What it may take to do, and to show, what is due; beside the longest time in which nobody was
/// told anything, which is how a busy machine shows.
const SLACK: Duration = Duration::from_millis(1_200);
/// From this length on an outage leaves clients a third of a TTL to renew.
const FAIR_CHANCE_AFTER: Duration = Duration::from_secs(1);

/// One look at a lease.
#[derive(Debug, Clone)]
pub(crate) struct Look {
    pub(crate) node: u64,
    pub(crate) sent: Instant,
    pub(crate) received: Instant,
    /// The node told what it knew by itself, which may be old: that the lease lives, for one.
    pub(crate) stale: bool,
    /// Nothing, once it has ended.
    pub(crate) ends: Option<Ends>,
}

/// When it ends, from the look on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ends {
    pub(crate) earliest: Duration,
    pub(crate) latest: Duration,
}

/// One lease.
#[derive(Debug, Clone)]
pub(crate) struct Life {
    /// When it was asked for, or for a shorter TTL, and when the answer was there.
    pub(crate) sent: Instant,
    pub(crate) received: Instant,
    /// What it was given then. Another leader gives it the longest that it ever had.
    pub(crate) ttl: Duration,
    pub(crate) looks: Vec<Look>,
    /// When the next in line had read its grant.
    pub(crate) succeeded: Option<Instant>,
}

/// Who led from when on, and the time that each node has added to every deadline.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reigns {
    /// When each was first seen to lead, which is after it took over.
    pub(crate) seen: Vec<(Instant, u64)>,
    /// The sum that a node told of, again and again; it begins anew when the node does.
    pub(crate) outages: BTreeMap<u64, Vec<(Instant, Duration)>>,
    known: BTreeSet<Reign>,
}

/// What tells one reign from another: the node, where it is since its start, and how often it has
/// taken over since then.
pub(crate) type Reign = (u64, SocketAddr, u64);

impl Life {
    pub(crate) fn new(sent: Instant, received: Instant) -> Self {
        Self { sent, received, ttl: TTL, looks: Vec::new(), succeeded: None }
    }

    /// It was given a shorter TTL: all begins anew.
    pub(crate) fn shortened(&mut self, sent: Instant, received: Instant, ttl: Duration) {
        *self = Self { ttl, ..Self::new(sent, received) };
    }

    /// The first instant at which it was known to have ended.
    pub(crate) fn ended_by(&self) -> Option<Instant> {
        let looks = self.looks.iter().filter(|look| look.ends.is_none());
        looks.map(|look| look.received).chain(self.succeeded).min()
    }

    /// An instant at which, or after which, it still lived.
    fn lived_at(&self) -> Instant {
        let fresh = self.alive().filter(|(look, _)| !look.stale);
        fresh.map(|(look, _)| look.sent).fold(self.sent, Instant::max)
    }

    /// For how long nobody was told anything of it, at its longest from an instant on.
    fn stutter(&self, from: Instant) -> Duration {
        let fresh = self.looks.iter().filter(|look| !look.stale && look.sent >= from);
        let mut told: Vec<Instant> = fresh.map(|look| look.received).chain([from]).collect();
        told.sort_unstable();
        told.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
    }

    pub(crate) fn alive(&self) -> impl Iterator<Item = (&Look, Ends)> {
        self.looks.iter().filter_map(|look| Some((look, look.ends?)))
    }
}

impl Reigns {
    /// A node told of itself.
    pub(crate) fn told(&mut self, node: u64, at: Instant, leads: Option<Reign>, outages: Duration) {
        self.outages.entry(node).or_default().push((at, outages));
        if leads.is_some_and(|reign| self.known.insert(reign)) {
            self.seen.push((at, node));
        }
    }

    /// Since when the node has led that led at this instant, if a change of leader was seen before.
    fn current(&self, at: Instant) -> Option<(Instant, u64)> {
        self.seen.iter().copied().filter(|(seen, _)| *seen <= at).max()
    }

    /// How much later than usual the leases of a leader may end because it could not serve. Its sum
    /// may grow a little before or after it is told.
    fn added(&self, node: u64, from: Instant, to: Instant) -> Duration {
        let told = self.outages.get(&node).map_or(&[][..], Vec::as_slice);
        let sum = |at: Instant| {
            let before = told.iter().filter(|(when, _)| *when <= at);
            before.map(|(_, sum)| *sum).next_back().unwrap_or_default()
        };
        let added = sum(to).saturating_sub(sum(from));
        if added >= FAIR_CHANCE_AFTER { added + TTL / 3 } else { added }
    }
}

/// Every promise that is broken, as a sentence.
pub(crate) fn breaches(name: &str, life: &Life, reigns: &Reigns) -> Vec<String> {
    let Some(ended_by) = life.ended_by() else { return vec![format!("{name}: never ended")] };
    let (mut found, lived_at) = (Vec::new(), life.lived_at());
    let mut judge = |kept: bool, what: String| {
        if !kept {
            found.push(format!("{name}: {what}"));
        }
    };
    let lived = ended_by.saturating_duration_since(life.sent);
    judge(lived >= life.ttl, format!("freed {lived:?} after it was asked for"));
    judge(lived_at <= ended_by, "seen alive after it was seen to have ended".to_owned());

    let change = reigns.current(ended_by).filter(|(seen, _)| *seen > life.received);
    let settled = change.map_or(life.received, |(seen, _)| seen);
    let leader = reigns.current(ended_by).map_or(0, |(_, node)| node);
    let added = |from| reigns.added(leader, from, ended_by);
    let after = lived_at.saturating_duration_since(settled);
    let slack = SLACK + life.stutter(settled);
    let (ttl, election) = match change {
        Some(_) => (TTL, ELECTION),
        None => (life.ttl, Duration::ZERO),
    };
    let most = ttl + election + added(settled) + slack;
    judge(after <= most, format!("alive {after:?} after the last change of leader, not {most:?}"));

    for (look, Ends { earliest, latest }) in life.alive() {
        let node = look.node;
        judge(
            earliest.is_zero() || look.sent + earliest <= ended_by,
            format!(
                "node {node} promised {earliest:?}, and it ended {:?} later",
                ended_by.saturating_duration_since(look.sent)
            ),
        );
        judge(
            earliest <= TTL && earliest <= latest && latest <= TTL + ELECTION,
            format!("node {node} says that it ends in {earliest:?} to {latest:?}"),
        );
        // What was said before the last change says nothing of how long it may take after it.
        if look.sent < settled {
            continue;
        }
        let left = lived_at.saturating_duration_since(look.received);
        // Only the leader knows how much is over.
        let counted = (!look.stale).then_some(("as the leader counts", earliest));
        for (what, end) in counted.into_iter().chain([("at the latest", latest)]) {
            let most = end + added(look.sent) + slack;
            judge(left <= most, format!("node {node} said {end:?} {what}, and it lived {left:?}"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn look(at: Instant, ends: Option<(Duration, Duration)>) -> Look {
        let ends = ends.map(|(earliest, latest)| Ends { earliest, latest });
        Look { node: 1, sent: at, received: at + S / 100, stale: false, ends }
    }

    /// A lease that was looked at every second, and ended after so many.
    fn life(start: Instant, seconds: u32) -> Life {
        let mut life = Life::new(start, start + S / 100);
        for at in 0..seconds {
            let left = TTL.saturating_sub(at * S);
            life.looks.push(look(start + at * S, Some((left, TTL + ELECTION))));
        }
        life.looks.push(look(start + seconds * S, None));
        life
    }

    #[track_caller]
    fn assert_found(life: &Life, reigns: &Reigns, words: &str) {
        let found = breaches("r", life, reigns);
        assert!(found.iter().any(|breach| breach.contains(words)), "{found:?}");
    }

    #[test]
    fn a_lease_that_ends_after_its_ttl_breaks_nothing() {
        let start = Instant::now();
        assert_eq!(breaches("r", &life(start, 10), &Reigns::default()), [""; 0]);
        assert_eq!(breaches("r", &life(start, 12), &Reigns::default()), [""; 0]);
    }

    #[test]
    fn a_lease_of_a_shorter_ttl_ends_with_that_or_has_the_longest_after_a_change() {
        let start = Instant::now();
        let mut short = life(start, 12);
        short.ttl = 3 * S;
        assert_found(&short, &Reigns::default(), "after the last change of leader");
        let changed = Reigns { seen: vec![(start + S, 2)], ..Reigns::default() };
        assert_eq!(breaches("r", &short, &changed), [""; 0]);
        let mut early = life(start, 2);
        early.ttl = 3 * S;
        assert_found(&early, &Reigns::default(), "freed 2.01s after");
    }

    #[test]
    fn one_that_ends_early_or_never_is_found() {
        let start = Instant::now();
        assert_found(&life(start, 9), &Reigns::default(), "freed 9.01s after");
        let mut forever = life(start, 10);
        forever.looks.pop();
        assert_found(&forever, &Reigns::default(), "never ended");
        let mut passed_on = life(start, 10);
        passed_on.succeeded = Some(start + 5 * S);
        assert_found(&passed_on, &Reigns::default(), "freed 5s after");
        assert_found(&passed_on, &Reigns::default(), "alive after");
    }

    #[test]
    fn one_that_lives_too_long_is_found_unless_a_leader_changed_or_could_not_serve() {
        let start = Instant::now();
        let mut long = life(start, 19);
        for look in &mut long.looks {
            look.ends = look.ends.map(|ends| Ends { earliest: Duration::ZERO, ..ends });
        }
        assert_found(&long, &Reigns::default(), "after the last change of leader");
        assert_found(&long, &Reigns::default(), "at the latest");
        assert_found(&long, &Reigns::default(), "as the leader counts");
        let outages = BTreeMap::from([(1, vec![(start, S), (start + 2 * S, 9 * S)])]);
        let seen = vec![(start - S, 1)];
        let out = Reigns { seen, outages, ..Reigns::default() };
        assert!(!breaches("r", &long, &out).iter().any(|breach| breach.contains("last change")));
        let changed = Reigns { seen: vec![(start + 6 * S, 2)], ..Reigns::default() };
        let found = breaches("r", &long, &changed);
        assert!(!found.iter().any(|breach| breach.contains("last change")), "{found:?}");
    }

    #[test]
    fn a_reign_is_seen_once_and_another_one_of_the_same_node_as_another() {
        let (start, mut reigns) = (Instant::now(), Reigns::default());
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        for (seconds, leads) in
            [(0, None), (1, Some(at(1))), (2, Some(at(1))), (3, None), (4, Some(at(2)))]
        {
            reigns.told(7, start + seconds * S, leads.map(|at| (7, at, 1)), seconds * S);
        }
        assert_eq!(reigns.seen, [(start + S, 7), (start + 4 * S, 7)]);
        assert_eq!(reigns.current(start + 3 * S), Some((start + S, 7)));
        assert_eq!(reigns.current(start), None);
        assert_eq!(reigns.added(7, start, start + S / 2), Duration::ZERO);
        assert_eq!(reigns.added(7, start, start + 2 * S), 2 * S + TTL / 3);
    }

    #[test]
    fn what_a_node_that_is_behind_says_is_a_promise_but_no_sign_of_life() {
        let start = Instant::now();
        let mut behind = life(start, 10);
        let ends = Some((Duration::ZERO, TTL + ELECTION));
        behind.looks.push(Look { stale: true, ..look(start + 11 * S, ends) });
        assert_eq!(breaches("r", &behind, &Reigns::default()), [""; 0]);
        behind.looks.push(Look { stale: true, ..look(start + 9 * S, Some((5 * S, 5 * S))) });
        assert_found(&behind, &Reigns::default(), "promised 5s");
    }

    #[test]
    fn promises_that_are_not_kept_are_found() {
        let start = Instant::now();
        let mut vain = life(start, 11);
        vain.looks[5].ends = Some(Ends { earliest: 8 * S, latest: 8 * S });
        assert_found(&vain, &Reigns::default(), "promised 8s");
        vain.looks[5].ends = Some(Ends { earliest: S, latest: 20 * S });
        assert_found(&vain, &Reigns::default(), "ends in 1s to 20s");
        let mut late = life(start, 14);
        late.looks[5].ends = Some(Ends { earliest: S, latest: S });
        assert_found(&late, &Reigns::default(), "said 1s at the latest");
    }
}
