//! The line as a whole: its order, its ghosts, and that nobody in it is forgotten.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold_harness::{Client, History, Random, Server, ask, eventually, json, with};

use crate::{configured, server};

#[test]
fn two_thousand_waiters_are_served_in_the_order_of_their_arrival_one_at_a_time() {
    const WAITERS: u64 = 2_000;
    let server = configured().flag("--queue-max", 4096).start();
    let mut holder = server.client();
    let mut token = holder.acquire(&ask("r", "holder", 60_000)).token();
    let mut waiters: Vec<Client> = (0..WAITERS)
        .map(|i| {
            let mut waiter = server.client();
            let body = with(ask("r", &format!("w{i}"), 60_000), json!({"wait_ms": 60_000}));
            waiter.begin_acquire(&body);
            // Arrival is when the service has it in line, not when the bytes were sent.
            eventually("it is in line", || holder.queue_length("r") == i + 1);
            waiter
        })
        .collect();

    for i in 0..waiters.len() {
        holder.let_go("r", token);
        let grant = waiters[i].finish();
        assert_eq!(grant.ok()["client_id"], format!("w{i}"));
        assert!(grant.token() > token, "tokens rise in the order of the line");
        token = grant.token();
        let left = WAITERS - i as u64 - 1;
        // The whole line is looked at rarely, as the look costs more than the handover.
        let looked_at = if i % 100 == 0 { waiters.len() } else { 4 };
        let mut behind = waiters[i + 1..].iter_mut().take(looked_at);
        let woken = behind.any(|waiter| waiter.has_answer());
        assert!(!woken, "release {i} woke more than one waiter");
        if i % 100 == 0 {
            assert_eq!(holder.queue_length("r"), left);
        }
    }
    holder.let_go("r", token);
    assert_eq!(holder.lock("r")["state"], "free");
}

fn ghosts(server: &Server, holder: &mut Client) -> (Vec<Client>, Client) {
    let ghosts = (0..100)
        .map(|i| {
            let mut ghost = server.client();
            let more = json!({"wait_ms": 60_000, "request_id": "1"});
            ghost.begin_acquire(&with(ask("r", &format!("g{i}"), 60_000), more));
            ghost
        })
        .collect();
    eventually("the ghosts are in line", || holder.queue_length("r") == 100);
    let mut live = server.client();
    live.begin_acquire(&with(ask("r", "live", 60_000), json!({"wait_ms": 60_000})));
    eventually("the live one is behind them", || holder.queue_length("r") == 101);
    (ghosts, live)
}

#[test]
fn a_hundred_ghosts_whose_hang_up_was_seen_delay_a_live_waiter_by_nothing() {
    let server = server();
    let mut holder = server.client();
    let token = holder.acquire(&ask("r", "holder", 60_000)).token();
    let (ghosts, mut live) = ghosts(&server, &mut holder);
    drop(ghosts);
    // Their places are kept for the window; after it they are certainly known to be gone.
    eventually("they are gone", || holder.queue_length("r") == 1);
    let released = Instant::now();
    holder.let_go("r", token);
    assert_eq!(live.finish().ok()["client_id"], "live");
    assert!(released.elapsed() < Duration::from_secs(2), "it took {:?}", released.elapsed());
}

#[test]
fn a_hundred_ghosts_that_vanish_with_the_release_delay_a_live_waiter_by_one_window_at_most() {
    let server = server();
    let mut holder = server.client();
    let token = holder.acquire(&ask("r", "holder", 60_000)).token();
    let (ghosts, mut live) = ghosts(&server, &mut holder);
    drop(ghosts);
    let released = Instant::now();
    holder.let_go("r", token);
    assert_eq!(live.finish().ok()["client_id"], "live");
    // One window is 2 s; a hundred would be more than three minutes.
    assert!(released.elapsed() < Duration::from_secs(8), "it took {:?}", released.elapsed());
}

/// Handovers that race with arrivals, short waits and hang-ups. Nobody whose wait is long may time
/// out: the lock always comes free within moments, so a time-out is a wake-up that got lost.
#[test]
fn ten_thousand_random_rounds_lose_no_wake_up() {
    const ROUNDS: u64 = 10_000;
    let seed = Random::seed_from_environment();
    let server = server();
    let history = History::default();
    let rounds = AtomicU64::new(0);
    let started = Instant::now();
    std::thread::scope(|scope| {
        for worker in 0..8 {
            let (server, history, rounds) = (&server, &history, &rounds);
            let random = Random::new(seed + worker);
            scope.spawn(move || {
                let mut contender = Contender { server, client: server.client(), random, worker };
                while rounds.fetch_add(1, Ordering::Relaxed) < ROUNDS {
                    contender.round(history);
                }
            });
        }
    });
    assert_eq!(history.breaches(), []);
    assert!(history.grants() as u64 > ROUNDS / 2, "only {} grants", history.grants());
    let took = started.elapsed();
    assert!(took < Duration::from_secs(300), "{ROUNDS} rounds took {took:?}");
    let mut watcher = server.client();
    for resource in ["hot/0", "hot/1"] {
        eventually("nothing is left behind", || watcher.lock(resource)["state"] == "free");
        assert_eq!(watcher.queue_length(resource), 0);
    }
}

struct Contender<'a> {
    server: &'a Server,
    client: Client,
    random: Random,
    worker: u64,
}

impl Contender<'_> {
    fn round(&mut self, history: &History) {
        let resource = format!("hot/{}", self.random.below(2));
        let who = format!("w{}", self.worker);
        // A short lease bounds what one vanished client can cost.
        let ask = ask(&resource, &who, 500);
        if self.random.below(1_000) < 5 {
            self.client.begin_acquire(&with(ask, json!({"wait_ms": 20_000})));
            self.client = self.server.client();
            return;
        }
        let hasty = self.random.chance(10);
        let wait = if hasty { self.random.below(5) } else { 20_000 };
        let answer = self.client.acquire(&with(ask, json!({"wait_ms": wait})));
        if hasty && answer.status == 409 {
            return;
        }
        let token = history.granted(&who, &answer);
        history.releasing(&resource, token);
        let release = self.client.release(&resource, token);
        match release.status {
            200 => history.released(&resource, token),
            // A thread that got no processor for longer than its lease lost it, and is told so.
            _ => drop(release.problem(410, "grant_ended")),
        }
    }
}
