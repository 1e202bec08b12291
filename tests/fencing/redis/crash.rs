//! The storage dies between seal and write, in the middle of a write, and with a torn log.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_harness::redis::Redis;
use leasehold_harness::{Random, within};

use super::{Connection, DATA, FENCE, beaten, fenced};

#[tokio::test]
async fn a_seal_that_was_acknowledged_survives_a_kill() {
    let (mut server, mut redis) = fenced().await;
    redis.set(33, "old").await.expect("the old holder");
    redis.seal(34).await.expect("the new holder seals");

    server.kill9();
    server.restart();

    let mut redis = Connection::open(&server).await;
    assert_eq!(redis.highest().await, Some(34));
    beaten(redis.set(33, "late").await, "STALETOKEN", 33, 34);
    assert_eq!(redis.data().await.as_deref(), Some("old"));
    redis.set(34, "new").await.expect("the new holder goes on");
}

#[tokio::test]
async fn a_token_that_was_used_up_stays_used_up_after_a_kill() {
    let (mut server, mut redis) = fenced().await;
    let once = ["once", "34", "x"];
    redis.call::<()>("leasehold_set", &[FENCE, DATA], &once).await.expect("the first use");

    server.kill9();
    server.restart();

    let mut redis = Connection::open(&server).await;
    let again = redis.call::<()>("leasehold_set", &[FENCE, DATA], &once).await;
    beaten(again, "TOKENUSED", 34, 34);
}

/// Every write carries a token of its own as its value, so fence and data must say the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_kill_among_writes_loses_no_acknowledged_token_and_leaves_no_half() {
    let (mut server, _) = fenced().await;
    let mut random = Random::new(Random::seed_from_environment());
    let acknowledged = Arc::new(AtomicU64::new(0));
    for _ in 0..5 {
        let before = acknowledged.load(Ordering::SeqCst);
        let writer = tokio::spawn(write_on(Connection::open(&server).await, acknowledged.clone()));
        let enough = before + 1 + random.below(100);
        within(std::time::Duration::from_secs(60), "writes go through", || {
            (acknowledged.load(Ordering::SeqCst) >= enough).then_some(())
        });
        server.kill9();
        writer.await.expect("it does not panic");
        server.restart();

        let mut redis = Connection::open(&server).await;
        let highest = redis.highest().await.expect("there is a fence");
        let acknowledged = acknowledged.load(Ordering::SeqCst);
        assert!(highest >= acknowledged, "{acknowledged} was acknowledged, {highest} is left");
        assert!(highest <= acknowledged + 1, "one write at most was under way");
        assert_eq!(redis.data().await, Some(highest.to_string()));
    }
}

/// Writes until the connection dies.
async fn write_on(mut redis: Connection, acknowledged: Arc<AtomicU64>) {
    let mut token = redis.highest().await.unwrap_or_default();
    loop {
        token += 1;
        match redis.set(token, &token.to_string()).await {
            Ok(()) => acknowledged.store(token, Ordering::SeqCst),
            Err(error) => {
                assert!(error.is_io_error() || error.is_connection_dropped(), "{error}");
                return;
            }
        }
    }
}

/// A crash of the whole machine may cut the log anywhere in what was not acknowledged. Fence and
/// data are one transaction in it, so wherever it is cut, both are there or neither.
#[tokio::test]
async fn a_log_that_was_cut_anywhere_holds_fence_and_data_or_neither() {
    let (mut server, mut redis) = fenced().await;
    redis.set(33, "33").await.expect("the old holder");
    let log = append_only_file(&server);
    let before = fs::read(&log).expect("a log").len();
    let args = ["once", "34", "34"];
    redis.call::<()>("leasehold_set", &[FENCE, DATA], &args).await.expect("the new holder");
    server.kill9();
    let whole = fs::read(&log).expect("a log");
    assert!(whole.len() > before + 100, "there is something to cut");

    for cut in (before..whole.len()).step_by(9).chain([whole.len() - 1, whole.len()]) {
        fs::write(&log, &whole[..cut]).expect("the log can be cut");
        server.restart();
        let mut redis = Connection::open(&server).await;
        let used: Option<u64> = redis.run(&["HGET", FENCE, "used"]).await.expect("a hash");
        let found = (redis.highest().await, redis.data().await, used);
        let (old, new) = ((Some(33), None), (Some(34), Some(34)));
        let (token, used) = if cut == whole.len() { new } else { old };
        assert_eq!(found, (token, token.map(|token: u64| token.to_string()), used), "cut at {cut}");
        server.kill9();
    }
}

/// The newest of the append-only files.
fn append_only_file(server: &Redis) -> PathBuf {
    let files = fs::read_dir(server.data_dir().join("appendonlydir")).expect("a directory");
    let mut files: Vec<PathBuf> = files
        .map(|entry| entry.expect("it can be listed").path())
        .filter(|path| path.to_string_lossy().ends_with(".incr.aof"))
        .collect();
    files.sort_unstable();
    files.pop().expect("a log")
}
