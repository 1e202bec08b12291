//! The load generator: closed loops of lock and unlock against Leasehold, against etcd, and against
//! the bare HTTP stack that answers a constant, so that only ratios taken on one machine in one run
//! are reported. Beside them what clients of a cluster see of a dead leader, and of very many leases
//! that end at once.

// Its output is its purpose.
#![allow(clippy::print_stdout)]

mod compare;
mod compare3;
mod connection;
mod constant;
mod drive;
mod etcd;
mod failover;
mod figures;
mod grpc;
mod guard;
mod leasehold;
mod million;
mod peers;
mod proxy;
mod reads;
mod requirement;
mod session;
mod storm;
mod transport;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::requirement::Requirement;
use crate::session::Target;

#[derive(Debug, Parser)]
#[command(about = "Measures lock services in closed loops")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Acquire and release, each connection on a resource of its own.
    Cycles(Drive),
    /// Acquire with a wait and release, all connections on one resource.
    Hot(Drive),
    /// Serve constant answers with the HTTP stack that Leasehold uses.
    Constant {
        /// Where to listen.
        #[arg(long, default_value = "127.0.0.1:0")]
        listen: SocketAddr,
    },
    /// Leasehold beside etcd and the constant server, in alternated rounds.
    Compare(Compare),
    /// Three nodes of Leasehold beside three of etcd, and what it costs to ask one that does not
    /// lead.
    Compare3(compare3::Args),
    /// How long the next lock takes after a kill -9 of the leader, through the Rust client.
    Failover(failover::Args),
    /// Very many leases that end at once: what is lost, and how much slower others are meanwhile.
    Storm(storm::Args),
    /// A node that holds very many locks: restart, memory, and cycles beside an empty node.
    Million(Million),
    /// A write with a fence beside the same write without it, against PostgreSQL and Redis.
    Guard(Guard),
    /// A write to nginx through the fence proxy beside the same write without it.
    Proxy(Proxy),
    /// What nodes speak to each other beside HTTP/2, over one connection.
    Transport(Guard),
}

#[derive(Debug, clap::Args)]
struct Drive {
    /// What listens at the address.
    #[arg(long, value_enum)]
    target: Target,
    #[arg(long)]
    addr: SocketAddr,
    #[arg(long, default_value_t = 64)]
    connections: usize,
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
}

#[derive(Debug, clap::Args)]
struct Compare {
    /// A release build of the server.
    #[arg(long)]
    leasehold_bin: PathBuf,
    #[arg(long, default_value = "/usr/bin/etcd")]
    etcd_bin: PathBuf,
    /// All data goes below this directory, so that all sync to the same disk.
    #[arg(long, default_value = "target/load")]
    dir: PathBuf,
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 64, 256])]
    connections: Vec<usize>,
    /// How often each is measured.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// A ratio that must be reached: `etcd@64=3`, `constant@64=0.45`, `hot=3`.
    #[arg(long)]
    require: Vec<Requirement>,
}

#[derive(Debug, clap::Args)]
struct Million {
    /// A release build of the server.
    #[arg(long)]
    leasehold_bin: PathBuf,
    #[arg(long, default_value = "target/load")]
    dir: PathBuf,
    #[arg(long, default_value_t = 1_000_000)]
    locks: u64,
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Fail unless it is ready within this many seconds after a kill.
    #[arg(long)]
    ready_within: Option<f64>,
    /// Fail if resident memory exceeds this many MiB.
    #[arg(long)]
    memory_below: Option<u64>,
    /// Fail if a cycle takes more than this many times that of an empty node.
    #[arg(long)]
    slower_at_most: Option<f64>,
    /// Fail if a read takes more than this many times what it takes on a node with 1,000 locks.
    #[arg(long, default_value_t = 1.5)]
    reads_at_most: f64,
}

#[derive(Debug, clap::Args)]
struct Guard {
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16])]
    connections: Vec<usize>,
    /// How often each is measured: short and often, as a pair is compared with itself.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// A ratio that must be reached: `guard@16=0.85`, or `guard=0.85` at every number of
    /// connections.
    #[arg(long)]
    require: Vec<Requirement>,
}

#[derive(Debug, clap::Args)]
struct Proxy {
    /// A build of the server.
    #[arg(long)]
    leasehold_bin: PathBuf,
    /// Its ratios are called `proxy@1`, `proxy@16`.
    #[command(flatten)]
    measure: Guard,
}

fn main() -> anyhow::Result<()> {
    match Args::parse().command {
        Command::Constant { listen } => constant::serve(listen),
        Command::Storm(args) => storm::run(&args),
        // One thread: the machine's other processors belong to the measured server.
        command => tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?
            .block_on(run(command)),
    }
}

async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Cycles(d) => {
            let time = Duration::from_secs_f64(d.seconds);
            println!("{}", drive::cycles(d.target, &[d.addr], d.connections, time).await?);
        }
        Command::Hot(d) => {
            let time = Duration::from_secs_f64(d.seconds);
            println!("{}", drive::hot(d.target, &[d.addr], d.connections, time).await?);
        }
        Command::Compare(args) => compare::run(&args).await?,
        Command::Million(args) => million::run(&args).await?,
        Command::Guard(args) => guard::run(&args).await?,
        Command::Proxy(args) => proxy::run(&args).await?,
        Command::Transport(args) => transport::run(&args).await?,
        Command::Compare3(args) => compare3::run(&args).await?,
        Command::Failover(args) => failover::run(&args).await?,
        Command::Constant { .. } | Command::Storm(_) => {
            unreachable!("they need no runtime of ours")
        }
    }
    Ok(())
}
