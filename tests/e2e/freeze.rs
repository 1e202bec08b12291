//! Time that one side did not live through: a frozen server and a suspended client.

use std::time::Duration;

use leasehold_harness::{ask, ask_on, eventually, json, with};

use crate::server;

#[test]
fn a_server_that_was_frozen_for_longer_than_the_ttl_expires_nothing_early() {
    let server = server();
    let mut client = server.client();
    let tokens: Vec<u64> =
        (0..20).map(|i| client.acquire(&ask(&format!("r{i}"), "a", 2_000)).token()).collect();
    let mut waiter = server.client();
    waiter.begin_acquire(&with(ask("r0", "b", 2_000), json!({"wait_ms": 60_000})));
    eventually("somebody waits for it", || client.queue_length("r0") == 1);

    server.freeze();
    std::thread::sleep(Duration::from_millis(5_000));
    server.thaw();

    // Nobody could renew in that time, so everybody gets the chance to do so now.
    for (i, token) in tokens.iter().enumerate() {
        let renewal = client.renew(&format!("r{i}"), *token);
        assert_eq!(renewal.status, 200, "{renewal}");
    }
    assert!(!waiter.has_answer(), "the lock was given away");
    // And what nobody renews still comes free.
    assert_eq!(waiter.finish().ok()["client_id"], "b");
}

/// A pause is nobody's business but the server's: whoever asked during it is served, not refused.
#[test]
fn what_was_asked_during_a_freeze_is_done_after_it() {
    let server = server();
    let mut clients: Vec<_> = (0..16).map(|_| server.client()).collect();
    for round in 0..3 {
        server.freeze();
        for (i, client) in clients.iter_mut().enumerate() {
            client.begin_acquire(&ask(&format!("r{round}/{i}"), "a", 60_000));
        }
        // Longer than an election takes.
        std::thread::sleep(Duration::from_millis(1_500));
        server.thaw();
        for client in &mut clients {
            client.finish().ok();
        }
    }
}

#[test]
fn a_client_that_was_suspended_for_longer_than_its_ttl_is_told_that_its_grant_ended() {
    let server = server();
    let mut client = server.client();
    let token = client.acquire(&ask("r", "a", 500)).token();
    let lease = client.open_lease("a", 500);
    let held = client.acquire(&ask_on("s", "a", &lease)).token();
    let mut other = server.client();
    for resource in ["r", "s"] {
        eventually("the service gives it up", || other.lock(resource)["state"] == "free");
    }

    client.keep_alive(&lease).problem(410, "lease_ended");
    assert_eq!(client.renew("s", held).problem(410, "grant_ended")["how"], "expired");
    let problem = client.renew("r", token).problem(410, "grant_ended");
    assert_eq!(problem["how"], "expired");
}
