//! The fence with a file.

use super::*;
use leasehold_client::fence::RedbFence;
use leasehold_client::fence::redb::{CloseError, OpenError, guard, seal};
use redb::{Database, TableDefinition};
use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

fn place() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("fence.redb");
    (dir, path)
}

fn open(path: &Path, options: Options) -> RedbFence {
    RedbFence::open(path, options).expect("opens")
}

#[tokio::test]
async fn what_was_seen_is_there_again() {
    let (_dir, path) = place();
    let fence = open(&path, Options::new());
    assert!(fence.was_closed_cleanly(), "new");
    fence.seal(R, 34).await.expect("new");
    drop(fence.admit("strict", 35, Usage::Once).await.expect("new"));
    drop(fence);

    let fence = open(&path, Options::new());
    assert!(!fence.was_closed_cleanly(), "it was dropped");
    assert_eq!(fence.stats().resources, 2);
    assert_eq!(fence.highest(R).await.expect("read"), Some(34));
    assert_eq!(code(fence.admit(R, 33, Usage::Many).await), "stale_token");
    assert_eq!(code(fence.admit("strict", 35, Usage::Once).await), "token_used");
    fence.close().await.expect("clean");
    assert!(code(fence.admit(R, 34, Usage::Many).await) == "fence_storage_failed");
    assert!(matches!(fence.close().await, Err(CloseError::Storage(_))));

    let fence = open(&path, Options::new());
    assert!(fence.was_closed_cleanly());
    let pass = fence.admit(R, 34, Usage::Many).await.expect("equal");
    assert!(matches!(fence.close().await, Err(CloseError::Unclean { in_flight: 1 })));
    drop((pass, fence));
    assert!(!open(&path, Options::new()).was_closed_cleanly());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tokens_that_arrive_together_share_a_sync_and_equal_ones_cost_none() {
    let (_dir, path) = place();
    let fence = open(&path, Options::new());
    let calls = (0..500).map(|n| {
        let fence = fence.clone();
        tokio::spawn(async move { fence.seal(&format!("r{n}"), 7).await })
    });
    for call in join_all(calls).await {
        assert_eq!(call.expect("ran").expect("new"), None);
    }
    let before = fence.stats();
    assert_eq!((before.raises, before.resources), (500, 500));
    assert!(before.commits < 250, "{} commits", before.commits);
    for _ in 0..100 {
        drop(fence.admit("r0", 7, Usage::Many).await.expect("equal"));
    }
    let after = fence.stats();
    assert_eq!((after.commits, after.resources_busy), (before.commits, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_strict_writes_on_disk_one_passes() {
    let (_dir, path) = place();
    let fence = open(&path, Options::new());
    for token in 1..=30 {
        let calls = (0..8).map(|_| {
            let fence = fence.clone();
            tokio::spawn(async move { fence.admit(R, token, Usage::Once).await.is_ok() })
        });
        let passed = join_all(calls).await.into_iter().filter(|call| matches!(call, Ok(true)));
        assert_eq!(passed.count(), 1, "token {token}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_update_is_lost_with_a_fence_on_disk() {
    let (_dir, path) = place();
    let fence = open(&path, Options::new());
    let (accepted, value) = race(Some(fence), ROUNDS).await;
    println!("{ROUNDS} rounds on disk: {accepted} accepted, {} lost", accepted - value);
    assert_eq!(accepted, value);
    assert!(accepted > 0);
}

#[tokio::test]
async fn while_newer_tokens_are_held_only_a_cleared_one_passes() {
    let (_dir, path) = place();
    let fence = open(&path, impatient());
    let pass = fence.admit(R, 34, Usage::Many).await.expect("new");
    assert_eq!(code(fence.admit(R, 35, Usage::Many).await), "older_in_flight");
    drop(fence.admit("calm", 40, Usage::Many).await.expect("new"));
    drop(fence);

    // T_max is 35, and yet 34 may be in flight: its pass was never dropped before the end.
    let fence = open(&path, impatient());
    fence.hold_newer_for(Duration::from_secs(3600));
    let held = fence.admit(R, 35, Usage::Many).await.expect_err("34 may be in flight");
    assert_eq!(held.code(), "older_in_flight");
    assert!(held.retry_after().expect("told") > Duration::from_secs(3000));
    assert_eq!(code(fence.admit(R, 34, Usage::Many).await), "stale_token");
    assert_eq!(code(fence.seal("calm", 41).await), "older_in_flight");
    assert_eq!(code(fence.admit("calm", 40, Usage::Many).await), "stale_token");
    assert!(matches!(fence.close().await, Err(CloseError::Unclean { in_flight: 0 })));
    drop((pass, fence));

    let fence = open(&path, Options::new());
    drop(fence.admit("fresh", 50, Usage::Many).await.expect("new"));
    drop(fence);
    let fence = open(&path, Options::new());
    fence.hold_newer_for(Duration::from_millis(50));
    drop(fence.admit("fresh", 50, Usage::Many).await.expect("the present holder writes on"));
    drop(fence.admit(R, 36, Usage::Many).await.expect("the hold is over"));
    fence.close().await.expect("clean");
}

#[tokio::test]
async fn the_floor_is_kept() {
    let (_dir, path) = place();
    let fence = open(&path, Options::new().resources_max(3));
    for token in 1..=10 {
        fence.seal(&format!("r{token}"), token).await.expect("newer than all");
    }
    drop(fence);
    let fence = open(&path, Options::new().resources_max(3));
    let stats = fence.stats();
    assert_eq!((stats.resources, stats.floor, stats.folded), (3, 7, 0));
    assert_eq!(code(fence.admit("never seen", 6, Usage::Many).await), "stale_token");
    drop(fence.admit("r8", 8, Usage::Many).await.expect("kept apart"));
}

#[tokio::test]
async fn a_second_process_is_refused() {
    let (_dir, path) = place();
    let fence = open(&path, Options::new());
    let second = RedbFence::open(&path, Options::new()).expect_err("in use");
    assert!(matches!(second, OpenError::InUse { .. }), "{second:?}");
    drop(fence);
    open(&path, Options::new());
}

#[test]
fn what_is_no_fence_is_refused_and_left_alone() {
    const OTHER: TableDefinition<'_, &str, u64> = TableDefinition::new("other");
    let (dir, path) = place();
    fs::write(&path, "a text of somebody, much longer than any header".repeat(200))
        .expect("written");
    let before = fs::read(&path).expect("read");
    let refused = RedbFence::open(&path, Options::new()).expect_err("a text");
    assert!(matches!(refused, OpenError::Foreign { .. }), "{refused:?}");
    assert_eq!(fs::read(&path).expect("read"), before);

    fs::write(&path, "").expect("written");
    let refused = RedbFence::open(&path, Options::new()).expect_err("empty");
    assert!(matches!(refused, OpenError::Foreign { .. }), "{refused:?}");
    assert_eq!(fs::read(&path).expect("read").len(), 0);

    let foreign = dir.path().join("foreign.redb");
    let db = Database::create(&foreign).expect("made");
    let txn = db.begin_write().expect("begun");
    txn.open_table(OTHER).expect("made");
    txn.commit().expect("committed");
    drop(db);
    let refused = RedbFence::open(&foreign, Options::new()).expect_err("of somebody else");
    assert!(matches!(refused, OpenError::Foreign { cause: None, .. }), "{refused:?}");

    let nowhere = dir.path().join("no/such/fence.redb");
    let refused = RedbFence::open(&nowhere, Options::new()).expect_err("no directory");
    assert!(matches!(refused, OpenError::Io { .. }), "{refused:?}");
    let refused = RedbFence::open(dir.path(), Options::new()).expect_err("a directory");
    assert!(matches!(refused, OpenError::Io { .. }), "{refused:?}");
}

#[test]
fn another_format_is_refused() {
    const META: TableDefinition<'_, &str, u64> = TableDefinition::new("leasehold_fence_meta");
    for other in [0, 2] {
        let (_dir, path) = place();
        drop(open(&path, Options::new()));
        let db = Database::open(&path).expect("opens");
        let txn = db.begin_write().expect("begun");
        txn.open_table(META).expect("there").insert("format", other).expect("written");
        let guarded = guard(&txn, R, 34, Usage::Many);
        assert_eq!(code(guarded), "fence_storage_failed");
        txn.commit().expect("committed");
        drop(db);
        let refused = RedbFence::open(&path, Options::new()).expect_err("another release");
        assert!(matches!(refused, OpenError::Format { found, reads: 1, .. } if found == other));
    }
}

#[test]
fn a_damaged_file_is_an_error_and_never_a_panic() {
    let (_dir, path) = place();
    block_on(async {
        let fence = open(&path, Options::new());
        for n in 0..200 {
            fence.seal(&format!("resource/{n}"), n + 1).await.expect("new");
        }
        fence.close().await.expect("clean");
    });
    let sound = fs::read(&path).expect("read");
    let mut refused = 0;
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut damaged = sound.clone();
        if seed % 4 == 0 {
            damaged.truncate(random.usize(1..sound.len()));
        } else {
            for _ in 0..64 {
                let at = random.usize(..damaged.len());
                damaged[at] ^= random.u8(1..);
            }
        }
        fs::write(&path, damaged).expect("written");
        refused += usize::from(RedbFence::open(&path, Options::new()).is_err());
    }
    assert!(refused > 30, "{refused} of 60 were found out");
}

#[test]
fn a_caller_s_own_transaction_checks_and_writes_as_one() {
    const DATA: TableDefinition<'_, &str, u64> = TableDefinition::new("data");
    let (dir, _) = place();
    let db = Database::create(dir.path().join("data.redb")).expect("made");
    let write = |token, usage| -> Result<(), Refused> {
        let txn = db.begin_write().expect("begun");
        guard(&txn, R, token, usage)?;
        txn.open_table(DATA).expect("there").insert(R, token).expect("written");
        txn.commit().expect("committed");
        Ok(())
    };
    write(33, Usage::Many).expect("new");
    let txn = db.begin_write().expect("begun");
    assert_eq!(seal(&txn, R, 34).expect("newer"), Some(33));
    // Not committed, so it never was.
    drop(txn);
    write(33, Usage::Many).expect("equal");
    let txn = db.begin_write().expect("begun");
    assert_eq!(seal(&txn, R, 34).expect("newer"), Some(33));
    txn.commit().expect("committed");
    assert_eq!(code(write(33, Usage::Many)), "stale_token");
    write(34, Usage::Once).expect("its one write");
    assert_eq!(code(write(34, Usage::Once)), "token_used");
    assert_eq!(code(write(0, Usage::Many)), "invalid_request");
}

const CHILD: &str = "LEASEHOLD_TEST_FENCE_FILE";

/// Not a test of its own: what the next one kills. Says each token once it is sealed.
#[test]
fn child_that_seals() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    block_on(async {
        let fence = open(Path::new(&path), Options::new());
        let mut out = std::io::stdout();
        for token in fence.highest(R).await.expect("read").unwrap_or_default() + 1.. {
            fence.seal(R, token).await.expect("newer");
            writeln!(out, "sealed {token}").and_then(|()| out.flush()).expect("a reader");
        }
    });
}

#[test]
fn what_was_sealed_survives_a_kill() {
    let (_dir, path) = place();
    let mut highest = 0;
    for round in 1..=10 {
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "on_disk::child_that_seals", "--nocapture"])
            .env(CHILD, &path)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("started");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let sealed = lines.map_while(Result::ok).filter_map(|line| {
            line.split_once("sealed ").and_then(|(_, token)| token.parse::<u64>().ok())
        });
        let mut sealed = sealed.peekable();
        let first = sealed.next().expect("sealed something");
        assert!(first > highest, "round {round}");
        highest = sealed.by_ref().take(round * 7).last().unwrap_or(first);
        child.kill().expect("killed");
        // Said before the kill, and read after it.
        highest = sealed.last().unwrap_or(highest);
        child.wait().expect("gone");
        let fence = open(&path, Options::new());
        assert!(!fence.was_closed_cleanly());
        let seen = block_on(fence.highest(R)).expect("read").expect("sealed");
        assert!(seen == highest || seen == highest + 1, "{seen} after {highest}");
        highest = seen;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn on_disk_it_does_what_the_plain_rule_says(acts in prop::collection::vec(act(), 1..40)) {
        let (_dir, path) = place();
        block_on(async {
            let fence = open(&path, impatient());
            follow(&fence, &acts).await;
            let stats = fence.stats();
            assert_eq!((stats.in_flight, stats.waiting), (0, 0));
        });
    }
}
