//! Every edge value in one table: the named error, or the exact echo.
//!
//! The bodies are written as text, since half of them are things that no JSON library would write.

use leasehold_harness::{Value, encode, json};

use crate::server;
use Expected::{Granted, Malformed, Refused};

#[derive(Debug, Clone, Copy)]
enum Expected {
    /// 200, and the grant repeats what was asked for.
    Granted,
    /// 400 `invalid_request` that names this field.
    Refused(&'static str),
    /// 400 `invalid_request`; there may be no field to name.
    Malformed,
}

struct Case {
    body: Vec<u8>,
    expected: Expected,
}

/// Numbers that are none, or none that fits, whatever the field.
const NEVER: [&str; 12] = [
    "-1",
    "9007199254740992",
    "9223372036854775808",
    "18446744073709551616",
    "1e400",
    "-1e400",
    r#""60""#,
    "60.5",
    "true",
    "[]",
    "{}",
    "NaN",
];

fn durations() -> Vec<(&'static str, String, Expected)> {
    let mut cases = Vec::new();
    for field in ["ttl_ms", "wait_ms"] {
        for literal in NEVER {
            cases.push((field, literal.to_owned(), Refused(field)));
        }
    }
    let limits = [
        ("ttl_ms", "0", Refused("ttl_ms")),
        ("ttl_ms", "1", Refused("ttl_ms")),
        ("ttl_ms", "499", Refused("ttl_ms")),
        ("ttl_ms", "500", Granted),
        ("ttl_ms", "86400000", Granted),
        ("ttl_ms", "86400001", Refused("ttl_ms")),
        ("ttl_ms", "null", Refused("ttl_ms")),
        ("wait_ms", "0", Granted),
        ("wait_ms", "1", Granted),
        ("wait_ms", "60000", Granted),
        ("wait_ms", "60001", Refused("wait_ms")),
        ("wait_ms", "null", Refused("wait_ms")),
    ];
    cases.extend(limits.map(|(field, literal, expected)| (field, literal.to_owned(), expected)));
    cases
}

fn duration_cases() -> Vec<Case> {
    let body = |i: usize, field: &str, literal: &str| match field {
        "ttl_ms" => format!(r#"{{"resource":"t/{i}","client_id":"c","ttl_ms":{literal}}}"#),
        _ => format!(r#"{{"resource":"w/{i}","client_id":"c","ttl_ms":500,"wait_ms":{literal}}}"#),
    };
    let numbered = durations().into_iter().enumerate();
    numbered
        .map(|(i, (field, literal, expected))| Case {
            body: body(i, field, &literal).into(),
            expected,
        })
        .collect()
}

fn field_cases() -> Vec<Case> {
    let long = "c".repeat(257);
    let id = "i".repeat(129);
    let table = [
        (r#"{"client_id":"c","ttl_ms":500}"#.to_owned(), Refused("resource")),
        (r#"{"resource":"f/1","ttl_ms":500}"#.to_owned(), Refused("client_id")),
        (r#"{"resource":"f/2","client_id":"c"}"#.to_owned(), Refused("ttl_ms")),
        (r#"{"resource":"f/3","client_id":"c","ttl":500}"#.to_owned(), Refused("ttl")),
        (r#"{"resource":"f/4","client_id":"c","ttl_ms":500,"tll_ms":1}"#.to_owned(), Refused("tll_ms")),
        (r#"{"resource":"f/5","client_id":"c","ttl_ms":500,"TTL_MS":1}"#.to_owned(), Refused("TTL_MS")),
        (r#"{"resource":"f/6","client_id":"c","ttl_ms":500,"ttl_ms":600}"#.to_owned(), Refused("ttl_ms")),
        (r#"{"resource":"f/7","resource":"f/7","client_id":"c","ttl_ms":500}"#.to_owned(), Refused("resource")),
        (r#"{"resource":null,"client_id":"c","ttl_ms":500}"#.to_owned(), Refused("resource")),
        (r#"{"resource":8,"client_id":"c","ttl_ms":500}"#.to_owned(), Refused("resource")),
        (r#"{"resource":"f/9","client_id":"","ttl_ms":500}"#.to_owned(), Refused("client_id")),
        (format!(r#"{{"resource":"f/10","client_id":"{}","ttl_ms":500}}"#, &long[1..]), Granted),
        (format!(r#"{{"resource":"f/11","client_id":"{long}","ttl_ms":500}}"#), Refused("client_id")),
        (format!(r#"{{"resource":"f/12","client_id":"c","ttl_ms":500,"request_id":"{}"}}"#, &id[1..]), Granted),
        (format!(r#"{{"resource":"f/13","client_id":"c","ttl_ms":500,"request_id":"{id}"}}"#), Refused("request_id")),
        (r#"{"resource":"f/14","client_id":"c","ttl_ms":500,"mode":"both"}"#.to_owned(), Refused("mode")),
        (r#"{"resource":"f/15","client_id":"c","ttl_ms":500,"mode":"shared"}"#.to_owned(), Granted),
        (r#"{"resource":"f/16","client_id":"c","ttl_ms":500,"lease_id":"00000000000000000000000000000000"}"#.to_owned(), Refused("lease_id")),
        (r#"{"resource":"f/17","client_id":"c","lease_id":"short"}"#.to_owned(), Refused("lease_id")),
        (format!(r#"{{"resource":"f/18","client_id":"c","ttl_ms":500,"metadata":{}}}"#, metadata(16, 8)), Granted),
        (format!(r#"{{"resource":"f/19","client_id":"c","ttl_ms":500,"metadata":{}}}"#, metadata(17, 8)), Refused("metadata")),
        (format!(r#"{{"resource":"f/20","client_id":"c","ttl_ms":500,"metadata":{}}}"#, metadata(16, 300)), Refused("metadata")),
        (r#"{"resource":"f/21","client_id":"c","ttl_ms":500,"metadata":{"a":1}}"#.to_owned(), Refused("metadata.a")),
    ];
    table.map(|(body, expected)| Case { body: body.into(), expected }).into()
}

fn metadata(entries: usize, size: usize) -> Value {
    let entry = |i: usize| (format!("k{i}"), Value::from("v".repeat(size)));
    Value::Object((0..entries).map(entry).collect())
}

fn name_cases() -> Vec<Case> {
    let quoted = |name: &str| Value::from(name).to_string().into_bytes();
    let legal: Vec<String> = [
        "/",
        "//",
        "a//b",
        "path",
        "path/1",
        "path/",
        "..",
        "../../etc/passwd",
        "a/../b",
        ".",
        "%2F",
        "%2f",
        "%00",
        "a b",
        " ",
        " a ",
        "a\u{a0}b",
        "\u{a0}",
        "é",
        "e\u{301}",
        "🔒/🗝️",
        "\u{202e}abc",
        "\u{feff}",
        "\u{10ffff}",
        "a?b=c&d#e",
        "'; DROP TABLE locks; --",
        "<script>",
        "\\",
        "\"",
        "NULL",
        "null",
        "0",
    ]
    .map(str::to_owned)
    .into_iter()
    .chain(["n".repeat(512), "é".repeat(256)])
    .collect();
    let refused = [
        quoted(""),
        quoted(&"n".repeat(513)),
        quoted(&"é".repeat(257)),
        br#""a\u0000b""#.to_vec(),
        br#""a\u007fb""#.to_vec(),
        br#""a\nb""#.to_vec(),
        br#""a\tb""#.to_vec(),
        br#""a\u0085b""#.to_vec(),
        br#""a\u001bb""#.to_vec(),
    ];
    // These are no JSON strings; the error still says where it stopped reading.
    let broken = [
        &b"\"a\nb\""[..],
        b"\"a\0b\"",
        b"\"\xff\xfe\"",
        b"\"\xc3\x28\"",
        br#""\ud800""#,
        br#""\x41""#,
    ];
    let case = |name: &[u8], expected| Case {
        body: [&br#"{"resource":"#[..], name, br#","client_id":"c","ttl_ms":60000}"#].concat(),
        expected,
    };
    let legal = legal.iter().map(|name| case(&quoted(name), Granted));
    let refused = refused.iter().map(|name| case(name, Refused("resource")));
    let broken = broken.iter().map(|name| case(name, Refused("resource")));
    legal.chain(refused).chain(broken).collect()
}

fn body_cases() -> Vec<Case> {
    let deep = [vec![b'['; 10_000], vec![b']'; 10_000]].concat();
    let table: [&[u8]; 13] = [
        b"",
        b" ",
        b"null",
        b"[]",
        b"\"acquire\"",
        b"7",
        b"{",
        b"{\"resource\":\"x\"",
        b"{'resource':'x','client_id':'c','ttl_ms':500}",
        br#"{"resource":"x","client_id":"c","ttl_ms":500} {}"#,
        br#"{"resource":"x","client_id":"c","ttl_ms":500,}"#,
        b"\xef\xbb\xbf{\"resource\":\"x\",\"client_id\":\"c\",\"ttl_ms\":500}",
        b"resource=x&client_id=c&ttl_ms=500",
    ];
    let table = table.iter().map(|body| body.to_vec()).chain([deep]);
    table.map(|body| Case { body, expected: Malformed }).collect()
}

#[test]
fn every_edge_value_gives_the_named_error_or_the_exact_echo() {
    let server = server();
    let mut client = server.client();
    let tables = [duration_cases(), field_cases(), name_cases(), body_cases()];
    let mut wrong = Vec::new();
    for case in tables.iter().flatten() {
        let answer = client.post_bytes("/v1/acquire-lock", &case.body);
        let verdict = match case.expected {
            Refused(field) => {
                let problem = answer.problem_of_any_kind();
                let found = json!([problem["status"], problem["code"], problem["field"]]);
                found == json!([400, "invalid_request", field])
            }
            Malformed => {
                answer.status == 400 && answer.problem_of_any_kind()["code"] == "invalid_request"
            }
            Granted => {
                let asked: Value =
                    serde_json::from_slice(&case.body).expect("a legal body is JSON");
                answer.status == 200 && echoes(&answer.json(), &asked)
            }
        };
        if !verdict {
            let body = String::from_utf8_lossy(&case.body);
            let body: String = body.chars().take(200).collect();
            wrong.push(format!("{body}\n    expected {:?}, got {answer}", case.expected));
        }
    }
    assert!(wrong.is_empty(), "{} wrong answers:\n{}", wrong.len(), wrong.join("\n"));
}

/// Whether each field of the question that a grant has as well came back as it was.
fn echoes(grant: &Value, asked: &Value) -> bool {
    ["resource", "client_id", "ttl_ms", "mode"]
        .iter()
        .all(|field| asked[field].is_null() || asked[field] == grant[field])
}

#[test]
fn names_that_look_alike_are_different_locks() {
    let server = server();
    let mut client = server.client();
    let names = ["path", "path/1", "path/", "path%2F1", "Path", "é", "e\u{301}", "a b", "a\u{a0}b"];
    let tokens = names.map(|name| {
        let body = json!({"resource": name, "client_id": "c", "ttl_ms": 60_000});
        client.acquire(&body).token()
    });
    for (name, token) in names.iter().zip(tokens) {
        let answer = client.get(&format!("/v1/lock?resource={}", encode(name)));
        assert_eq!(answer.ok()["resource"], **name);
        assert_eq!(client.holders(name), [token], "{name}");
        client.let_go(name, token);
    }
}
