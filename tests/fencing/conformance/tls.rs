//! Whom a store is taken for: the one that an authority vouches for, and nobody else.

use std::path::Path;

use leasehold_harness::certificate::{self, CERTIFICATE};
use leasehold_harness::postgres::Postgres;
use leasehold_harness::redis::Redis;
use tempfile::TempDir;

use super::{refused, told};

/// An authority that has signed nothing here.
fn stranger() -> (TempDir, String) {
    let home = TempDir::new().expect("a temporary directory can be made");
    certificate::make(home.path(), "IP:127.0.0.1");
    let file = text(&home.path().join(CERTIFICATE));
    (home, file)
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// What came of looking at a store that is not to be trusted.
#[track_caller]
fn distrusted(args: &[&str]) {
    for call in ["install", "status", "test"] {
        let (code, detail, exit) = refused(&[&[call], args].concat());
        assert_eq!((code.as_str(), exit), ("store_unavailable", Some(69)), "{args:?}: {detail}");
        assert!(detail.contains("certificate"), "{args:?}: {detail}");
        assert!(detail.contains("--ca-file"), "it names the way out: {detail}");
    }
}

const RACE: [&str; 4] = ["--rounds", "60", "--race", "paused-holder"];

#[test]
fn a_database_is_the_one_that_its_authority_vouches_for() {
    let server = Postgres::start_with_tls("IP:127.0.0.1");
    let (authority, (_home, stranger)) = (text(&server.authority()), stranger());
    for mode in ["require", "verify-ca", "verify-full"] {
        let url = format!("{}?sslmode={mode}", server.url());
        let trusted = ["--postgres", &url, "--ca-file", &authority];
        let (installed, code) = told(&[&["install"], &trusted[..]].concat());
        assert_eq!(code, Some(0), "{mode}: {installed}");
        let (report, code) = told(&[&["test"], &trusted[..], &RACE].concat());
        assert_eq!(code, Some(0), "{mode}: {report}");
        distrusted(&["--postgres", &url, "--ca-file", &stranger]);
        distrusted(&["--postgres", &url]);
    }
    // Where TLS is not asked for it is taken if it is there, and not without a look at who it is.
    distrusted(&["--postgres", &server.url()]);
    let plain = format!("{}?sslmode=disable", server.url());
    let (_, detail, _) = refused(&["status", "--postgres", &plain]);
    assert!(detail.contains("28000"), "this server takes nothing but TLS: {detail}");
}

#[test]
fn a_certificate_for_another_name_is_no_proof() {
    let server = Postgres::start_with_tls("DNS:db.example");
    let authority = text(&server.authority());
    for mode in ["require", "verify-full"] {
        let url = format!("{}?sslmode={mode}", server.url());
        distrusted(&["--postgres", &url, "--ca-file", &authority]);
    }
    let server = Redis::builder().tls("DNS:db.example").start();
    distrusted(&["--redis", &server.tls_url(), "--ca-file", &text(&server.authority())]);
}

#[test]
fn a_redis_is_the_one_that_its_authority_vouches_for() {
    let server = Redis::builder().tls("IP:127.0.0.1").start();
    let (authority, (_home, stranger)) = (text(&server.authority()), stranger());
    let url = server.tls_url();
    let trusted = ["--redis", &url, "--ca-file", &authority];
    let (installed, code) = told(&[&["install"], &trusted[..]].concat());
    assert_eq!(code, Some(0), "{installed}");
    let (report, code) = told(&[&["test"], &trusted[..], &RACE].concat());
    assert_eq!(code, Some(0), "{report}");
    distrusted(&["--redis", &url, "--ca-file", &stranger]);
    distrusted(&["--redis", &url]);
    let (code, detail, exit) =
        refused(&["status", "--redis", &server.url(), "--ca-file", &authority]);
    assert_eq!((code.as_str(), exit), ("usage", Some(64)), "{detail}");
}

#[test]
fn a_store_that_does_not_speak_tls_is_not_spoken_to_without() {
    let server = Postgres::start();
    let url = format!("{}?sslmode=require", server.url());
    let (code, detail, exit) = refused(&["status", "--postgres", &url]);
    assert_eq!((code.as_str(), exit), ("store_unavailable", Some(69)), "{detail}");
    assert!(detail.contains("TLS"), "{detail}");
    let server = Redis::start();
    let url = server.url().replace("redis://", "rediss://");
    let (code, detail, exit) = refused(&["status", "--redis", &url]);
    assert_eq!((code.as_str(), exit), ("store_unavailable", Some(69)), "{detail}");
}
