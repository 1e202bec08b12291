//! One trial: work begins, harm is done while it goes on, all is healed, and then it is judged.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold_harness::{Book, Cluster, History, Nodes, Random, within};

use super::load::{Worker, watch};
use super::verdict;

const WORKERS: u64 = 16;
/// Grants that show that the cluster works: more than were under way when something went wrong.
const PROGRESS: u64 = 20;
/// Above any election on a busy machine, so that only a hang exhausts it.
pub(super) const PATIENCE: Duration = Duration::from_secs(90);

/// What those who work share with those who do harm.
pub(super) struct Scene {
    pub(super) book: Book,
    pub(super) history: History,
    acknowledged: AtomicU64,
    over: OnceLock<Instant>,
    abandoned: AtomicBool,
}

impl Scene {
    /// Whether new work is begun.
    pub(super) fn goes_on(&self) -> bool {
        self.over.get().is_none()
    }

    /// Whether work that was begun is given up as well: nothing that works takes so long.
    pub(super) fn is_given_up(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
            || self.over.get().is_some_and(|since| since.elapsed() > PATIENCE)
    }

    /// A grant was read.
    pub(super) fn acknowledged(&self) {
        self.acknowledged.fetch_add(1, Ordering::Relaxed);
    }
}

/// Ends the work also when a check fails, so that the failure is told at once.
struct Ending<'a>(&'a Scene);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.over.get_or_init(Instant::now);
        self.0.abandoned.store(std::thread::panicking(), Ordering::Relaxed);
    }
}

/// What a fault has to work with.
pub(super) struct Trial<'a> {
    pub(super) cluster: &'a mut Cluster,
    pub(super) random: Random,
    scene: &'a Scene,
    ends_at: Instant,
}

impl Trial<'_> {
    /// Whether there is time for more harm.
    pub(super) fn goes_on(&self) -> bool {
        Instant::now() < self.ends_at
    }

    /// Work goes on for a while in the state that things are in, whether or not it succeeds.
    pub(super) fn stay(&self, time: Duration) {
        std::thread::sleep(time);
    }

    /// The same for a time within these milliseconds.
    pub(super) fn stay_within(&mut self, ms: std::ops::Range<u64>) {
        let ms = ms.start + self.random.below(ms.end - ms.start);
        self.stay(Duration::from_millis(ms));
    }

    /// Waits until clients have got new locks in the state that things are in.
    #[track_caller]
    pub(super) fn progress(&self, when: &str) {
        let before = self.scene.acknowledged.load(Ordering::Relaxed);
        within(PATIENCE, &format!("locks are granted {when}"), || {
            let now = self.scene.acknowledged.load(Ordering::Relaxed);
            (now >= before + PROGRESS).then_some(())
        });
    }
}

/// Nodes of which a trial needs no disk space.
pub(super) fn nodes() -> Nodes {
    // Snapshots and purged logs are part of what a node that was away has to cope with.
    crate::nodes().flag("--reserve-bytes", 1 << 20).flag("--snapshot-log-bytes", 1 << 20)
}

/// Whether these are the long trials.
pub(super) fn is_long() -> bool {
    seconds() >= 60
}

fn seconds() -> u64 {
    from_environment("LEASEHOLD_FAULT_SECONDS", 10)
}

fn from_environment(name: &str, by_default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(by_default)
}

/// Runs the trials of one kind of harm, each on a new cluster of three of these nodes. The harm must
/// be undone when `harm` returns.
pub(super) fn trial(nodes: &Nodes, harm: impl Fn(&mut Trial<'_>)) {
    let first = Random::seed_from_environment();
    for nth in 0..from_environment("LEASEHOLD_FAULT_SEEDS", 1) {
        let seed = first.wrapping_add(nth);
        tell(&format!("LEASEHOLD_SEED={seed}"));
        let grants = one(nodes.clone(), seed, &harm);
        tell(&format!("{grants} grants, and no promise was broken"));
    }
}

/// The runner shows it when a trial fails, or when somebody asks: the last seed is the one that failed.
#[allow(clippy::print_stderr)]
fn tell(what: &str) {
    eprintln!("{what}");
}

fn one(nodes: Nodes, seed: u64, harm: &impl Fn(&mut Trial<'_>)) -> usize {
    let mut cluster = nodes.start(3);
    let scene = Scene {
        book: cluster.book(),
        history: History::default(),
        acknowledged: AtomicU64::new(0),
        over: OnceLock::new(),
        abandoned: AtomicBool::new(false),
    };
    let told = std::thread::scope(|scope| {
        let ending = Ending(&scene);
        let watching = scope.spawn(|| watch(&scene));
        let working: Vec<_> = (0..WORKERS)
            .map(|id| Worker::new(&scene, id, seed))
            .map(|worker| scope.spawn(move || worker.run()))
            .collect();
        let ends_at = Instant::now() + Duration::from_secs(seconds());
        let random = Random::new(seed);
        let mut trial = Trial { cluster: &mut cluster, random, scene: &scene, ends_at };
        trial.progress("before anything goes wrong");
        harm(&mut trial);
        trial.progress("when all is healed");
        scene.over.get_or_init(Instant::now);
        working.into_iter().for_each(|worker| worker.join().expect("a worker ends"));
        verdict::everything_ends(&cluster);
        verdict::mark_the_end(&scene.book);
        let told = watching.join().expect("the watcher ends");
        drop(ending);
        told
    });
    verdict::judge(&cluster, &scene.history, &told);
    scene.history.grants()
}
