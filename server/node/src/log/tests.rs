//! The log against openraft's own suite, and what the suite does not look at.

use super::{LogStore, tables};
use crate::codec::samples::{log_id, vote};
use crate::open::support::{Syncs, append, busy_entry, log_state, open_dir, setup};
use crate::open::{Opened, open};
use crate::state::StateMachine;
use crate::types::{Entry, TypeConfig};
use futures_util::TryStreamExt;
use openraft::storage::{RaftLogReader, RaftLogStorage};
use openraft::testing::log::{StoreBuilder, Suite};
use std::sync::Arc;
use tempfile::TempDir;

fn dir() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

struct Builder;

impl StoreBuilder<TypeConfig, LogStore, StateMachine, (Opened, TempDir)> for Builder {
    async fn build(
        &self,
    ) -> Result<((Opened, TempDir), LogStore, StateMachine), openraft::StorageError<TypeConfig>>
    {
        let dir = dir();
        let opened = open_dir(dir.path());
        let (log, machine) = (opened.log.clone(), opened.machine.clone());
        Ok(((opened, dir), log, machine))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openraft_finds_nothing_wrong_with_the_storage() {
    Suite::test_all(Builder).await.expect("the suite passes");
}

fn entries(indexes: std::ops::Range<u64>) -> Vec<Entry> {
    indexes.map(|index| busy_entry(1, index)).collect()
}

async fn read(log: &mut LogStore, range: std::ops::Range<u64>) -> Vec<Entry> {
    let mut reader = log.get_log_reader().await;
    reader.try_get_log_entries(range).await.expect("the log is readable")
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_a_restart() {
    let dir = dir();
    let mut opened = open_dir(dir.path());
    assert!(!opened.log.was_member());
    opened.log.note_member();
    opened.log.save_vote(&vote()).await.expect("votes are saved");
    append(&mut opened.log, entries(1..200)).await.expect("entries are saved");
    opened.log.save_committed(Some(log_id(1, 150))).await.expect("kept in line");
    opened.close().expect("nothing failed");
    drop(opened);

    let mut opened = open_dir(dir.path());
    let mut reader = opened.log.get_log_reader().await;
    assert!(opened.log.was_member());
    assert_eq!(reader.read_vote().await.expect("readable"), Some(vote()));
    assert_eq!(opened.log.read_committed().await.expect("readable"), Some(log_id(1, 150)));
    assert_eq!(log_state(&mut opened.log).await.last_log_id, Some(log_id(1, 199)));
    assert_eq!(read(&mut opened.log, 1..200).await, entries(1..200));
}

#[tokio::test]
async fn a_committed_id_beyond_the_log_is_not_kept() {
    let dir = dir();
    let mut opened = open_dir(dir.path());
    append(&mut opened.log, entries(1..10)).await.expect("entries are saved");
    opened.log.save_committed(Some(log_id(1, 7))).await.expect("kept in line");
    opened.close().expect("nothing failed");
    drop(opened);
    let mut opened = open_dir(dir.path());
    append(&mut opened.log, entries(10..11)).await.expect("entries are saved");
    // Others have synced it, this node has not. And one that was replaced here.
    opened.log.save_committed(Some(log_id(1, 50))).await.expect("kept in line");
    opened.close().expect("nothing failed");
    drop(opened);
    let mut opened = open_dir(dir.path());
    assert_eq!(opened.log.read_committed().await.expect("readable"), Some(log_id(1, 7)));
    opened.log.save_committed(Some(log_id(2, 8))).await.expect("kept in line");
    opened.close().expect("nothing failed");
    drop(opened);
    let mut opened = open_dir(dir.path());
    assert_eq!(opened.log.read_committed().await.expect("readable"), Some(log_id(1, 7)));
}

/// A file whose end was lost by other means than a crash.
#[tokio::test]
async fn a_stored_committed_id_beyond_the_log_is_not_believed() {
    let dir = dir();
    let mut opened = open_dir(dir.path());
    append(&mut opened.log, entries(1..10)).await.expect("entries are saved");
    opened.log.purge(log_id(1, 4)).await.expect("in line");
    opened.close().expect("nothing failed");
    drop(opened);
    for beyond in [log_id(1, 10), log_id(1, 1000), log_id(2, 7)] {
        let db = redb::Database::open(dir.path().join(super::FILE)).expect("nobody else has it");
        let txn = db.begin_write().expect("writable");
        let id = crate::codec::encode_log_id(beyond);
        let mut meta = txn.open_table(tables::META).expect("there");
        meta.insert(tables::COMMITTED, id.as_slice()).expect("writable");
        drop(meta);
        txn.commit().expect("writable");
        drop(db);
        let mut opened = open_dir(dir.path());
        assert_eq!(opened.log.read_committed().await.expect("readable"), Some(log_id(1, 4)));
    }
}

#[tokio::test]
async fn entries_that_left_memory_come_from_the_file() {
    let dir = dir();
    let mut setup = setup(dir.path());
    setup.sizes.tail_bytes = 2_000;
    let mut opened = open(setup).expect("the directory opens");
    for start in (1..3000).step_by(100) {
        append(&mut opened.log, entries(start..start + 100)).await.expect("entries are saved");
    }
    assert_eq!(read(&mut opened.log, 1..3001).await, entries(1..3001));
    assert_eq!(read(&mut opened.log, 2990..3001).await, entries(2990..3001));
    assert_eq!(read(&mut opened.log, 10..20).await, entries(10..20));

    let mut reader = opened.log.get_log_reader().await;
    let stream = reader.entries_stream(5..2900).await;
    assert_eq!(stream.try_collect::<Vec<_>>().await.expect("readable"), entries(5..2900));
    let some = reader.limited_get_log_entries(7, 3000).await.expect("readable");
    assert!(!some.is_empty() && some.len() < 2993, "{} entries", some.len());
    assert_eq!(some[0], busy_entry(1, 7));
}

#[tokio::test]
async fn a_purge_removes_everything_and_counts_what_is_left() {
    let dir = dir();
    let mut opened = open_dir(dir.path());
    append(&mut opened.log, entries(1..10_001)).await.expect("entries are saved");
    let all = opened.log.bytes_since(None);
    assert!(all > 1_000_000, "{all} bytes");
    let half = opened.log.bytes_since(Some(5_000));
    assert!(half.abs_diff(all / 2) < 100_000, "{half} of {all} bytes");
    opened.log.purge(log_id(1, 9_990)).await.expect("queued");
    assert_eq!(read(&mut opened.log, 1..10_001).await, entries(9_991..10_001));
    append(&mut opened.log, entries(10_001..10_002)).await.expect("entries are saved");
    opened.close().expect("nothing failed");
    drop(opened);
    let mut opened = open_dir(dir.path());
    let state = log_state(&mut opened.log).await;
    assert_eq!(state.last_purged_log_id, Some(log_id(1, 9_990)));
    assert_eq!(read(&mut opened.log, 0..20_000).await, entries(9_991..10_002));
    let left = opened.log.bytes_since(Some(9_990));
    assert!(left < 100_000, "{left} bytes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_while_a_sync_runs_shares_the_next_one() {
    let dir = dir();
    let mut setup = setup(dir.path());
    let syncs = Arc::new(Syncs::default());
    setup.observer = Arc::clone(&syncs) as _;
    let mut opened = open(setup).expect("the directory opens");
    let mut waiting = Vec::new();
    for index in 1..2001 {
        let (done, durable) = <TypeConfig as openraft::type_config::TypeConfigExt>::oneshot();
        let done = openraft::storage::IOFlushed::signal(done);
        opened.log.append(entries(index..index + 1), done).await.expect("in line");
        waiting.push(durable);
    }
    for durable in waiting {
        durable.await.expect("answered").expect("synced");
    }
    let syncs = syncs.0.lock();
    assert_eq!(syncs.iter().map(|sync| sync.entries).sum::<usize>(), 2000);
    assert!(syncs.len() < 1000, "{} syncs for 2000 appends", syncs.len());
}
