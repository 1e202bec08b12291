//! The closed loops: every connection locks, unlocks and starts over. Connections are spread evenly
//! over the addresses.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::etcd;
use crate::figures::Figures;
use crate::session::{Session, Target};

/// Caches fill and connections settle before anything counts.
const WARM_UP: Duration = Duration::from_millis(300);

/// What the last waiters may take after the time is over.
const DRAIN: Duration = Duration::from_secs(30);

/// Each connection on a name of its own.
pub(crate) async fn cycles(
    target: Target,
    addrs: &[SocketAddr],
    connections: usize,
    time: Duration,
) -> anyhow::Result<Figures> {
    let run = fresh();
    run_loops(target, addrs, connections, time, |i| format!("bench/{run}/{i}")).await
}

/// All connections on one name. A cycle then lasts as long as the whole line, and their number is
/// the number of handovers.
pub(crate) async fn hot(
    target: Target,
    addrs: &[SocketAddr],
    connections: usize,
    time: Duration,
) -> anyhow::Result<Figures> {
    let run = fresh();
    run_loops(target, addrs, connections, time, |_| format!("hot/{run}")).await
}

/// Names are never used twice, so that what one run leaves behind cannot stop the next.
fn fresh() -> String {
    static RUN: AtomicU64 = AtomicU64::new(0);
    format!("{}-{}", std::process::id(), RUN.fetch_add(1, Ordering::Relaxed))
}

async fn run_loops(
    target: Target,
    addrs: &[SocketAddr],
    connections: usize,
    time: Duration,
    name: impl Fn(usize) -> String,
) -> anyhow::Result<Figures> {
    let mut sessions = Vec::new();
    for i in 0..connections {
        sessions.push(Session::open(target, addrs[i % addrs.len()], &name(i), i).await?);
    }
    let leases: Vec<i64> = sessions.iter().filter_map(Session::leftover).collect();
    let from = Instant::now() + WARM_UP;
    let until = from + time;
    let mut loops = JoinSet::new();
    for session in sessions {
        loops.spawn(tokio::time::timeout_at(until + DRAIN, cycle(session, from, until)));
    }
    let mut all = Vec::new();
    while let Some(done) = loops.join_next().await {
        let done = done.context("a loop panicked")?.context("a lock was never granted");
        all.extend(done.flatten().with_context(|| format!("driving {}", target.name()))?);
    }
    etcd::revoke(addrs[0], &leases).await?;
    Ok(Figures::new(all, time))
}

/// Ends with its last cycle unlocked. Nobody is cut off while it waits: the line empties by itself,
/// and etcd, for one, grants nothing any more after waiters of its gateway were cut off.
async fn cycle(
    mut session: Session,
    from: Instant,
    until: Instant,
) -> anyhow::Result<Vec<Duration>> {
    let mut cycles = Vec::new();
    loop {
        let start = Instant::now();
        session.lock().await?;
        session.unlock().await?;
        let end = Instant::now();
        if end > until {
            return Ok(cycles);
        }
        // With one hot name a cycle may have begun in the warm-up; its handover still falls into
        // the time that is measured.
        if end >= from {
            cycles.push(end - start);
        }
    }
}
