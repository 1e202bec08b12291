//! A request that is not exactly as allowed is refused, and the error names the field.

use leasehold_wire::{
    Acquire, AddNode, Batch, CancelWait, ChangeNode, FenceCheck, ForceRelease, ForceWhen, Invalid,
    KeepAlive, KeepAliveMany, OpenLease, Release, Renew, SetDomain, Shape, TransferLeadership,
    parse,
};

fn refusal(body: &[u8]) -> Invalid {
    parse::<Acquire<'_>>(body).expect_err(&format!("refused: {}", String::from_utf8_lossy(body)))
}

/// The body is refused, the error names `field`, and says `says`.
fn refused(body: impl AsRef<[u8]>, field: Option<&str>, says: &str) {
    let invalid = refusal(body.as_ref());
    assert_eq!(invalid.field.as_deref(), field, "{invalid:?}");
    assert!(invalid.to_string().contains(says), "{invalid} should say {says:?}");
}

fn with(field_and_value: &str) -> String {
    format!(r#"{{"resource":"r","client_id":"c",{field_and_value}}}"#)
}

#[test]
fn the_least_request_is_read() {
    let asked: Acquire<'_> =
        parse(br#"{"resource":"a/../b","client_id":"w1","ttl_ms":10000}"#).expect("valid");
    assert_eq!((&*asked.resource, &*asked.client_id, asked.ttl_ms), ("a/../b", "w1", Some(10_000)));
    assert_eq!((asked.wait_ms, asked.keep_place, asked.lease_id), (0, false, None));
}

#[test]
fn escapes_and_order_do_not_matter() {
    let asked: Acquire<'_> =
        parse(br#" { "ttl_ms" : 1, "client_id":"\u00e9", "resource":"\ud83d\udd12/\"" } "#)
            .expect("valid");
    assert_eq!((&*asked.resource, &*asked.client_id), ("🔒/\"", "é"));
}

#[test]
fn a_missing_field_is_named() {
    refused(r#"{"client_id":"c","ttl_ms":1}"#, Some("resource"), "is missing");
    refused(r#"{"resource":"r","ttl_ms":1}"#, Some("client_id"), "is missing");
    refused("{}", Some("resource"), "is missing");
}

#[test]
fn an_unknown_field_is_named_with_those_that_exist() {
    refused(with(r#""ttl":1"#), Some("ttl"), "is not a field");
    let allowed = refusal(with(r#""ttl_sm":1"#).as_bytes()).allowed.expect("says what is allowed");
    assert!(allowed.contains("ttl_ms"), "{allowed}");
    refused(with(&format!(r#""{}":1"#, "x".repeat(9_000))), Some(&"x".repeat(64)), "is not");
}

#[test]
fn a_repeated_field_is_named() {
    refused(with(r#""ttl_ms":1,"ttl_ms":1"#), Some("ttl_ms"), "more than once");
    refused(with(r#""resource":"r","ttl_ms":1"#), Some("resource"), "more than once");
    refused(
        with(r#""ttl_ms":1,"metadata":{"a":"1","a":"2"}"#),
        Some("metadata.a"),
        "more than once",
    );
    refused(
        with(r#""ttl_ms":1,"holding":[{"resource":"a","token":1,"token":2}]"#),
        Some("holding[0].token"),
        "more than once",
    );
}

#[test]
fn a_number_is_a_whole_number_and_nothing_else() {
    for field in ["ttl_ms", "wait_ms", "claim_ms"] {
        for value in [
            r#""60""#,
            "60.5",
            "6e1",
            "1e400",
            "-1",
            "null",
            "true",
            "[]",
            "{}",
            "18446744073709551616",
            "-0.0",
        ] {
            refused(with(&format!(r#""{field}":{value}"#)), Some(field), "");
            let allowed = refusal(with(&format!(r#""{field}":{value}"#)).as_bytes()).allowed;
            assert!(allowed.expect("says what is allowed").contains("whole number"));
        }
    }
    for value in ["0", "9007199254740992", "9223372036854775808", "18446744073709551615"] {
        let body = with(&format!(r#""ttl_ms":{value}"#));
        let asked: Acquire<'_> = parse(body.as_bytes()).expect("a whole number");
        assert_eq!(asked.ttl_ms.expect("given").to_string(), value);
    }
}

#[test]
fn null_is_never_an_absence() {
    for field in [
        "ttl_ms",
        "lease_id",
        "mode",
        "wait_ms",
        "request_id",
        "claim_ms",
        "keep_place",
        "holding",
        "metadata",
        "resource",
        "client_id",
    ] {
        let body = if field == "resource" {
            r#"{"resource":null}"#.to_owned()
        } else if field == "client_id" {
            r#"{"resource":"r","client_id":null}"#.to_owned()
        } else {
            with(&format!(r#""{field}":null"#))
        };
        refused(body, Some(field), "not null");
    }
}

#[test]
fn words_lists_and_maps_are_checked() {
    refused(with(r#""mode":"Exclusive""#), Some("mode"), "one of exclusive, shared");
    refused(with(r#""mode":1"#), Some("mode"), "one of exclusive, shared");
    refused(with(r#""keep_place":"yes""#), Some("keep_place"), "true or false");
    refused(with(r#""holding":{}"#), Some("holding"), "a list of objects");
    refused(with(r#""holding":[1]"#), Some("holding[0]"), "an object");
    refused(
        with(r#""holding":[{"resource":"a","token":"1"}]"#),
        Some("holding[0].token"),
        "a string",
    );
    refused(with(r#""holding":[{"resource":"a"}]"#), Some("holding[0].token"), "is missing");
    refused(with(r#""metadata":{"a":1}"#), Some("metadata.a"), "a string");
    refused(with(r#""metadata":[]"#), Some("metadata"), "strings");
}

#[test]
fn metadata_is_bounded() {
    let pairs = |n: usize| {
        let pairs: Vec<String> = (0..n).map(|i| format!(r#""k{i}":"v""#)).collect();
        with(&format!(r#""metadata":{{{}}}"#, pairs.join(",")))
    };
    assert!(parse::<Acquire<'_>>(pairs(16).as_bytes()).is_ok());
    refused(pairs(17), Some("metadata"), "too large");
    let long = |bytes: usize| with(&format!(r#""metadata":{{"k":"{}"}}"#, "v".repeat(bytes)));
    assert!(parse::<Acquire<'_>>(long(4_095).as_bytes()).is_ok());
    refused(long(4_096), Some("metadata"), "too large");
}

#[test]
fn a_body_that_is_no_object_is_refused_as_a_whole() {
    for body in ["", " \n", "[]", "null", "1", "\"x\"", "true", "{", "}", "\u{feff}{}"] {
        refused(body, None, "");
    }
    refused("", None, "is empty");
    refused(format!("{} x", with(r#""ttl_ms":1"#)), None, "JSON");
    refused("[".repeat(5_000), None, "JSON");
    refused("{\"resource\"", Some("resource"), "JSON");
}

#[test]
fn what_is_not_utf8_is_named() {
    refused(b"{\"resource\":\"a\xff\",\"client_id\":\"c\"}", Some("resource"), "not UTF-8");
    refused(b"{\"resource\":\"r\",\"client_id\":\"\xc3\x28\"}", Some("client_id"), "not UTF-8");
    refused(b"{\"resource\":\"r\",\"\xff\":1}", None, "not UTF-8");
    refused(r#"{"resource":"\ud800","client_id":"c"}"#, Some("resource"), "JSON");
}

#[test]
fn a_field_of_another_verb_is_named_with_its_operation() {
    let shaped = |operation: &str| {
        let body = format!(r#"{{"operations":[{operation}]}}"#);
        let mut batch: Batch<'_> = parse(body.as_bytes()).expect("the union of all fields is read");
        batch.operations.remove(0).shaped().expect_err("refused").field.expect("named").into_owned()
    };
    assert_eq!(shaped(r#"{"op":"release","resource":"r","token":1,"ttl_ms":1}"#), "ttl_ms");
    assert_eq!(shaped(r#"{"op":"renew","resource":"r","token":1,"mode":"shared"}"#), "mode");
    assert_eq!(shaped(r#"{"op":"renew","resource":"r"}"#), "token");
    assert_eq!(shaped(r#"{"op":"acquire","resource":"r","client_id":"c","token":1}"#), "token");
    assert_eq!(shaped(r#"{"op":"acquire","resource":"r"}"#), "client_id");
    let unknown =
        parse::<Batch<'_>>(br#"{"operations":[{"op":"acquire","resource":"r","wait_ms":1}]}"#);
    assert_eq!(unknown.expect_err("no waits").field.as_deref(), Some("operations[0].wait_ms"));
}

/// Both readings of a body must agree: what the typed one refuses, the table must explain.
/// The body is refused as a `T`, the error names `field`, and says `says`.
fn refused_as<'a, T: Shape<'a>>(body: &'a str, field: &str, says: &str) {
    let Err(invalid) = parse::<T>(body.as_bytes()) else { panic!("refused: {body}") };
    assert_eq!(invalid.field.as_deref(), Some(field), "{invalid:?}");
    assert!(invalid.to_string().contains(says), "{invalid} should say {says:?}");
}

#[test]
fn a_forced_release_says_exactly_what_it_ends_and_why() {
    let read = |body: &'static str| parse::<ForceRelease<'_>>(body.as_bytes()).expect(body);
    let asked = read(r#"{"resource":"r","token":33,"reason":"hangs"}"#);
    assert_eq!((&*asked.resource, asked.token, &*asked.reason), ("r", 33, "hangs"));
    assert_eq!(asked.when, ForceWhen::Drain, "the mild way unless the caller says otherwise");
    let now = read(r#"{"when":"now","reason":"","token":0,"resource":"r"}"#);
    assert_eq!(now.when, ForceWhen::Now);
    for (body, field, says) in [
        (r#"{"token":1,"reason":"w"}"#, "resource", "is missing"),
        (r#"{"resource":"r","reason":"w"}"#, "token", "is missing"),
        (r#"{"resource":"r","token":1}"#, "reason", "is missing"),
        (r#"{"resource":"r","token":"1","reason":"w"}"#, "token", "whole number"),
        (r#"{"resource":"r","token":1,"reason":null}"#, "reason", "string"),
        (r#"{"resource":"r","token":1,"reason":"w","when":"later"}"#, "when", "drain, now"),
        (r#"{"resource":"r","token":1,"reason":"w","when":"Now"}"#, "when", "drain, now"),
        (r#"{"resource":"r","token":1,"reason":"w","when":null}"#, "when", "drain, now"),
        (r#"{"resource":"r","token":1,"reason":"w","force":true}"#, "force", "is not a field"),
        (r#"{"resource":"r","token":1,"token":2,"reason":"w"}"#, "token", "more than once"),
    ] {
        refused_as::<ForceRelease<'_>>(body, field, says);
    }
}

#[test]
fn the_settings_of_a_domain_are_given_or_left_out() {
    let read = |body: &'static str| parse::<SetDomain>(body.as_bytes()).expect(body);
    assert_eq!(read("{}").queue_max, None);
    assert_eq!(read(r#"{"queue_max":16}"#).queue_max, Some(16));
    for (body, field, says) in [
        (r#"{"queue_max":null}"#, "queue_max", "whole number"),
        (r#"{"queue_max":-1}"#, "queue_max", "whole number"),
        (r#"{"queue_max":1.5}"#, "queue_max", "whole number"),
        (r#"{"queue_max":"16"}"#, "queue_max", "whole number"),
        (r#"{"queue_max":1,"queue_max":1}"#, "queue_max", "more than once"),
        (r#"{"queue-max":1}"#, "queue-max", "is not a field"),
    ] {
        refused_as::<SetDomain>(body, field, says);
    }
    let empty = parse::<SetDomain>(b"").expect_err("replacing all settings takes a body");
    assert!(empty.to_string().contains("is empty"), "{empty}");
}

#[test]
fn a_change_of_the_cluster_names_its_node() {
    let add = parse::<AddNode<'_>>(br#"{"id":4,"peer_addr":"a:1","reason":"w"}"#).expect("valid");
    assert_eq!((add.id, &*add.peer_addr, add.reason.as_deref()), (4, "a:1", Some("w")));
    let change = parse::<ChangeNode<'_>>(br#"{"id":4}"#).expect("valid");
    assert_eq!((change.id, change.reason), (4, None));
    assert_eq!(parse::<TransferLeadership<'_>>(b"{}").expect("valid").to, None);
    let to = parse::<TransferLeadership<'_>>(br#"{"to":2}"#).expect("valid");
    assert_eq!(to.to, Some(2));
    for (body, field, says) in [
        (r#"{"peer_addr":"a:1"}"#, "id", "is missing"),
        (r#"{"id":4}"#, "peer_addr", "is missing"),
        (r#"{"id":"4","peer_addr":"a:1"}"#, "id", "whole number"),
        (r#"{"id":4,"peer_addr":7}"#, "peer_addr", "string"),
        (r#"{"id":4,"peer_addr":"a:1","reason":null}"#, "reason", "string"),
        (r#"{"id":4,"peer_addr":"a:1","voter":true}"#, "voter", "is not a field"),
        (r#"{"id":4,"id":5,"peer_addr":"a:1"}"#, "id", "more than once"),
    ] {
        refused_as::<AddNode<'_>>(body, field, says);
    }
    refused_as::<ChangeNode<'_>>(r#"{"id":4,"force":true}"#, "force", "is not a field");
    refused_as::<TransferLeadership<'_>>(r#"{"to":null}"#, "to", "whole number");
    refused_as::<TransferLeadership<'_>>(r#"{"id":2}"#, "id", "is not a field");
}

#[test]
fn the_table_of_fields_explains_whatever_the_types_refuse() {
    let values = [
        "null",
        "true",
        "0",
        "-1",
        "1.5",
        "1e400",
        "\"\"",
        "\"exclusive\"",
        "\"acquire\"",
        "[]",
        "[\"a\"]",
        "[1]",
        "[{}]",
        "[{\"resource\":\"r\",\"token\":1}]",
        "{}",
        "{\"a\":\"b\"}",
        "{\"a\":1}",
    ];
    fn all<'a, T: leasehold_wire::Shape<'a>>(body: &'a [u8], typed: fn(&'a [u8]) -> bool) {
        match parse::<T>(body) {
            Ok(_) => assert!(typed(body)),
            Err(invalid) => assert!(
                !invalid.problem.contains("is not as expected"),
                "{invalid} for {}",
                String::from_utf8_lossy(body)
            ),
        }
    }
    let names = [
        "resource",
        "client_id",
        "ttl_ms",
        "lease_id",
        "mode",
        "wait_ms",
        "request_id",
        "claim_ms",
        "keep_place",
        "holding",
        "metadata",
        "token",
        "operations",
        "op",
        "lease_ids",
        "reason",
        "when",
        "queue_max",
        "id",
        "peer_addr",
        "to",
        "other",
    ];
    for name in names {
        for value in values {
            for rest in [
                "",
                r#","resource":"r","client_id":"c""#,
                r#","resource":"r","token":1"#,
                r#","op":"renew""#,
                r#","resource":"r","token":1,"reason":"w""#,
                r#","id":1,"peer_addr":"a:1""#,
            ] {
                let body = format!(r#"{{"{name}":{value}{rest}}}"#);
                let body = body.as_bytes();
                all::<Acquire<'_>>(body, |b| serde_json::from_slice::<Acquire<'_>>(b).is_ok());
                all::<Renew<'_>>(body, |b| serde_json::from_slice::<Renew<'_>>(b).is_ok());
                all::<Release<'_>>(body, |b| serde_json::from_slice::<Release<'_>>(b).is_ok());
                all::<CancelWait<'_>>(body, |b| {
                    serde_json::from_slice::<CancelWait<'_>>(b).is_ok()
                });
                all::<FenceCheck<'_>>(body, |b| {
                    serde_json::from_slice::<FenceCheck<'_>>(b).is_ok()
                });
                all::<OpenLease<'_>>(body, |b| serde_json::from_slice::<OpenLease<'_>>(b).is_ok());
                all::<KeepAlive<'_>>(body, |b| serde_json::from_slice::<KeepAlive<'_>>(b).is_ok());
                all::<KeepAliveMany<'_>>(body, |b| {
                    serde_json::from_slice::<KeepAliveMany<'_>>(b).is_ok()
                });
                all::<ForceRelease<'_>>(body, |b| {
                    serde_json::from_slice::<ForceRelease<'_>>(b).is_ok()
                });
                all::<AddNode<'_>>(body, |b| serde_json::from_slice::<AddNode<'_>>(b).is_ok());
                all::<ChangeNode<'_>>(body, |b| {
                    serde_json::from_slice::<ChangeNode<'_>>(b).is_ok()
                });
                all::<TransferLeadership<'_>>(body, |b| {
                    serde_json::from_slice::<TransferLeadership<'_>>(b).is_ok()
                });
                all::<SetDomain>(body, |b| serde_json::from_slice::<SetDomain>(b).is_ok());
                let operation = format!(r#"{{"operations":[{}]}}"#, String::from_utf8_lossy(body));
                all::<Batch<'_>>(operation.as_bytes(), |b| {
                    serde_json::from_slice::<Batch<'_>>(b).is_ok()
                });
            }
        }
    }
}

#[test]
fn a_list_is_no_object_wherever_it_stands() {
    refused(r#"["r","c",5000]"#, None, "must be an object");
    refused(with(r#""ttl_ms":1,"holding":[["r",1]]"#), Some("holding[0]"), "must be an object");
    let text = r#"{"operations":[["release","r",null,1]]}"#;
    let invalid = parse::<Batch<'_>>(text.as_bytes()).expect_err("a list is no operation");
    assert_eq!(invalid.field.as_deref(), Some("operations[0]"), "{invalid:?}");
    for body in [r#"["r",1]"#, "[]", " [9]"] {
        assert!(parse::<SetDomain>(body.as_bytes()).is_err(), "{body}");
        assert!(parse::<KeepAlive<'_>>(body.as_bytes()).is_err(), "{body}");
        assert!(parse::<Release<'_>>(body.as_bytes()).is_err(), "{body}");
    }
    // Brackets in texts are texts.
    parse::<Release<'_>>(br#"{"resource":"[[\"[","token":1}"#).expect("valid");
    let lists = br#"{"lease_ids":["[[","a"]}"#;
    parse::<KeepAliveMany<'_>>(lists).expect("valid");
}
