//! A snapshot brings its history along: whatever the two nodes knew before, and however often it
//! broke off, they know the same afterwards, or say what is missing.

use super::slots;
use super::tests::{Node, build, chunks, history_setup, new_node, node_with, received};
use crate::codec::samples::{administer, log_id, resource};
use crate::codec::{Ask, decode_ask, encode_parcel};
use crate::history::{
    self, Cursor, Filter, History, HistorySetup, IntakeError, Next, Parcel, Reach, UNTIL_IT_BEGINS,
};
use crate::open::disk::Disk;
use crate::open::support::{Dice, apply, database, give_back, reopen, take};
use crate::types::{Batch, Entry, Payload, SnapshotMeta};
use leasehold_core::command::{Action, ForceWhen};
use leasehold_core::outcome::GrantRecord;
use leasehold_core::row::Head;
use leasehold_core::{Command, Token};
use openraft::storage::RaftStateMachine;
use std::sync::Arc;

/// Entries with grants that end and deeds of operators, several in one millisecond.
fn story(dice: &mut Dice, count: u64) -> Vec<Entry> {
    let (mut live, mut token) = (Vec::new(), 0);
    (1..=count)
        .map(|index| {
            let mut commands = Vec::new();
            for _ in 0..=dice.below(3) {
                let name = format!("r{}", dice.below(30));
                if live.iter().all(|(_, taken)| *taken != name) {
                    token += 1;
                    commands.push(take(&name, token));
                    live.push((token, name));
                }
            }
            if !live.is_empty() && dice.below(4) > 0 {
                let at = usize::try_from(dice.below(live.len() as u64)).expect("small");
                let (token, name) = live.swap_remove(at);
                commands.push(match dice.below(5) {
                    0 => force(&name, token),
                    _ => give_back(&name, token),
                });
            }
            let batch = Batch { proposer: 1, seq: index, at_ms: 5_000 + index / 6, commands };
            Entry { log_id: log_id(1, index), payload: Payload::Normal(Arc::new(batch)) }
        })
        .collect()
}

fn force(name: &str, token: u64) -> Command {
    let (resource, token) = (resource(name), Token(token));
    let action = Action::ForceRelease { resource, token, when: ForceWhen::Now };
    Command::Administer(Box::new(administer(action)))
}

/// Entries of a story, by their numbers.
fn part(story: &[Entry], from: u64, upto: u64) -> Vec<Entry> {
    let at = |n: u64| usize::try_from(n).expect("small");
    story[at(from)..at(upto)].to_vec()
}

async fn node_at(story: &[Entry], upto: u64) -> Node {
    let mut node = new_node();
    apply(&mut node.machine, part(story, 0, upto)).await;
    node
}

fn records(history: &History) -> Vec<Arc<GrantRecord>> {
    pages(history, &Filter::EndedUntil(u64::MAX))
}

fn pages(history: &History, filter: &Filter) -> Vec<Arc<GrantRecord>> {
    let (mut all, mut before): (Vec<_>, Option<Cursor>) = (Vec::new(), None);
    loop {
        let page = history.page(filter, before, 9).expect("readable");
        all.extend(page.records);
        before = page.next;
        if before.is_none() {
            return all;
        }
    }
}

/// What a watcher is told: changes by their numbers, and gaps.
fn told(history: &History, after: u64, newest: u64) -> Vec<Result<u64, (u64, u64)>> {
    let (mut at, mut told) = (after, Vec::new());
    while at < newest {
        match history.changes(at, newest, 100).expect("readable") {
            Next::Changes(changes) => {
                assert!(!changes.is_empty(), "nothing after {at} of {newest}, and no gap");
                told.extend(changes.iter().map(|change| Ok(change.revision)));
                at = changes.last().map_or(at, |change| change.revision);
            }
            Next::Gap { to } => {
                told.push(Err((at, to)));
                at = to;
            }
        }
    }
    told
}

fn assert_same(ours: &Node, theirs: &Node) {
    assert_same_history(&ours.history, theirs);
    let (ours, theirs) = (ours.shared.table.read(), theirs.shared.table.read());
    assert_eq!(ours.freeze().digest(), theirs.freeze().digest());
}

fn assert_same_history(ours: &History, node: &Node) {
    let (theirs, newest) = (&node.history, node.shared.table.read().revision());
    let client = crate::codec::samples::owner("worker-1").client;
    for filter in [
        Filter::EndedUntil(u64::MAX),
        Filter::Resource(resource("r3")),
        Filter::Client { client, principal: None },
    ] {
        assert_eq!(pages(ours, &filter), pages(theirs, &filter), "{filter:?}");
    }
    let deeds = |history: &History| -> Vec<_> {
        let deeds = history.audit(None, 10_000).expect("readable");
        deeds.into_iter().map(|deed| (deed.revision, deed.at_ms, deed.record)).collect()
    };
    assert_eq!(deeds(ours), deeds(theirs));
    assert_eq!(told(ours, 0, newest), told(theirs, 0, newest));
    assert_eq!(ours.complete_since_ms(), theirs.complete_since_ms());
}

/// A snapshot that a leader made, and its history, which may go on.
struct Made {
    history: History,
    meta: SnapshotMeta,
    head: Head,
    data: super::SnapshotData,
}

impl Made {
    async fn by(leader: &mut Node) -> Self {
        let (meta, data) = build(&mut leader.machine).await;
        let head = data.head().expect("readable");
        assert_eq!(head.revision, leader.shared.table.read().revision());
        Self { history: leader.history.clone(), meta, head, data }
    }

    fn index(&self) -> u64 {
        self.meta.last_log_id.expect("entries").index
    }

    /// Sends at most so many parcels; answers whether that was all.
    fn send(&self, to: &History, parcels: u64) -> bool {
        let (intake, reach) = to.take_in(self.index()).expect("writable");
        let mut intake = intake.in_batches_of(2_000);
        let mut outgoing = self.history.outgoing(reach, self.head).in_parcels_of(700);
        for _ in 0..parcels {
            intake.add(sent(&outgoing.next().expect("readable"))).expect("it is taken in");
            assert_eq!(intake.is_whole(), outgoing.is_done());
            if outgoing.is_done() {
                return true;
            }
        }
        false
    }

    async fn install(&self, node: &mut Node) {
        let received = received(self.data.totals(), &chunks(&self.data)).expect("whole");
        node.machine.install_snapshot(&self.meta, received).await.expect("it is taken over");
    }
}

/// As it comes out of the line.
fn sent(parcel: &Parcel) -> Parcel {
    match decode_ask(&encode_parcel(parcel), 1).expect("it was just written") {
        Ask::Parcel(back) => {
            assert_eq!(&back, parcel);
            back
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_history_comes_along_whatever_was_known_and_however_often_it_breaks_off() {
    for seed in 1..=12 {
        let dice = &mut Dice::new(seed);
        let story = story(dice, 400);
        let known = dice.below(3) * dice.below(60);
        let upto = known + 1 + dice.below(200);
        let mut leader = node_at(&story, upto).await;
        let made = Made::by(&mut leader).await;
        apply(&mut leader.machine, part(&story, upto, 400)).await;
        if dice.below(2) == 0 {
            leader.history.flush(400).expect("nothing failed");
        }

        let (state, disk) = (Disk::default(), Disk::default());
        let (mut state, mut file) =
            (database(&state, slots::create), database(&disk, history::tables::create));
        for _ in 0..dice.below(4) {
            let mut follower = node_with(state, file, history_setup());
            apply(&mut follower.machine, part(&story, 0, known)).await;
            made.send(&follower.history, dice.below(12));
            let before = node_at(&story, known).await;
            assert_eq!(records(&follower.history), records(&before.history), "seed {seed}");
            drop(follower);
            (state, file) = (database(&Disk::default(), slots::create), reopen(&disk));
        }
        let mut follower = node_with(state, file, history_setup());
        apply(&mut follower.machine, part(&story, 0, known)).await;
        assert!(made.send(&follower.history, u64::MAX) && follower.history.is_whole(upto));
        made.install(&mut follower).await;
        assert_same(&follower, &node_at(&story, upto).await);
        assert_eq!(follower.history.durable_index(), upto);
        apply(&mut follower.machine, part(&story, upto, 400)).await;
        assert_same(&follower, &leader);
        follower.history.flush(400).expect("nothing failed");
        assert_same(&follower, &leader);
    }
}

/// The log may bring entries while their history is on its way.
#[tokio::test]
async fn what_the_log_brings_meanwhile_is_not_there_twice() {
    for seed in 21..=26 {
        let dice = &mut Dice::new(seed);
        let story = story(dice, 300);
        let mut leader = node_at(&story, 250).await;
        let made = Made::by(&mut leader).await;
        let mut follower = node_at(&story, 50).await;
        assert!(made.send(&follower.history, u64::MAX));
        let more = 50 + dice.below(190);
        apply(&mut follower.machine, part(&story, 50, more)).await;
        match dice.below(3) {
            0 => follower.history.flush(more).expect("nothing failed"),
            1 => assert!(made.send(&follower.history, u64::MAX)),
            _ => {}
        }
        assert_eq!(records(&follower.history), records(&node_at(&story, more).await.history));
        assert!(follower.history.is_whole(250));
        made.install(&mut follower).await;
        assert_same(&follower, &leader);
    }
}

#[tokio::test]
async fn what_a_transfer_left_that_the_log_has_outrun_is_dropped() {
    let story = story(&mut Dice::new(71), 200);
    let mut leader = node_at(&story, 100).await;
    let made = Made::by(&mut leader).await;
    let mut follower = node_at(&story, 20).await;
    assert!(!made.send(&follower.history, 9));
    follower.history.flush(20).expect("nothing failed");
    assert!(follower.history.staged_partitions() > 0, "it may go on");
    apply(&mut follower.machine, part(&story, 20, 200)).await;
    follower.history.flush(200).expect("nothing failed");
    assert_eq!(follower.history.staged_partitions(), 0);
    assert_same(&follower, &node_at(&story, 200).await);
}

#[test]
fn a_crash_at_any_sync_of_a_transfer_loses_and_shows_nothing() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut dice = Dice::new(5);
    let story = story(&mut dice, 160);
    let (known, upto) = (40, 150);
    let mut leader = runtime.block_on(node_at(&story, upto));
    let made = runtime.block_on(Made::by(&mut leader));
    let before = runtime.block_on(node_at(&story, known));
    let (state, disk) = (Disk::default(), Disk::default());
    let (state, file) = (database(&state, slots::create), database(&disk, history::tables::create));
    let mut follower = node_with(state, file, history_setup());
    runtime.block_on(apply(&mut follower.machine, part(&story, 0, known)));
    follower.history.flush(known).expect("nothing failed");
    let first = disk.syncs();
    assert!(!made.send(&follower.history, 9));
    assert!(made.send(&follower.history, u64::MAX));
    runtime.block_on(made.install(&mut follower));
    disk.mark(1);
    drop(follower);

    let (mut resumed, mut complete) = (0, 0);
    for percent in [0, 50, 100] {
        disk.crashes(
            first,
            || dice.below(100) < percent,
            |crash| {
                let history = History::start(reopen(&crash.disk), history_setup());
                let history = history.expect("it starts");
                if history.durable_index() < upto {
                    assert_eq!((crash.mark, history.durable_index()), (0, known));
                    assert_eq!(records(&history), records(&before.history));
                    resumed += 1;
                    assert!(made.send(&history, u64::MAX));
                    history.adopt(upto, &leader.shared.table.read()).expect("writable");
                } else {
                    complete += 1;
                }
                assert_same_history(&history, &leader);
            },
        );
    }
    assert!(resumed > 10 && complete > 0, "{resumed} and {complete}");
}

/// Keeps little, as a node does that has seen much.
fn forgetful() -> HistorySetup {
    HistorySetup { keep: 100, keep_changes: 200, ..history_setup() }
}

#[tokio::test]
async fn what_the_sender_has_dropped_is_a_gap_that_is_told() {
    let story = story(&mut Dice::new(31), 1_500);
    let files = || {
        let (state, history) = (Disk::default(), Disk::default());
        (database(&state, slots::create), database(&history, history::tables::create))
    };
    let (state, file) = files();
    let mut leader = node_with(state, file, forgetful());
    for start in (0..1_500).step_by(100) {
        apply(&mut leader.machine, part(&story, start, start + 100)).await;
        leader.history.flush(start + 100).expect("nothing failed");
    }
    let made = Made::by(&mut leader).await;
    let mut follower = node_at(&story, 60).await;
    let (known, at) = (follower.shared.table.read().revision(), records(&follower.history).len());
    assert!(made.send(&follower.history, u64::MAX));
    made.install(&mut follower).await;

    let newest = leader.shared.table.read().revision();
    let oldest = leader.history.oldest_change().expect("readable").expect("some are kept");
    assert!(oldest > known + 1, "{oldest} and {known}");
    let expected = (known - 3..=known).map(Ok).chain([Err((known, oldest - 1))]);
    let expected: Vec<_> = expected.chain((oldest..=newest).map(Ok)).collect();
    assert_eq!(told(&follower.history, known - 4, newest), expected);

    let since = leader.history.complete_since_ms();
    assert!(since > 0);
    assert_eq!(follower.history.complete_since_ms(), since);
    let theirs = records(&leader.history);
    assert_eq!(records(&follower.history)[..theirs.len()], theirs);
    assert_eq!(records(&follower.history).len(), theirs.len() + at);
}

#[tokio::test]
async fn a_snapshot_without_its_history_leaves_a_gap_that_is_told() {
    let story = story(&mut Dice::new(41), 200);
    let mut leader = node_at(&story, 200).await;
    let made = Made::by(&mut leader).await;
    let mut follower = node_at(&story, 60).await;
    let known = follower.shared.table.read().revision();
    assert!(!made.send(&follower.history, 3));
    assert!(!follower.history.is_whole(200));
    // What came of it is not taken for all of it.
    made.install(&mut follower).await;
    assert_eq!(records(&follower.history), records(&node_at(&story, 60).await.history));
    assert_eq!(follower.history.complete_since_ms(), leader.shared.table.read().at_ms());
    assert_eq!(
        told(&follower.history, known, made.head.revision),
        [Err((known, made.head.revision))]
    );
}

#[tokio::test]
async fn what_others_may_have_lost_is_told_although_their_history_does_not_come() {
    let story = story(&mut Dice::new(43), 200);
    let mut leader = node_at(&story, 200).await;
    let made = Made::by(&mut leader).await;
    // As where a state was brought back, and began its life later.
    let begun_ms = leader.shared.table.read().at_ms() + 60_000;
    leader.history.lost_until(UNTIL_IT_BEGINS).expect("nothing failed");
    assert_eq!(leader.history.complete_since_ms(), UNTIL_IT_BEGINS);
    for ms in [begun_ms, begun_ms + 1] {
        leader.history.begin(ms).expect("nothing failed");
        assert_eq!(leader.history.complete_since_ms(), begun_ms);
    }
    let mut follower = node_at(&story, 60).await;
    assert!(!made.send(&follower.history, 8));
    made.install(&mut follower).await;
    assert_eq!(follower.history.complete_since_ms(), begun_ms);
}

#[tokio::test]
async fn whoever_follows_is_woken_by_a_snapshot_and_misses_nothing() {
    let story = story(&mut Dice::new(51), 200);
    let mut leader = node_at(&story, 200).await;
    let made = Made::by(&mut leader).await;
    let mut follower = node_at(&story, 60).await;
    let known = follower.shared.table.read().revision();
    let mut news = follower.history.follow();
    news.borrow_and_update();
    assert!(made.send(&follower.history, u64::MAX));
    assert!(!news.has_changed().expect("it lives"), "the table is not there yet");
    made.install(&mut follower).await;
    assert!(news.has_changed().expect("it lives"));
    let newest = follower.shared.table.read().revision();
    assert_eq!(newest, made.head.revision);
    let all: Vec<_> = (known..=newest).skip(1).map(Ok).collect();
    assert_eq!(told(&follower.history, known, newest), all);
}

#[tokio::test]
async fn of_two_transfers_the_later_goes_on_and_nonsense_is_refused() {
    let story = story(&mut Dice::new(61), 200);
    let mut leader = node_at(&story, 200).await;
    let made = Made::by(&mut leader).await;
    let follower = new_node();
    let (mut early, reach) = follower.history.take_in(200).expect("writable");
    assert_eq!(reach, Reach::default());
    let all = leader.history.outgoing(reach, made.head).next().expect("readable");
    assert!(all.last && !all.records.is_empty() && !all.changes.is_empty());
    let (mut late, _) = follower.history.take_in(200).expect("writable");
    assert!(matches!(early.add(all.clone()), Err(IntakeError::Superseded)));
    assert!(!follower.history.is_whole(200));

    let nonsense = |bad: Parcel| follower.history.take_in(200).expect("writable").0.add(bad);
    let cut = |row: &Vec<u8>| row[..row.len() - 1].to_vec();
    let records = vec![cut(&all.records[0])];
    let damaged = nonsense(Parcel { records, ..Parcel::default() });
    assert!(matches!(damaged, Err(IntakeError::Row(_))));
    let records = all.records.iter().rev().cloned().collect();
    let backwards = nonsense(Parcel { records, ..all.clone() });
    assert!(matches!(backwards, Err(IntakeError::Order)));
    assert!(matches!(late.add(all.clone()), Err(IntakeError::Superseded)));

    let (mut last, _) = follower.history.take_in(200).expect("writable");
    last.add(all.clone()).expect("it is taken in");
    assert!(matches!(last.add(all), Err(IntakeError::Order)), "nothing comes after the last");
    assert!(follower.history.is_whole(200));
}
