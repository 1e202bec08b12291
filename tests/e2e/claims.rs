//! Grants that must be claimed: who does not show that it got its lock loses it after a window of
//! its own choice, long before its TTL.

use std::time::Duration;

use leasehold_harness::{Client, Server, Value, ask, ask_on, eventually, json, with};

use crate::server;

const TTL_MS: u64 = 20_000;

fn claiming(resource: &str, client: &str, claim_ms: u64) -> Value {
    with(ask(resource, client, TTL_MS), json!({"claim_ms": claim_ms}))
}

#[track_caller]
fn queue(server: &Server, body: &Value, place: u64) -> Client {
    let mut waiter = server.client();
    waiter.begin_acquire(&with(body.clone(), json!({"wait_ms": 30_000})));
    let resource = body["resource"].as_str().expect("a name");
    let mut watcher = server.client();
    eventually("the waiter is in line", || watcher.queue_length(resource) == place);
    waiter
}

/// Returns when a grant with this window that nobody claims, made now, has run out. So whatever
/// was made before has outlived the same window, on the server's own clock.
#[track_caller]
fn outlive(client: &mut Client, claim_ms: u64) {
    client.acquire(&claiming("control", "nobody", claim_ms)).token();
    eventually("the control runs out", || client.lock("control")["state"] == "free");
}

#[test]
fn a_grant_that_nobody_claims_passes_to_the_next_waiter_after_its_window_and_not_before() {
    const CLAIM: Duration = Duration::from_millis(1_500);
    let server = server();
    let mut holder = server.client();
    let token = holder.acquire(&ask("r", "a", TTL_MS)).token();
    let mut careless = queue(&server, &claiming("r", "b", 1_500), 1);
    let mut next = queue(&server, &ask("r", "c", TTL_MS), 2);
    let release = holder.release("r", token);
    assert_eq!(release.ok()["released"], true);

    let lost = careless.finish();
    let grant = next.finish();
    assert_eq!((&lost.ok()["client_id"], &grant.ok()["client_id"]), (&json!("b"), &json!("c")));
    assert!(grant.token() > lost.token());
    let passed = grant.received - release.sent;
    assert!(passed >= CLAIM, "it was passed on after {passed:?}");
    assert!(passed < CLAIM + Duration::from_secs(5), "it was passed on after {passed:?}");
    // The wait counts into what is valid, as it is counted from the request. Whoever trusts it
    // stops before somebody else begins.
    assert!(lost.sent + lost.valid_for() <= grant.received, "{lost}\n{grant}");
    assert_eq!(holder.renew("r", lost.token()).problem(410, "grant_ended")["how"], "passed_on");
    // The end of the careless one's TTL, had it had it, is nothing to the next.
    assert_eq!(holder.holders("r"), [grant.token()]);
}

#[test]
fn what_is_valid_without_a_claim_ends_with_the_window_and_not_with_the_ttl() {
    let server = server();
    let mut client = server.client();
    let answer = client.acquire(&claiming("r", "a", 1_200));
    let grant = answer.ok();
    assert_eq!(grant["ttl_ms"], TTL_MS, "{answer}");
    assert!(answer.valid_for() <= Duration::from_millis(1_200), "{answer}");
    assert!(grant["expires_in_ms"].as_u64() <= Some(1_200), "{answer}");
    eventually("it runs out", || client.lock("r")["state"] == "free");
    let ended = client.renew("r", answer.token()).problem(410, "grant_ended");
    assert_eq!(ended["how"], "passed_on", "{ended}");
    // A release that comes too late is told so, as after an expiry.
    let late = client.release("r", answer.token()).problem(410, "grant_ended");
    assert_eq!(late["how"], "passed_on", "{late}");

    // A window beyond the TTL changes nothing: the TTL ends first.
    let answer = client.acquire(&with(claiming("s", "a", 5_000), json!({"ttl_ms": 700})));
    assert!(answer.valid_for() <= Duration::from_millis(700), "{answer}");
    eventually("it expires", || client.lock("s")["state"] == "free");
    let ended = client.renew("s", answer.token()).problem(410, "grant_ended");
    assert_eq!(ended["how"], "expired", "{ended}");
}

#[test]
fn a_renewal_within_the_window_claims_the_grant_for_good() {
    let server = server();
    let mut client = server.client();
    let token = client.acquire(&claiming("r", "a", 1_500)).token();
    let mut next = queue(&server, &ask("r", "b", TTL_MS), 1);
    let renewal = client.renew("r", token);
    assert!(renewal.valid_for() > Duration::from_millis(1_500), "the TTL counts now: {renewal}");
    outlive(&mut client, 1_500);
    assert_eq!(client.holders("r"), [token]);
    assert!(!next.has_answer(), "the lock was given away");
    client.let_go("r", token);
    assert_eq!(next.finish().ok()["client_id"], "b");
}

#[test]
fn a_repeat_of_the_request_after_the_claim_starts_no_window_again() {
    let server = server();
    let mut client = server.client();
    let body = with(claiming("r", "a", 1_500), json!({"request_id": "1"}));
    let token = client.acquire(&body).token();
    client.renew("r", token).ok();
    let repeat = client.acquire(&body);
    assert_eq!(repeat.token(), token);
    // A repeat is a renewal, so it promises what a renewal promises.
    assert!(repeat.valid_for() > Duration::from_millis(1_500), "{repeat}");
    outlive(&mut client, 1_500);
    assert_eq!(client.holders("r"), [token]);
    assert_eq!(server.client().acquire(&body).token(), token);
    outlive(&mut client, 1_500);
    assert_eq!(client.holders("r"), [token]);
}

#[test]
fn of_two_grants_on_one_lease_a_keep_alive_claims_the_one_whose_window_is_still_open() {
    let server = server();
    let mut client = server.client();
    let lease = client.open_lease("a", TTL_MS);
    let on_lease = |resource: &str, claim_ms: u64| {
        with(ask_on(resource, "a", &lease), json!({"claim_ms": claim_ms}))
    };
    let kept = client.acquire(&on_lease("kept", 4_000)).token();
    let lost = client.acquire(&on_lease("lost", 500)).token();
    eventually("the short window is over", || client.lock("lost")["state"] == "free");
    // The lease outlives a grant on it, and so does the other grant.
    assert_eq!(client.holders("kept"), [kept]);
    client.keep_alive(&lease).ok();
    outlive(&mut client, 4_000);
    assert_eq!(client.holders("kept"), [kept]);
    let shown = client.get(&format!("/v1/leases/{lease}")).ok();
    assert_eq!((&shown["grants_total"], &shown["grants"][0]["token"]), (&json!(1), &json!(kept)));
    assert_eq!(client.renew("lost", lost).problem(410, "grant_ended")["how"], "passed_on");
}

#[test]
fn a_window_that_cannot_be_meant_is_refused() {
    let server = server();
    let mut client = server.client();
    for claim_ms in [json!(0), json!(-1), json!("1s"), json!(86_400_001_u64)] {
        let body = with(ask("r", "a", TTL_MS), json!({"claim_ms": claim_ms}));
        let problem = client.acquire(&body).problem(400, "invalid_request");
        assert_eq!(problem["field"], "claim_ms", "{problem}");
    }
    assert_eq!(client.lock("r")["state"], "free");
}
