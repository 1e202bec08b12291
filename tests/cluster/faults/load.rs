//! What the clients of a trial do. All that they are told goes into the history.

use std::time::{Duration, Instant};

use leasehold_harness::{Random, Roaming, Told, Value, Watcher, ask, json, with};

use super::trial::Scene;

/// All resources of a trial begin so.
pub(super) const PREFIX: &str = "f/";
/// The last one: when the watcher is told of its release, it has been told of everything.
pub(super) const END: &str = "f/end";
/// Beyond the wait that was asked for, a node gets this long to answer before another is asked.
const SLACK: Duration = Duration::from_secs(2);
/// Nothing told for this long may mean that the node is cut off, so another one is watched.
const SILENCE: Duration = Duration::from_secs(1);

/// One client with one request at a time.
pub(super) struct Worker<'a> {
    scene: &'a Scene,
    who: String,
    random: Random,
    roaming: Roaming,
}

/// What it is about to ask for.
struct Errand {
    resource: String,
    request: String,
    shared: bool,
    wait: Duration,
    ttl: Duration,
}

/// What it holds.
struct Held {
    resource: String,
    token: u64,
    /// It stops to act then.
    until: Instant,
}

impl<'a> Worker<'a> {
    pub(super) fn new(scene: &'a Scene, id: u64, seed: u64) -> Self {
        let random = Random::new(seed.wrapping_mul(1_000).wrapping_add(id));
        let roaming = Roaming::by(scene.book.clone()).from_node(id as usize);
        Self { scene, who: format!("w{id}"), random, roaming }
    }

    /// Works until it is over. A request without an answer is repeated under its id elsewhere.
    pub(super) fn run(mut self) {
        for request in 0_u64.. {
            if !self.scene.goes_on() {
                return;
            }
            let errand = self.draw(request);
            if let Some(held) = self.acquire(&errand) {
                self.use_up(held, errand.ttl);
            }
            // Any node answers, so all of them are asked.
            if self.random.chance(10) {
                self.roaming.go_on();
            }
        }
    }

    fn draw(&mut self, request: u64) -> Errand {
        let random = &mut self.random;
        let (resource, shared) = match random.below(10) {
            0..6 => (format!("{PREFIX}x/{}", random.below(5)), false),
            6..8 => (format!("{PREFIX}m/{}", random.below(2)), random.chance(70)),
            _ => (format!("{PREFIX}own/{}", self.who), false),
        };
        let wait = Duration::from_millis([0, 300, 1_000, 2_000][random.below(4) as usize]);
        let ttl = Duration::from_millis(1_600 + random.below(1_400));
        Errand { resource, request: request.to_string(), shared, wait, ttl }
    }

    fn acquire(&mut self, errand: &Errand) -> Option<Held> {
        let more = json!({
            "request_id": errand.request,
            "wait_ms": errand.wait.as_millis() as u64,
            "mode": if errand.shared { "shared" } else { "exclusive" },
        });
        let body = with(ask(&errand.resource, &self.who, errand.ttl.as_millis() as u64), more);
        let history = &self.scene.history;
        history.asking(&self.who, &errand.request);
        let (answer, _) = self.post("/v1/acquire-lock", &body, errand.wait + SLACK)?;
        let token = history.answered(&self.who, &errand.request, &answer);
        if token.is_some() {
            self.scene.acknowledged();
        } else {
            // Whoever was refused comes back in a moment.
            self.pass(Duration::from_millis(50));
        }
        let until = answer.sent + token.map(|_| answer.valid_for())?;
        Some(Held { resource: errand.resource.clone(), token: token?, until })
    }

    /// Holds it for a while and gives it back. Some hold it long, some to the last moment without a
    /// renewal, and some forget it: what a lease is worth shows only when it is needed.
    fn use_up(&mut self, mut held: Held, ttl: Duration) {
        let now = Instant::now();
        let ms = |bound| Duration::from_millis(bound);
        match self.random.below(100) {
            0..6 => return,
            6..14 => {
                let over = now + ms(self.random.below(6_000)) + ttl;
                self.hold_on(&mut held, over, ttl / 3);
            }
            14..24 => {
                let over = held.until - ms(self.random.below(200)).min(held.until - now);
                self.hold_on(&mut held, over, ttl);
            }
            _ => self.pass(ms(150)),
        }
        self.release(&held);
    }

    fn hold_on(&mut self, held: &mut Held, over: Instant, renew_every: Duration) {
        while self.scene.goes_on() {
            let rest = over.saturating_duration_since(Instant::now());
            if rest <= renew_every {
                return std::thread::sleep(rest);
            }
            std::thread::sleep(renew_every);
            if !self.renew(held) {
                return;
            }
        }
    }

    /// Whether it goes on holding it.
    fn renew(&mut self, held: &mut Held) -> bool {
        let left = held.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        self.roaming.try_for(left.min(Duration::from_millis(700)));
        let body = json!({"resource": held.resource, "token": held.token, "client_id": self.who});
        let Some(answer) = self.roaming.post("/v1/renew-lock", &body, left) else { return false };
        match answer.status {
            // Too late: it has stopped to act already, and lost is final.
            200 if answer.received > held.until => return false,
            200 => self.scene.history.renewed(&held.resource, held.token, &answer),
            410 => self.scene.history.ended(&held.resource, held.token, &answer),
            _ => self.scene.history.broken(format!("a renewal of {}: {answer}", held.token)),
        }
        if answer.status == 200 {
            held.until = held.until.max(answer.sent + answer.valid_for());
        }
        answer.status == 200
    }

    fn release(&mut self, held: &Held) {
        let history = &self.scene.history;
        history.releasing(&held.resource, held.token);
        let body = json!({"resource": held.resource, "token": held.token, "client_id": self.who});
        let Some((answer, tries)) = self.post("/v1/release-lock", &body, SLACK) else { return };
        match answer.status {
            200 if answer.json()["released"] == false && tries == 1 => {
                history.broken(format!("{} was released before: {answer}", held.token));
            }
            200 => history.released(&held.resource, held.token),
            410 => history.ended(&held.resource, held.token, &answer),
            _ => history.broken(format!("a release of {}: {answer}", held.token)),
        }
    }

    /// The answer, and how often it was asked for. Nothing, if all work is given up before.
    fn post(
        &mut self,
        path: &str,
        body: &Value,
        each: Duration,
    ) -> Option<(leasehold_harness::Answer, usize)> {
        self.roaming.try_for(each);
        let mut tries = 0;
        while !self.scene.is_given_up() {
            let answer = self.roaming.post(path, body, Duration::from_secs(1));
            tries += self.roaming.tries();
            if let Some(answer) = answer {
                return Some((answer, tries));
            }
        }
        None
    }

    fn pass(&mut self, at_most: Duration) {
        let micros = self.random.below(at_most.as_micros() as u64);
        std::thread::sleep(Duration::from_micros(micros));
    }
}

/// Follows all resources of the trial from the beginning to the end, now on one node, now on another.
pub(super) fn watch(scene: &Scene) -> Vec<Value> {
    let first = scene.book.nth(0).expect("all nodes run in the beginning");
    let mut watcher = Watcher::new(first, &format!("prefix={PREFIX}"), Some(0));
    let (mut told, mut at) = (Vec::new(), 0);
    loop {
        match watcher.next_within(SILENCE) {
            Some(Told::Event(event)) => {
                let is_last = event["resource"] == END && event["event"] == "released";
                told.push(event);
                if is_last {
                    return told;
                }
            }
            Some(Told::Gap(from, to)) => {
                scene.history.broken(format!("a watcher missed what is from {from} to {to}"));
            }
            None if scene.is_given_up() => {
                scene.history.broken("a watcher was not told of the end");
                return told;
            }
            None => {
                at += 1;
                if let Some(address) = scene.book.nth(at) {
                    watcher.moved_to(address);
                }
            }
        }
    }
}
