//! A node that holds very many locks: how soon it is back after a kill, what it weighs, whether a
//! cycle costs more than on an empty node, and whether a read costs more than among a thousand.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use leasehold_harness::Server;
use tokio::task::JoinSet;

use crate::connection::Connection;
use crate::figures::{Figures, ratio};
use crate::session::Target;
use crate::{Million, drive, reads};

const CONNECTIONS: usize = 64;
const FILLERS: u64 = 8;
const BATCH: u64 = 256;
const FEW: u64 = 800;

pub(crate) async fn run(args: &Million) -> anyhow::Result<()> {
    std::fs::create_dir_all(&args.dir)?;
    let mut full = Server::builder(&args.leasehold_bin).inside(&args.dir).start();
    let started = Instant::now();
    fill(full.addr(), args.locks).await?;
    println!("{} locks acquired in {:.1} s", args.locks, started.elapsed().as_secs_f64());
    println!("resident memory when filled: {} MiB", resident_mib(full.pid())?);

    full.kill9();
    let killed = Instant::now();
    full.restart();
    let ready = killed.elapsed().as_secs_f64();
    println!("ready {ready:.2} s after the restart");
    let sample = full.client().lock(&name(args.locks / 2));
    ensure!(sample["state"] == "held", "a lock was lost: {sample}");

    let empty = Server::builder(&args.leasehold_bin).inside(&args.dir).start();
    let (mut on_full, mut on_empty) = (Vec::new(), Vec::new());
    for round in 0..args.rounds {
        let mut pair = [(&full, &mut on_full), (&empty, &mut on_empty)];
        pair.rotate_left(round % 2);
        for (server, runs) in pair {
            let time = Duration::from_secs_f64(args.seconds);
            runs.push(drive::cycles(Target::Leasehold, &[server.addr()], CONNECTIONS, time).await?);
        }
    }
    let memory = resident_mib(full.pid())?;
    let slower = ratio(&on_empty, &on_full);
    println!("full   {}", Figures::middle(&on_full));
    println!("empty  {}", Figures::middle(&on_empty));
    println!("a cycle takes {slower:.2} times that of an empty node");
    println!("resident memory after the runs: {memory} MiB");

    // The empty node becomes the one with few: what the reads add to both makes it 1,000.
    let few = empty;
    fill(few.addr(), FEW).await?;
    let reads = reads::compare(full.addr(), few.addr()).await?;
    println!("the slowest read takes {reads:.2} times what it takes among 1,000 locks");

    ensure!(args.ready_within.is_none_or(|most| ready <= most), "ready too late");
    ensure!(args.memory_below.is_none_or(|most| memory < most), "too much memory");
    ensure!(args.slower_at_most.is_none_or(|most| slower <= most), "too slow when full");
    ensure!(reads <= args.reads_at_most, "reads too slow when full");
    Ok(())
}

fn name(i: u64) -> String {
    format!("million/lock-{i:07}")
}

/// Acquires `locks` locks for a day each, in full batches over a few connections.
async fn fill(addr: SocketAddr, locks: u64) -> anyhow::Result<()> {
    let mut fillers = JoinSet::new();
    for filler in 0..FILLERS {
        fillers.spawn(async move {
            let mut connection = Connection::open(addr).await?;
            for start in (filler * BATCH..locks).step_by((FILLERS * BATCH) as usize) {
                let end = (start + BATCH).min(locks);
                let answer = connection.post("/v1/batch", batch(start..end).as_bytes()).await?;
                let granted = answer.windows(8).filter(|window| window == b"\"grant\":").count();
                let shown =
                    || String::from_utf8_lossy(answer).chars().take(500).collect::<String>();
                ensure!(granted as u64 == end - start, "not all were granted: {}", shown());
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = fillers.join_next().await {
        done.context("a filler panicked")??;
    }
    Ok(())
}

fn batch(range: std::ops::Range<u64>) -> String {
    let mut body = String::from(r#"{"operations":["#);
    for i in range {
        let comma = if body.ends_with('[') { "" } else { "," };
        let name = name(i);
        let client = i % 1_000;
        write!(
            body,
            r#"{comma}{{"op":"acquire","resource":"{name}","client_id":"m{client}","ttl_ms":86400000}}"#
        )
        .expect("writing to a string cannot fail");
    }
    body.push_str("]}");
    body
}

fn resident_mib(pid: u32) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib / 1024)
}
