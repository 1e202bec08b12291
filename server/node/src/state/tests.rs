//! Snapshots: the same table comes back, a damaged one does not, and a crash leaves one of two.

use super::data::{SnapshotError, Totals};
use super::incoming::Incoming;
use super::slots::{self, SlotStore, StateFileError};
use super::{Position, Shared, SnapshotData, StateMachine};
use crate::codec::samples::{self, log_id};
use crate::fatal::Fatal;
use crate::history::{self, History, HistorySetup};
use crate::open::disk::Disk;
use crate::open::support::{Heard, append, apply, busy_entry, database, entry, open_dir, reopen};
use crate::types::{Entry, Payload, SnapshotMeta, TypeConfig};
use leasehold_core::row::Row;
use leasehold_core::{Limits, LockTable, Token};
use openraft::storage::{RaftLogStorage, RaftSnapshotBuilder, RaftStateMachine};
use redb::{Database, ReadableTable};
use std::sync::Arc;
use std::time::Duration;

pub(super) struct Node {
    pub(super) machine: StateMachine,
    pub(super) shared: Arc<Shared>,
    slots: Arc<SlotStore>,
    pub(super) history: History,
    heard: Arc<Heard>,
}

pub(super) fn history_setup() -> HistorySetup {
    HistorySetup {
        fatal: Fatal::new(),
        pending_max: 10_000,
        batch: 5_000,
        settle: Duration::from_secs(3600),
        keep: 1_000_000,
        keep_changes: 262_144,
        keep_audits: 1_000,
    }
}

fn node(state: Database, history: Database) -> Node {
    node_with(state, history, history_setup())
}

pub(super) fn node_with(state: Database, history: Database, setup: HistorySetup) -> Node {
    let fatal = setup.fatal.clone();
    let loaded = slots::load(&state).expect("the snapshot is whole");
    let history = History::start(history, setup).expect("it starts");
    let (head, table) = loaded.unzip();
    let position = head.as_ref().map_or_else(Position::default, |head| Position {
        last: head.meta.last_log_id,
        membership: head.meta.last_membership.clone(),
    });
    let table = table.unwrap_or_else(|| LockTable::new(Limits::default()));
    let (shared, heard) = (Arc::new(Shared::new(table, position)), Arc::new(Heard::default()));
    let slots = Arc::new(SlotStore::new(state, head, fatal.clone()));
    let machine = StateMachine::new(
        Arc::clone(&shared),
        Arc::clone(&slots),
        history.clone(),
        Arc::clone(&heard) as _,
        fatal,
    );
    Node { machine, shared, slots, history, heard }
}

pub(super) fn new_node() -> Node {
    let (state, history) = (Disk::default(), Disk::default());
    node(database(&state, slots::create), database(&history, history::tables::create))
}

fn digest(shared: &Shared) -> u128 {
    shared.table.read().freeze().digest()
}

fn entries(indexes: std::ops::Range<u64>) -> Vec<Entry> {
    indexes.map(|index| busy_entry(1, index)).collect()
}

pub(super) async fn build(machine: &mut StateMachine) -> (SnapshotMeta, SnapshotData) {
    let mut builder = machine.try_create_snapshot_builder(true).await.expect("it is not declined");
    let built = builder.build_snapshot().await.expect("it is written");
    (built.meta, built.snapshot)
}

pub(super) fn chunks(data: &SnapshotData) -> Vec<Vec<u8>> {
    (0..data.totals().chunks).map(|number| data.chunk(number).expect("there")).collect()
}

/// As it arrives at a peer.
pub(super) fn received(totals: Totals, chunks: &[Vec<u8>]) -> Result<SnapshotData, SnapshotError> {
    let dir = tempfile::tempdir().expect("a directory");
    let mut incoming = Incoming::create(dir.path(), totals)?;
    chunks.iter().try_for_each(|chunk| incoming.add(chunk))?;
    Ok(incoming.into_data())
}

#[tokio::test]
async fn applying_tells_the_sink_and_the_history() {
    let mut node = new_node();
    apply(&mut node.machine, entries(1..101)).await;
    assert_eq!(node.heard.0.lock().len(), 150);
    assert_eq!(node.shared.applied(), Some(log_id(1, 100)));
    for token in 1..=100 {
        let ended = node.history.by_token(Token(token)).expect("readable").is_some();
        assert_eq!(ended, token % 2 == 0, "token {token}");
    }
    let members = Payload::Membership(samples::membership());
    apply(&mut node.machine, vec![Entry { log_id: log_id(2, 101), payload: members }]).await;
    assert_eq!(node.shared.membership().membership(), &samples::membership());
    assert_eq!(node.shared.membership().log_id(), &Some(log_id(2, 101)));
    assert_eq!(node.machine.applied_state().await.expect("known").0, Some(log_id(2, 101)));
}

#[tokio::test]
async fn a_snapshot_brings_back_the_same_table() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut opened = open_dir(dir.path());
    let members = Payload::Membership(samples::membership());
    apply(&mut opened.machine, vec![Entry { log_id: log_id(1, 1), payload: members }]).await;
    // Enough for several chunks and several transactions.
    for start in (2..30_000).step_by(1000) {
        apply(&mut opened.machine, entries(start..start + 1000)).await;
    }
    let before = digest(&opened.shared);
    let (meta, data) = build(&mut opened.machine).await;
    assert!(data.totals().chunks > 16, "{:?}", data.totals());
    assert_eq!(opened.machine.snapshot_index(), meta.last_log_id.map(|id| id.index));
    assert!(opened.history.durable_index() >= 30_001, "the history was flushed first");
    drop(data);
    opened.close().expect("nothing failed");
    drop(opened);

    let mut opened = open_dir(dir.path());
    assert_eq!(digest(&opened.shared), before);
    assert_eq!(opened.shared.applied(), meta.last_log_id);
    assert_eq!(opened.shared.membership(), meta.last_membership);
    let current = opened.machine.get_current_snapshot().await.expect("readable");
    assert_eq!(current.expect("there is one").meta, meta);
    // The other slot, then the first one again.
    for index in [30_002, 30_003] {
        apply(&mut opened.machine, entries(index..index + 1)).await;
        let (meta, _) = build(&mut opened.machine).await;
        assert_eq!(meta.last_log_id, Some(log_id(1, index)));
    }
    let after = digest(&opened.shared);
    assert_ne!(before, after);
    opened.close().expect("nothing failed");
    drop(opened);
    assert_eq!(digest(&open_dir(dir.path()).shared), after);
}

#[tokio::test]
async fn a_snapshot_is_the_table_of_its_moment_and_stays_readable() {
    let mut node = new_node();
    apply(&mut node.machine, entries(1..50)).await;
    let then = digest(&node.shared);
    let mut builder = node.machine.get_snapshot_builder().await;
    apply(&mut node.machine, entries(50..100)).await;
    let built = builder.build_snapshot().await.expect("it is written");
    assert_eq!(built.meta.last_log_id, Some(log_id(1, 49)));
    assert_eq!(built.snapshot.totals().digest, then);
    // Two newer ones go over its slot.
    for index in [100, 101] {
        apply(&mut node.machine, entries(index..index + 1)).await;
        build(&mut node.machine).await;
    }
    let table = built.snapshot.table().expect("the handle still reads the old one");
    assert_eq!(table.freeze().digest(), then);
}

#[tokio::test]
async fn another_node_takes_a_snapshot_over() {
    let mut leader = new_node();
    apply(&mut leader.machine, entries(1..2000)).await;
    let (meta, data) = build(&mut leader.machine).await;
    let (state, history) = (Disk::default(), Disk::default());
    let mut follower =
        node(database(&state, slots::create), database(&history, history::tables::create));
    let sent = received(data.totals(), &chunks(&data)).expect("undamaged");
    follower.machine.install_snapshot(&meta, sent).await.expect("it is taken over");
    assert_eq!(digest(&follower.shared), digest(&leader.shared));
    assert_eq!(follower.shared.applied(), meta.last_log_id);
    let next = entries(2000..2100);
    apply(&mut follower.machine, next.clone()).await;
    apply(&mut leader.machine, next).await;
    assert_eq!(digest(&follower.shared), digest(&leader.shared));
    drop(follower);
    let (head, table) = slots::load(&reopen(&state)).expect("readable").expect("it was kept");
    assert_eq!((head.meta, table.freeze().digest()), (meta, data.totals().digest));
}

#[tokio::test]
async fn damage_on_the_way_is_found_before_anything_changes() {
    let mut leader = new_node();
    apply(&mut leader.machine, entries(1..2000)).await;
    let (meta, data) = build(&mut leader.machine).await;
    let (totals, chunks) = (data.totals(), chunks(&data));
    let mut damaged = chunks.clone();
    damaged[0][1000] ^= 1;
    received(totals, &damaged).expect_err("a flipped bit");

    // Whole chunks that are not what was promised.
    let promises = [
        Totals { chunks: totals.chunks + 1, ..totals },
        Totals { rows: totals.rows + 1, ..totals },
        Totals { digest: !totals.digest, ..totals },
        Totals { bytes: 3, ..totals },
    ];
    let mut follower = new_node();
    let before = digest(&follower.shared);
    for totals in promises {
        let sent = received(totals, &chunks).expect("whole chunks");
        follower.machine.install_snapshot(&meta, sent).await.expect_err("another table");
        assert_eq!(digest(&follower.shared), before);
        assert!(follower.slots.active().is_none());
    }
}

/// Changes one byte of a chunk in the file.
fn damage(db: &Database, slot: &'static str) {
    let table = redb::TableDefinition::<u32, &[u8]>::new(slot);
    let txn = db.begin_write().expect("writable");
    {
        let mut chunks = txn.open_table(table).expect("there");
        let mut bytes = chunks.get(0).expect("readable").expect("there").value().to_vec();
        let at = bytes.len() / 2;
        bytes[at] ^= 1;
        chunks.insert(0, bytes.as_slice()).expect("writable");
    }
    txn.commit().expect("writable");
}

#[tokio::test]
async fn a_damaged_slot_is_refused_and_a_valid_one_loads_beside_it() {
    let (state, history) = (Disk::default(), Disk::default());
    let mut first =
        node(database(&state, slots::create), database(&history, history::tables::create));
    apply(&mut first.machine, entries(1..100)).await;
    build(&mut first.machine).await;
    drop(first);
    let db = reopen(&state);
    damage_other(&db);
    assert!(slots::load(&db).is_ok(), "the slot that is not valid does not matter");
    damage(&db, "slot0");
    let error = slots::load(&db).expect_err("one bit is wrong");
    assert!(matches!(error, StateFileError::Snapshot(_)), "{error:?}");
}

fn damage_other(db: &Database) {
    let txn = db.begin_write().expect("writable");
    let table = redb::TableDefinition::<u32, &[u8]>::new("slot1");
    txn.open_table(table).expect("there").insert(0, b"rubbish".as_slice()).expect("writable");
    txn.commit().expect("writable");
}

#[test]
fn a_crash_at_any_sync_leaves_a_whole_snapshot_and_its_history() {
    let (state, history_disk) = (Disk::default(), Disk::default());
    let mut node =
        node(database(&state, slots::create), database(&history_disk, history::tables::create));
    let first = state.syncs();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut digests = vec![digest(&node.shared)];
    for n in 1..12_u64 {
        runtime.block_on(apply(&mut node.machine, entries(n * 300..(n + 1) * 300)));
        runtime.block_on(build(&mut node.machine));
        digests.push(digest(&node.shared));
        state.mark(n as usize);
    }
    drop(node);
    let mut dice = crate::open::support::Dice::new(11);
    for percent in [0, 50, 100] {
        state.crashes(
            first,
            || dice.below(100) < percent,
            |crash| {
                let loaded = slots::load(&reopen(&crash.disk)).expect("a whole snapshot or none");
                let found = loaded.map_or(digests[0], |(_, table)| table.freeze().digest());
                let newest = digests.iter().position(|digest| *digest == found);
                let newest = newest.expect("one of those that were taken");
                assert!(newest >= crash.mark, "sync {}: {newest} of {}", crash.at_sync, crash.mark);
            },
        );
    }
}

/// After a crash the history may lack its newest records, and the log brings them back.
#[tokio::test]
async fn a_replay_of_the_log_rebuilds_the_history() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let all = entries(1..401);
    let path = dir.path().join(history::FILE);
    {
        let mut opened = open_dir(dir.path());
        append(&mut opened.log, vec![entry(1, 0, vec![])]).await.expect("synced");
        append(&mut opened.log, all.clone()).await.expect("synced");
        apply(&mut opened.machine, all[..200].to_vec()).await;
        build(&mut opened.machine).await;
        let as_of_the_snapshot = std::fs::read(&path).expect("readable");
        apply(&mut opened.machine, all[200..].to_vec()).await;
        opened.log.save_committed(Some(log_id(1, 400))).await.expect("in line");
        opened.close().expect("nothing failed");
        drop(opened);
        std::fs::write(&path, as_of_the_snapshot).expect("writable");
    }
    let opened = open_dir(dir.path());
    let known = |token| opened.history.by_token(Token(token)).expect("readable").is_some();
    assert!(known(200) && !known(202));
    let (mut log, mut machine) = (opened.log.clone(), opened.machine.clone());
    let helper = openraft::StorageHelper::<TypeConfig, _, _>::new(&mut log, &mut machine);
    helper.with_id(1).get_initial_state().await.expect("it replays");
    assert_eq!(opened.shared.applied(), Some(log_id(1, 400)));
    assert!((1..=400).all(|token| known(token) == (token % 2 == 0)));
}

#[tokio::test]
async fn a_trim_in_the_log_trims_the_history() {
    let mut node = new_node();
    apply(&mut node.machine, entries(1..11)).await;
    let trim = leasehold_core::Command::Trim { ended_before_ms: 0, history_before_ms: u64::MAX };
    apply(&mut node.machine, vec![entry(1, 11, vec![trim])]).await;
    node.history.flush(11).expect("nothing failed");
    assert_eq!(node.history.len().expect("readable"), 0);
}

/// Rows that are far longer than a chunk.
#[test]
fn a_row_may_span_chunks() {
    let domain: Arc<str> = Arc::from("d".repeat(700_000));
    let rows: Vec<Row> = samples::rows()
        .into_iter()
        .chain([Row::Domain {
            domain,
            settings: leasehold_core::limits::DomainSettings {
                limits: leasehold_core::limits::DomainLimits::default(),
                version: leasehold_core::Revision(1),
            },
        }])
        .chain(samples::rows())
        .collect();
    let cutter = super::chunk::Cutter::new(rows.iter().cloned());
    let (mut joiner, mut back) = (super::chunk::Joiner::default(), Vec::new());
    for chunk in cutter {
        assert!(chunk.len() <= 256 << 10);
        joiner.add(&chunk).expect("whole");
        while let Some(row) = joiner.row().expect("whole") {
            back.push(row);
        }
    }
    assert!(joiner.is_done());
    assert_eq!(back, rows);
}
