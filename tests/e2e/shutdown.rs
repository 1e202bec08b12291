//! How a node stops, and what a second one on the same data is told.

use std::time::{Duration, Instant};

use leasehold_harness::{Client, ask, eventually, json, with};

use crate::server;

/// What the drain may take, and a little for a loaded machine.
const DRAIN: Duration = Duration::from_secs(12);

#[test]
fn a_drain_answers_waiters_and_exits_with_success() {
    let mut server = server();
    let mut client = server.client();
    let token = client.acquire(&ask("r", "a", 60_000)).token();
    let mut waiters: Vec<Client> = (0..20)
        .map(|i| {
            let mut waiter = server.client();
            let more = json!({"wait_ms": 60_000, "request_id": "1"});
            waiter.begin_acquire(&with(ask("r", &format!("w{i}"), 60_000), more));
            waiter
        })
        .collect();
    eventually("all are in line", || client.queue_length("r") == 20);

    let asked = Instant::now();
    server.begin_stop();
    for waiter in &mut waiters {
        waiter.finish().problem(503, "shutting_down");
    }
    // The clients keep their connections: an idle one must not hold the exit up.
    let status = server.finish_stop(DRAIN);
    assert!(status.success(), "{status}");
    assert!(asked.elapsed() < DRAIN);

    server.restart();
    assert_eq!(server.client().holders("r"), [token]);
}

#[test]
fn an_idle_node_stops_at_once() {
    let mut server = server();
    let _idle = server.client();
    server.begin_stop();
    let status = server.finish_stop(Duration::from_secs(5));
    assert!(status.success(), "{status}");
}

#[test]
fn a_second_process_on_the_same_data_is_refused_and_harms_nothing() {
    let server = server();
    let mut client = server.client();
    let token = client.acquire(&ask("r", "a", 60_000)).token();

    let refused = server.second().expect_err("two processes on one data directory");
    assert!(!refused.status.success(), "{refused:?}");
    let dir = server.data_dir().to_string_lossy();
    assert!(refused.output.contains(&*dir), "it names the directory: {refused:?}");
    assert!(refused.output.contains("process"), "it names the reason: {refused:?}");
    assert!(!refused.output.contains("panicked"), "{refused:?}");

    client.let_go("r", token);
}
