//! Very many deadlines at once, among which the few that are kept must not drown.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use leasehold_harness::{Server, Value, ask, ask_on, json, with, within};

use crate::server;

const TTL_MS: u64 = 3_000;
const LEFT_ALONE: usize = 20_000;
const KEPT: usize = 50;

/// Acquires all that nobody will renew, a full batch a call.
fn leave_alone(server: &Server) {
    let mut client = server.client();
    let names: Vec<String> = (0..LEFT_ALONE).map(|i| format!("left/{i}")).collect();
    for some in names.chunks(256) {
        let acquire = |name: &String| with(ask(name, "left", TTL_MS), json!({"op": "acquire"}));
        let operations: Vec<Value> = some.iter().map(acquire).collect();
        let answer = client.post("/v1/batch", &json!({"operations": operations})).ok();
        for result in answer["results"].as_array().expect("a list of results") {
            assert_eq!(result["status"], 200, "{result}");
        }
    }
}

/// Keeps them alive until told to stop; answers the longest that a round took.
fn keep(server: &Server, leases: &[String], stop: &AtomicBool) -> Duration {
    let mut client = server.client();
    let mut longest = Duration::ZERO;
    while !stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        for lease in leases {
            let answer = client.keep_alive(lease);
            assert_eq!(answer.status, 200, "a kept lease was lost: {answer}");
        }
        longest = longest.max(begun.elapsed());
        // The pace of a client that renews three times a TTL.
        std::thread::sleep(Duration::from_secs(1).saturating_sub(begun.elapsed()));
    }
    longest
}

#[test]
fn twenty_thousand_leases_expire_while_fifty_that_are_kept_alive_live_on() {
    let server = server();
    let mut client = server.client();
    let leases: Vec<String> = (0..KEPT).map(|_| client.open_lease("kept", TTL_MS)).collect();
    let tokens: Vec<u64> = leases
        .iter()
        .enumerate()
        .map(|(i, lease)| client.acquire(&ask_on(&format!("kept/{i}"), "kept", lease)).token())
        .collect();
    let stop = AtomicBool::new(false);
    let longest = std::thread::scope(|scope| {
        let keeper = scope.spawn(|| keep(&server, &leases, &stop));
        leave_alone(&server);
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            within(Duration::from_secs(60), "all that is left alone ends", || {
                let expired = client.metric("leasehold_leases_expired_total");
                assert!(!keeper.is_finished(), "the keeper gave up");
                (expired >= LEFT_ALONE as u64).then_some(())
            });
        }));
        // Told before anything else, or the scope would wait for the keeper for ever.
        stop.store(true, Ordering::Relaxed);
        let longest = keeper.join().expect("every kept lease lives on");
        ended.expect("all that is left alone ends");
        longest
    });
    // A third of the TTL is what a client that renews each second has to spare.
    assert!(longest < Duration::from_millis(TTL_MS), "a round of renewals took {longest:?}");
    for (i, token) in tokens.iter().enumerate() {
        client.keep_alive(&leases[i]).ok();
        assert_eq!(client.holders(&format!("kept/{i}")), [*token]);
    }
    assert_eq!(client.metric("leasehold_leases_expired_total"), LEFT_ALONE as u64);
    let left = client.get("/v1/locks?limit=1&prefix=left/").ok();
    assert_eq!(left["items"], json!([]), "{left}");
}
