//! The history against a list that is searched from end to end.

use super::{Cursor, FILE, Filter, Happened, History, HistorySetup, tables};
use crate::codec::samples::{self, owner, resource};
use crate::fatal::Fatal;
use crate::open::disk::Disk;
use crate::open::support::{Dice, database, reopen};
use leasehold_core::command::Mode;
use leasehold_core::outcome::GrantRecord;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const NEVER: Duration = Duration::from_secs(3600);

fn setup(settle: Duration, keep: u64) -> HistorySetup {
    HistorySetup {
        fatal: Fatal::new(),
        pending_max: 10_000,
        batch: 5_000,
        settle,
        keep,
        keep_changes: 1_000,
        keep_audits: 10,
    }
}

fn start(disk: &Disk, settle: Duration, keep: u64) -> History {
    History::start(database(disk, tables::create), setup(settle, keep)).expect("it starts")
}

/// Records as applying makes them: they end in the order of time, tokens nearly so.
fn records(dice: &mut Dice, count: u64) -> Vec<Arc<GrantRecord>> {
    let one = |n: u64| {
        // Every tenth was held for long. Tokens are never given out twice.
        let token = if n.is_multiple_of(10) { n / 10 + 1 } else { 1_000 + n };
        let (name, client) = (format!("r{}", dice.below(12)), format!("c{}", dice.below(4)));
        let mut record = samples::record(token, &name, &client, 1_000_000 + n / 3);
        if dice.below(4) == 0 {
            let mut grant = (*record.grant).clone();
            grant.mode = Mode::Shared;
            record.grant = Arc::new(grant);
        }
        Arc::new(record)
    };
    (0..count).map(one).collect()
}

fn ended(records: &[Arc<GrantRecord>]) -> Happened {
    Happened { records: records.to_vec(), ..Happened::default() }
}

fn all_pages(history: &History, filter: &Filter, limit: usize) -> Vec<u64> {
    let (mut tokens, mut before) = (Vec::new(), None);
    loop {
        let page = history.page(filter, before, limit).expect("readable");
        assert!(page.records.len() <= limit);
        tokens.extend(page.records.iter().map(|record| record.grant.token.0));
        let Some(next) = page.next else { return tokens };
        assert!(before.is_none_or(|before| next < before), "a page leads forward");
        assert_eq!(Cursor::parse(&next.to_string()), Some(next));
        before = Some(next);
    }
}

fn expected(records: &[Arc<GrantRecord>], filter: &Filter) -> Vec<u64> {
    let mut found: Vec<_> = records.iter().filter(|record| filter.matches(record)).collect();
    found.sort_by_key(|record| Reverse(filter.place(record)));
    found.iter().map(|record| record.grant.token.0).collect()
}

fn filters() -> Vec<Filter> {
    let client = |name: &str, principal| Filter::Client { client: owner(name).client, principal };
    vec![
        Filter::Resource(resource("r3")),
        Filter::Resource(resource("unheard of")),
        client("c1", None),
        client("c1", Some(owner("c1").principal)),
        Filter::EndedUntil(u64::MAX),
        Filter::EndedUntil(1_000_050),
        Filter::EndedAfter(1_000_050),
        Filter::EndedAfter(0),
    ]
}

fn check(history: &History, records: &[Arc<GrantRecord>]) {
    for filter in filters() {
        for limit in [1, 7, 1000] {
            let found = all_pages(history, &filter, limit);
            assert_eq!(found, expected(records, &filter), "{filter:?} by {limit}");
        }
    }
    for record in records {
        let found = history.by_token(record.grant.token).expect("readable");
        assert_eq!(found.as_ref(), Some(record));
    }
    let of = |exclusive: bool| {
        let same = records.iter().filter(|r| r.grant.resource == resource("r3"));
        let wanted = same.filter(|r| !exclusive || r.grant.mode == Mode::Exclusive);
        wanted.map(|record| record.grant.token).max()
    };
    for exclusive in [false, true] {
        let last = history.last_token_of(&resource("r3"), exclusive).expect("readable");
        assert_eq!(last, of(exclusive));
    }
}

#[test]
fn memory_and_file_answer_as_one() {
    let all = records(&mut Dice::new(1), 600);
    // All in memory; half and half; all in the file; and pushed a second time, as by a replay.
    let disk = Disk::default();
    let history = start(&disk, NEVER, u64::MAX);
    history.push(ended(&all[..300]), 1);
    check(&history, &all[..300]);
    history.flush(1).expect("nothing failed");
    check(&history, &all[..300]);
    history.push(ended(&all[300..]), 2);
    check(&history, &all);
    history.flush(2).expect("nothing failed");
    check(&history, &all);
    history.push(ended(&all[200..400]), 1);
    history.push(ended(&all[300..]), 2);
    history.flush(2).expect("nothing failed");
    assert_eq!(history.len().expect("readable"), 600);
    history.push(ended(&[]), 3);
    history.flush(3).expect("nothing failed");
    check(&history, &all);
    assert_eq!(history.len().expect("readable"), 600);
    drop(history);
    let history = History::start(reopen(&disk), setup(NEVER, u64::MAX)).expect("it starts");
    assert_eq!(history.durable_index(), 3);
    check(&history, &all);
}

#[test]
fn a_record_settles_by_itself() {
    let history = start(&Disk::default(), Duration::from_millis(5), u64::MAX);
    history.push(ended(&records(&mut Dice::new(2), 10)), 4);
    for _ in 0..1000 {
        if history.durable_index() == 4 {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("nothing was written within five seconds");
}

/// Pushes in batches of 100 and makes each durable.
fn fill(history: &History, index: &mut u64, records: &[Arc<GrantRecord>]) {
    for part in records.chunks(100).chain([&[][..]]) {
        *index += 1;
        history.push(ended(part), *index);
        history.flush(*index).expect("nothing failed");
    }
}

/// Those that are kept, which must be the last ones.
fn kept<'a>(history: &History, all: &'a [Arc<GrantRecord>]) -> &'a [Arc<GrantRecord>] {
    let len = usize::try_from(history.len().expect("readable")).expect("a count");
    &all[all.len() - len..]
}

#[test]
fn what_ended_first_is_forgotten_first() {
    let disk = Disk::default();
    let all = records(&mut Dice::new(3), 9_000);
    let history = start(&disk, NEVER, 2_000);
    let mut index = 0;
    fill(&history, &mut index, &all);
    let rest = kept(&history, &all);
    assert!((2_000..=2_300).contains(&rest.len()), "{} are kept", rest.len());
    check(&history, rest);
    assert_eq!(history.by_token(all[6_600].grant.token).expect("readable"), None);

    // All that ended later than the last that was dropped is there.
    let since = history.complete_since_ms();
    assert!(since >= all[6_600].ended_at_ms && since <= rest[0].ended_at_ms, "{since}");

    history.keep_at_most(500);
    fill(&history, &mut index, &[]);
    let rest = kept(&history, &all);
    assert!((500..=700).contains(&rest.len()), "{} are kept", rest.len());
    check(&history, rest);
    drop(history);
    let history = History::start(reopen(&disk), setup(NEVER, 500)).expect("it starts");
    check(&history, rest);
}

#[test]
fn what_ended_too_long_ago_is_gone_at_once_and_deleted_later() {
    let disk = Disk::default();
    let all = records(&mut Dice::new(8), 3_000);
    let history = start(&disk, NEVER, 10_000);
    let mut index = 0;
    fill(&history, &mut index, &all[..2_500]);
    history.push(ended(&all[2_500..]), 1_000);
    for first in [1_000, 2_000, 2_801] {
        let cut = all[first].ended_at_ms;
        history.trim_before(cut);
        let young: Vec<_> = all.iter().filter(|r| r.ended_at_ms >= cut).cloned().collect();
        check(&history, &young);
        assert_eq!(history.by_token(all[first - 5].grant.token).expect("readable"), None);
    }
    history.flush(1_000).expect("nothing failed");
    assert!(history.len().expect("readable") < 1_200);
    drop(history);
    let history = History::start(reopen(&disk), setup(NEVER, 10_000)).expect("it starts");
    assert_eq!(history.by_token(all[2_700].grant.token).expect("readable"), None);
    history.trim_before(u64::MAX);
    history.push(ended(&[]), 1_001);
    history.flush(1_001).expect("nothing failed");
    assert_eq!(history.len().expect("readable"), 0);
}

#[tokio::test]
async fn applying_waits_when_memory_is_full() {
    let disk = Disk::default();
    let mut setup = setup(NEVER, u64::MAX);
    (setup.pending_max, setup.batch) = (100, 1_000_000);
    let history = History::start(database(&disk, tables::create), setup).expect("it starts");
    history.room().await;
    history.push(ended(&records(&mut Dice::new(4), 100)), 1);
    let waiting = tokio::spawn({
        let history = history.clone();
        async move { history.room().await }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!waiting.is_finished());
    let flushing = history.clone();
    tokio::task::spawn_blocking(move || flushing.flush(1)).await.expect("ran").expect("flushed");
    waiting.await.expect("there is room again");
}

#[test]
fn what_was_flushed_survives_a_crash_at_any_sync() {
    let disk = Disk::default();
    let mut dice = Dice::new(5);
    let history = start(&disk, NEVER, u64::MAX);
    let first = disk.syncs();
    let all = records(&mut dice, 2_000);
    let mut pushed = BTreeMap::from([(0, 0)]);
    let mut count = 0;
    for index in 1..=60 {
        let more = count + dice.below(30) as usize;
        history.push(ended(&all[count..more]), index);
        count = more;
        pushed.insert(index, count);
        if dice.below(3) == 0 {
            history.flush(index).expect("nothing failed");
            disk.mark(index as usize);
        }
    }
    drop(history);
    for percent in [0, 40, 100] {
        disk.crashes(
            first,
            || dice.below(100) < percent,
            |crash| {
                let setup = setup(NEVER, u64::MAX);
                let history = History::start(reopen(&crash.disk), setup).expect("it starts");
                let durable = history.durable_index();
                assert!(durable >= crash.mark as u64, "sync {}", crash.at_sync);
                assert_eq!(history.len().expect("readable"), pushed[&durable] as u64);
                let last = &all[..pushed[&durable]];
                for record in last.iter().rev().take(40) {
                    let found = history.by_token(record.grant.token).expect("readable");
                    assert_eq!(found.as_ref(), Some(record));
                }
            },
        );
    }
}

#[test]
fn a_failed_sync_is_told_to_who_waits_and_to_the_node() {
    let disk = Disk::default();
    let setup = setup(NEVER, u64::MAX);
    let fatal = setup.fatal.clone();
    let history = History::start(database(&disk, tables::create), setup).expect("it starts");
    history.push(ended(&records(&mut Dice::new(6), 10)), 1);
    history.flush(1).expect("nothing failed");
    disk.fail_from_next_sync();
    history.push(ended(&[]), 2);
    history.flush(2).expect_err("the sync failed");
    assert_eq!(fatal.get().expect("the node was told").file, FILE);
    assert_eq!(history.durable_index(), 1);
}
