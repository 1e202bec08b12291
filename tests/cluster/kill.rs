//! Nodes die under load, one after the other and all at once: no promise is broken, and what was
//! acknowledged is still there.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use leasehold_harness::{
    Cluster, History, Random, Roaming, ask, ask_on, eventually, json, slow_sync, with, within,
};

use crate::nodes;

const WORKERS: u64 = 16;
const LEASE_MS: u64 = 600_000;
/// Longer than a round of the other two takes, so that they commit ahead of the leader's disk.
const SLOW_MS: &str = "30";
/// Above any election, so that only a hang exhausts it.
const PATIENCE: Duration = Duration::from_secs(90);

fn rounds(by_default: u64) -> u64 {
    let rounds = std::env::var("LEASEHOLD_CLUSTER_ROUNDS").ok();
    rounds.and_then(|text| text.parse().ok()).unwrap_or(by_default)
}

#[test]
fn the_leader_is_killed_again_and_again_and_no_promise_is_broken() {
    let cluster = nodes().flag("--snapshot-log-bytes", 1 << 20).start(3);
    kill_rounds(cluster, rounds(4), |cluster, _| {
        let leader = cluster.leader();
        cluster.kill9(leader);
        let after = cluster.leader();
        assert_ne!(leader, after);
        cluster.restart(leader);
    });
}

/// Followers may commit what the leader has not flushed: a leader that resumed its term after such a
/// crash would give out tokens a second time.
#[test]
fn all_nodes_are_killed_at_once_with_a_slow_disk_under_the_leader() {
    let dir = tempfile::tempdir().expect("a directory");
    let delay = dir.path().join("delay");
    let set = |ms: &str| std::fs::write(&delay, ms).expect("the file can be written");
    set("0");
    let library = slow_sync(dir.path());
    let nodes = nodes().flag("--snapshot-log-bytes", 1 << 20);
    let cluster = nodes.with(1, "LD_PRELOAD", &library).with(1, "SLOW_SYNC_FILE", &delay).start(3);
    cluster.hand_over(Some(1));
    set(SLOW_MS);
    kill_rounds(cluster, rounds(3), |cluster, _| {
        // The leader first: what it has not flushed is on the others.
        for id in cluster.up() {
            cluster.kill9(id);
        }
        set("0");
        cluster.restart_all();
        cluster.hand_over(Some(1));
        set(SLOW_MS);
    });
}

/// Those who stand in line when leaders die, one after the other.
const IN_LINE: u64 = 8;

#[test]
fn who_stands_in_line_keeps_its_place_when_leaders_die() {
    let mut cluster = nodes().start(3);
    let book = cluster.book();
    let mut holder = Roaming::by(book.clone());
    let asked = with(ask("q", "holder", LEASE_MS), json!({"request_id": "first"}));
    let held = holder.post("/v1/acquire-lock", &asked, PATIENCE).expect("an answer").token();
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..IN_LINE)
            .map(|nth| {
                // Through each of the nodes, and each goes on with another when its own is gone.
                let mut waiter = Roaming::by(book.clone()).from_node(nth as usize);
                let waits = scope.spawn(move || {
                    let more = json!({"request_id": "once", "wait_ms": 60_000});
                    let body = with(ask("q", &format!("w{nth}"), LEASE_MS), more);
                    let granted = waiter.post("/v1/acquire-lock", &body, PATIENCE);
                    let token = granted.expect("an answer").token();
                    let body = json!({"resource": "q", "token": token});
                    waiter.post("/v1/release-lock", &body, PATIENCE).expect("an answer").ok();
                    token
                });
                let mut client = cluster.client(cluster.leader());
                eventually("it stands in line", || client.queue_length("q") == nth + 1);
                waits
            })
            .collect();
        for _ in 0..2 {
            let leader = cluster.leader();
            cluster.kill9(leader);
            cluster.leader();
            cluster.restart(leader);
        }
        let mut client = cluster.client(cluster.leader());
        assert_eq!(client.queue_length("q"), IN_LINE);
        let body = json!({"resource": "q", "token": held});
        holder.post("/v1/release-lock", &body, PATIENCE).expect("an answer").ok();
        let tokens: Vec<u64> =
            waiting.into_iter().map(|waits| waits.join().expect("it is granted")).collect();
        assert!(tokens.is_sorted_by(|before, after| before < after), "{tokens:?}");
    });
}

/// Work goes on while `harm` is done, round after round; then everything is looked at.
fn kill_rounds(mut cluster: Cluster, rounds: u64, harm: impl Fn(&mut Cluster, u64)) {
    let history = History::default();
    let seed = Random::seed_from_environment();
    let lease = Roaming::new(cluster.addresses())
        .post("/v1/leases", &json!({"client_id": "keeper", "ttl_ms": LEASE_MS}), PATIENCE)
        .expect("a lease")
        .ok()["lease_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    for round in 0..rounds {
        let (over, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
        let addresses = cluster.addresses();
        // Ports change with every start, so whoever works through it is told of new addresses by
        // the next round only; two of three nodes are enough to go on.
        std::thread::scope(|scope| {
            for id in 0..WORKERS {
                let worker = Worker {
                    who: format!("w{id}"),
                    round,
                    random: Random::new(seed.wrapping_add(round * WORKERS + id)),
                    roaming: Roaming::new(addresses.clone()),
                    history: &history,
                    acknowledged: &acknowledged,
                    over: &over,
                };
                scope.spawn(move || worker.run());
            }
            let ending = Ending(&over);
            within(PATIENCE, "work is under way", || {
                (acknowledged.load(Ordering::Relaxed) > 200).then_some(())
            });
            harm(&mut cluster, round);
            drop(ending);
        });
        let mut roaming = Roaming::new(cluster.addresses());
        let anchor = format!("anchor/{round}");
        let asked = with(ask_on(&anchor, "keeper", &lease), json!({"request_id": anchor}));
        let anchored = roaming.post("/v1/acquire-lock", &asked, PATIENCE).expect("an answer");
        history.granted("keeper", &anchored);
        assert_kept(&cluster, &history, round);
        assert_eq!(history.breaches(), [], "round {round}");
    }
    assert!(history.grants() > 100, "{} grants", history.grants());
}

/// Ends the work also when a check fails, so that the failure is told at once.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Worker<'a> {
    who: String,
    round: u64,
    random: Random,
    roaming: Roaming,
    history: &'a History,
    acknowledged: &'a AtomicU64,
    over: &'a AtomicBool,
}

impl Worker<'_> {
    /// Works until it is over. A request without an answer is repeated under its id elsewhere, so
    /// none is left open while a majority runs.
    fn run(mut self) {
        let mut request = 0;
        while !self.over.load(Ordering::Relaxed) {
            request += 1;
            let contended = self.random.chance(20);
            let resource = match contended {
                true => format!("hot/{}", self.random.below(4)),
                false => format!("own/{}/{}/{request}", self.round, self.who),
            };
            let id = format!("{}/{request}", self.round);
            let more = json!({"request_id": id, "wait_ms": if contended { 5_000 } else { 0 }});
            let body = with(ask(&resource, &self.who, LEASE_MS), more);
            let Some(answer) = self.post("/v1/acquire-lock", &body) else { return };
            if answer.status == 409 {
                continue;
            }
            let token = self.history.granted(&self.who, &answer);
            self.acknowledged.fetch_add(1, Ordering::Relaxed);
            if !contended && self.random.chance(30) {
                continue;
            }
            self.history.releasing(&resource, token);
            let body = json!({"resource": resource, "token": token});
            let Some(answer) = self.post("/v1/release-lock", &body) else { return };
            assert!(answer.ok()["released"].is_boolean(), "{answer}");
            self.history.released(&resource, token);
            self.acknowledged.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Nothing, if the work is over before there is an answer.
    fn post(&mut self, path: &str, body: &serde_json::Value) -> Option<leasehold_harness::Answer> {
        loop {
            let answer = self.roaming.post(path, body, Duration::from_secs(1));
            if answer.is_some() || self.over.load(Ordering::Relaxed) {
                return answer;
            }
        }
    }
}

fn assert_kept(cluster: &Cluster, history: &History, round: u64) {
    let mut client = cluster.client(cluster.follower());
    let fresh = format!("/{round}/");
    for (resource, token, who) in history.must_hold(Duration::from_secs(60)) {
        if resource.contains(&fresh) || resource.starts_with("anchor") {
            let lock = client.lock(&resource);
            assert_eq!(lock["holders"][0]["token"], token, "round {round}, {who}: {lock}");
        }
    }
    for (resource, token, _) in history.must_be_released() {
        if resource.contains(&fresh) {
            let again = client.release(&resource, token);
            assert_eq!(again.ok()["reason"], "already_released", "round {round}: {again}");
        }
    }
}
