//! Very many leases that end at one instant in a cluster: what that does to those who acquire and
//! renew meanwhile.

use std::path::PathBuf;
use std::time::Duration;

use leasehold_harness::Nodes;
use leasehold_harness::storm::Storm;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A build of the server.
    #[arg(long)]
    leasehold_bin: PathBuf,
    /// All data goes below this directory.
    #[arg(long, default_value = "target/load")]
    dir: PathBuf,
    #[arg(long, default_value_t = 3)]
    nodes: u64,
    /// Leases that end at once, because nobody renews them.
    #[arg(long, default_value_t = 100_000)]
    leases: usize,
    /// Leases beside them that are renewed, three times a TTL. None may be lost.
    #[arg(long, default_value_t = 1_000)]
    kept: usize,
    /// The TTL of those.
    #[arg(long, default_value_t = 10.0)]
    kept_ttl: f64,
    /// Seconds from the first acquire to the instant at which the others end. What is left of them
    /// when all are acquired is the time before the storm that it is compared with.
    #[arg(long, default_value_t = 30.0)]
    ends_in: f64,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    std::fs::create_dir_all(&args.dir)?;
    let cluster = Nodes::of(&args.leasehold_bin).all_inside(&args.dir).start(args.nodes);
    let storm = Storm {
        left: args.leases,
        kept: args.kept,
        kept_ttl: Duration::from_secs_f64(args.kept_ttl),
        ends_in: Duration::from_secs_f64(args.ends_in),
    };
    println!("{}", storm.run(&cluster.addresses()));
    println!("all {} that were renewed are held as before", args.kept);
    Ok(())
}
