//! Tokens are the service's own: nobody invents one.

use super::process::{Proxy, copy_files};
use super::scripted::Scripted;
use super::{begin_put, service};
use leasehold_harness::nginx::Nginx;
use leasehold_harness::{Server, eventually, json};
use std::path::Path;

pub(super) fn grant(service: &Server, resource: &str) -> u64 {
    let asked = json!({ "resource": resource, "client_id": "me", "ttl_ms": 60_000 });
    service.client().post("/v1/acquire-lock", &asked).token()
}

pub(super) fn release(service: &Server, resource: &str, token: u64) {
    let asked = json!({ "resource": resource, "token": token });
    service.client().post("/v1/release-lock", &asked).ok();
}

#[test]
fn an_invented_token_is_refused_and_leaves_the_resource_as_it_was() {
    let (service, nginx) = (service(), Nginx::start());
    let proxy = Proxy::builder(&service, &nginx.url()).start();
    let token = grant(&service, "r");
    let huge = (1 << 53) - 1;
    let problem = begin_put(&proxy, "/a", "r", huge).finish().problem(412, "unknown_token");
    assert_eq!((&problem["token"], &problem["highest_token"]), (&huge.into(), &token.into()));
    begin_put(&proxy, "/a", "never-locked", 1).finish().problem(412, "unknown_token");
    // Recorded, it would have locked out everybody for ever.
    assert_eq!(begin_put(&proxy, "/a", "r", token).finish().status, 201);
    assert_eq!(proxy.metric("checks_total{verdict=\"good\"}"), 1.0);
    // A token that was seen is not asked about again.
    assert_eq!(begin_put(&proxy, "/a", "r", token).finish().status, 204);
    assert_eq!(proxy.metric("checks_total{verdict=\"good\"}"), 1.0);
}

#[test]
fn a_token_that_the_service_knows_to_be_overtaken_is_stale_at_first_sight() {
    let (service, upstream) = (service(), Scripted::start());
    let proxy = Proxy::builder(&service, &upstream.url()).start();
    let older = grant(&service, "r");
    release(&service, "r", older);
    let newer = grant(&service, "r");
    let problem = begin_put(&proxy, "/a", "r", older).finish().problem(412, "stale_token");
    assert_eq!(problem["highest_token"], newer);
    assert!(upstream.try_accept().is_none());
}

/// Whatever is done to the directory between two starts, what was overtaken stays refused.
#[track_caller]
fn after_a_loss(lose: impl FnOnce(&Path, &Path)) {
    let (service, nginx) = (service(), Nginx::start());
    let mut proxy = Proxy::builder(&service, &nginx.url()).start();
    let older = grant(&service, "r");
    assert_eq!(begin_put(&proxy, "/a", "r", older).finish().status, 201);
    assert!(proxy.stop().success());
    let backup = proxy.back_up();
    proxy.start_again();
    release(&service, "r", older);
    let newer = grant(&service, "r");
    assert_eq!(begin_put(&proxy, "/a", "r", newer).finish().status, 204);
    assert!(proxy.stop().success());
    lose(&proxy.data(), &backup);
    proxy.start_again();
    let problem = begin_put(&proxy, "/a", "r", older).finish().problem(412, "stale_token");
    assert_eq!(problem["highest_token"], newer);
    assert_eq!(begin_put(&proxy, "/a", "r", newer).finish().status, 204);
}

#[test]
fn an_older_directory_that_was_restored_trusts_nobody_from_before() {
    after_a_loss(|data, backup| {
        std::fs::remove_dir_all(data).expect("removed");
        std::fs::rename(backup, data).expect("renamed");
    });
}

#[test]
fn a_file_system_that_was_turned_back_trusts_nobody_from_before() {
    after_a_loss(|data, backup| copy_files(backup, data));
}

#[test]
fn a_directory_that_was_turned_back_within_its_tenure_asks_about_each_token_once() {
    let (service, nginx) = (service(), Nginx::start());
    let mut proxy = Proxy::builder(&service, &nginx.url())
        .flag("--lock-ttl", "1s")
        .flag("--check-timeout", "500ms")
        .flag("--upstream-settle", "1ms")
        .flag("--upstream-timeout", "1s")
        .start();
    let older = grant(&service, "r");
    assert_eq!(begin_put(&proxy, "/a", "r", older).finish().status, 201);
    let backup = proxy.back_up();
    release(&service, "r", older);
    let newer = grant(&service, "r");
    assert_eq!(begin_put(&proxy, "/a", "r", newer).finish().status, 204);
    proxy.kill9();
    copy_files(&backup, &proxy.data());
    proxy.start_again();
    let problem = begin_put(&proxy, "/a", "r", older).finish().problem(412, "stale_token");
    assert_eq!(problem["highest_token"], newer);
    eventually("the newer one is asked about no more", || {
        let asked = proxy.metric("checks_total{verdict=\"good\"}");
        assert_eq!(begin_put(&proxy, "/a", "r", newer).finish().status, 204);
        asked >= 1.0 && proxy.metric("checks_total{verdict=\"good\"}") == asked
    });
}

#[test]
fn a_directory_that_lost_its_tokens_trusts_nobody_from_before() {
    after_a_loss(|data, _| std::fs::remove_file(data.join("fence.redb")).expect("removed"));
}

#[test]
fn a_service_that_is_away_stops_new_tokens_and_not_those_that_were_seen() {
    let (mut service, nginx) = (service(), Nginx::start());
    let proxy = Proxy::builder(&service, &nginx.url())
        .flag("--check-timeout", "500ms")
        .flag("--lock-ttl", "1h")
        .start();
    let (seen, unseen) = (grant(&service, "r"), grant(&service, "s"));
    assert_eq!(begin_put(&proxy, "/a", "r", seen).finish().status, 201);
    service.kill9();
    let answer = begin_put(&proxy, "/a", "s", unseen).finish();
    answer.problem(503, "check_unavailable");
    assert!(answer.header("retry-after").is_some(), "{answer}");
    assert_eq!(begin_put(&proxy, "/a", "r", seen).finish().status, 204);
    service.restart();
}
