//! What a node remembers of what is over: the oldest is forgotten first, and a late question about
//! it is answered as well as it can be.

use leasehold_harness::{Answer, Client, Value, ask, eventually, json, with};

use crate::configured;

fn named(client: &str, request_id: &str) -> Value {
    let resource = format!("{client}/{request_id}");
    with(ask(&resource, client, 60_000), json!({"request_id": request_id}))
}

/// A request that got its grant and gave it back.
#[track_caller]
fn over(client: &mut Client, body: &Value) -> u64 {
    let token = client.acquire(body).token();
    client.let_go(body["resource"].as_str().expect("a name"), token);
    token
}

#[track_caller]
fn assert_remembered(client: &mut Client, body: &Value, token: u64) {
    let problem = client.acquire(body).problem(410, "grant_ended");
    assert_eq!((&problem["how"], &problem["token"]), (&json!("released"), &json!(token)));
}

#[test]
fn of_one_client_the_oldest_ended_request_is_forgotten_and_others_keep_theirs() {
    let server = configured().flag("--client-remembered-max", 3).start();
    let mut client = server.client();
    let other = over(&mut client, &named("other", "0"));
    let tokens: Vec<u64> = (0..5).map(|i| over(&mut client, &named("a", &i.to_string()))).collect();
    for i in [2, 3, 4] {
        assert_remembered(&mut client, &named("a", &i.to_string()), tokens[i]);
    }
    assert_remembered(&mut client, &named("other", "0"), other);
    // A forgotten request is a new one. It is live now, so it takes no place among the ended.
    assert!(client.acquire(&named("a", "0")).token() > tokens[4]);
    assert_remembered(&mut client, &named("a", "2"), tokens[2]);
}

#[test]
fn of_all_clients_the_oldest_ended_request_is_forgotten() {
    let server = configured().flag("--remembered-max", 5).start();
    let mut client = server.client();
    let bodies: Vec<Value> = (0..20).map(|i| named(&format!("c{i}"), "1")).collect();
    let tokens: Vec<u64> = bodies.iter().map(|body| over(&mut client, body)).collect();
    assert_remembered(&mut client, &bodies[19], tokens[19]);
    assert!(client.acquire(&bodies[0]).token() > tokens[19]);
    assert_remembered(&mut client, &bodies[19], tokens[19]);
    eventually("the metric says so", || client.metric("leasehold_remembered_requests") <= 5);
}

/// The release of a grant that is over, once the record of it is gone.
#[track_caller]
fn assert_known_to_have_ended(answer: &Answer) {
    let problem = answer.problem(410, "grant_ended");
    assert!(problem["how"].is_null(), "nobody can know how any more: {problem}");
    assert!(problem["ended_at"].is_null(), "nobody can know when any more: {problem}");
}

#[test]
fn a_release_repeated_after_the_record_was_pushed_out_by_newer_ones_says_that_the_grant_ended() {
    let server = configured().flag("--history-max", 50).start();
    let mut client = server.client();
    let first = over(&mut client, &ask("first", "a", 60_000));
    let repeat = client.release("first", first);
    assert_eq!(repeat.ok()["reason"], "already_released", "{repeat}");
    for i in 0..200 {
        over(&mut client, &ask(&format!("r{i}"), "a", 60_000));
    }
    eventually("the oldest record is gone", || {
        over(&mut client, &ask("more", "a", 60_000));
        client.release("first", first).status != 200
    });
    assert_known_to_have_ended(&client.release("first", first));
    assert_known_to_have_ended(&client.renew("first", first));
    // Forgotten is not unheard of: a token from the future was never anybody's.
    client.release("first", first + 1_000_000).problem(409, "not_holder");
    let newest = over(&mut client, &ask("first", "a", 60_000));
    assert_eq!(client.release("first", newest).ok()["reason"], "already_released");
    assert!(newest > first);
}

#[test]
fn a_release_repeated_after_the_record_grew_too_old_says_that_the_grant_ended() {
    let server = configured().flag("--history-ms", 1_500).start();
    let mut client = server.client();
    let token = over(&mut client, &ask("r", "a", 60_000));
    // A live grant has no record that could grow old.
    let live = client.acquire(&ask("live", "a", 60_000)).token();
    assert_eq!(client.release("r", token).ok()["reason"], "already_released");
    eventually("the record is gone", || client.release("r", token).status != 200);
    assert_known_to_have_ended(&client.release("r", token));
    eventually("the metric says so", || client.metric("leasehold_history_records") == 0);
    client.let_go("live", live);
}
