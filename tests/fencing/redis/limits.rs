//! What Redis grants and denies around the library: rights, memory, slots.

use leasehold_harness::redis::Redis;
use redis::Value;

use super::{Answer, Connection, DATA, FENCE, LIBRARY, beaten, fenced, fenced_in_memory};

/// The user of the guide: functions on both, what the library does to fences, what the application
/// does to its data.
const RIGHTS: [&str; 7] = [
    "on",
    ">secret",
    "resetkeys",
    "-@all",
    "(+fcall ~fence:* ~{invoice/*)",
    "(+hmget +hset +exists +persist ~fence:*)",
    "(+get +set +del ~{invoice/*)",
];

async fn limited(server: &Redis, admin: &mut Connection, rights: &[&str]) -> Connection {
    let words = ["ACL", "SETUSER", "app"].iter().chain(rights).copied().collect::<Vec<_>>();
    admin.run::<()>(&words).await.expect("a user is made");
    Connection::open_url(&format!("redis://app:secret@{}/", server.addr())).await
}

#[track_caller]
fn denied<T: std::fmt::Debug>(answer: Answer<T>) {
    let error = answer.expect_err("it is denied");
    // Redis has more than one way to say so: inside of a function it begins differently.
    let text = error.to_string();
    let known = ["NOPERM", "can't run this command", "can't access", "permissions"];
    assert!(known.iter().any(|one| text.contains(one)), "{text}");
}

#[tokio::test]
async fn a_limited_user_writes_through_the_library_and_cannot_take_it_or_a_fence_away() {
    let (server, mut admin) = fenced().await;
    let mut app = limited(&server, &mut admin, &RIGHTS).await;
    assert_eq!(app.seal(33).await, Ok(None));
    app.set(34, "new").await.expect("it may write its data");
    beaten(app.set(33, "late").await, "STALETOKEN", 33, 34);

    denied(app.run::<Value>(&["DEL", FENCE]).await);
    denied(app.run::<Value>(&["EXPIRE", FENCE, "1"]).await);
    denied(app.run::<Value>(&["HDEL", FENCE, "token"]).await);
    denied(app.run::<Value>(&["FUNCTION", "DELETE", "leasehold"]).await);
    denied(app.run::<Value>(&["FUNCTION", "LOAD", "REPLACE", LIBRARY]).await);
    denied(app.run::<Value>(&["FLUSHALL"]).await);
    denied(app.run::<Value>(&["CONFIG", "SET", "appendfsync", "no"]).await);
    denied(app.call::<Value>("leasehold_set", &[FENCE, "other"], &["34", "x"]).await);
    assert_eq!(admin.highest().await, Some(34));
    assert_eq!(admin.data().await.as_deref(), Some("new"));
}

/// A function has the rights of its caller. So a user who may write the data through the library
/// may also write it past the library: the guide says that, and this shows that it is still so.
#[tokio::test]
async fn rights_cannot_confine_a_user_to_the_library() {
    let (server, mut admin) = fenced().await;
    let only_functions = ["on", ">secret", "resetkeys", "-@all", "+fcall", "~*"];
    let mut app = limited(&server, &mut admin, &only_functions).await;
    denied(app.set(34, "x").await);
    assert_eq!(admin.highest().await, None);

    let mut app = limited(&server, &mut admin, &RIGHTS).await;
    app.set(34, "fenced").await.expect("it may write its data");
    app.run::<()>(&["SET", DATA, "unfenced"]).await.expect("it may do so without a token, too");
}

/// A right that is missing shows before anything was written, never between fence and data.
#[tokio::test]
async fn a_user_without_the_right_to_a_fence_changes_nothing() {
    let (server, mut admin) = fenced().await;
    admin.seal(33).await.expect("a fence");
    let mut rights = RIGHTS;
    rights[5] = "(+hmget +exists +persist ~fence:*)";
    let mut app = limited(&server, &mut admin, &rights).await;

    denied(app.set(34, "x").await);
    denied(app.call::<()>("leasehold_set", &[FENCE, DATA], &["once", "33", "x"]).await);

    assert_eq!((admin.highest().await, admin.data().await), (Some(33), None));
}

/// The token of a holder that may not write the data is seen nevertheless, and not used up.
#[tokio::test]
async fn a_user_without_the_right_to_the_data_raises_the_fence_only() {
    let (server, mut admin) = fenced().await;
    let mut rights = RIGHTS;
    rights[6] = "(+get ~{invoice/*)";
    let mut app = limited(&server, &mut admin, &rights).await;

    denied(app.call::<()>("leasehold_set", &[FENCE, DATA], &["once", "34", "x"]).await);

    assert_eq!((admin.highest().await, admin.data().await), (Some(34), None));
    let once = admin.call::<()>("leasehold_set", &[FENCE, DATA], &["once", "34", "x"]).await;
    once.expect("the token is not used up");
}

/// Refused before it begins: a seal that could not be kept must not look like one.
#[tokio::test]
async fn without_memory_nothing_is_sealed_and_things_can_still_be_deleted() {
    let (_server, mut redis) = fenced_in_memory().await;
    redis.set(33, "old").await.expect("a holder");
    redis.run::<()>(&["CONFIG", "SET", "maxmemory", "1"]).await.expect("no memory any more");

    assert_eq!(redis.seal(34).await.expect_err("no memory").code(), Some("OOM"));
    assert_eq!(redis.set(34, "x").await.expect_err("no memory").code(), Some("OOM"));
    assert_eq!(redis.highest().await, Some(33));
    let stale = redis.call::<u64>("leasehold_del", &[FENCE, DATA], &["32"]).await;
    beaten(stale, "STALETOKEN", 32, 33);
    assert_eq!(redis.call("leasehold_del", &[FENCE, DATA], &["33"]).await, Ok(1));
}

/// Policies that evict only what has a time to live leave fences alone.
#[tokio::test]
async fn a_volatile_eviction_policy_does_not_take_a_fence() {
    let (_server, mut redis) = fenced_in_memory().await;
    redis.seal(34).await.expect("a fence");
    redis.run::<()>(&["CONFIG", "SET", "maxmemory-policy", "volatile-random"]).await.expect("set");
    redis.run::<()>(&["CONFIG", "SET", "maxmemory", "8mb"]).await.expect("set");
    let value = "x".repeat(64 * 1024);
    for key in 0..400 {
        let set = ["SET", &format!("cache:{key}"), &value, "EX", "1000"];
        redis.run::<()>(&set).await.expect("there is always something to evict");
    }
    let stats: String = redis.run(&["INFO", "stats"]).await.expect("statistics");
    let evicted = stats.lines().find_map(|line| line.strip_prefix("evicted_keys:"));
    assert_ne!(evicted, Some("0"), "something was evicted");
    assert_eq!(redis.highest().await, Some(34));
}

/// All keys of a call must live in one slot, and the braces see to that.
#[tokio::test]
async fn in_a_cluster_fence_and_data_share_the_slot_of_their_braces() {
    let server =
        Redis::builder().setting("appendonly", "no").setting("cluster-enabled", "yes").start();
    let mut redis = Connection::open(&server).await;
    redis.run::<()>(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await.expect("all slots");
    while !redis.run::<String>(&["CLUSTER", "INFO"]).await.expect("told").contains("state:ok") {
        tokio::task::yield_now().await;
    }
    redis.load(LIBRARY).await;

    redis.set(34, "new").await.expect("one slot");
    beaten(redis.set(33, "late").await, "STALETOKEN", 33, 34);
    let keys = [FENCE, "invoice:42"];
    let apart = redis.call::<()>("leasehold_set", &keys, &["34", "x"]).await;
    assert_eq!(apart.expect_err("two slots").code(), Some("CROSSSLOT"));
}

/// Answers that a newer protocol knows and an older one does not.
#[tokio::test]
async fn both_protocols_get_the_same_answers() {
    let (server, _) = fenced().await;
    let url = format!("{}?protocol=resp3", server.url());
    let mut redis = Connection::open_url(&url).await;
    assert_eq!(redis.highest().await, None);
    assert_eq!(redis.seal(33).await, Ok(None));
    assert_eq!(redis.seal(34).await, Ok(Some(33)));
    beaten(redis.set(33, "late").await, "STALETOKEN", 33, 34);
    redis.set(34, "new").await.expect("a holder");
}
