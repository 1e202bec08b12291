//! What opens, what is refused, and that a refusal changes nothing.

use super::directory::{Create, ensure_files};
use super::support::{append, apply, busy_entry, entry, log_state, open_dir, setup};
use super::{OpenError, Setup, open};
use crate::codec::samples::log_id;
use crate::{history, log, state};
use leasehold_core::Command;
use openraft::storage::{RaftLogStorage, RaftSnapshotBuilder, RaftStateMachine};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

const FILES: [&str; 3] = [log::FILE, state::FILE, history::FILE];

/// A directory with something in each file.
async fn used() -> TempDir {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut opened = open_dir(dir.path());
    let entries: Vec<_> = (1..200).map(|index| busy_entry(1, index)).collect();
    append(&mut opened.log, entries.clone()).await.expect("synced");
    super::support::apply(&mut opened.machine, entries).await;
    let mut builder = opened.machine.get_snapshot_builder().await;
    drop(builder.build_snapshot().await.expect("written"));
    opened.close().expect("nothing failed");
    dir
}

fn contents(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(dir).expect("readable").map(|file| file.expect("readable").path());
    let named = files.map(|path| {
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        (name, fs::read(&path).expect("readable"))
    });
    named.collect()
}

/// Opening fails, and every byte stays. Answers the message with its causes.
fn refused(dir: &Path) -> String {
    let before = contents(dir);
    let error = open(setup(dir)).err().expect("it is refused");
    assert!(contents(dir) == before, "a refusal changed a file");
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[tokio::test]
async fn a_second_process_is_turned_away() {
    let dir = used().await;
    let first = open_dir(dir.path());
    let error = open(setup(dir.path())).err().expect("it is in use");
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    drop(first);
    open_dir(dir.path());
}

#[tokio::test]
async fn a_newer_format_is_refused() {
    let dir = used().await;
    fs::write(dir.path().join("format"), "leasehold data format 2\n").expect("writable");
    let text = refused(dir.path());
    assert!(text.contains("has format 2; this binary reads format 1"), "{text}");
    fs::write(dir.path().join("format"), "something else").expect("writable");
    refused(dir.path());
}

#[tokio::test]
async fn what_a_newer_release_wrote_is_refused_by_the_log_and_by_the_snapshot() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let newer = || open(Setup { commands: 7, ..setup(dir.path()) }).expect("it knows them");
    let raise = || entry(1, 2, vec![Command::RaiseLevel { to: 7 }]);
    let mut opened = newer();
    append(&mut opened.log, vec![busy_entry(1, 1), raise()]).await.expect("synced");
    opened.close().expect("nothing failed");
    drop(opened);
    let text = refused(dir.path());
    let says = "takes a binary that knows commands of version 7, and this one knows them up to \
                version 1";
    assert!(text.contains("log.redb") && text.contains(says), "{text}");

    let mut opened = newer();
    apply(&mut opened.machine, vec![busy_entry(1, 1), raise()]).await;
    let mut builder = opened.machine.get_snapshot_builder().await;
    drop(builder.build_snapshot().await.expect("written"));
    opened.log.purge(log_id(1, 2)).await.expect("it is there");
    opened.close().expect("nothing failed");
    drop((opened, builder));
    let text = refused(dir.path());
    assert!(text.contains("state.redb") && text.contains(says), "{text}");
    assert_eq!(newer().shared.table.read().level(), 7);
}

#[tokio::test]
async fn a_missing_file_is_named_and_not_replaced() {
    for file in FILES {
        let dir = used().await;
        fs::remove_file(dir.path().join(file)).expect("it is there");
        let text = refused(dir.path());
        assert!(text.contains(file) && text.contains("is missing"), "{text}");
    }
    let dir = used().await;
    fs::remove_file(dir.path().join("format")).expect("it is there");
    assert!(refused(dir.path()).contains("no format file"));
}

#[tokio::test]
async fn a_damaged_file_is_named_and_not_changed() {
    for file in FILES {
        let damages: [fn(&mut Vec<u8>); 4] = [
            |bytes| bytes[0] ^= 1,
            |bytes| bytes.truncate(bytes.len() / 3),
            |bytes| bytes.truncate(5),
            |bytes| bytes[4096..].fill(0xa5),
        ];
        for damage in damages {
            let dir = used().await;
            let path = dir.path().join(file);
            let mut bytes = fs::read(&path).expect("readable");
            damage(&mut bytes);
            fs::write(&path, bytes).expect("writable");
            let text = refused(dir.path());
            assert!(text.contains(file) && text.contains("Nothing was changed"), "{text}");
        }
    }
}

#[tokio::test]
async fn a_flipped_bit_anywhere_is_refused_or_harmless() {
    let dir = used().await;
    let digest = |dir: &Path| open_dir(dir).shared.table.read().freeze().digest();
    let whole = digest(dir.path());
    for file in FILES {
        let path = dir.path().join(file);
        let bytes = fs::read(&path).expect("readable");
        for at in (0..bytes.len()).step_by(bytes.len() / 40) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x20;
            fs::write(&path, &damaged).expect("writable");
            let before = contents(dir.path());
            match open(setup(dir.path())) {
                Ok(mut opened) => {
                    let last = log_state(&mut opened.log).await.last_log_id;
                    assert_eq!(last, Some(log_id(1, 199)), "{file} at {at}");
                    assert_eq!(opened.shared.table.read().freeze().digest(), whole);
                }
                Err(error) => {
                    assert!(error.to_string().contains(file), "{error}");
                    assert!(contents(dir.path()) == before, "a refusal changed a file");
                }
            }
            fs::write(&path, &bytes).expect("writable");
        }
    }
}

#[tokio::test]
async fn a_file_that_only_needs_its_repair_after_a_crash_opens() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let crashed = tempfile::tempdir().expect("a temporary directory");
    let mut opened = open_dir(dir.path());
    let entries: Vec<_> = (1..200).map(|index| busy_entry(1, index)).collect();
    append(&mut opened.log, entries).await.expect("synced");
    // As it stands on the disk while the node runs.
    for file in FILES.iter().chain(&["format"]) {
        fs::copy(dir.path().join(file), crashed.path().join(file)).expect("copied");
    }
    let mut opened = open_dir(crashed.path());
    assert_eq!(log_state(&mut opened.log).await.last_log_id, Some(log_id(1, 199)));
}

#[tokio::test]
async fn a_crash_while_the_directory_is_made_leaves_one_that_opens() {
    for made in 0..=FILES.len() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let files = [
            (state::FILE, state::slots::create as Create),
            (history::FILE, history::tables::create),
        ];
        ensure_files(dir.path(), &files, (log::FILE, log::tables::create)).expect("it is made");
        // In the order in which they are made: the log is the last.
        for file in [log::FILE, history::FILE, state::FILE, "format"].iter().take(made) {
            fs::remove_file(dir.path().join(file)).expect("it is there");
        }
        fs::write(dir.path().join("log.redb.new"), b"half a file").expect("writable");
        if made == FILES.len() {
            fs::remove_file(dir.path().join("format")).expect("it is there");
        }
        open_dir(dir.path());
    }
}
