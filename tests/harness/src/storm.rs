//! Very many leases that end at one instant, beside some that are kept alive and beside new locks
//! that are taken and given back all the while.
//!
//! [`Storm::run`] panics when a promise is broken. What it answers is only how long things took.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::{Answer, Client, Value, ask, ask_on, json, with, within};

/// Connections that acquire what nobody will renew.
const FILLERS: usize = 4;
/// Operations in one request.
const BATCH: usize = 256;
/// Connections that renew what is kept.
const KEEPERS: usize = 4;
/// Connections that take locks and give them back.
const LIVE: usize = 4;
/// Beyond any limit on TTLs, so that what is acquired last can still have its own.
const TTL_LEAST: Duration = Duration::from_secs(2);
/// Only a service that ends nothing any more exhausts it.
const PATIENCE: Duration = Duration::from_secs(180);

/// What is to happen.
#[derive(Debug, Clone)]
pub struct Storm {
    /// How many leases end at once.
    pub left: usize,
    /// How many others are renewed, three times a TTL, each by a call of its own.
    pub kept: usize,
    /// The TTL of those.
    pub kept_ttl: Duration,
    /// The instant at which the others end, from the first acquire on. All of them have to be
    /// acquired a while before.
    pub ends_in: Duration,
}

/// How it went.
#[derive(Debug, Clone)]
pub struct Course {
    left: usize,
    /// How long it took to acquire what was left alone.
    pub filled: Duration,
    /// From the instant at which it was due until the last of it had ended.
    pub ended: Duration,
    /// The longest that one keeper took to renew all of its leases.
    pub longest_round: Duration,
    /// What each acquire took that was answered before the storm.
    pub before: Vec<Duration>,
    /// What each acquire took that was under way during it.
    pub during: Vec<Duration>,
}

/// A lease that is renewed, and what it holds.
struct Kept {
    lease: String,
    resource: String,
    token: u64,
}

/// One acquire that was answered.
struct Taken {
    sent: Instant,
    received: Instant,
}

impl Storm {
    /// Makes the storm; whoever takes part is spread over `addresses`.
    #[track_caller]
    pub fn run(&self, addresses: &[SocketAddr]) -> Course {
        let kept = self.open(addresses);
        let ends_at = Instant::now() + self.ends_in;
        let over = &Over::default();
        let at = |worker: usize| addresses[worker % addresses.len()];
        let course = std::thread::scope(|scope| {
            let ending = Ending(over);
            let keep = |(worker, share)| scope.spawn(move || self.keep(at(worker), share, over));
            let shares = kept.chunks(kept.len().div_ceil(KEEPERS).max(1));
            let keepers: Vec<_> = shares.enumerate().map(keep).collect();
            let filled = self.fill(addresses, ends_at);
            let calm_from = Instant::now();
            let live = |worker| scope.spawn(move || live(at(worker), worker, over));
            let live: Vec<_> = (0..LIVE).map(live).collect();
            self.wait_for_it(addresses[0], ends_at);
            let mut client = Client::new(addresses[0]);
            within(PATIENCE, "all that is left alone ends", || {
                let all_work = keepers.iter().all(|one| !one.is_finished());
                assert!(all_work && live.iter().all(|one| !one.is_finished()), "one gave up");
                none_left(&mut client).then_some(())
            });
            let ended_at = Instant::now();
            drop(ending);
            let rounds = keepers.into_iter().map(|one| one.join().expect("a keeper keeps all"));
            let longest_round = rounds.max().unwrap_or_default();
            let taken = live.into_iter().map(|one| one.join().expect("live acquires flow"));
            let taken: Vec<Taken> = taken.flatten().collect();
            let took = |wanted: &dyn Fn(&Taken) -> bool| -> Vec<Duration> {
                taken.iter().filter(|one| wanted(one)).map(|one| one.received - one.sent).collect()
            };
            Course {
                left: self.left,
                filled,
                ended: ended_at - ends_at,
                longest_round,
                before: took(&|one| one.sent > calm_from && one.received < ends_at),
                during: took(&|one| one.received > ends_at && one.sent < ended_at),
            }
        });
        assert!(!course.before.is_empty(), "the storm came before all was there: {course}");
        assert!(!course.during.is_empty(), "nothing was acquired during the storm: {course}");
        self.assert_right(addresses[0], &kept);
        course
    }

    /// Opens the leases that are kept, each with a lock.
    fn open(&self, addresses: &[SocketAddr]) -> Vec<Kept> {
        let ttl_ms = self.kept_ttl.as_millis() as u64;
        let open = |worker: usize| {
            let mut client = Client::new(addresses[worker % addresses.len()]);
            let open = |i: usize| {
                let resource = format!("kept/{i}");
                let lease = client.open_lease("kept", ttl_ms);
                let token = client.acquire(&ask_on(&resource, "kept", &lease)).token();
                Kept { lease, resource, token }
            };
            (worker..self.kept).step_by(KEEPERS).map(open).collect::<Vec<_>>()
        };
        std::thread::scope(|scope| {
            let opening: Vec<_> =
                (0..KEEPERS).map(|worker| scope.spawn(move || open(worker))).collect();
            opening.into_iter().flat_map(|one| one.join().expect("the leases open")).collect()
        })
    }

    /// Acquires all that nobody will renew. Each lease gets the time that is left until the one
    /// instant at which all of them end.
    fn fill(&self, addresses: &[SocketAddr], ends_at: Instant) -> Duration {
        let begun = Instant::now();
        let next = AtomicUsize::new(0);
        let fill = |addr: SocketAddr| {
            let mut client = Client::new(addr);
            loop {
                let from = next.fetch_add(BATCH, Ordering::Relaxed);
                if from >= self.left {
                    return;
                }
                let ttl = ends_at.saturating_duration_since(Instant::now());
                assert!(ttl > TTL_LEAST, "{from} of {} in {:?}", self.left, begun.elapsed());
                let to = (from + BATCH).min(self.left);
                acquire_all(&mut client, from..to, ttl.as_millis() as u64);
            }
        };
        std::thread::scope(|scope| {
            for worker in 0..FILLERS {
                scope.spawn(move || fill(addresses[worker % addresses.len()]));
            }
        });
        begun.elapsed()
    }

    /// Renews all of its share until the storm is over; answers the longest that a round took.
    fn keep(&self, addr: SocketAddr, share: &[Kept], over: &Over) -> Duration {
        let mut client = Client::new(addr);
        let mut longest = Duration::ZERO;
        loop {
            let begun = Instant::now();
            for one in share {
                let answer = client.keep_alive(&one.lease);
                assert_eq!(answer.status, 200, "a kept lease was lost: {answer}");
            }
            longest = longest.max(begun.elapsed());
            if over.within((self.kept_ttl / 3).saturating_sub(begun.elapsed())) {
                return longest;
            }
        }
    }

    /// Returns at the instant at which all ends, after a look at whether all is still there.
    fn wait_for_it(&self, addr: SocketAddr, ends_at: Instant) {
        let left = || ends_at.saturating_duration_since(Instant::now());
        std::thread::sleep(left().saturating_sub(Duration::from_millis(500)));
        let answer = Client::new(addr).get("/v1/locks?limit=1");
        if answer.received < ends_at {
            let page = answer.ok();
            let all = (self.left + self.kept) as u64;
            assert!(page["total"].as_u64() >= Some(all), "some ended early: {page}");
        }
        std::thread::sleep(left());
    }

    /// What was kept is held as before, and the rest ended because its time was over.
    fn assert_right(&self, addr: SocketAddr, kept: &[Kept]) {
        let mut client = Client::new(addr);
        for one in kept {
            client.keep_alive(&one.lease).ok();
            assert_eq!(client.holders(&one.resource), [one.token], "{}", one.resource);
        }
        let page = client.get("/v1/grants?client_id=left&limit=1000").ok();
        let records = page["items"].as_array().expect("a page has items");
        assert_eq!(records.len(), self.left.min(1_000), "{page}");
        for record in records {
            assert_eq!(record["how"], "expired", "{record}");
        }
    }
}

fn acquire_all(client: &mut Client, some: std::ops::Range<usize>, ttl_ms: u64) {
    let acquire =
        |i: usize| with(ask(&format!("left/{i}"), "left", ttl_ms), json!({"op": "acquire"}));
    let operations: Vec<Value> = some.map(acquire).collect();
    let answer = client.post("/v1/batch", &json!({"operations": operations})).ok();
    for result in answer["results"].as_array().expect("a list of results") {
        assert_eq!(result["status"], 200, "{result}");
    }
}

fn none_left(client: &mut Client) -> bool {
    let page = client.get("/v1/locks?limit=1&prefix=left/").ok();
    page["items"].as_array().is_some_and(Vec::is_empty)
}

/// Takes locks and gives them back until the storm is over.
fn live(addr: SocketAddr, worker: usize, over: &Over) -> Vec<Taken> {
    let mut client = Client::new(addr);
    let mut taken = Vec::new();
    while !over.within(Duration::ZERO) {
        let resource = format!("live/{worker}/{}", taken.len());
        let answer = client.acquire(&ask(&resource, "live", 60_000));
        client.let_go(&resource, answer.token());
        let Answer { sent, received, .. } = answer;
        taken.push(Taken { sent, received });
    }
    taken
}

/// Told once, to all who take part.
#[derive(Debug, Default)]
struct Over {
    is_over: Mutex<bool>,
    told: Condvar,
}

impl Over {
    /// Whether it is over within this time. Returns as soon as it is.
    fn within(&self, time: Duration) -> bool {
        let is_over = self.is_over.lock().expect("nobody panics with it");
        let waited = self.told.wait_timeout_while(is_over, time, |is_over| !*is_over);
        *waited.expect("nobody panics with it").0
    }
}

/// Ends it also when a check fails, so that the failure is told at once.
struct Ending<'a>(&'a Over);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        *self.0.is_over.lock().expect("nobody panics with it") = true;
        self.0.told.notify_all();
    }
}

impl Course {
    /// How many times the P99 of acquires before the storm is that during it.
    pub fn p99_ratio(&self) -> f64 {
        share(&self.during, 0.99).as_secs_f64() / share(&self.before, 0.99).as_secs_f64()
    }
}

impl fmt::Display for Course {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} leases acquired in {:.1?}", self.left, self.filled)?;
        writeln!(f, "all of them ended within {:.1?} of one instant", self.ended)?;
        writeln!(f, "longest round of a keeper {:.1?}", self.longest_round)?;
        for (when, took) in [("before", &self.before), ("during", &self.during)] {
            let (p50, p99, longest) = (share(took, 0.5), share(took, 0.99), share(took, 1.0));
            let count = took.len();
            writeln!(
                f,
                "{count:>6} acquires {when}: P50 {p50:.1?}, P99 {p99:.1?}, longest {longest:.1?}"
            )?;
        }
        write!(f, "P99 of acquires during the storm: {:.2} times that before", self.p99_ratio())
    }
}

/// What this share of the times does not exceed; nothing of none.
fn share(times: &[Duration], share: f64) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let at = (sorted.len() as f64 * share) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_that_of_the_slow_ones() {
        let ms = |range: std::ops::RangeInclusive<u64>| range.map(Duration::from_millis).collect();
        let zero = Duration::ZERO;
        let course = Course {
            left: 1,
            filled: zero,
            ended: zero,
            longest_round: zero,
            before: ms(1..=100),
            during: ms(201..=300),
        };
        assert!((course.p99_ratio() - 3.0).abs() < 1e-9);
        assert_eq!(share(&[], 0.99), zero);
    }

    #[test]
    fn whoever_waits_for_the_end_is_told_at_once() {
        let over = Over::default();
        assert!(!over.within(Duration::ZERO));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| over.within(Duration::from_secs(600)));
            drop(Ending(&over));
            assert!(waiting.join().expect("it ends"));
        });
    }
}
