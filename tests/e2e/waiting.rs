//! Every way in which a wait ends.

use std::time::{Duration, Instant};

use leasehold_harness::{Client, Server, Value, ask, eventually, json, with};

use crate::server;

/// How long the place of a waiter that went away is kept.
const WINDOW: Duration = Duration::from_secs(2);

fn patient(resource: &str, client: &str, more: Value) -> Value {
    with(with(ask(resource, client, 10_000), json!({"wait_ms": 30_000})), more)
}

/// A new connection that stands in line as the `place`-th.
#[track_caller]
fn queue(server: &Server, body: &Value, place: u64) -> Client {
    let mut waiter = server.client();
    waiter.begin_acquire(body);
    let resource = body["resource"].as_str().expect("a name");
    let mut watcher = server.client();
    eventually("the waiter is in line", || watcher.queue_length(resource) == place);
    waiter
}

#[test]
fn a_waiter_gets_the_lock_with_the_release_and_learns_how_long_it_waited() {
    let server = server();
    let mut holder = server.client();
    let token = holder.acquire(&ask("r", "a", 10_000)).token();
    let asked = Instant::now();
    let mut waiter = queue(&server, &patient("r", "b", json!({})), 1);
    holder.let_go("r", token);
    let grant = waiter.finish();
    assert!(grant.token() > token);
    let waited = grant.ok()["waited_ms"].as_u64().expect("a number");
    assert!(u128::from(waited) <= asked.elapsed().as_millis(), "{grant}");
    // What the client may still do is counted from its request, so the wait is part of it.
    assert!(grant.ok()["valid_for_ms"].as_u64() > Some(9_000), "{grant}");
}

#[test]
fn a_wait_that_times_out_says_so_and_leaves_the_line_before() {
    let server = server();
    let mut client = server.client();
    client.acquire(&ask("r", "a", 30_000)).token();
    let answer = client.acquire(&patient("r", "b", json!({"wait_ms": 300})));
    let problem = answer.problem(409, "wait_timeout");
    assert!(answer.received - answer.sent >= Duration::from_millis(300));
    assert!(problem["waited_ms"].as_u64() >= Some(300), "{problem}");
    assert_eq!(problem["position"], 1, "{problem}");
    assert_eq!(problem["holders"][0]["client_id"], "a", "{problem}");
    assert_eq!(client.queue_length("r"), 0);
}

#[test]
fn a_waiter_that_hangs_up_without_a_request_id_leaves_the_line_at_once() {
    let server = server();
    let mut holder = server.client();
    let token = holder.acquire(&ask("r", "a", 30_000)).token();
    let gone = queue(&server, &patient("r", "b", json!({})), 1);
    let mut next = queue(&server, &patient("r", "c", json!({})), 2);
    let hung_up = Instant::now();
    drop(gone);
    eventually("the line shortens", || holder.queue_length("r") == 1);
    assert!(hung_up.elapsed() < WINDOW, "it took {:?}", hung_up.elapsed());
    holder.let_go("r", token);
    assert_eq!(next.finish().ok()["client_id"], "c");
}

#[test]
fn a_waiter_that_hangs_up_with_a_request_id_finds_its_place_again() {
    let server = server();
    let mut holder = server.client();
    let token = holder.acquire(&ask("r", "a", 30_000)).token();
    let body = patient("r", "b", json!({"request_id": "1"}));
    let gone = queue(&server, &body, 1);
    let mut behind = queue(&server, &patient("r", "c", json!({})), 2);
    drop(gone);
    let mut back = server.client();
    back.begin_acquire(&body);
    let line = holder.lock("r");
    assert_eq!(line["queue"][0]["client_id"], "b", "{line}");
    assert_eq!(line["queue_length"], 2, "{line}");
    // The loss of the older connection, noticed late, must not undo the newer one.
    std::thread::sleep(WINDOW + Duration::from_millis(500));
    holder.let_go("r", token);
    let grant = back.finish();
    assert_eq!(grant.ok()["client_id"], "b");
    holder.let_go("r", grant.token());
    assert_eq!(behind.finish().ok()["client_id"], "c");
}

#[test]
fn the_place_of_a_waiter_that_does_not_come_back_is_kept_for_one_window_only() {
    let server = server();
    let mut holder = server.client();
    holder.acquire(&ask("r", "a", 30_000)).token();
    let gone = queue(&server, &patient("r", "b", json!({"request_id": "1"})), 1);
    let hung_up = Instant::now();
    drop(gone);
    eventually("the place is given up", || holder.queue_length("r") == 0);
    let kept = hung_up.elapsed();
    assert!(kept > WINDOW / 2 && kept < WINDOW * 3, "kept for {kept:?}");
}

#[test]
fn a_waiter_that_is_away_is_passed_over_but_not_forgotten() {
    let server = server();
    let mut holder = server.client();
    let token = holder.acquire(&ask("r", "a", 30_000)).token();
    let body = patient("r", "b", json!({"request_id": "1", "keep_place": true, "wait_ms": 100}));
    let mut away = server.client();
    away.acquire(&body).problem(409, "wait_timeout");
    assert_eq!(holder.queue_length("r"), 1, "its place is kept");
    let mut here = queue(&server, &patient("r", "c", json!({})), 2);
    holder.let_go("r", token);
    let grant = here.finish();
    assert_eq!(grant.ok()["client_id"], "c", "only who is there is served");

    let mut last = queue(&server, &patient("r", "d", json!({})), 2);
    away.begin_acquire(&with(body, json!({"wait_ms": 100})));
    eventually("it is there again", || holder.lock("r")["queue"][0]["client_id"] == "b");
    holder.let_go("r", grant.token());
    let first = match away.finish() {
        answer if answer.status == 200 => answer,
        // On a slow machine its second wait is over as well, and the one behind it was served.
        answer => return drop(answer.problem(409, "wait_timeout")),
    };
    holder.let_go("r", first.token());
    assert_eq!(last.finish().ok()["client_id"], "d");
}

#[test]
fn a_waiter_that_never_reads_its_grant_delays_the_next_by_its_ttl() {
    let server = server();
    let mut holder = server.client();
    let token = holder.acquire(&ask("r", "a", 30_000)).token();
    let silent = queue(&server, &patient("r", "b", json!({"ttl_ms": 1_500})), 1);
    let mut next = queue(&server, &patient("r", "c", json!({})), 2);
    let released = Instant::now();
    holder.let_go("r", token);
    assert_eq!(next.finish().ok()["client_id"], "c");
    let delay = released.elapsed();
    assert!(delay >= Duration::from_millis(1_500), "the silent one lost its lock after {delay:?}");
    assert!(delay < Duration::from_millis(6_000), "the next one waited {delay:?}");
    drop(silent);
}

#[test]
fn a_grant_that_must_be_claimed_passes_on_when_nobody_claims_it() {
    let server = server();
    let mut holder = server.client();
    let token = holder.acquire(&ask("r", "a", 30_000)).token();
    let claim = json!({"claim_ms": 700});
    let mut careless = queue(&server, &patient("r", "b", claim.clone()), 1);
    let mut careful = queue(&server, &patient("r", "c", claim), 2);
    holder.let_go("r", token);
    let lost = careless.finish().token();
    let kept = careful.finish().token();
    assert_eq!(holder.renew("r", lost).problem(410, "grant_ended")["how"], "passed_on");
    holder.renew("r", kept).ok();
    std::thread::sleep(Duration::from_millis(1_000));
    assert_eq!(holder.holders("r"), [kept], "it was claimed");
}

#[test]
fn a_cancelled_wait_ends_at_once_and_leaves_the_line() {
    let server = server();
    let mut holder = server.client();
    let token = holder.acquire(&ask("r", "a", 30_000)).token();
    let mut waiter = queue(&server, &patient("r", "b", json!({"request_id": "1"})), 1);
    let cancelled = Instant::now();
    let cancel = json!({"client_id": "b", "request_id": "1"});
    assert_eq!(holder.post("/v1/cancel-wait", &cancel).ok()["cancelled"], true);
    assert_eq!(holder.queue_length("r"), 0);
    let problem = waiter.finish().problem_of_any_kind();
    assert!(cancelled.elapsed() < Duration::from_secs(10), "{problem}");
    // Nothing is left to cancel, and that is no error: the caller wanted it gone.
    assert_eq!(holder.post("/v1/cancel-wait", &cancel).ok()["cancelled"], false);
    holder.let_go("r", token);
    assert_eq!(holder.lock("r")["state"], "free");
}

#[test]
fn shared_holders_go_together_and_an_exclusive_waiter_stops_later_ones() {
    let server = server();
    let mut client = server.client();
    let shared = json!({"mode": "shared"});
    let one = client.acquire(&with(ask("r", "s1", 30_000), shared.clone())).token();
    let two = client.acquire(&with(ask("r", "s2", 30_000), shared.clone())).token();
    assert_eq!(client.holders("r").len(), 2);
    let mut writer = queue(&server, &patient("r", "x", json!({})), 1);
    let mut third = queue(&server, &patient("r", "s3", shared.clone()), 2);
    let mut fourth = queue(&server, &patient("r", "s4", shared), 3);
    client.let_go("r", one);
    assert!(!writer.has_answer(), "one shared holder is left");
    client.let_go("r", two);
    let grant = writer.finish();
    assert!(!third.has_answer() && !fourth.has_answer(), "the writer is alone");
    client.let_go("r", grant.token());
    let tokens = [third.finish().token(), fourth.finish().token()];
    let mut holders = client.holders("r");
    holders.sort_unstable();
    assert_eq!(holders, tokens);
}
