//! How long a client goes without a lock when the leader dies: from its kill -9 to the next acquire
//! that is granted, through the Rust client, which was told of all nodes. Beside it one that asks
//! the other nodes again and again, which shows how much of that is the election.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use leasehold_client::Client;
use leasehold_harness::{Cluster, Nodes, Roaming, Watcher, ask};

use crate::figures::median;

/// Without word of a leader for this long at most, a node stands for election: the upper bound that
/// nodes have by default.
const ELECTION_MAX: Duration = Duration::from_millis(800);
const NODES: u64 = 3;
/// Far above what is measured, so that a hang ends as an error.
const BUDGET: Duration = Duration::from_secs(60);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A build of the server.
    #[arg(long)]
    leasehold_bin: PathBuf,
    /// All data goes below this directory.
    #[arg(long, default_value = "target/load")]
    dir: PathBuf,
    /// How often the leader is killed.
    #[arg(long, default_value_t = 20)]
    kills: usize,
    /// Fail unless the median is within this many times the upper bound of an election time-out.
    #[arg(long)]
    at_most: Option<f64>,
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<()> {
    ensure!(args.kills > 0, "without a kill there is nothing to measure");
    std::fs::create_dir_all(&args.dir)?;
    let mut cluster = Nodes::of(&args.leasehold_bin).all_inside(&args.dir).start(NODES);
    let mut gaps = Vec::new();
    for kill in 1..=args.kills {
        let leader = cluster.leader();
        let gap = fail_over(&mut cluster, leader, kill).await?;
        let (client, service) = (gap.client.as_millis(), gap.service.as_millis());
        println!("kill {kill:>2}, of node {leader}: {client:>5} ms, the service {service:>5} ms");
        gaps.push(gap);
        cluster.restart(leader);
        // Its stream begins only once the node has applied what the new leader has committed.
        Watcher::new(cluster.node(leader).addr(), "", None).connect();
    }
    report(&gaps, args.at_most)
}

/// From the kill until a lock was granted.
struct Gap {
    /// Through the client.
    client: Duration,
    /// To whoever asks all the time.
    service: Duration,
}

/// Kills the leader, and takes the next lock.
async fn fail_over(cluster: &mut Cluster, leader: u64, kill: usize) -> anyhow::Result<Gap> {
    let others = cluster.up().into_iter().filter(|id| *id != leader);
    let others: Vec<_> = others.map(|id| cluster.node(id).addr()).collect();
    // It has been talking to the node that is about to die: nobody has it worse.
    let all = std::iter::once(cluster.node(leader).addr()).chain(others.iter().copied());
    let urls = all.map(|addr| format!("http://{addr}"));
    let client = Client::builder().servers(urls).client_id("failover").budget(BUDGET).build()?;
    client.acquire(format!("failover/{kill}/before")).grant().await?;
    let begun = Instant::now();
    cluster.kill9(leader);
    let asking = std::thread::spawn(move || {
        let body = ask(&format!("failover/{kill}/beside"), "asks", 10_000);
        let answer = Roaming::new(others).post("/v1/acquire-lock", &body, BUDGET)?;
        (answer.status == 200).then_some(answer.received)
    });
    client.acquire(format!("failover/{kill}/after")).grant().await?;
    let client = begun.elapsed();
    let served = asking.join().ok().flatten().context("who asks all the time got no lock")?;
    Ok(Gap { client, service: served - begun })
}

fn report(gaps: &[Gap], at_most: Option<f64>) -> anyhow::Result<()> {
    let middle =
        |pick: fn(&Gap) -> Duration| median(gaps.iter().map(|gap| pick(gap).as_secs_f64()));
    let bound = ELECTION_MAX.as_secs_f64();
    let (client, service) = (middle(|gap| gap.client), middle(|gap| gap.service));
    let longest = gaps.iter().map(|gap| gap.client).max().unwrap_or_default();
    println!(
        "median of {} kills: {:.0} ms until the next lock (longest {} ms), {:.2} times the upper \
         election bound of {} ms; the service alone {:.2} times",
        gaps.len(),
        client * 1_000.0,
        longest.as_millis(),
        client / bound,
        ELECTION_MAX.as_millis(),
        service / bound,
    );
    ensure!(at_most.is_none_or(|most| client / bound <= most), "it takes longer than is allowed");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_the_client_is_judged_and_not_the_longest() {
        let gaps = |ms: &[u64]| -> Vec<Gap> {
            let gap =
                |ms: &u64| Gap { client: Duration::from_millis(*ms), service: Duration::ZERO };
            ms.iter().map(gap).collect()
        };
        assert!(report(&gaps(&[800, 1_600, 9_000]), Some(2.0)).is_ok());
        assert!(report(&gaps(&[800, 1_700, 1_700]), Some(2.0)).is_err());
        assert!(report(&gaps(&[9_000]), None).is_ok());
    }
}
