//! Every value at its edges: taken exactly, or refused by name.

use super::*;
use std::cell::Cell;

/// Counts, so that a test sees whether a lease was opened.
#[derive(Default)]
struct Counting(Cell<u128>);

impl LeaseIds for Counting {
    fn new_lease_id(&self) -> LeaseId {
        self.0.set(self.0.get() + 1);
        LeaseId(self.0.get())
    }
}

fn with_rules<T>(check: impl FnOnce(&Rules<'_>) -> T) -> T {
    let (caller, ids) = (Caller::anonymous(), Counting::default());
    check(&Rules { caller: &caller, limits: Limits::default(), ids: &ids })
}

fn asked_with(body: &str, key: Option<&str>) -> Result<(command::Acquire, u64), Invalid> {
    let shape: wire::Acquire<'_> = wire::parse(body.as_bytes())?;
    with_rules(|rules| acquire(shape, key, rules))
}

fn asked(rest: &str) -> Result<(command::Acquire, u64), Invalid> {
    asked_with(&format!(r#"{{"resource":"r","client_id":"c",{rest}}}"#), None)
}

fn named(rest: &str, field: &str) -> Invalid {
    let invalid = asked(rest).expect_err(rest);
    assert_eq!(invalid.field.as_deref(), Some(field), "{invalid}");
    invalid
}

#[test]
fn a_ttl_is_within_the_limits() {
    for ttl in ["500", "86400000"] {
        let (asked, _) = asked(&format!(r#""ttl_ms":{ttl}"#)).expect(ttl);
        let Basis::Single { ttl_ms, .. } = asked.basis else { panic!("a lease of its own") };
        assert_eq!(ttl_ms.to_string(), ttl);
    }
    for ttl in ["0", "499", "86400001", "9007199254740992", "9223372036854775808"] {
        let invalid = named(&format!(r#""ttl_ms":{ttl}"#), "ttl_ms");
        assert_eq!(invalid.allowed.as_deref(), Some("500 to 86400000"));
    }
}

#[test]
fn exactly_one_of_ttl_and_lease() {
    let id = "0123456789abcdef0123456789abcdef";
    let (explicit, _) = asked(&format!(r#""lease_id":"{id}""#)).expect("a lease");
    let Basis::Explicit { lease } = explicit.basis else { panic!("the lease named") };
    assert_eq!(lease.to_string(), id);
    named(r#""wait_ms":0"#, "ttl_ms");
    named(&format!(r#""ttl_ms":500,"lease_id":"{id}""#), "lease_id");
    for id in ["", "0", "0123456789ABCDEF0123456789ABCDEF", "0123456789abcdef0123456789abcdeg"] {
        named(&format!(r#""lease_id":"{id}""#), "lease_id");
    }
}

#[test]
fn a_wait_is_a_minute_at_most() {
    let (once, zero) = asked(r#""ttl_ms":500"#).expect("no wait");
    assert_eq!((once.wait, zero), (false, 0));
    let (waits, most) = asked(r#""ttl_ms":500,"wait_ms":60000"#).expect("a minute");
    assert_eq!((waits.wait, most), (true, 60_000));
    let invalid = named(r#""ttl_ms":500,"wait_ms":60001"#, "wait_ms");
    assert_eq!(invalid.allowed.as_deref(), Some("0 to 60000"));
}

#[test]
fn names_are_taken_byte_by_byte() {
    let long = "x".repeat(512);
    for name in ["a/../b", "%2F", "\u{a0}", "é", "e\u{301}", "🔒", " ", "path", "path/1", &long]
    {
        let body = serde_json::json!({"resource": name, "client_id": "c", "ttl_ms": 500});
        let (asked, _) = asked_with(&body.to_string(), None).expect(name);
        assert_eq!(asked.resource.as_str(), name);
    }
    for name in ["", "a\0", "\u{7f}", "a\nb", &"x".repeat(513)] {
        let body = serde_json::json!({"resource": name, "client_id": "c", "ttl_ms": 500});
        let invalid = asked_with(&body.to_string(), None).expect_err(name);
        assert_eq!(invalid.field.as_deref(), Some("resource"));
    }
    let body = serde_json::json!({"resource": "r", "client_id": "x".repeat(257), "ttl_ms": 500});
    let invalid = asked_with(&body.to_string(), None).expect_err("too long");
    assert_eq!(invalid.field.as_deref(), Some("client_id"));
}

#[test]
fn the_request_id_comes_from_the_body_or_the_header() {
    let body = r#"{"resource":"r","client_id":"c","ttl_ms":500,"request_id":"a"}"#;
    let bare = r#"{"resource":"r","client_id":"c","ttl_ms":500}"#;
    let id = |body, key| asked_with(body, key).map(|(asked, _)| asked.request_id);
    assert_eq!(id(bare, None).expect("none"), None);
    for (body, key) in [(body, None), (bare, Some("a")), (body, Some("a"))] {
        assert_eq!(id(body, key).expect("one").expect("given").as_str(), "a");
    }
    let field = |body, key| id(body, key).expect_err("refused").field.expect("named").into_owned();
    assert_eq!(field(body, Some("b")), "request_id");
    assert_eq!(field(bare, Some("")), "Idempotency-Key");
    assert_eq!(field(bare, Some(&"x".repeat(129))), "Idempotency-Key");
}

#[test]
fn what_is_held_already_is_checked_one_by_one() {
    let (holds, _) =
        asked(r#""ttl_ms":500,"holding":[{"resource":"a","token":1}]"#).expect("one grant");
    assert_eq!(holds.holding[0].token, Token(1));
    named(
        r#""ttl_ms":500,"holding":[{"resource":"a","token":1},{"resource":"","token":1}]"#,
        "holding[1].resource",
    );
    named(r#""ttl_ms":500,"holding":[{"resource":"a","token":0}]"#, "holding[0].token");
    let many = vec![r#"{"resource":"a","token":1}"#; 257].join(",");
    named(&format!(r#""ttl_ms":500,"holding":[{many}]"#), "holding");
    named(r#""ttl_ms":500,"claim_ms":0"#, "claim_ms");
    named(r#""ttl_ms":500,"claim_ms":86400001"#, "claim_ms");
}

#[test]
fn a_token_is_below_two_to_the_fifty_third() {
    let read = |token: u64| {
        let shape = wire::Release { resource: "r".into(), token, client_id: None };
        release(&shape, &Caller::anonymous()).map(|grant| grant.token)
    };
    assert_eq!(read(1).expect("the first"), Token(1));
    assert_eq!(read((1 << 53) - 1).expect("the last"), Token((1 << 53) - 1));
    for token in [0, 1 << 53, 1 << 63, u64::MAX] {
        assert_eq!(read(token).expect_err("refused").field.as_deref(), Some("token"));
    }
}

#[test]
fn a_batch_is_read_whole_or_not_at_all() {
    let read = |operations: &str| {
        let body = format!(r#"{{"operations":[{operations}]}}"#);
        let shape: wire::Batch<'_> = wire::parse(body.as_bytes()).expect("a batch");
        with_rules(|rules| batch(shape, rules))
    };
    let acquire = r#"{"op":"acquire","resource":"r","client_id":"c","ttl_ms":500}"#;
    let renew = r#"{"op":"renew","resource":"r","token":1,"ttl_ms":500}"#;
    let release = r#"{"op":"release","resource":"r","token":1}"#;
    assert_eq!(read(&[acquire, renew, release].join(",")).expect("three").len(), 3);
    assert!(read("").expect("none").is_empty());
    let field = |operations: &str| {
        let Err(invalid) = read(operations) else { panic!("refused") };
        invalid.field.expect("named").into_owned()
    };
    assert_eq!(
        field(&format!(r#"{acquire},{}"#, renew.replace("500", "499"))),
        "operations[1].ttl_ms"
    );
    assert_eq!(field(&release.replace(r#""r""#, r#""""#)), "operations[0].resource");
    assert_eq!(field(&vec![release; 257].join(",")), "operations");
}

#[test]
fn leases_are_named_by_their_place() {
    let id = "0123456789abcdef0123456789abcdef";
    let read = |ids: Vec<&'static str>| {
        let lease_ids = ids.into_iter().map(Into::into).collect();
        let shape = wire::KeepAliveMany { lease_ids, client_id: None };
        keep_alive_many(&shape, &Caller::anonymous())
    };
    assert_eq!(read(vec![id, id]).expect("two").1.len(), 2);
    let field = |ids| read(ids).expect_err("refused").field.expect("named").into_owned();
    assert_eq!(field(vec![id, "x"]), "lease_ids[1]");
    assert_eq!(field(vec![id; 1_001]), "lease_ids");
}
