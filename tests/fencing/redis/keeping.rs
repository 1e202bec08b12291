//! Tokens stay while the library comes, changes and goes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use leasehold_harness::eventually;
use leasehold_harness::redis::Redis;

use super::{Connection, FENCE, LIBRARY, beaten, fenced, fenced_in_memory};

/// An older version, kept as it was.
const LIBRARY_1: &str = include_str!("leasehold-1.lua");

#[tokio::test]
async fn an_upgrade_keeps_the_tokens() {
    let server = Redis::start();
    let mut redis = Connection::open(&server).await;
    redis.load(LIBRARY_1).await;
    assert_eq!(redis.call("leasehold_version", &[], &[]).await, Ok(1));
    redis.set(33, "old").await.expect("the old holder writes through the old version");
    redis.seal(34).await.expect("the new holder seals through the old version");

    redis.load(LIBRARY).await;

    assert_eq!(redis.call("leasehold_version", &[], &[]).await, Ok(2));
    assert_eq!(redis.highest().await, Some(34));
    beaten(redis.set(33, "late").await, "STALETOKEN", 33, 34);
    redis.set(34, "new").await.expect("the new holder writes through the new version");
}

/// Functions are replaced between two calls, never in the middle of one.
#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_under_load_fails_no_write() {
    let server = Redis::builder().setting("appendonly", "no").start();
    let mut redis = Connection::open(&server).await;
    redis.load(LIBRARY_1).await;
    let (done, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut writer = Connection::open(&server).await;
    let writing = tokio::spawn({
        let (done, count) = (done.clone(), count.clone());
        async move {
            while !done.load(Ordering::Relaxed) {
                let token = count.load(Ordering::Relaxed) + 1;
                writer.set(token, "x").await.expect("no write fails");
                count.store(token, Ordering::Relaxed);
            }
        }
    });
    for library in [LIBRARY, LIBRARY_1].into_iter().cycle().take(21) {
        let before = count.load(Ordering::Relaxed);
        redis.load(library).await;
        eventually("writes go on", || count.load(Ordering::Relaxed) > before + 10);
    }
    done.store(true, Ordering::Relaxed);
    writing.await.expect("no write fails");
    assert_eq!(redis.highest().await, Some(count.load(Ordering::Relaxed)));
}

#[tokio::test]
async fn loading_the_same_version_again_changes_nothing() {
    let (_server, mut redis) = fenced().await;
    redis.seal(34).await.expect("sealed");
    redis.load(LIBRARY).await;
    assert_eq!(redis.highest().await, Some(34));
}

#[tokio::test]
async fn a_removal_keeps_the_tokens_for_whoever_comes_back() {
    let (mut server, mut redis) = fenced().await;
    redis.set(34, "new").await.expect("a holder");
    redis.run::<()>(&["FUNCTION", "DELETE", "leasehold"]).await.expect("removed");

    let error = redis.set(33, "late").await.expect_err("nothing writes past a missing library");
    assert_eq!(error.code(), Some("ERR"), "{error}");
    assert_eq!(redis.data().await.as_deref(), Some("new"));

    server.kill9();
    server.restart();
    let mut redis = Connection::open(&server).await;
    redis.load(LIBRARY).await;
    beaten(redis.set(33, "late").await, "STALETOKEN", 33, 34);
}

#[tokio::test]
async fn the_library_itself_survives_a_restart() {
    let (mut server, _) = fenced().await;
    server.kill9();
    server.restart();
    let mut redis = Connection::open(&server).await;
    assert_eq!(redis.call("leasehold_version", &[], &[]).await, Ok(2));
}

/// Somebody gives every key a time to live. The next holder takes it off its fence.
#[tokio::test]
async fn a_fence_that_was_to_expire_stays() {
    let (_server, mut redis) = fenced().await;
    redis.seal(33).await.expect("sealed");
    redis.run::<()>(&["EXPIRE", FENCE, "1000"]).await.expect("a time to live");
    redis.seal(34).await.expect("sealed");
    assert_eq!(redis.run(&["TTL", FENCE]).await, Ok(-1));
    // So does the write of a holder that has sealed.
    redis.run::<()>(&["EXPIRE", FENCE, "1000"]).await.expect("a time to live");
    redis.set(34, "new").await.expect("an equal token passes");
    assert_eq!(redis.run(&["TTL", FENCE]).await, Ok(-1));
}

/// Who may not take a time to live off the fence may not let it rise either, and not once more.
#[tokio::test]
async fn a_right_that_is_missing_shows_before_the_fence_rises() {
    let (server, mut redis) = fenced().await;
    let user = ["ACL", "SETUSER", "app", "on", "nopass", "~*", "+@all", "-persist"];
    redis.run::<()>(&user).await.expect("a user");
    let mut app = Connection::open(&server).await;
    app.run::<()>(&["AUTH", "app", ""]).await.expect("without a password");
    for attempt in ["first", "second"] {
        app.set(34, "new").await.expect_err(attempt);
        assert_eq!(redis.highest().await, None, "{attempt}");
        assert_eq!(redis.data().await, None, "{attempt}");
    }
}

/// A function replicates what it wrote, so a replica knows the tokens, answers for them, and
/// refuses all writes as long as it is one.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_has_the_tokens_and_refuses_writes() {
    let (server, mut redis) = fenced_in_memory().await;
    redis.set(34, "new").await.expect("a holder");
    let port = server.addr().port().to_string();
    let second = Redis::builder()
        .setting("appendonly", "no")
        .setting("replicaof", format!("127.0.0.1 {port}"))
        .start();
    let mut replica = Connection::open(&second).await;
    assert_eq!(redis.run(&["WAIT", "1", "60000"]).await, Ok(1));

    assert_eq!(replica.highest().await, Some(34));
    let read = ["FCALL_RO", "leasehold_highest", "1", FENCE];
    assert_eq!(replica.run(&read).await, Ok(Some(34_u64)));
    let write = replica.set(35, "x").await.expect_err("a replica takes no writes");
    assert_eq!(write.code(), Some("READONLY"), "{write}");

    replica.run::<()>(&["REPLICAOF", "NO", "ONE"]).await.expect("a failover by hand");
    beaten(replica.set(33, "late").await, "STALETOKEN", 33, 34);
    replica.set(35, "next").await.expect("the promoted one takes writes");
    assert_eq!(replica.data().await.as_deref(), Some("next"));
}
