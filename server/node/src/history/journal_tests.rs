//! Changes and deeds against lists that are searched from end to end.

use super::journal::BLOCK;
use super::{Audited, Happened, History, HistorySetup, Next, tables};
use crate::change::{Change, ChangeKind};
use crate::codec::samples;
use crate::fatal::Fatal;
use crate::open::disk::Disk;
use crate::open::support::{Dice, database, reopen};
use std::sync::Arc;
use std::time::Duration;

const KEEP: u64 = 2_000;
const KEEP_AUDITS: u64 = 10;

fn setup() -> HistorySetup {
    HistorySetup {
        fatal: Fatal::new(),
        pending_max: 10_000,
        batch: 5_000,
        settle: Duration::from_secs(3600),
        keep: 1_000,
        keep_changes: KEEP,
        keep_audits: KEEP_AUDITS,
    }
}

fn change(revision: u64) -> Change {
    Change { revision, at_ms: revision * 7, kind: ChangeKind::LeaseChanged { ttl_ms: revision } }
}

fn happened(from: u64, to: u64) -> Happened {
    Happened { changes: (from..=to).map(change).collect(), ..Happened::default() }
}

/// Everything after `after`, as a watcher reads it: changes in order, or gaps.
fn told(history: &History, after: u64, newest: u64, limit: usize) -> Vec<Result<u64, (u64, u64)>> {
    let (mut at, mut told) = (after, Vec::new());
    loop {
        match history.changes(at, newest, limit).expect("readable") {
            Next::Changes(changes) if changes.is_empty() => return told,
            Next::Changes(changes) => {
                assert!(changes.len() <= limit);
                for one in changes {
                    assert_eq!(one, change(one.revision), "it is what happened");
                    told.push(Ok(one.revision));
                    at = one.revision;
                }
            }
            Next::Gap { to } => {
                assert!(to > at, "a gap leads forward");
                told.push(Err((at, to)));
                at = to;
            }
        }
    }
}

fn all(from: u64, to: u64) -> Vec<Result<u64, (u64, u64)>> {
    (from..=to).map(Ok).collect()
}

#[test]
fn every_change_is_told_once_and_in_order_from_wherever_it_is() {
    let disk = Disk::default();
    let mut history = History::start(database(&disk, tables::create), setup()).expect("it starts");
    let mut dice = Dice::new(1);
    let mut newest = 0;
    for entry in 1..=300 {
        let count = dice.below(12);
        history.push(happened(newest + 1, newest + count), entry);
        newest += count;
        if dice.below(20) == 0 {
            history.flush(entry).expect("nothing failed");
        }
        if dice.below(60) == 0 {
            history.close().expect("nothing failed");
            drop(history);
            history = History::start(reopen(&disk), setup()).expect("it starts again");
        }
        for _ in 0..4 {
            let after = dice.below(newest + 1);
            let limit = 1 + usize::try_from(dice.below(600)).expect("small");
            assert_eq!(told(&history, after, newest, limit), all(after + 1, newest));
        }
    }
    assert!(newest < KEEP, "nothing was dropped in this test");
}

#[test]
fn what_is_not_kept_any_more_is_told_as_a_gap() {
    let disk = Disk::default();
    let history = History::start(database(&disk, tables::create), setup()).expect("it starts");
    let newest = 3 * KEEP;
    for entry in 1..=newest / 10 {
        history.push(happened(entry * 10 - 9, entry * 10), entry);
        if entry % 50 == 0 {
            history.flush(entry).expect("nothing failed");
        }
    }
    history.close().expect("nothing failed");
    drop(history);
    let history = History::start(reopen(&disk), setup()).expect("it starts again");
    let oldest = history.oldest_change().expect("readable").expect("some are kept");
    let kept = newest - oldest + 1;
    assert!((KEEP..=KEEP + 2 * BLOCK as u64).contains(&kept), "{kept} are kept");
    let told = told(&history, 5, newest, 512);
    assert_eq!(told[0], Err((5, oldest - 1)));
    assert_eq!(told[1..], all(oldest, newest));
}

#[test]
fn a_snapshot_in_the_place_of_entries_leaves_a_gap() {
    let disk = Disk::default();
    let history = History::start(database(&disk, tables::create), setup()).expect("it starts");
    history.push(happened(1, 10), 1);
    history.push(Happened::default(), 50);
    history.push(happened(100, 110), 51);
    let expected: Vec<_> =
        all(4, 10).into_iter().chain([Err((10, 99))]).chain(all(100, 110)).collect();
    assert_eq!(told(&history, 3, 110, 512), expected, "from memory");
    history.close().expect("nothing failed");
    drop(history);
    let history = History::start(reopen(&disk), setup()).expect("it starts again");
    assert_eq!(told(&history, 3, 110, 512), expected, "from the file");
    assert_eq!(told(&history, 110, 120, 512), [Err((110, 120))], "the newest are missing");
    assert_eq!(told(&history, 110, 110, 512), []);
}

#[test]
fn an_entry_that_comes_again_tells_nothing_twice() {
    let disk = Disk::default();
    let history = History::start(database(&disk, tables::create), setup()).expect("it starts");
    history.push(happened(1, 10), 1);
    history.push(happened(1, 10), 1);
    assert_eq!(told(&history, 0, 10, 512), all(1, 10));
}

#[test]
fn whoever_follows_is_woken() {
    let disk = Disk::default();
    let history = History::start(database(&disk, tables::create), setup()).expect("it starts");
    let mut news = history.follow();
    news.borrow_and_update();
    assert!(!news.has_changed().expect("it lives"));
    history.push(Happened::default(), 1);
    assert!(!news.has_changed().expect("it lives"), "nothing happened");
    history.push(happened(1, 2), 2);
    assert!(news.has_changed().expect("it lives"));
    news.borrow_and_update();
    history.push(happened(1, 2), 2);
    assert!(news.has_changed().expect("it lives"), "the state has it only now");
}

#[test]
fn the_newest_deeds_are_kept_and_paged() {
    let disk = Disk::default();
    let mut history = History::start(database(&disk, tables::create), setup()).expect("it starts");
    let record = Arc::new(samples::deeds().remove(0));
    for revision in 1..=25_u64 {
        let deed = Audited { revision, at_ms: revision, record: Arc::clone(&record) };
        let happened = Happened { audits: vec![deed], ..happened(revision, revision) };
        history.push(happened, revision);
        if revision == 12 {
            history.flush(revision).expect("nothing failed");
        }
        if revision == 18 {
            history.close().expect("nothing failed");
            drop(history);
            history = History::start(reopen(&disk), setup()).expect("it starts again");
        }
    }
    let page = |before, limit| -> Vec<u64> {
        let deeds = history.audit(before, limit).expect("readable");
        deeds.iter().map(|deed| deed.revision).collect()
    };
    assert_eq!(page(None, 3), [25, 24, 23]);
    assert_eq!(page(Some(23), 8), [22, 21, 20, 19, 18, 17, 16, 15]);
    history.flush(25).expect("nothing failed");
    assert_eq!(page(Some(20), 100), [19, 18, 17, 16], "the newest {KEEP_AUDITS} are kept");
    let deed = history.audit(None, 1).expect("readable").remove(0);
    assert_eq!((&*deed.record, deed.at_ms), (&*record, 25));
}
