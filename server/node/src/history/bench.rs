//! What a record costs. A second's worth of records by default; for figures that mean something:
//! `LEASEHOLD_BENCH_SECONDS=100 cargo test --release -p leasehold-node --lib history::bench -- --nocapture`

use super::{Happened, History, HistorySetup, tables};
use crate::codec::samples;
use crate::fatal::Fatal;
use crate::open::support::Dice;
use leasehold_core::command::Header;
use leasehold_core::outcome::{Grant, GrantRecord};
use leasehold_core::row::Head;
use leasehold_core::{Limits, LockTable};
use redb::Database;
use std::sync::Arc;
use std::time::{Duration, Instant};

const RATE: u64 = 20_000;

fn seconds() -> u64 {
    let asked = std::env::var("LEASEHOLD_BENCH_SECONDS").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// Processor time of the writer thread so far.
fn writer_time() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
    let mut ticks = 0;
    for task in tasks {
        let stat = task.expect("readable").path().join("stat");
        let stat = std::fs::read_to_string(stat).unwrap_or_default();
        if let Some((head, rest)) = stat.rsplit_once(')')
            && head.ends_with("history-writer")
        {
            let fields: Vec<u64> = rest.split(' ').map(|f| f.parse().unwrap_or(0)).collect();
            ticks += fields[12] + fields[13];
        }
    }
    Duration::from_millis(ticks * 10)
}

fn record(dice: &mut Dice, n: u64, resources: u64, clients: u64) -> Arc<GrantRecord> {
    let (name, client) = (
        format!("payments/invoice/{}", dice.below(resources)),
        format!("worker-{:04}", dice.below(clients)),
    );
    let sample = samples::record(n, &name, &client, 1_767_000_000_000 + n / 20);
    let plain = Grant {
        ticket: None,
        claim_ms: None,
        ttl_cap_ms: None,
        policies: None,
        metadata: None,
        ..(*sample.grant).clone()
    };
    Arc::new(GrantRecord { grant: Arc::new(plain), ..sample })
}

/// Pushes some seconds' worth of records, a second's worth at once, as fast as the writer
/// takes them; 40 pushes a second like a busy state machine.
#[expect(clippy::print_stdout, reason = "a measurement is there to be read")]
fn run(label: &str, resources: u64, clients: u64, keep: u64) {
    let seconds = seconds();
    let dir = tempfile::tempdir_in(std::env::var("BENCH_DIR").unwrap_or("/tmp".into()));
    let dir = dir.expect("a temporary directory");
    let path = dir.path().join("history.redb");
    let db = Database::builder().set_cache_size(128 << 20).create(&path).expect("a file");
    tables::create(&db).expect("tables");
    let sizes = crate::open::Sizes::default();
    let setup = HistorySetup {
        fatal: Fatal::new(),
        // Batches as large as they are at the rate in question, and not larger.
        pending_max: sizes.history_batch,
        batch: sizes.history_batch,
        settle: sizes.history_settle,
        keep,
        keep_changes: 262_144,
        keep_audits: 1_000,
    };
    let history = History::start(db, setup).expect("it starts");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let (mut dice, mut push_time) = (Dice::new(7), Duration::ZERO);
    let (mut before, mut half) = (Duration::ZERO, 0);
    for n in 0..seconds * 40 {
        let count = RATE / 40;
        let first = n * count + 1;
        let records: Vec<_> =
            (first..first + count).map(|n| record(&mut dice, n, resources, clients)).collect();
        runtime.block_on(history.room());
        let started = Instant::now();
        history.push(Happened { records, ..Happened::default() }, n + 1);
        push_time += started.elapsed();
        if n == seconds * 20 {
            history.flush(n + 1).expect("nothing failed");
            (before, half) = (writer_time(), (n + 1) * count);
        }
    }
    history.flush(seconds * 40).expect("nothing failed");
    let total = seconds * RATE;
    let kept = history.len().expect("readable");
    assert!(kept == total || kept >= keep, "{kept} of {total} records are there");
    let late = (writer_time() - before).as_secs_f64() * 1e6 / (total - half) as f64;
    let size = std::fs::metadata(&path).expect("there").len() >> 20;
    println!(
        "{label}: {late:.2} us a record in the second half = {:.3} cores at {RATE}/s; push {:.2} us; {size} MiB",
        late * RATE as f64 / 1e6,
        push_time.as_secs_f64() * 1e6 / total as f64,
    );
}

fn filled(dir: &std::path::Path, name: &str, records: u64) -> History {
    let db = Database::builder().set_cache_size(64 << 20).create(dir.join(name)).expect("a file");
    tables::create(&db).expect("tables");
    let setup = HistorySetup {
        fatal: Fatal::new(),
        pending_max: usize::MAX,
        batch: 32_768,
        settle: Duration::from_secs(3600),
        keep: 1_000_000,
        keep_changes: 262_144,
        keep_audits: 1_000,
    };
    let history = History::start(db, setup).expect("it starts");
    let mut dice = Dice::new(9);
    for first in (1..=records).step_by(20_000) {
        let part = first..(first + 20_000).min(records + 1);
        let records = part.map(|n| record(&mut dice, n, 100_000, 1_000)).collect();
        history.push(Happened { records, ..Happened::default() }, first);
        history.flush(first).expect("nothing failed");
    }
    history
}

/// A whole history goes to a node that has none.
#[test]
#[expect(clippy::print_stdout, reason = "a measurement is there to be read")]
fn a_transfer_costs() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let records = seconds() * RATE;
    let (from, to) = (filled(dir.path(), "from", records), filled(dir.path(), "to", 0));
    let (upto, at_ms) = (records + 1, u64::MAX);
    let started = Instant::now();
    let (mut intake, reach) = to.take_in(upto).expect("writable");
    let mut outgoing = from.outgoing(reach, Head { last_token: records, at_ms, ..Head::default() });
    let (mut reading, mut parcels) = (Duration::ZERO, 0);
    while !outgoing.is_done() {
        let began = Instant::now();
        let parcel = outgoing.next().expect("readable");
        reading += began.elapsed();
        intake.add(parcel).expect("it is taken in");
        parcels += 1;
    }
    let (took, began) = (started.elapsed(), Instant::now());
    let mut table = LockTable::new(Limits::default());
    table.apply(Header { term: 1, at_ms }, &[]);
    to.adopt(upto, &table).expect("writable");
    assert_eq!(to.len().expect("readable"), from.len().expect("readable"));
    println!(
        "{records} records in {parcels} parcels: {took:?}, {reading:?} of it for reading; adopted in {:?}",
        began.elapsed()
    );
}

#[test]
fn a_record_costs() {
    run("50 hot resources, 64 clients, 1 M kept  ", 50, 64, 1_000_000);
    run("100 k resources, 1 k clients, 1 M kept  ", 100_000, 1_000, 1_000_000);
    run("10 M resources, 100 k clients, 1 M kept ", 10_000_000, 100_000, 1_000_000);
    run("10 M resources, 100 k clients, all kept ", 10_000_000, 100_000, u64::MAX);
}
