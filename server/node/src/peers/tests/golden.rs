//! The directory of a member as a release left it, in `tests/golden`: a snapshot, the log behind it,
//! the history of both, and who the members are.
//!
//! Nobody can start it alone, as its peers are gone. So it is opened as a node would, and its log is
//! applied to its snapshot.

use super::compaction::purge;
use super::{Cluster, caught_up, token, work};
use crate::history::Filter;
use crate::open::support::{apply, setup};
use crate::open::{Opened, Setup, open};
use leasehold_core::Limits;
use openraft::storage::{RaftLogReader as _, RaftLogStorage as _};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Set, the present format's directory is written anew before it is read.
const REWRITE: &str = "LEASEHOLD_REWRITE_GOLDEN";
/// The directory that this build writes: the format, and what is in it.
const WRITTEN: &str = "1-member";
/// What it says of itself, beside the data.
const EXPECTED: &str = "expected.txt";
const FILES: [&str; 4] = ["format", "log.redb", "state.redb", "history.redb"];
/// The member whose directory it is.
const MEMBER: u64 = 2;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden")
}

async fn rewrite() {
    const CENTURIES_MS: u64 = 10_000_000_000_000;
    let limits =
        Limits { history_ms: CENTURIES_MS, remember_ms: CENTURIES_MS, ..Limits::default() };
    let mut cluster = Cluster::adjusted(3, 262_144, |config| {
        config.limits = limits.clone();
        // It is made when the test says so.
        config.snapshot_log_bytes = u64::MAX;
    })
    .await;
    let leader = &cluster.nodes[&cluster.leader().await];
    let member = &cluster.nodes[&MEMBER];
    work(leader, 60).await;
    token(leader, "held/before").await;
    caught_up(member, leader).await;
    purge(member).await;
    work(leader, 20).await;
    token(leader, "held/after").await;
    caught_up(member, leader).await;
    for node in std::mem::take(&mut cluster.nodes).into_values() {
        node.shutdown().await;
    }
    let from = cluster.dirs[MEMBER as usize - 1].path().join("data");
    let to = golden().join(WRITTEN);
    fs::create_dir_all(&to).expect("the repository is writable");
    for name in FILES {
        fs::copy(from.join(name), to.join(name)).expect("it is there");
    }
    let copy = copy_of(&to);
    let said = say(&mut open_member(copy.path())).await;
    fs::write(to.join(EXPECTED), said).expect("the repository is writable");
}

fn copy_of(dir: &Path) -> TempDir {
    let copy = TempDir::new().expect("a directory");
    for name in FILES {
        fs::copy(dir.join(name), copy.path().join(name)).expect("it is kept");
    }
    copy
}

fn open_member(dir: &Path) -> Opened {
    open(Setup { node: MEMBER, ..setup(dir) }).expect("it can be read")
}

/// What is in it, in words: first of the snapshot, then after the rest of the log.
async fn say(opened: &mut Opened) -> String {
    let mut said = String::new();
    let members = opened.shared.membership();
    writeln!(said, "incarnation {:032x}", opened.incarnation).expect("a string grows");
    for (id, member) in members.membership().nodes() {
        writeln!(said, "member {id} {:032x}", member.incarnation).expect("a string grows");
    }
    let voters: Vec<u64> = members.membership().voter_ids().collect();
    writeln!(said, "voters {voters:?}").expect("a string grows");
    say_table(opened, &mut said);
    let first = opened.shared.applied().expect("a snapshot of something").index + 1;
    let last = opened.log.last_index().expect("a log");
    let mut reader = opened.log.get_log_reader().await;
    let entries = reader.try_get_log_entries(first..=last).await.expect("they are all there");
    writeln!(said, "log {first} to {last}").expect("a string grows");
    apply(&mut opened.machine, entries).await;
    say_table(opened, &mut said);
    said
}

fn say_table(opened: &Opened, said: &mut String) {
    let table = opened.shared.table.read();
    let sound = table.sound();
    assert!(sound.is_empty(), "{sound:?}");
    let index = opened.shared.applied().expect("something is applied").index;
    writeln!(said, "at {index}").expect("a string grows");
    writeln!(said, "revision {}, token {}", table.revision(), table.last_token().0)
        .expect("a string grows");
    for grant in table.grants() {
        writeln!(said, "held {} {}", grant.resource.as_str(), grant.token.0)
            .expect("a string grows");
    }
    drop(table);
    let page = opened.history.page(&Filter::EndedUntil(u64::MAX), None, 1_000).expect("readable");
    let mut ended: Vec<u64> = page.records.iter().map(|record| record.grant.token.0).collect();
    ended.sort_unstable();
    writeln!(said, "ended {ended:?}").expect("a string grows");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn golden_directories_of_members_are_read() {
    if std::env::var_os(REWRITE).is_some() {
        rewrite().await;
    }
    let mut read = 0;
    for dir in fs::read_dir(golden()).expect("they are part of the repository") {
        let dir = dir.expect("readable").path();
        if dir.file_name().is_some_and(|name| name.to_string_lossy().contains("-member")) {
            let expected = fs::read_to_string(dir.join(EXPECTED)).expect("it is kept");
            let copy = copy_of(&dir);
            assert_eq!(say(&mut open_member(copy.path())).await, expected, "{}", dir.display());
            read += 1;
        }
    }
    assert!(read > 0, "nothing is kept in {}", golden().display());
}
