//! kill -9 under load, again and again on the same data: what was acknowledged is still there.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_harness::{
    Answer, Client, History, Random, Server, Value, ask, ask_on, json, with, within,
};

use crate::server;

const WORKERS: u64 = 16;
const ACKNOWLEDGED: u64 = 1_000;
const LEASE_MS: u64 = 600_000;

/// A request whose answer never came.
enum Open {
    Acquire(Value),
    Release(String, u64),
}

#[test]
fn no_acknowledged_grant_or_release_is_lost_and_no_token_is_issued_twice() {
    let rounds = std::env::var("LEASEHOLD_KILL_ROUNDS").ok();
    let rounds: u64 = rounds.and_then(|text| text.parse().ok()).unwrap_or(20);
    let seed = Random::seed_from_environment();
    let mut server = server();
    let history = History::default();
    let lease = server.client().open_lease("keeper", LEASE_MS);
    let mut highest = 0;
    for round in 0..rounds {
        let anchor = format!("anchor/{round}");
        let anchored = server.client().acquire(&ask_on(&anchor, "keeper", &lease));
        history.granted("keeper", &anchored);

        let open = load(&mut server, &history, seed.wrapping_add(round * WORKERS), round);
        server.restart();

        settle(&server, &history, open);
        assert_lease_lives_on(&server, &lease, round);
        assert_kept(&server, &history, round);
        assert_eq!(history.breaches(), [], "round {round}");
        let token =
            server.client().acquire(&ask(&format!("probe/{round}"), "probe", 60_000)).token();
        assert!(token > highest, "round {round}: {token} after {highest}");
        highest = token;
    }
}

/// Many clients work until enough is acknowledged; then the server is killed in the middle of it.
fn load(server: &mut Server, history: &History, seed: u64, round: u64) -> Vec<Open> {
    let acknowledged = AtomicU64::new(0);
    let addr = server.addr();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|id| {
                let acknowledged = &acknowledged;
                let client = Client::new(addr);
                let random = Random::new(seed.wrapping_add(id));
                let worker = Worker { id, round, client, random, history, acknowledged };
                scope.spawn(move || worker.run())
            })
            .collect();
        within(Duration::from_secs(120), "enough is acknowledged", || {
            (acknowledged.load(Ordering::Relaxed) >= ACKNOWLEDGED).then_some(())
        });
        server.kill9();
        workers.into_iter().filter_map(|worker| worker.join().expect("a worker ends")).collect()
    })
}

struct Worker<'a> {
    id: u64,
    round: u64,
    client: Client,
    random: Random,
    history: &'a History,
    acknowledged: &'a AtomicU64,
}

impl Worker<'_> {
    /// Works until the connection breaks, and gives back what it does not know the outcome of.
    fn run(mut self) -> Option<Open> {
        let who = format!("w{}", self.id);
        let mut request = 0;
        loop {
            request += 1;
            let contended = self.random.chance(20);
            let resource = match contended {
                true => format!("hot/{}", self.random.below(4)),
                false => format!("own/{}/{}/{request}", self.round, self.id),
            };
            let id = format!("{}/{request}", self.round);
            let wait = if contended { 10_000 } else { 0 };
            let more = json!({"request_id": id, "wait_ms": wait});
            let body = with(ask(&resource, &who, LEASE_MS), more);
            let Ok(answer) = self.client.try_post("/v1/acquire-lock", &body) else {
                return Some(Open::Acquire(body));
            };
            let token = self.history.granted(&who, &answer);
            self.acknowledged.fetch_add(1, Ordering::Relaxed);
            // Some are kept, so that there is something to find after the restart.
            if !contended && self.random.chance(30) {
                continue;
            }
            self.history.releasing(&resource, token);
            let body = json!({"resource": resource, "token": token});
            let Ok(answer) = self.client.try_post("/v1/release-lock", &body) else {
                return Some(Open::Release(resource, token));
            };
            assert_eq!(answer.ok()["released"], true, "{answer}");
            self.history.released(&resource, token);
            self.acknowledged.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Repeats every request whose outcome is not known. Releases come first: the holder of a contended
/// lock may be one of them. The acquires then queue together and each lets the next one in.
fn settle(server: &Server, history: &History, open: Vec<Open>) {
    let mut waiting = BTreeMap::new();
    for one in open {
        match one {
            Open::Release(resource, token) => {
                let answer = server.client().release(&resource, token);
                assert!(answer.ok()["released"].is_boolean(), "{answer}");
                history.released(&resource, token);
            }
            Open::Acquire(body) => {
                let mut client = server.client();
                let who = body["client_id"].as_str().expect("a client").to_owned();
                client.begin_acquire(&body);
                waiting.insert(who, client);
            }
        }
    }
    within(Duration::from_secs(60), "every repeat is answered", || {
        waiting.retain(|who, client| {
            let answered = client.has_answer();
            if answered {
                let_go(history, who, client.finish(), &mut server.client());
            }
            !answered
        });
        waiting.is_empty().then_some(())
    });
}

fn let_go(history: &History, who: &str, answer: Answer, client: &mut Client) {
    let token = history.granted(who, &answer);
    let resource = answer.ok()["resource"].as_str().expect("a name").to_owned();
    history.releasing(&resource, token);
    client.let_go(&resource, token);
    history.released(&resource, token);
}

fn assert_lease_lives_on(server: &Server, lease: &str, round: u64) {
    let shown = server.client().get(&format!("/v1/leases/{lease}")).ok();
    let left = shown["earliest_end_in_ms"].as_u64().expect("a number");
    assert!(left <= LEASE_MS && left > LEASE_MS - 60_000, "round {round}: {shown}");
    let kept = server.client().keep_alive(lease).ok();
    assert!(kept["valid_for_ms"].as_u64() > Some(LEASE_MS / 2), "round {round}: {kept}");
}

/// Looks at this round's effects in full, and at a sample of the older ones: all of them in every
/// round would make the test quadratic, and what survived one restart went through the same path.
fn assert_kept(server: &Server, history: &History, round: u64) {
    let mut client = server.client();
    let mut random = Random::new(round);
    let fresh = format!("/{round}");
    let mut looked_at = |resource: &str| {
        resource.contains(&fresh) || random.chance(2) || resource.starts_with("anchor")
    };
    for (resource, token, who) in history.must_hold(Duration::from_secs(60)) {
        if looked_at(&resource) {
            let lock = client.lock(&resource);
            assert_eq!(lock["holders"][0]["token"], token, "round {round}, {who}: {lock}");
            assert_eq!(lock["holders"][0]["client_id"], who, "round {round}: {lock}");
        }
    }
    for (resource, token, _) in history.must_be_released() {
        if looked_at(&resource) {
            let again = client.release(&resource, token);
            assert_eq!(again.ok()["reason"], "already_released", "round {round}: {again}");
        }
    }
}

#[test]
fn a_lease_that_nobody_renews_after_a_restart_ends_within_its_ttl() {
    let mut server = server();
    let mut client = server.client();
    let lease = client.open_lease("a", 2_000);
    let on_lease = client.acquire(&ask_on("leased", "a", &lease)).token();
    let own = client.acquire(&ask("own", "a", 2_000)).token();
    server.kill9();
    // Longer than the TTL: the time in which nobody could renew does not count.
    std::thread::sleep(Duration::from_millis(2_500));
    server.restart();
    let mut client = server.client();
    assert_eq!((client.holders("leased"), client.holders("own")), (vec![on_lease], vec![own]));
    for resource in ["leased", "own"] {
        let next = with(ask(resource, "b", 2_000), json!({"wait_ms": 20_000}));
        let answer = client.acquire(&next);
        assert!(answer.received - answer.sent < Duration::from_secs(8), "{answer}");
        assert!(answer.token() > own);
    }
}
