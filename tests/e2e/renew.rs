//! Renewals: in time, late, and in the moment in which the lease runs out.

use std::time::{Duration, Instant};

use leasehold_harness::{Answer, Client, History, Server, ask, eventually, json, with, within};

use crate::server;

#[test]
fn a_renewed_lock_outlives_its_first_lease() {
    let server = server();
    let mut client = server.client();
    let grant = client.acquire(&ask("r", "a", 600));
    let token = grant.token();
    while grant.received.elapsed() < Duration::from_millis(1_500) {
        let renewed = client.renew("r", token).ok();
        let (expires, valid) = (&renewed["expires_in_ms"], &renewed["valid_for_ms"]);
        let (expires, valid) =
            (expires.as_u64().expect("a number"), valid.as_u64().expect("a number"));
        assert!(valid <= expires && expires <= 600, "{renewed}");
        client.acquire(&ask("r", "b", 600)).problem(409, "held");
    }
    eventually("it expires once nobody renews it", || client.lock("r")["state"] == "free");
}

#[test]
fn a_renewal_after_the_end_says_how_the_grant_ended() {
    let server = server();
    let mut client = server.client();
    let expired = client.acquire(&ask("expired", "a", 500)).token();
    let released = client.acquire(&ask("released", "a", 10_000)).token();
    client.let_go("released", released);
    eventually("the grant expires", || client.lock("expired")["state"] == "free");
    for (resource, token) in [("expired", expired), ("released", released)] {
        let problem = client.renew(resource, token).problem(410, "grant_ended");
        assert_eq!((&problem["how"], &problem["token"]), (&json!(resource), &json!(token)));
    }
    client.renew("released", released + 1_000).problem(409, "not_holder");
}

#[test]
fn a_renewal_may_change_the_ttl_of_a_lock_with_a_lease_of_its_own() {
    let server = server();
    let mut client = server.client();
    let token = client.acquire(&ask("r", "a", 500)).token();
    let longer = json!({"resource": "r", "token": token, "ttl_ms": 30_000});
    let renewed = client.post("/v1/renew-lock", &longer).ok();
    assert!(renewed["expires_in_ms"].as_u64().is_some_and(|ms| ms > 20_000), "{renewed}");

    // The new TTL holds for plain renewals as well, and beyond a restart.
    let mut server = server;
    server.kill9();
    server.restart();
    let renewed = server.client().renew("r", token).ok();
    assert!(renewed["expires_in_ms"].as_u64().is_some_and(|ms| ms > 20_000), "{renewed}");

    for ttl in [0_u64, 499, 86_400_001] {
        let body = json!({"resource": "r", "token": token, "ttl_ms": ttl});
        let problem = server.client().post("/v1/renew-lock", &body).problem(400, "invalid_request");
        assert_eq!(problem["field"], "ttl_ms");
    }
}

/// A renewal that arrives about when the lease ends is either in time, and then nobody else was let
/// in, or late, and then says so. Others wait all the while, so that an end is seen at once.
#[test]
fn a_renewal_that_races_with_expiry_never_leaves_two_holders() {
    let server = server();
    let history = History::default();
    let rounds: u64 = 24;
    std::thread::scope(|scope| {
        for round in 0..rounds {
            let (server, history) = (&server, &history);
            // Spread over 60 ms around the deadline, as no single instant is the critical one.
            let offset = Duration::from_millis(470 + round * 60 / rounds);
            scope.spawn(move || race(server, history, &format!("race/{round}"), offset));
        }
    });
    assert_eq!(history.breaches(), []);
    assert_eq!(history.grants() as u64, rounds * 2);
}

fn race(server: &Server, history: &History, resource: &str, offset: Duration) {
    let (mut holder, mut waiter) = (server.client(), server.client());
    let grant = holder.acquire(&ask(resource, "holder", 500));
    let token = history.granted("holder", &grant);
    waiter.begin_acquire(&with(ask(resource, "waiter", 10_000), json!({"wait_ms": 30_000})));

    // The instant is what is tested here: there is no event to wait for.
    let wait = offset.saturating_sub(grant.sent.elapsed());
    std::thread::sleep(wait);
    let renewal = holder.renew(resource, token);
    if renewal.status == 200 {
        history.renewed(resource, token, &renewal);
        assert!(
            !ended_before(&mut holder, resource, token, &renewal),
            "{resource}: renewed, yet over"
        );
    } else {
        renewal.problem(410, "grant_ended");
    }
    history.granted("waiter", &waiter.finish());
}

/// Whether the lock went to somebody else while the renewal said that it would not.
fn ended_before(holder: &mut Client, resource: &str, token: u64, renewal: &Answer) -> bool {
    let holds = holder.holders(resource) == [token];
    // A slow machine may ask so late that the end is no surprise.
    !holds && Instant::now() < renewal.sent + renewal.valid_for()
}

#[test]
fn one_keep_alive_renews_many_leases_and_says_which_had_ended() {
    let server = server();
    let mut client = server.client();
    let leases: Vec<String> = (0..500).map(|_| client.open_lease("a", 5_000)).collect();
    let held = json!({"resource": "r", "client_id": "a", "lease_id": leases[7]});
    let token = client.acquire(&held).token();
    client.call("DELETE", &format!("/v1/leases/{}", leases[3]), &[], b"").ok();

    let last = Instant::now() + Duration::from_secs(7);
    within(Duration::from_secs(30), "seven seconds of keep-alive", || {
        let answer = client.post("/v1/leases/keep-alive", &json!({"lease_ids": leases})).ok();
        let results = answer["results"].as_array().expect("a list of results");
        assert_eq!(results.len(), leases.len());
        for (lease, item) in leases.iter().zip(results) {
            assert_eq!(item["lease_id"], **lease);
            match *lease == leases[3] {
                true => assert_eq!(item["code"], "lease_ended", "{item}"),
                false => assert!(item["valid_for_ms"].is_u64(), "{item}"),
            }
        }
        (Instant::now() > last).then_some(())
    });
    assert_eq!(client.holders("r"), [token]);
}
