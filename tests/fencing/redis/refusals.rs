//! Who is let through and who is not.

use leasehold_harness::json;

use super::{DATA, FENCE, beaten, fenced, refusal, refused};

#[tokio::test]
async fn a_stale_write_is_refused_and_names_both_tokens() {
    let (_redis, mut redis) = fenced().await;
    redis.set(33, "old").await.expect("the first holder writes");
    redis.set(34, "new").await.expect("the next holder writes");

    beaten(redis.set(33, "late").await, "STALETOKEN", 33, 34);

    assert_eq!(redis.data().await.as_deref(), Some("new"));
    assert_eq!(redis.highest().await, Some(34));
}

#[tokio::test]
async fn every_kind_of_write_refuses_a_stale_token_and_changes_nothing() {
    let (_redis, mut redis) = fenced().await;
    let data = "{invoice/42}:lines";
    redis.run::<()>(&["HSET", data, "sum", "5"]).await.expect("a hash");
    redis.seal(34).await.expect("sealed");

    let keys = [FENCE, data];
    let hset = redis.call::<u64>("leasehold_hset", &keys, &["33", "sum", "6"]).await;
    beaten(hset, "STALETOKEN", 33, 34);
    let del = redis.call::<u64>("leasehold_del", &keys, &["33"]).await;
    beaten(del, "STALETOKEN", 33, 34);
    let call = redis.call::<u64>("leasehold_call", &keys, &["33", "HINCRBY", "sum", "1"]).await;
    beaten(call, "STALETOKEN", 33, 34);
    beaten(redis.seal(33).await, "STALETOKEN", 33, 34);

    let sum: String = redis.run(&["HGET", data, "sum"]).await.expect("it is still there");
    assert_eq!(sum, "5");
}

#[tokio::test]
async fn every_kind_of_write_answers_what_its_command_answers() {
    let (_redis, mut redis) = fenced().await;
    let keys = [FENCE, "{invoice/42}:lines"];
    let hset = ["34", "a", "1", "b", "2"];
    assert_eq!(redis.call("leasehold_hset", &keys, &hset).await, Ok(2));
    assert_eq!(redis.call("leasehold_call", &keys, &["34", "hincrby", "a", "4"]).await, Ok(5));
    assert_eq!(redis.call("leasehold_del", &keys, &["34"]).await, Ok(1));
    assert_eq!(redis.call("leasehold_del", &keys, &["34"]).await, Ok(0));

    let keys = [FENCE, DATA];
    let set = ["34", "one", "NX", "PX", "60000"];
    assert_eq!(redis.call("leasehold_set", &keys, &set).await, Ok(Some("OK".to_owned())));
    assert_eq!(redis.call("leasehold_set", &keys, &set).await, Ok(None::<String>));
    let get = ["34", "two", "GET"];
    assert_eq!(redis.call("leasehold_set", &keys, &get).await, Ok(Some("one".to_owned())));
    let keys = [FENCE, DATA, "{invoice/42}:a", "{invoice/42}:b"];
    redis.run::<()>(&["MSET", keys[2], "1", keys[3], "2"]).await.expect("set");
    assert_eq!(redis.call("leasehold_del", &keys, &["34"]).await, Ok(3));
}

#[tokio::test]
async fn an_equal_token_passes_again_and_again() {
    let (_redis, mut redis) = fenced().await;
    assert_eq!(redis.seal(34).await, Ok(None));
    assert_eq!(redis.seal(34).await, Ok(Some(34)), "sealing twice does no harm");
    for value in ["1", "2", "3"] {
        redis.set(34, value).await.expect("the same holder's next write");
    }
    assert_eq!(redis.data().await.as_deref(), Some("3"));
}

#[tokio::test]
async fn a_seal_alone_shuts_out_the_older_holder() {
    let (_redis, mut redis) = fenced().await;
    assert_eq!(redis.seal(33).await, Ok(None));
    assert_eq!(redis.seal(34).await, Ok(Some(33)), "it tells what there was before");
    beaten(redis.set(33, "late").await, "STALETOKEN", 33, 34);
    assert_eq!(redis.data().await, None);
}

#[tokio::test]
async fn a_new_holder_is_let_in_without_a_seal_and_shuts_out_the_older_one() {
    let (_redis, mut redis) = fenced().await;
    redis.set(34, "new").await.expect("a guard raises the fence as well");
    beaten(redis.seal(33).await, "STALETOKEN", 33, 34);
}

#[tokio::test]
async fn once_lets_a_token_through_once() {
    let (_redis, mut redis) = fenced().await;
    let keys = [FENCE, DATA];
    redis.seal(34).await.expect("a seal is no use");
    let once = redis.call::<()>("leasehold_set", &keys, &["once", "34", "first"]).await;
    once.expect("the first use");

    let again = redis.call::<()>("leasehold_set", &keys, &["once", "34", "second"]).await;
    beaten(again, "TOKENUSED", 34, 34);
    let other = redis.call::<u64>("leasehold_del", &keys, &["exclusive", "once", "34"]).await;
    beaten(other, "TOKENUSED", 34, 34);
    assert_eq!(redis.data().await.as_deref(), Some("first"));

    redis.set(34, "third").await.expect("only `once` counts uses");
    redis.seal(35).await.expect("the next holder");
    let stale = redis.call::<()>("leasehold_set", &keys, &["once", "34", "fourth"]).await;
    beaten(stale, "STALETOKEN", 34, 35);
    let next = redis.call::<()>("leasehold_set", &keys, &["once", "35", "fifth"]).await;
    next.expect("the next holder's first use");
}

#[tokio::test]
async fn the_token_of_a_shared_grant_neither_seals_nor_writes() {
    let (_redis, mut redis) = fenced().await;
    let seal = redis.call::<()>("leasehold_seal", &[FENCE], &["shared", "34"]).await;
    refused(seal, "SHAREDTOKEN");
    let set = redis.call::<()>("leasehold_set", &[FENCE, DATA], &["shared", "34", "x"]).await;
    refused(set, "SHAREDTOKEN");
    assert_eq!((redis.highest().await, redis.data().await), (None, None));
    let seal = redis.call::<()>("leasehold_seal", &[FENCE], &["exclusive", "34"]).await;
    seal.expect("the other word for the mode is fine");
}

#[tokio::test]
async fn fences_of_different_resources_have_nothing_to_do_with_each_other() {
    let (_redis, mut redis) = fenced().await;
    redis.set(34, "x").await.expect("one resource");
    let other = ["fence:{invoice/43}", "{invoice/43}"];
    redis.call::<()>("leasehold_set", &other, &["1", "y"]).await.expect("another one");
    assert_eq!(redis.highest().await, Some(34));
}

/// A name is repeated in the refusal as it is, whatever it is made of.
#[tokio::test]
async fn the_refusal_names_the_resource_exactly() {
    let (_redis, mut redis) = fenced().await;
    let longest = "é".repeat(256);
    let names =
        ["a", "quo\"te", "back\\slash\\", "sl/ash", "braces}{", "Grüße 🔒", "%s %d", &longest];
    for name in names {
        let fence = format!("fence:{{{name}}}");
        let newest = redis.call::<()>("leasehold_seal", &[&fence], &["9007199254740991"]).await;
        newest.unwrap_or_else(|error| panic!("{fence}: {error}"));
        let stale = redis.call::<()>("leasehold_seal", &[&fence], &["9007199254740990"]).await;
        let (_, json) = refusal(stale);
        let expected = json!({
            "code": "stale_token", "resource": name,
            "token": 9_007_199_254_740_990_u64, "highest_token": 9_007_199_254_740_991_u64,
        });
        assert_eq!(json, expected);
    }
}

/// A fence that is called like data could be deleted, or set back, through the library itself.
#[tokio::test]
async fn only_a_key_that_is_called_like_a_fence_is_one_and_no_such_key_is_data() {
    let (_redis, mut redis) = fenced().await;
    redis.set(34, "x").await.expect("a fence");
    for fence in ["invoice/42", "{invoice/43}", "fence:invoice/42", "fence:{}", "fence:{a}b"] {
        for call in ["leasehold_seal", "leasehold_highest"] {
            let args: &[&str] = if call == "leasehold_seal" { &["35"] } else { &[] };
            refused(redis.call::<()>(call, &[fence], args).await, "INVALIDREQUEST");
        }
        assert_eq!(redis.run(&["EXISTS", fence]).await, Ok(0));
    }
    let taken = redis.call::<()>("leasehold_del", &["fence:{other}", FENCE], &["1"]).await;
    refused(taken, "INVALIDREQUEST");
    let lowered = &["4", "token", "1"];
    let lowered = redis.call::<()>("leasehold_hset", &["fence:{other}", FENCE], lowered).await;
    refused(lowered, "INVALIDREQUEST");
    assert_eq!(redis.highest().await, Some(34));
}
