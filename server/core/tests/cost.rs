//! The work of a command does not grow with the table. Only ratios and counts are asserted, with
//! wide bounds, because the machine is shared; the numbers are printed for whoever wants them:
//! `cargo test -p leasehold-core cost -- --nocapture`.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "time is measured here, nothing is decided"
)]
#![allow(clippy::print_stdout, reason = "the numbers are for whoever runs this by hand")]

use crate::line;
use leasehold_core::command::Command;
use leasehold_core::limits::Limits;
use leasehold_core::list::LockFilter;
use leasehold_core::outcome::Outcome;
use leasehold_core::{ClientId, Header, LeaseId, LockTable};
use std::time::{Duration, Instant};

const HEADER: Header = Header { term: 1, at_ms: 1_000 };

fn command(text: &str) -> Command {
    line::parse(text, HEADER.term, &Limits::default())
}

/// A table with so many held locks, of clients with ten each.
fn table(locks: u64) -> LockTable {
    let mut table = LockTable::new(Limits::default());
    for n in 0..locks {
        let text = format!(
            "acquire held/{} by=c{} lease={:x} ttl=60000 req=q{n}",
            mixed(n),
            n / 10,
            n + 1
        );
        table.apply(HEADER, &[command(&text)]);
    }
    assert_eq!(table.counts().grants as u64, locks);
    table
}

/// Spreads names over the key space, as names in real use are.
fn mixed(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16
}

/// The best of some rounds: the least disturbed one says most about the work itself.
fn best_of(rounds: u32, mut work: impl FnMut(u32)) -> Duration {
    let times = (0..rounds).map(|round| {
        let start = Instant::now();
        work(round);
        start.elapsed()
    });
    times.min().unwrap_or_default()
}

fn cycle_time(table: &mut LockTable) -> Duration {
    const CYCLES: u32 = 500;
    let best = best_of(15, |round| {
        for n in 0..CYCLES {
            let id = 1_000_000_000 + u64::from(round) * 1_000 + u64::from(n);
            let taken =
                command(&format!("acquire free/{} by=new lease={id:x} ttl=60000", mixed(id)));
            table.apply(HEADER, &[taken]);
            let given = command(&format!("release free/{} {}", mixed(id), table.last_token()));
            assert_eq!(table.apply(HEADER, &[given]).outcomes, [Outcome::Released]);
        }
    });
    best / CYCLES
}

#[test]
fn a_lock_costs_the_same_among_a_thousand_and_among_two_hundred_thousand() {
    let few = cycle_time(&mut table(1_000));
    let mut big = table(200_000);
    let many = cycle_time(&mut big);
    let freeze = best_of(5, |_| drop(big.freeze()));
    let frozen = big.freeze();
    let beside_a_copy = cycle_time(&mut big);
    println!(
        "acquire + release: {few:?} among 1,000, {many:?} among 200,000, {beside_a_copy:?} beside a frozen copy"
    );
    println!(
        "freeze of 200,000 locks: {freeze:?}; its digest: {:?}",
        best_of(1, |_| assert_ne!(frozen.digest(), 0))
    );
    assert!(many < few * 5, "{few:?} among 1,000 locks, {many:?} among 200,000");
    assert!(beside_a_copy < few * 5, "{few:?} alone, {beside_a_copy:?} beside a frozen copy");
    // Copying the directory must stay far below copying what it leads to.
    let copied = best_of(3, |_| drop(LockTable::import(frozen.rows())));
    println!("import of 200,000 locks: {copied:?}");
    assert!(freeze * 20 < copied, "freeze {freeze:?}, import {copied:?}");
}

#[test]
fn a_lease_with_ten_thousand_grants_ends_in_pieces() {
    let mut table = LockTable::new(Limits::default());
    table.apply(HEADER, &[command("open a by=a ttl=60000")]);
    for n in 0..10_000 {
        table.apply(HEADER, &[command(&format!("acquire r{n} by=a on=a"))]);
    }
    let piece_max = Limits::default().piece_max as usize;
    let mut steps = 1;
    let mut longest = 0;
    let mut applied = table.apply(HEADER, &[command("expire a")]);
    while table.ending_leases().next().is_some() {
        steps += 1;
        applied = table.apply(HEADER, &[Command::Continue { lease: LeaseId(0xa) }]);
        longest = longest.max(applied.events.len());
    }
    assert_eq!(steps, 10_000usize.div_ceil(piece_max));
    assert!(longest <= piece_max + 1, "{longest} events in one step");
    assert_eq!(applied.outcomes, [Outcome::Done { more: false }]);
    assert_eq!(table.counts().grants, 0);
}

#[test]
fn ghosts_in_front_cost_a_handover_nothing() {
    let handover = |ghosts: u64| {
        let mut table = LockTable::new(Limits::default());
        table.apply(HEADER, &[command("acquire r by=holder lease=1 ttl=60000")]);
        for n in 1..=ghosts {
            table.apply(
                HEADER,
                &[command(&format!("acquire r by=g lease={:x} ttl=60000 wait req=g{n}", n + 1))],
            );
            table.apply(HEADER, &[command(&format!("detach {n} 1"))]);
        }
        let best = best_of(15, |round| {
            for n in 0..100 {
                let id = 1_000_000 + round * 1_000 + n;
                table.apply(
                    HEADER,
                    &[command(&format!("acquire r by=w lease={id:x} ttl=60000 wait"))],
                );
                table.apply(HEADER, &[command(&format!("release r {}", table.last_token()))]);
            }
        });
        assert_eq!(table.counts().tickets as u64, ghosts);
        best
    };
    let (none, many) = (handover(0), handover(250));
    println!("100 handovers: {none:?} without ghosts, {many:?} behind 250");
    assert!(many < none * 5, "{none:?} without ghosts, {many:?} behind 250");
}

#[test]
fn many_remembered_requests_are_forgotten_step_by_step() {
    let mut table = LockTable::new(Limits::default());
    for n in 0..5_000u64 {
        let text = format!("acquire r by=c{n} lease={:x} ttl=60000 req=q", n + 1);
        table.apply(HEADER, &[command(&text)]);
        table.apply(HEADER, &[command(&format!("release r {}", table.last_token()))]);
    }
    assert_eq!(table.counts().ended, 5_000);
    table.apply(HEADER, &[command("limits ended_max=10")]);
    assert_eq!(
        table.counts().ended,
        5_000,
        "changing a limit is not the moment to forget them all"
    );
    let trimmed = table.apply(HEADER, &[command("trim ended=0")]);
    assert_eq!(trimmed.outcomes, [Outcome::Done { more: true }]);
    assert_eq!(table.counts().ended, 5_000 - 4_096);
    assert_eq!(
        table.apply(HEADER, &[command("trim ended=0")]).outcomes,
        [Outcome::Done { more: false }]
    );
    assert_eq!(table.counts().ended, 10);
    assert!(table.sound().is_empty());
}

#[test]
fn a_page_costs_what_it_shows_however_much_there_is_beside_it() {
    // The same hundred locks of one client, twenty of them waited for, beside few and beside many;
    // and clients of whom nothing is left but what is remembered.
    let full = |locks: u64| {
        let mut table = table(locks);
        for n in 0..locks / 10 {
            let text = format!("acquire gone by=g{n} lease={:x} ttl=60000 req=q", (n + 1) << 32);
            table.apply(HEADER, &[command(&text)]);
            table.apply(HEADER, &[command(&format!("release gone {}", table.last_token()))]);
        }
        for n in 0..100u64 {
            let lease = (n + 1) << 48;
            table.apply(
                HEADER,
                &[command(&format!("acquire probe/{n} by=p lease={lease:x} ttl=60000"))],
            );
            table.apply(
                HEADER,
                &[command(&format!("acquire plain{n} by=zz lease={:x} ttl=60000", lease + 1))],
            );
            if n < 20 {
                let wait = format!("acquire probe/{n} by=w lease={:x} ttl=60000 wait", lease + 2);
                table.apply(HEADER, &[command(&wait)]);
            }
        }
        table
    };
    let (few, many) = (full(1_000), full(100_000));
    let client = ClientId::parse("p").ok();
    let filters = [
        LockFilter { client: client.clone(), ..LockFilter::default() },
        LockFilter { domain: Some("default".to_owned()), ..LockFilter::default() },
        LockFilter { domain: Some("probe".to_owned()), ..LockFilter::default() },
        LockFilter { contended: true, ..LockFilter::default() },
    ];
    let locks = |table: &LockTable, filter: &LockFilter| table.locks(filter, 100).items.len();
    for filter in &filters {
        assert_eq!(locks(&few, filter), locks(&many, filter), "{filter:?}");
        let time = |table: &LockTable| best_of(50, |_| assert!(locks(table, filter) >= 20));
        within_five_times(&format!("{filter:?}"), time(&few), time(&many));
    }
    let leases = |table: &LockTable| table.leases(client.as_ref(), None, 1_000).items.len();
    let time = |table: &LockTable| best_of(50, |_| assert_eq!(leases(table), 100));
    within_five_times("leases of a client", time(&few), time(&many));
    let time = |table: &LockTable| {
        best_of(50, |_| assert_eq!(table.clients(None, None, 50).items.len(), 50))
    };
    within_five_times("clients", time(&few), time(&many));
}

fn within_five_times(what: &str, few: Duration, many: Duration) {
    println!("{what}: {few:?} among few, {many:?} among many");
    assert!(many < few * 5, "{what}: {few:?} among few, {many:?} among many");
}

/// Run it alone, in a process of its own: `cargo test -p leasehold-core bytes_of -- --ignored`.
#[test]
#[ignore = "a million locks take a while, and only a process of its own weighs them alone"]
fn bytes_of_a_lock_among_a_million() {
    const LOCKS: u64 = 1_000_000;
    let before = resident_bytes();
    let mut table = table(LOCKS);
    let weight = (resident_bytes() - before) / LOCKS;
    let mut cycles: Vec<Duration> = (0..5).map(|_| cycle_time(&mut table)).collect();
    cycles.sort_unstable();
    println!("{weight} bytes a lock; acquire + release among them: {:?}", cycles[2]);
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").expect("Linux says what it holds");
    let pages = status.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.expect("the second number") * 4_096
}
