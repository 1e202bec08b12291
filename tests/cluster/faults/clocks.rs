//! Wall clocks that jump. Nothing that is promised depends on them.

use std::time::{Duration, Instant};

use leasehold_harness::{Cluster, WallClock, ahead, json, within};

use super::trial::{PATIENCE, Trial, nodes, trial};

/// One step, in seconds.
const HOUR: i64 = 3_600;
/// Far below a step, and far above what a busy machine makes of it.
const CLOSE: Duration = Duration::from_secs(600);
/// Longer than any trial and shorter than a step.
const TTL: Duration = Duration::from_secs(1_800);

#[test]
fn the_wall_clock_of_each_node_jumps_by_an_hour() {
    let clocks: [WallClock; 3] = Default::default();
    let mut nodes = nodes();
    for (id, clock) in (1..).zip(&clocks) {
        for (name, value) in clock.environment() {
            nodes = nodes.with(id, name, &value);
        }
    }
    trial(&nodes, |trial| {
        let lease = Unrenewed::open(trial.cluster);
        let mut rounds = 0;
        while rounds == 0 || trial.goes_on() {
            for (id, clock) in (1..).zip(&clocks) {
                for step in [HOUR, -HOUR] {
                    clock.step(step);
                    only_the_wall_clock_moved(clock, step);
                    shows(trial.cluster, id, step);
                    lease.counts_on(trial.cluster);
                    if step == HOUR && (id == 1 || trial.random.chance(30)) {
                        fail_over(trial);
                    }
                }
                clock.step(0);
            }
            trial.progress("after all clocks have jumped");
            rounds += 1;
        }
        lease.end(trial.cluster);
    });
}

/// The next leader goes on from what this one has said about the time.
fn fail_over(trial: &mut Trial<'_>) {
    let leader = trial.cluster.leader();
    trial.cluster.kill9(leader);
    trial.progress("after a leader was killed whose clock may be wrong");
    trial.cluster.restart(leader);
}

/// Another process with the same clock has the monotonic clock of everybody, to the nanosecond.
#[track_caller]
fn only_the_wall_clock_moved(clock: &WallClock, step: i64) {
    let [before, stepped, after] = clock.show();
    let order = before.monotonic < stepped.monotonic && stepped.monotonic < after.monotonic;
    let boot = before.boot < stepped.boot && stepped.boot < after.boot;
    assert!(order && boot, "{before:?} {stepped:?} {after:?}");
    let moved = stepped.wall.abs_diff(before.wall);
    let told = Duration::from_secs(step.unsigned_abs());
    assert!(moved.abs_diff(told) < CLOSE, "{moved:?} and not {told:?}");
}

/// The node itself has the stepped clock as well.
#[track_caller]
fn shows(cluster: &Cluster, id: u64, step: i64) {
    within(PATIENCE, "the node has seen its clock jump", || {
        let ahead = ahead(cluster.client(id).get("/livez").header("date")?)?;
        (ahead.abs_diff(step) < CLOSE.as_secs()).then_some(())
    });
}

/// A lease that nobody renews: what is left of it shows the clock by which the service counts.
struct Unrenewed {
    id: String,
}

impl Unrenewed {
    fn open(cluster: &Cluster) -> Self {
        let ttl_ms = TTL.as_millis() as u64;
        let body = json!({"client_id": "nobody", "ttl_ms": ttl_ms});
        let mut client = cluster.client(cluster.leader());
        let opened = client.post("/v1/leases", &body).ok();
        Self { id: opened["lease_id"].as_str().expect("an id").to_owned() }
    }

    fn end(&self, cluster: &Cluster) {
        let path = format!("/v1/leases/{}", self.id);
        within(PATIENCE, "the lease is ended", || {
            let answer = cluster.client(cluster.leader()).call("DELETE", &path, &[], b"");
            (answer.status != 503).then(|| answer.ok())
        });
    }

    /// What is left of it, as it lives whatever the hour.
    #[track_caller]
    fn left(&self, cluster: &Cluster) -> Duration {
        let path = format!("/v1/leases/{}", self.id);
        within(PATIENCE, "the service tells of a lease", || {
            let answer = cluster.client(cluster.leader()).get(&path);
            if answer.status == 503 {
                return None;
            }
            let left = answer.ok()["earliest_end_in_ms"].as_u64().expect("a number");
            Some(Duration::from_millis(left))
        })
    }

    /// What is left gets less as fast as this process counts, or slower where there was an outage.
    #[track_caller]
    fn counts_on(&self, cluster: &Cluster) {
        let (began, before) = (Instant::now(), self.left(cluster));
        let after = self.left(cluster);
        let most = began.elapsed() + Duration::from_millis(1);
        assert!(before.saturating_sub(after) <= most, "{before:?} became {after:?} in {most:?}");
        assert!(before <= TTL && after <= TTL, "{before:?} {after:?}");
        assert!(after > TTL / 2, "{after:?} is left of what nobody could have used up");
    }
}
