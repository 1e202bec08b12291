//! Watchers that are cut and moved between nodes, over and over: every change once and in order, or
//! an explicit gap.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use leasehold_harness::{Client, Cluster, Told, Value, Watcher, ask, eventually};

use crate::nodes;

const TRANSITIONS: usize = 10_000;
const CUT_EVERY: Duration = Duration::from_millis(50);
/// Each works on a resource of its own.
const WORKERS: usize = 4;

/// Longer than a stop takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// What happened to each resource, in the order in which it happened.
type Stories = BTreeMap<String, Vec<(String, u64)>>;

/// Takes and gives back one resource again and again. Two changes a round.
fn work(addr: SocketAddr, resource: &str, rounds: usize) -> Vec<(String, u64)> {
    let mut client = Client::new(addr);
    let mut story = Vec::new();
    for _ in 0..rounds {
        let token = client.acquire(&ask(resource, "worker", 60_000)).token();
        client.let_go(resource, token);
        story.extend(["granted", "released"].map(|kind| (kind.to_owned(), token)));
    }
    story
}

/// `transitions` in all, by workers who are spread over the nodes.
fn traffic(addresses: &[SocketAddr], transitions: usize) -> Stories {
    std::thread::scope(|scope| {
        let work = |worker: usize| {
            let (at, resource) = (addresses[worker % addresses.len()], format!("w/{worker}"));
            let rounds = transitions / 2 / WORKERS;
            scope.spawn(move || (work(at, &resource, rounds), resource))
        };
        let workers: Vec<_> = (0..WORKERS).map(work).collect();
        let done = workers.into_iter().map(|worker| worker.join().expect("a worker ends"));
        done.map(|(story, resource)| (resource, story)).collect()
    })
}

fn stories(events: &[Value]) -> Stories {
    let mut stories = Stories::new();
    for event in events {
        let text = |name: &str| event[name].as_str().expect("an event has it").to_owned();
        let token = event["token"].as_u64().expect("a grant has its token");
        stories.entry(text("resource")).or_default().push((text("event"), token));
    }
    stories
}

fn revision(event: &Value) -> u64 {
    let text = event["revision"].as_str().expect("an event has its revision");
    text.parse().expect("revisions are numbers to the server")
}

#[track_caller]
fn assert_in_order(events: &[Value]) {
    for pair in events.windows(2) {
        assert!(revision(&pair[0]) < revision(&pair[1]), "{pair:?}");
    }
}

/// One who follows, and how often it was cut.
struct Moving<'a> {
    watcher: Watcher,
    addresses: &'a [SocketAddr],
    cuts: usize,
    /// In the middle of an event.
    amid: usize,
}

impl Moving<'_> {
    /// Cuts the stream, every second time when a part of an event has come, and goes on elsewhere.
    fn move_on(&mut self) {
        if self.cuts.is_multiple_of(2) && self.watcher.cut_amid(CUT_EVERY) {
            self.amid += 1;
        }
        self.cuts += 1;
        self.watcher.moved_to(self.addresses[self.cuts % self.addresses.len()]);
    }

    /// Follows until so many events were told. A stream is cut after its time, but not before it
    /// has told of something: on a busy machine nobody would get anywhere.
    fn follow(&mut self, count: usize) -> Vec<Value> {
        let mut told = Vec::new();
        while told.len() < count {
            told.push(self.watcher.wait().event());
            let cut_at = Instant::now() + CUT_EVERY;
            while told.len() < count && Instant::now() < cut_at {
                let left = cut_at.saturating_duration_since(Instant::now());
                told.extend(self.watcher.next_within(left).map(Told::event));
            }
            self.move_on();
        }
        told
    }
}

#[test]
#[allow(clippy::print_stderr)]
fn a_watch_that_is_cut_and_moved_every_50_ms_tells_ten_thousand_transitions_once_and_in_order() {
    let cluster = nodes().start(3);
    let addresses = cluster.addresses();
    let mut watcher = Watcher::new(addresses[0], "prefix=w/", None);
    watcher.connect();
    let mut moving = Moving { watcher, addresses: &addresses, cuts: 0, amid: 0 };
    let (expected, told) = std::thread::scope(|scope| {
        let working = scope.spawn(|| traffic(&addresses, TRANSITIONS));
        let told = moving.follow(TRANSITIONS);
        (working.join().expect("the workers end"), told)
    });
    assert_in_order(&told);
    assert_eq!(stories(&told), expected);
    let Moving { cuts, amid, .. } = moving;
    eprintln!("{cuts} cuts, {amid} of them in the middle of an event");
    assert!(cuts >= 20 && amid > 0, "{cuts} cuts, {amid} in the middle of an event");
}

/// What each node keeps in its file, in blocks. A stop writes what waits, and after the start the
/// file is all that a node knows.
const FEW: u64 = 1_000;

#[test]
fn a_watch_that_was_away_for_too_long_is_told_of_the_gap_by_whichever_node_it_comes_back_to() {
    let mut cluster = nodes().flag("--events-max", FEW).start(3);
    let mut watcher = Watcher::new(cluster.addresses()[0], "prefix=w/", None);
    watcher.connect();
    for id in cluster.up() {
        all_serve(&cluster);
        watcher.cut();
        let at = watcher.position().expect("it is connected");
        let expected = traffic(&cluster.addresses(), 3 * FEW as usize);
        let newest = newest_revision(&cluster);
        let node = cluster.node_mut(id);
        node.begin_stop();
        assert!(node.finish_stop(PATIENCE).success());
        node.restart();
        watcher.moved_to(node.addr());
        let Told::Gap(from, to) = watcher.wait() else { panic!("node {id}: no word of a gap") };
        assert_eq!(from, at, "node {id}: it begins where the watch was");
        assert!((FEW..2 * FEW).contains(&(newest - to)), "node {id}: {to} of {newest}");
        let mut told = Vec::new();
        while told.last().is_none_or(|event| revision(event) < newest) {
            told.push(watcher.wait().event());
        }
        // Nothing else happened, so that every revision after the gap is one of these.
        let revisions: Vec<u64> = told.iter().map(revision).collect();
        assert_eq!(revisions, (to + 1..=newest).collect::<Vec<_>>(), "node {id}");
        for (resource, story) in stories(&told) {
            let known = &expected[&resource];
            assert!(known.ends_with(&story), "node {id}, {resource}: {story:?}");
        }
    }
}

/// A node that has just lost its leader says so instead of serving.
fn all_serve(cluster: &Cluster) {
    eventually("every node serves", || {
        let serves = |id| cluster.client(id).get("/v1/lock?resource=any").status == 200;
        cluster.up().into_iter().all(serves)
    });
}

fn newest_revision(cluster: &Cluster) -> u64 {
    let answer = cluster.client(cluster.leader()).get("/v1/locks?limit=1");
    let newest = answer.header("leasehold-revision").and_then(|text| text.parse().ok());
    newest.unwrap_or_else(|| panic!("no revision in {answer}"))
}
