//! What is forgotten for its age, with nothing else going on that would push it out.

use std::time::{Duration, Instant};

use leasehold_harness::{ask, eventually, json, with};

use crate::configured;

#[test]
fn an_ended_request_is_remembered_for_its_time_and_then_forgotten() {
    const KEPT: Duration = Duration::from_secs(3);
    let server = configured().flag("--remember-ms", KEPT.as_millis()).start();
    let mut client = server.client();
    let body = with(ask("r", "a", 60_000), json!({"request_id": "1"}));
    let token = client.acquire(&body).token();
    let ended = Instant::now();
    client.let_go("r", token);
    let mut again = 0;
    // The repeat is the question: it is refused until it is a new request.
    eventually("the request is forgotten", || {
        let answer = client.acquire(&body);
        if answer.status != 200 {
            assert_eq!(answer.problem(410, "grant_ended")["token"], token);
            return false;
        }
        again = answer.token();
        true
    });
    let kept = ended.elapsed();
    assert!(again > token, "{again} is not above {token}");
    assert!(kept >= KEPT, "it was forgotten after {kept:?}");
}

#[test]
fn what_is_remembered_goes_by_itself_on_a_node_that_nobody_asks_anything() {
    let server = configured().flag("--remember-ms", 1_000).start();
    let mut client = server.client();
    for i in 0..10 {
        let more = json!({"request_id": i.to_string()});
        let token = client.acquire(&with(ask("r", "a", 60_000), more)).token();
        client.let_go("r", token);
    }
    eventually("they are counted", || client.metric("leasehold_remembered_requests") > 0);
    eventually("all are forgotten", || client.metric("leasehold_remembered_requests") == 0);
    eventually("the client is", || client.metric("leasehold_clients") == 0);
}
