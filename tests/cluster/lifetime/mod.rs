//! How long a lease lives that nobody renews, while leaders come and go: never shorter than its
//! TTL, never longer than that and an election after the last change; and at every moment its
//! status says so, whichever node is asked.

mod judge;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_harness::{Answer, Client, Cluster, Random, Roaming, Value, ask, json, with, within};

use crate::nodes;
use judge::{Ends, Life, Look, Reigns, TTL, breaches};

/// Above any election, so that only a hang exhausts it.
const PATIENCE: Duration = Duration::from_secs(120);
/// Between two looks of one who looks all the time.
const PACE: Duration = Duration::from_millis(20);
/// The TTL that some of the leases are given soon after they were opened.
const SHORTER: Duration = Duration::from_secs(3);
/// The longest that a leader leads before it is killed, unless it may see leases end.
const REIGN_MS: u64 = 4_000;

fn rounds() -> u64 {
    let rounds = std::env::var("LEASEHOLD_LIFETIME_ROUNDS").ok();
    rounds.and_then(|text| text.parse().ok()).unwrap_or(3)
}

/// What those who look and those who wait share.
#[derive(Default)]
struct Scene {
    /// Of the nodes that run. Each start has a new one.
    addresses: Mutex<BTreeMap<u64, SocketAddr>>,
    /// By lease.
    lives: Mutex<BTreeMap<String, Life>>,
    reigns: Mutex<Reigns>,
    over: AtomicBool,
}

#[test]
fn a_lease_that_nobody_renews_lives_its_ttl_and_ends_soon_after_it_whoever_leads() {
    let mut cluster = nodes().start(3);
    let scene = &Scene::default();
    cluster.up().into_iter().for_each(|id| scene.is_at(id, cluster.node(id).addr()));
    let mut random = Random::new(Random::seed_from_environment());
    std::thread::scope(|scope| {
        let ending = Ending(&scene.over);
        cluster.up().into_iter().for_each(|id| drop(scope.spawn(move || scene.observe(id))));
        let open = |resource: String, shorter: bool| {
            let lease = scene.open(&resource, shorter);
            scope.spawn(move || scene.succeed(&resource, &lease));
        };
        for round in 0..rounds() {
            open(format!("life/{round}"), false);
            open(format!("short/{round}"), true);
            // Now and then a reign is long enough for leases to end in it.
            let long = if round % 5 == 4 { TTL } else { Duration::ZERO };
            std::thread::sleep(long + Duration::from_millis(random.below(REIGN_MS)));
            if round % 2 == 0 {
                depose(&mut cluster, scene);
            } else {
                cluster.hand_over(None);
            }
        }
        // Whoever takes over without an election knows its leases for no longer than they live: a
        // deadline of its own that came too early would not be hidden by the time of an election.
        open(format!("life/{}", rounds()), false);
        open(format!("short/{}", rounds()), true);
        cluster.hand_over(None);
        within(PATIENCE, "every lease ends", || scene.all_ended().then_some(()));
        drop(ending);
    });
    scene.assert_right();
}

/// Kills whoever leads, and starts it again.
fn depose(cluster: &mut Cluster, scene: &Scene) {
    let leader = cluster.leader();
    scene.addresses.lock().expect("nobody panics with it").remove(&leader);
    cluster.kill9(leader);
    cluster.restart(leader);
    scene.is_at(leader, cluster.node(leader).addr());
}

impl Scene {
    fn is_at(&self, node: u64, addr: SocketAddr) {
        self.addresses.lock().expect("nobody panics with it").insert(node, addr);
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Posts until there is an answer that settles it. The request must be one that may be repeated.
    fn post(&self, path: &str, body: &Value) -> Option<Answer> {
        while !self.is_over() {
            let addresses = self.addresses.lock().expect("nobody panics with it").clone();
            let mut roaming = Roaming::new(addresses.into_values().collect::<Vec<_>>());
            // After a moment those who run are at other addresses.
            let answer = roaming.post(path, body, Duration::from_secs(1));
            if let Some(answer) = answer {
                return Some(answer);
            }
        }
        None
    }

    /// Opens a lease that holds one lock, and never renews it but for a shorter TTL.
    fn open(&self, resource: &str, shorter: bool) -> String {
        let body =
            with(ask(resource, "first", TTL.as_millis() as u64), json!({"request_id": resource}));
        let answer = self.post("/v1/acquire-lock", &body).expect("a grant");
        let (lease, token) = (answer.ok()["lease_id"].clone(), answer.token());
        let lease = lease.as_str().expect("a grant has a lease").to_owned();
        let mut life = Life::new(answer.sent, answer.received);
        if shorter {
            let ttl_ms = SHORTER.as_millis() as u64;
            let body = json!({"resource": resource, "token": token, "ttl_ms": ttl_ms});
            let renewed = self.post("/v1/renew-lock", &body).expect("it is held");
            renewed.ok();
            life.shortened(renewed.sent, renewed.received, SHORTER);
        }
        self.lives.lock().expect("nobody panics with it").insert(lease.clone(), life);
        lease
    }

    /// Stands in line behind it, and says when the lock was got.
    fn succeed(&self, resource: &str, lease: &str) {
        let more = json!({"request_id": resource, "wait_ms": 60_000});
        let body = with(ask(resource, "next", 60_000), more);
        while let Some(answer) = self.post("/v1/acquire-lock", &body) {
            if answer.status == 409 {
                answer.problem(409, "wait_timeout");
                continue;
            }
            answer.token();
            self.of(lease, |life| life.succeeded = Some(answer.received));
            return;
        }
    }

    /// Looks at everything through one node, whenever that runs, until it is over.
    fn observe(&self, node: u64) {
        let mut client = None;
        while !self.is_over() {
            let at = self.addresses.lock().expect("nobody panics with it").get(&node).copied();
            let looked = at.map(|at| self.look_around(node, at, &mut client));
            if looked.is_none_or(|looked| looked.is_err()) {
                client = None;
            }
            std::thread::sleep(PACE);
        }
    }

    fn look_around(
        &self,
        node: u64,
        at: SocketAddr,
        client: &mut Option<Client>,
    ) -> io::Result<()> {
        let client = match client {
            Some(client) => client,
            none => none.insert(Client::try_new(at)?),
        };
        self.see_who_leads(node, at, &get(client, "/metrics")?);
        for lease in self.living(node) {
            let answer = get(client, &format!("/v1/leases/{lease}"))?;
            let ends = match answer.status {
                200 => Some(ends(&answer.json())),
                404 | 410 => None,
                503 => continue,
                _ => panic!("node {node}: {answer}"),
            };
            self.note(&lease, look(node, &answer, ends));
        }
        // What the node itself knows, whether it leads or not. A lease that is not in it says
        // nothing: the node may be behind.
        let answer = get(client, "/v1/leases?client_id=first&consistency=stale")?;
        for item in answer.ok()["items"].as_array().into_iter().flatten() {
            let lease = item["lease_id"].as_str().expect("a lease has an id");
            self.note(lease, Look { stale: true, ..look(node, &answer, Some(ends(item))) });
        }
        Ok(())
    }

    /// Leases that this node has not said to have ended.
    fn living(&self, node: u64) -> Vec<String> {
        let lives = self.lives.lock().expect("nobody panics with it");
        let ended = |life: &Life| life.looks.iter().any(|l| l.node == node && l.ends.is_none());
        lives.iter().filter(|(_, life)| !ended(life)).map(|(lease, _)| lease.clone()).collect()
    }

    fn note(&self, lease: &str, look: Look) {
        self.of(lease, |life| life.looks.push(look));
    }

    fn see_who_leads(&self, node: u64, at: SocketAddr, answer: &Answer) {
        let text = String::from_utf8_lossy(&answer.body);
        let value = |name: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name}"))
        };
        let outages = Duration::from_secs_f64(value("leasehold_outage_seconds_total"));
        let reign = (node, at, value("leasehold_leader_changes_total") as u64);
        let leads = (value("leasehold_leading") > 0.0).then_some(reign);
        let mut reigns = self.reigns.lock().expect("nobody panics with it");
        reigns.told(node, answer.received, leads, outages);
    }

    fn of(&self, lease: &str, change: impl FnOnce(&mut Life)) {
        self.lives.lock().expect("nobody panics with it").get_mut(lease).map(change);
    }

    fn all_ended(&self) -> bool {
        let lives = self.lives.lock().expect("nobody panics with it");
        lives.values().all(|life| life.ended_by().is_some() && life.succeeded.is_some())
    }

    #[allow(clippy::print_stderr)]
    fn assert_right(&self) {
        let lives = self.lives.lock().expect("nobody panics with it");
        let reigns = self.reigns.lock().expect("nobody panics with it");
        let found = lives.iter().flat_map(|(lease, life)| breaches(lease, life, &reigns));
        let found: Vec<String> = found.take(20).collect();
        let looks: Vec<&Look> = lives.values().flat_map(|life| &life.looks).collect();
        let (leases, changes) = (lives.len(), reigns.seen.len());
        eprintln!("{} looks at {leases} leases under {changes} leaders", looks.len());
        assert!(found.is_empty(), "{}", found.join("\n"));
        assert!(changes as u64 > rounds(), "only {changes} leaders were seen");
        for node in 1..=3 {
            // That nothing is promised would hold whatever happens.
            let told = |look: &&&Look| look.node == node && !look.stale;
            let promised = looks.iter().filter(told).filter_map(|look| Some(look.ends?.earliest));
            assert!(promised.max() > Some(TTL / 2), "node {node} promised nothing");
        }
    }
}

fn get(client: &mut Client, path: &str) -> io::Result<Answer> {
    client.try_call("GET", path, &[("Leasehold-Timeout-Ms", "2000")], b"")
}

fn look(node: u64, answer: &Answer, ends: Option<Ends>) -> Look {
    Look { node, sent: answer.sent, received: answer.received, stale: false, ends }
}

fn ends(status: &Value) -> Ends {
    let ms = |name: &str| {
        let ms = status[name].as_u64().unwrap_or_else(|| panic!("no {name} in {status}"));
        Duration::from_millis(ms)
    };
    Ends { earliest: ms("earliest_end_in_ms"), latest: ms("latest_end_in_ms") }
}

/// Ends it also when a check fails, so that the failure is told at once.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
