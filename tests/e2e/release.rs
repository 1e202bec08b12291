//! Releases: by the right hand, by the wrong one, late, twice, and after a restart.

use leasehold_harness::{Client, ask, eventually, json};

use crate::server;

#[test]
fn a_release_frees_the_lock_for_the_next_client() {
    let server = server();
    let mut client = server.client();
    let first = client.acquire(&ask("r", "a", 10_000)).token();
    client.let_go("r", first);
    assert_eq!(client.lock("r")["state"], "free");
    let second = client.acquire(&ask("r", "b", 10_000)).token();
    assert!(second > first);
}

#[test]
fn a_token_that_is_not_the_holders_changes_nothing_whether_lower_or_higher() {
    let server = server();
    let mut client = server.client();
    let other = client.acquire(&ask("elsewhere", "a", 10_000)).token();
    let token = client.acquire(&ask("r", "a", 10_000)).token();
    for wrong in [other, token + 1, token + 1_000_000, (1 << 53) - 1] {
        client.release("r", wrong).problem(409, "not_holder");
        assert_eq!(client.holders("r"), [token]);
    }
    client.let_go("r", token);
}

#[test]
fn the_right_token_in_the_hand_of_another_client_changes_nothing() {
    let server = server();
    let mut client = server.client();
    let token = client.acquire(&ask("r", "a", 10_000)).token();
    let stolen = json!({"resource": "r", "token": token, "client_id": "b"});
    client.post("/v1/release-lock", &stolen).problem(409, "not_holder");
    client.post("/v1/renew-lock", &stolen).problem(409, "not_holder");
    assert_eq!(client.holders("r"), [token]);
    let own = json!({"resource": "r", "token": token, "client_id": "a"});
    assert_eq!(client.post("/v1/release-lock", &own).ok()["released"], true);
}

#[test]
fn a_release_after_expiry_says_that_the_grant_expired() {
    let server = server();
    let mut client = server.client();
    let token = client.acquire(&ask("r", "a", 500)).token();
    eventually("the grant expires", || client.lock("r")["state"] == "free");
    let problem = client.release("r", token).problem(410, "grant_ended");
    assert_eq!((&problem["how"], &problem["token"]), (&json!("expired"), &json!(token)));
    assert!(problem["ended_at"].as_str().is_some_and(|at| at.ends_with('Z')), "{problem}");
}

#[test]
fn a_late_release_does_not_touch_the_next_holder() {
    let server = server();
    let mut client = server.client();
    let late = client.acquire(&ask("r", "a", 500)).token();
    eventually("the grant expires", || client.lock("r")["state"] == "free");
    let next = client.acquire(&ask("r", "b", 10_000)).token();
    client.release("r", late).problem(410, "grant_ended");
    assert_eq!(client.holders("r"), [next]);
}

#[test]
fn releasing_twice_is_fine_and_the_second_says_so() {
    let server = server();
    let mut client = server.client();
    let token = client.acquire(&ask("r", "a", 10_000)).token();
    client.let_go("r", token);
    assert_released_before(&mut client, "r", token);
    // Nor does it matter who holds the lock by then.
    let next = client.acquire(&ask("r", "b", 10_000)).token();
    assert_released_before(&mut client, "r", token);
    assert_eq!(client.holders("r"), [next]);
}

#[test]
fn a_restart_forgets_neither_holders_nor_releases() {
    let mut server = server();
    let mut client = server.client();
    let kept = client.acquire(&ask("kept", "a", 60_000)).token();
    let gone = client.acquire(&ask("gone", "a", 60_000)).token();
    client.let_go("gone", gone);

    server.kill9();
    server.restart();

    let mut client = server.client();
    assert_released_before(&mut client, "gone", gone);
    client.acquire(&ask("kept", "b", 60_000)).problem(409, "held");
    client.let_go("kept", kept);
    assert_released_before(&mut client, "kept", kept);
}

#[track_caller]
fn assert_released_before(client: &mut Client, resource: &str, token: u64) {
    let again = client.release(resource, token).ok();
    assert_eq!(again["released"], false, "{again}");
    assert_eq!(again["reason"], "already_released", "{again}");
}
