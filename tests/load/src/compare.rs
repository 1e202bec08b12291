//! Leasehold beside its peers on one machine in one run.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use leasehold_harness::Server;

use crate::figures::{Figures, ratio};
use crate::peers::Peer;
use crate::session::Target;
use crate::{Compare, drive, requirement};

type Measured = BTreeMap<Target, Vec<Figures>>;

/// How many stand in line for the one hot lock.
const WAITERS: usize = 64;

pub(crate) async fn run(args: &Compare) -> anyhow::Result<()> {
    std::fs::create_dir_all(&args.dir)?;
    let leasehold = Server::builder(&args.leasehold_bin).inside(&args.dir).start();
    let etcd = Peer::etcd(&args.etcd_bin, &args.dir, 1)?;
    let constant = Peer::constant()?;
    let targets = [
        (Target::Leasehold, leasehold.addr()),
        (Target::Etcd, etcd[0].addr),
        (Target::EtcdGrpc, etcd[0].addr),
        (Target::Constant, constant.addr),
    ];
    let time = Duration::from_secs_f64(args.seconds);
    let mut ratios = Vec::new();

    for &connections in &args.connections {
        let mut measured = Measured::new();
        for round in 0..args.rounds {
            for (target, addr) in rotated(&targets, round) {
                let figures = drive::cycles(target, &[addr], connections, time).await?;
                measured.entry(target).or_default().push(figures);
            }
        }
        println!(
            "\nacquire + release, {connections} connections, median of {} rounds",
            args.rounds
        );
        show(&measured);
        ratios.push((format!("etcd@{connections}"), against_etcd(&measured)));
        ratios.push((format!("constant@{connections}"), against(&measured, Target::Constant)));
    }

    let mut measured = Measured::new();
    for round in 0..args.rounds {
        for (target, addr) in rotated(&targets[..3], round) {
            let figures = drive::hot(target, &[addr], WAITERS, time).await?;
            measured.entry(target).or_default().push(figures);
        }
    }
    println!(
        "\none hot lock, {WAITERS} waiters, handovers as cycles, median of {} rounds",
        args.rounds
    );
    show(&measured);
    ratios.push(("hot".to_owned(), against_etcd(&measured)));

    println!("\nratios (etcd: by the faster of its two protocols)");
    for (what, ratio) in &ratios {
        println!("{what:<14} {ratio:>6.2}");
    }
    requirement::judge(&args.require, &ratios)
}

/// Everybody goes first, second and last equally often, as the machine is not the same all along.
fn rotated(targets: &[(Target, SocketAddr)], round: usize) -> Vec<(Target, SocketAddr)> {
    let mut order = targets.to_vec();
    order.rotate_left(round % targets.len());
    order
}

fn show(measured: &Measured) {
    for (target, runs) in measured {
        println!("{:<12} {}", target.name(), Figures::middle(runs));
    }
}

fn against(measured: &Measured, target: Target) -> f64 {
    ratio(&measured[&Target::Leasehold], &measured[&target])
}

/// The stricter of the two ways to ask etcd.
fn against_etcd(measured: &Measured) -> f64 {
    against(measured, Target::Etcd).min(against(measured, Target::EtcdGrpc))
}
