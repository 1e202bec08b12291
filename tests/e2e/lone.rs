//! A node on which nothing else happens: no other command carries a forgotten one along.

use std::time::Duration;

use leasehold_harness::{ask, json, with};

use crate::server;

#[test]
fn a_lone_waiter_is_told_that_its_wait_is_over_two_hundred_times_in_a_row() {
    let server = server();
    let mut client = server.client();
    client.acquire(&ask("r", "holder", 600_000)).token();
    // The shortest waits are over before their commands have an outcome.
    for round in 0..200u64 {
        let wait_ms = [1, 2, 5, 20, 100][round as usize % 5];
        let wait = with(ask("r", "waiter", 10_000), json!({"wait_ms": wait_ms}));
        let answer = client.acquire(&wait);
        // Leaving the line is a log entry of its own, and its outcome must be known.
        assert_eq!(answer.status, 409, "round {round}: {answer}");
        let problem = answer.problem(409, "wait_timeout");
        assert!(problem["waited_ms"].as_u64() >= Some(wait_ms), "round {round}: {problem}");
        let took = answer.received - answer.sent;
        assert!(took >= Duration::from_millis(wait_ms), "round {round}: {took:?}");
        assert!(took < Duration::from_secs(5), "round {round}: {took:?}");
    }
    assert_eq!(client.queue_length("r"), 0);
}
