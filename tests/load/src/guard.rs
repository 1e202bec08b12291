//! What a fence costs: the same write with it and without it, in alternated rounds against one
//! server, so that what slows the machine down slows both of a pair.

mod postgres;
mod redis;

use std::time::Duration;

use anyhow::Context as _;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::Guard;
use crate::figures::{Figures, ratio};
use crate::requirement;

/// Caches fill and connections settle before anything counts.
const WARM_UP: Duration = Duration::from_millis(300);

/// One connection that writes to a row or key of its own, under a fence of its own.
pub(crate) trait Writer: Send + 'static {
    /// One write, acknowledged.
    fn write(&mut self) -> impl Future<Output = anyhow::Result<()>> + Send;
}

/// A store, and the ways to write to it. The first one is what the others are compared with.
pub(crate) trait Store {
    type Way: Copy + 'static;
    type Writer: Writer;

    /// What the ways are called; the name of a ratio is that of its way.
    const WAYS: &[(&str, Self::Way)];

    async fn open(&self, way: Self::Way, connection: usize) -> anyhow::Result<Self::Writer>;
}

pub(crate) async fn run(args: &Guard) -> anyhow::Result<()> {
    let mut ratios = Vec::new();
    let transactions = postgres::Transactions::start(args).await?;
    ratios.extend(beside(&transactions, "PostgreSQL, a read and a write", args).await?);
    let pipelined = postgres::Pipelined(transactions);
    ratios.extend(beside(&pipelined, "PostgreSQL, the write alone in one flight", args).await?);
    drop(pipelined);
    let redis = redis::Library::start().await?;
    ratios.extend(beside(&redis, "Redis, one SET", args).await?);

    println!("\nratios of throughput, each to the same write without a fence");
    for (what, ratio) in &ratios {
        println!("{what:<20} {ratio:>6.2}");
    }
    ratios.extend(lowest(&ratios));
    requirement::judge(&args.require, &ratios)
}

/// Every way at every number of connections: its ratio to the first way.
async fn beside<S: Store>(
    store: &S,
    title: &str,
    args: &Guard,
) -> anyhow::Result<Vec<(String, f64)>> {
    let mut ratios = Vec::new();
    for &connections in &args.connections {
        let measured = alternate(store, title, connections, args).await?;
        for ((name, _), runs) in S::WAYS.iter().zip(&measured).skip(1) {
            ratios.push((format!("{name}@{connections}"), ratio(runs, &measured[0])));
        }
    }
    Ok(ratios)
}

/// Measures every way in alternated rounds, and shows it. The runs of each way, in their order.
pub(crate) async fn alternate<S: Store>(
    store: &S,
    title: &str,
    connections: usize,
    args: &Guard,
) -> anyhow::Result<Vec<Vec<Figures>>> {
    let time = Duration::from_secs_f64(args.seconds);
    let mut measured = vec![Vec::new(); S::WAYS.len()];
    for round in 0..args.rounds {
        // Everybody goes first, second and last equally often.
        for place in 0..S::WAYS.len() {
            let at = (place + round) % S::WAYS.len();
            let (name, way) = S::WAYS[at];
            let figures = drive(store, way, connections, time).await;
            measured[at].push(figures.with_context(|| format!("{title}: {name}"))?);
        }
    }
    println!("\n{title}, {connections} at once, median of {} rounds", args.rounds);
    for ((name, _), runs) in S::WAYS.iter().zip(&measured) {
        println!("{name:<17} {}", Figures::middle(runs));
    }
    Ok(measured)
}

/// `guard` stands for the lowest of all `guard@N`.
fn lowest(ratios: &[(String, f64)]) -> Vec<(String, f64)> {
    let mut lowest: Vec<(String, f64)> = Vec::new();
    for (what, ratio) in ratios {
        let name = what.split('@').next().unwrap_or(what);
        match lowest.iter_mut().find(|(known, _)| known == name) {
            Some((_, least)) => *least = least.min(*ratio),
            None => lowest.push((name.to_owned(), *ratio)),
        }
    }
    lowest
}

async fn drive<S: Store>(
    store: &S,
    way: S::Way,
    connections: usize,
    time: Duration,
) -> anyhow::Result<Figures> {
    let mut writers = Vec::new();
    for connection in 0..connections {
        writers.push(store.open(way, connection).await?);
    }
    let from = Instant::now() + WARM_UP;
    let mut loops = JoinSet::new();
    for writer in writers {
        loops.spawn(write_until(writer, from, from + time));
    }
    let mut all = Vec::new();
    while let Some(done) = loops.join_next().await {
        all.extend(done.context("a loop panicked")??);
    }
    Ok(Figures::new(all, time))
}

/// How long each write took that ended in the time that is measured.
async fn write_until(
    mut writer: impl Writer,
    from: Instant,
    until: Instant,
) -> anyhow::Result<Vec<Duration>> {
    let mut writes = Vec::new();
    loop {
        let start = Instant::now();
        writer.write().await?;
        let end = Instant::now();
        if end > until {
            return Ok(writes);
        }
        if end >= from {
            writes.push(end - start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_a_number_stands_for_the_lowest() {
        let ratios = [("guard@1", 0.9), ("guard@16", 0.8), ("redis@1", 1.0)];
        let ratios = ratios.map(|(name, ratio)| (name.to_owned(), ratio));
        assert_eq!(lowest(&ratios), [("guard".to_owned(), 0.8), ("redis".to_owned(), 1.0)]);
    }
}
