//! Arguments that nobody sends by mistake, and those that everybody does.

use redis::Value;

use super::{Connection, DATA, FENCE, beaten, fenced, fenced_in_memory, refused};

/// Everything that the library has written or that was there, to show that nothing changed.
async fn everything(redis: &mut Connection) -> Vec<(String, Vec<u8>)> {
    let mut keys: Vec<String> = redis.run(&["KEYS", "*"]).await.expect("keys are listed");
    keys.sort_unstable();
    let mut all = Vec::new();
    for key in keys {
        let dump = redis.run(&["DUMP", &key]).await.expect("the key exists");
        all.push((key, dump));
    }
    all
}

#[tokio::test]
async fn what_is_no_token_is_refused_whatever_it_resembles() {
    let (_redis, mut redis) = fenced().await;
    redis.set(34, "x").await.expect("a fence");
    let before = everything(&mut redis).await;
    let tokens = [
        "0",
        "-1",
        "+35",
        "035",
        " 35",
        "35 ",
        "35\n",
        "35\0",
        "35abc",
        "0x23",
        "1e3",
        "35.0",
        "٣٥",
        "９",
        "nan",
        "inf",
        "nil",
        "true",
        "Once",
        "ONCE",
        "9007199254740992",
        "9007199254740993",
        "9999999999999999",
        "10000000000000000",
        "18446744073709551650",
        "{}",
        "-9223372036854775808",
    ];
    for token in tokens {
        let set = redis.call::<()>("leasehold_set", &[FENCE, DATA], &[token, "y"]).await;
        refused(set, "INVALIDREQUEST");
        let seal = redis.call::<()>("leasehold_seal", &[FENCE], &[token]).await;
        refused(seal, "INVALIDREQUEST");
    }
    for args in [&["", "y"][..], &[], &["once", ""], &["exclusive", "once"], &["exclusive"]] {
        let set = redis.call::<()>("leasehold_set", &[FENCE, DATA], args).await;
        refused(set, "TOKENREQUIRED");
    }
    assert_eq!(everything(&mut redis).await, before);
}

#[tokio::test]
async fn what_is_no_resource_is_refused() {
    let (_redis, mut redis) = fenced().await;
    let bytes = |bytes: &[u8]| bytes.to_vec();
    let names = [
        bytes(b""),
        bytes(b"a\nb"),
        bytes(b"a\0b"),
        bytes(b"\x7f"),
        bytes(b"\xff"),
        bytes(b"\xc3"),
        bytes(b"\xc0\xaf"),
        bytes(b"\xe0\x80\x80"),
        bytes(b"\xed\xa0\x80"),
        bytes(b"\xf4\x90\x80\x80"),
        bytes(b"\xf0\x8f\xbf\xbf"),
        bytes(b"\xc2\x85"),
        bytes(b"caf\xe9"),
        bytes(b"\x80"),
        "x".repeat(513).into_bytes(),
        [b"fence:{", "x".repeat(513).as_bytes(), b"}"].concat(),
    ];
    for name in names {
        let words = [&b"FCALL"[..], b"leasehold_seal", b"1", &name, b"34"];
        refused(redis.run::<()>(&words).await, "INVALIDREQUEST");
        let words = [&b"FCALL"[..], b"leasehold_highest", b"1", &name];
        refused(redis.run::<()>(&words).await, "INVALIDREQUEST");
    }
    assert_eq!(everything(&mut redis).await, []);
}

#[tokio::test]
async fn too_many_or_too_few_of_anything_is_refused_before_anything_changes() {
    let (_redis, mut redis) = fenced().await;
    redis.set(34, "x").await.expect("a fence");
    let before = everything(&mut redis).await;
    let many: Vec<String> = (0..4096).map(|number| number.to_string()).collect();
    let many: Vec<&str> = std::iter::once("35").chain(many.iter().map(String::as_str)).collect();
    let both: &[&str] = &[FENCE, DATA];
    let cases: [(&str, &[&str], &[&str]); 22] = [
        ("leasehold_seal", &[], &["35"]),
        ("leasehold_seal", both, &["35"]),
        ("leasehold_seal", &[FENCE], &["35", "36"]),
        ("leasehold_seal", &[FENCE], &["once", "35"]),
        ("leasehold_set", &[], &["35", "y"]),
        ("leasehold_set", &[FENCE], &["35", "y"]),
        ("leasehold_set", &[FENCE, DATA, "{invoice/42}:b"], &["35", "y"]),
        ("leasehold_set", both, &["35"]),
        ("leasehold_set", both, &["once", "once", "35", "y"]),
        ("leasehold_set", both, &["exclusive", "shared", "35", "y"]),
        ("leasehold_hset", both, &["35"]),
        ("leasehold_hset", both, &["35", "field"]),
        ("leasehold_hset", both, &["35", "field", "value", "field"]),
        ("leasehold_hset", both, &many),
        ("leasehold_del", &[FENCE], &["35"]),
        ("leasehold_del", both, &["35", "36"]),
        ("leasehold_call", both, &["35"]),
        ("leasehold_call", &[FENCE], &["35", "INCR"]),
        ("leasehold_call", both, &many),
        ("leasehold_highest", &[], &[]),
        ("leasehold_highest", &[FENCE], &["35"]),
        ("leasehold_version", &[FENCE], &[]),
    ];
    for (function, keys, args) in cases {
        refused(redis.call::<Value>(function, keys, args).await, "INVALIDREQUEST");
    }
    assert_eq!(everything(&mut redis).await, before);
}

#[tokio::test]
async fn as_many_arguments_as_are_allowed_do_get_through() {
    let (_redis, mut redis) = fenced().await;
    let fields: Vec<String> = (0..4094).map(|number| number.to_string()).collect();
    let args: Vec<&str> = std::iter::once("34").chain(fields.iter().map(String::as_str)).collect();
    assert_eq!(redis.call("leasehold_hset", &[FENCE, DATA], &args).await, Ok(2047));
    let keys: Vec<String> = (0..4095).map(|number| format!("{DATA}:{number}")).collect();
    let keys: Vec<&str> = std::iter::once(FENCE).chain(keys.iter().map(String::as_str)).collect();
    assert_eq!(redis.call("leasehold_del", &keys, &["34"]).await, Ok(0));
}

#[tokio::test]
async fn no_data_command_reaches_a_fence() {
    let (_redis, mut redis) = fenced().await;
    redis.seal(34).await.expect("a fence");
    let other = "fence:{invoice/43}";
    redis.call::<()>("leasehold_seal", &[other], &["90"]).await.expect("another fence");
    let before = everything(&mut redis).await;
    for data in [FENCE, other] {
        for (function, args) in [
            ("leasehold_del", &["35"][..]),
            ("leasehold_set", &["35", "x"]),
            ("leasehold_hset", &["35", "token", "1"]),
            ("leasehold_call", &["35", "EXPIRE", "1"]),
        ] {
            let answer = redis.call::<Value>(function, &[FENCE, data], args).await;
            refused(answer, "INVALIDREQUEST");
        }
    }
    assert_eq!(everything(&mut redis).await, before);
}

#[tokio::test]
async fn a_key_that_holds_no_fence_is_left_alone() {
    let (_redis, mut redis) = fenced().await;
    let setups: [&[&str]; 10] = [
        &["SET", FENCE, "34"],
        &["SADD", FENCE, "34"],
        &["HSET", FENCE, "customer", "7"],
        &["HSET", FENCE, "used", "7"],
        &["HSET", FENCE, "token", "abc"],
        &["HSET", FENCE, "token", "1e3"],
        &["HSET", FENCE, "token", ""],
        &["HSET", FENCE, "token", "9007199254740992"],
        &["HSET", FENCE, "token", "34", "used", "35"],
        &["HSET", FENCE, "token", "34", "used", "x"],
    ];
    for setup in setups {
        redis.run::<()>(&["FLUSHDB"]).await.expect("empty");
        redis.run::<Value>(setup).await.expect("something else lies there");
        let before = everything(&mut redis).await;
        refused(redis.seal(99).await, "INVALIDREQUEST");
        refused(redis.set(99, "x").await, "INVALIDREQUEST");
        let highest = redis.call::<Value>("leasehold_highest", &[FENCE], &[]).await;
        refused(highest, "INVALIDREQUEST");
        assert_eq!(everything(&mut redis).await, before, "{setup:?}");
    }
}

/// The command on the data fails after the check: the fence has seen the token, the data is as it
/// was, the client gets the error of the command, and the token is not used up.
#[tokio::test]
async fn a_command_that_fails_on_the_data_says_so_and_uses_nothing_up() {
    let (_redis, mut redis) = fenced().await;
    let list = "{invoice/42}:list";
    redis.run::<()>(&["RPUSH", list, "a"]).await.expect("a list");

    let keys = [FENCE, list];
    let hset = redis.call::<u64>("leasehold_hset", &keys, &["once", "34", "f", "v"]).await;
    assert_eq!(hset.expect_err("a list is no hash").code(), Some("WRONGTYPE"));
    let call = redis.call::<u64>("leasehold_call", &keys, &["once", "34", "LPUSH"]).await;
    assert_eq!(call.expect_err("something to push is missing").code(), Some("ERR"));
    let set = redis.call::<()>("leasehold_set", &[FENCE, DATA], &["once", "34", "v", "EX", "0"]);
    assert_eq!(set.await.expect_err("no time to live").code(), Some("ERR"));

    assert_eq!(redis.highest().await, Some(34));
    beaten(redis.seal(33).await, "STALETOKEN", 33, 34);
    assert_eq!(redis.run(&["LRANGE", list, "0", "-1"]).await, Ok(vec!["a".to_owned()]));
    assert_eq!(redis.data().await, None);
    let call = redis.call::<u64>("leasehold_call", &keys, &["once", "34", "RPUSH", "b"]).await;
    assert_eq!(call, Ok(2), "the token is not used up");
    let call = redis.call::<u64>("leasehold_call", &keys, &["once", "34", "RPUSH", "c"]).await;
    beaten(call, "TOKENUSED", 34, 34);
}

#[tokio::test]
async fn an_unlisted_command_is_refused() {
    let (_redis, mut redis) = fenced().await;
    let commands = [
        "FLUSHALL",
        "EVAL",
        "CONFIG",
        "RENAME",
        "COPY",
        "MOVE",
        "SORT",
        "MSET",
        "BITOP",
        "RESTORE",
        "SUBSCRIBE",
        "GET",
        "BITFIELD",
        "LMOVE",
        "",
        "SET\0",
        "hset ",
        "__index",
        "string",
    ];
    for command in commands {
        let call =
            redis.call::<Value>("leasehold_call", &[FENCE, DATA], &["34", command, "a"]).await;
        refused(call, "INVALIDREQUEST");
    }
    assert_eq!(everything(&mut redis).await, []);
}

/// A listed command with a second key would open a way around a fence. Redis itself knows best.
#[tokio::test]
async fn every_listed_command_writes_to_its_first_argument_and_to_nothing_else() {
    let (_redis, mut redis) = fenced_in_memory().await;
    let list = super::LIBRARY.split_once("COMMANDS = {").expect("a list").1;
    let list = list.split_once('}').expect("its end").0;
    let names: Vec<&str> =
        list.split(',').filter_map(|one| one.split_whitespace().next()).collect();
    assert!(names.len() > 40, "{names:?}");
    for name in names {
        let flags: Vec<Vec<Value>> = redis.run(&["COMMAND", "INFO", name]).await.expect("known");
        let [_, _, Value::Array(flags), first, last, _, ..] = &flags[0][..] else {
            panic!("{name}: {flags:?}")
        };
        assert_eq!((first, last), (&Value::Int(1), &Value::Int(1)), "{name}");
        assert!(flags.contains(&Value::SimpleString("write".to_owned())), "{name}");
        assert!(!flags.contains(&Value::SimpleString("movablekeys".to_owned())), "{name}");
        assert!(!flags.contains(&Value::SimpleString("noscript".to_owned())), "{name}");
    }
}

/// Lua has no integers: an answer above 2^53 would be rounded on its way.
#[tokio::test]
async fn counters_answer_exactly() {
    let (_redis, mut redis) = fenced().await;
    let keys = [FENCE, DATA];
    let call = ["34", "INCRBY", "9007199254740993"];
    assert_eq!(redis.call("leasehold_call", &keys, &call).await, Ok(9_007_199_254_740_993_i64));
    assert_eq!(redis.call("leasehold_call", &keys, &["34", "incr"]).await, Ok((1_i64 << 53) + 2));
    let call = ["34", "INCRBY", "-18014398509481989"];
    assert_eq!(redis.call("leasehold_call", &keys, &call).await, Ok(-9_007_199_254_740_995_i64));
    let keys = [FENCE, "{invoice/42}:sums"];
    let call = ["34", "HINCRBY", "field", "9223372036854775807"];
    assert_eq!(redis.call("leasehold_call", &keys, &call).await, Ok(i64::MAX));
}
