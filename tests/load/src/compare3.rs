//! Three nodes beside three of etcd, on one machine and one disk in one run: once with the clients
//! spread over all nodes, once with all of them at the leader. Beside that, what it costs to ask a
//! node that does not lead.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use leasehold_harness::{Client, Cluster, Nodes};

use crate::figures::{Figures, ratio};
use crate::peers::Peer;
use crate::requirement::{self, Requirement};
use crate::session::Target;
use crate::{drive, etcd};

const NODES: usize = 3;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A release build of the server.
    #[arg(long)]
    leasehold_bin: PathBuf,
    #[arg(long, default_value = "/usr/bin/etcd")]
    etcd_bin: PathBuf,
    /// All data goes below this directory, so that all sync to the same disk.
    #[arg(long, default_value = "target/load")]
    dir: PathBuf,
    #[arg(long, value_delimiter = ',', default_values_t = [64])]
    connections: Vec<usize>,
    /// How often each is measured.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// A ratio that must be reached: `etcd3@64=3`, the smaller one of `spread@64` and `leader@64`.
    #[arg(long)]
    require: Vec<Requirement>,
}

/// Whom the clients of a run ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Spread,
    Leader,
    Followers,
}

type Contender = (Target, Way);

/// In pairs that stand beside each other.
const CONTENDERS: [Contender; 7] = [
    (Target::Leasehold, Way::Spread),
    (Target::Etcd, Way::Spread),
    (Target::EtcdGrpc, Way::Spread),
    (Target::Leasehold, Way::Leader),
    (Target::Etcd, Way::Leader),
    (Target::EtcdGrpc, Way::Leader),
    (Target::Leasehold, Way::Followers),
];

/// What a contender showed, a run each.
#[derive(Debug, Default)]
struct Runs {
    figures: Vec<Figures>,
    /// Syncs of logs in all runs, on all nodes together. Those of the warm-ups are among them.
    syncs: u64,
    cycles: f64,
}

type Measured = BTreeMap<Contender, Runs>;

/// Both services, running.
struct Field {
    leasehold: Cluster,
    etcd: Vec<Peer>,
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<()> {
    ensure!(args.rounds >= 5, "fewer than 5 pairs say nothing");
    std::fs::create_dir_all(&args.dir)?;
    let field = Field {
        leasehold: Nodes::of(&args.leasehold_bin).all_inside(&args.dir).start(NODES as u64),
        etcd: Peer::etcd(&args.etcd_bin, &args.dir, NODES)?,
    };
    field.describe()?;
    let mut ratios = Vec::new();
    for &connections in &args.connections {
        let measured = field.measure(args, connections).await?;
        let rounds = args.rounds;
        println!("\nacquire + release, {connections} connections, median of {rounds} rounds");
        show(&measured);
        let spread = against_etcd(&measured, Way::Spread);
        let leader = against_etcd(&measured, Way::Leader);
        let followers = ratio(
            &measured[&(Target::Leasehold, Way::Followers)].figures,
            &measured[&(Target::Leasehold, Way::Leader)].figures,
        );
        ratios.push((format!("spread@{connections}"), spread));
        ratios.push((format!("leader@{connections}"), leader));
        ratios.push((format!("etcd3@{connections}"), spread.min(leader)));
        ratios.push((format!("followers@{connections}"), followers));
    }
    println!(
        "\nratios (spread, leader, etcd3: to etcd, by the faster of its two protocols; followers: \
         passed on, to asked of the leader)"
    );
    for (what, ratio) in &ratios {
        println!("{what:<14} {ratio:>6.2}");
    }
    requirement::judge(&args.require, &ratios)
}

impl Field {
    /// Prints what is compared, so that a reader can judge whether it is fair.
    fn describe(&self) -> anyhow::Result<()> {
        let mut client = Client::try_new(self.etcd[0].addr)?;
        let about = client.try_call("GET", "/version", &[], b"")?.json();
        let version = about["etcdserver"].as_str().unwrap_or("of an unknown version");
        println!("leasehold: {NODES} nodes with all settings as they come (`--raft-profile lan`)");
        println!("etcd {version}: {NODES} members with all settings as they come");
        println!(
            "both answer when a majority has synced the entry to disk; syncs are counted below"
        );
        Ok(())
    }

    /// Everybody goes first, second and last equally often, as the machine is not the same all
    /// along.
    async fn measure(&self, args: &Args, connections: usize) -> anyhow::Result<Measured> {
        let mut measured = Measured::new();
        let time = Duration::from_secs_f64(args.seconds);
        for round in 0..args.rounds {
            let mut order = CONTENDERS;
            order.rotate_left(round % CONTENDERS.len());
            for contender in order {
                let addresses = self.addresses(contender).await?;
                let before = self.syncs(contender.0)?;
                let figures = drive::cycles(contender.0, &addresses, connections, time).await?;
                let runs = measured.entry(contender).or_default();
                runs.syncs += self.syncs(contender.0)?.saturating_sub(before);
                runs.cycles += figures.per_second * args.seconds;
                runs.figures.push(figures);
            }
        }
        Ok(measured)
    }

    /// Whom the clients ask. Who leads is looked up every time, as an election may have been.
    async fn addresses(&self, (target, way): Contender) -> anyhow::Result<Vec<SocketAddr>> {
        let all = self.all(target);
        let leader = match (way, target) {
            (Way::Spread, _) => return Ok(all),
            (_, Target::Leasehold) => self.leasehold.node(self.leasehold.leader()).addr(),
            _ => etcd::leader(&all).await?,
        };
        let wanted = |addr: &SocketAddr| (*addr == leader) == (way == Way::Leader);
        Ok(all.into_iter().filter(wanted).collect())
    }

    fn all(&self, target: Target) -> Vec<SocketAddr> {
        match target {
            Target::Leasehold => self.leasehold.addresses(),
            _ => self.etcd.iter().map(|member| member.addr).collect(),
        }
    }

    /// How often the logs of all nodes were synced so far.
    fn syncs(&self, target: Target) -> anyhow::Result<u64> {
        let name = match target {
            Target::Leasehold => "leasehold_log_sync_seconds_count",
            _ => "etcd_disk_wal_fsync_duration_seconds_count",
        };
        let count = |addr: SocketAddr| -> anyhow::Result<u64> {
            let answer = Client::try_new(addr)?.try_call("GET", "/metrics", &[], b"")?;
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            let found = text.lines().find_map(|line| line.strip_prefix(name));
            let count = found.with_context(|| format!("no {name}"))?;
            Ok(count.trim().parse::<u64>()?)
        };
        self.all(target).into_iter().map(count).sum()
    }
}

fn show(measured: &Measured) {
    for ((target, way), runs) in measured {
        let syncs = 1_000.0 * runs.syncs as f64 / runs.cycles / NODES as f64;
        let (figures, way) = (Figures::middle(&runs.figures), way.to_string());
        println!(
            "{:<12} {way:<13} {figures}   {syncs:>5.0} syncs a node for 1,000 cycles",
            target.name()
        );
    }
}

/// The stricter of the two ways to speak to etcd.
fn against_etcd(measured: &Measured, way: Way) -> f64 {
    let against = |target: Target| {
        ratio(&measured[&(Target::Leasehold, way)].figures, &measured[&(target, way)].figures)
    };
    against(Target::Etcd).min(against(Target::EtcdGrpc))
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Spread => "all nodes",
            Self::Leader => "the leader",
            Self::Followers => "followers",
        })
    }
}
