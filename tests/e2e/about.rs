//! The service about itself.

use leasehold_harness::{Value, ask, eventually, json, with};

use crate::configured;

fn usage(stats: &Value, name: &str) -> (u64, u64) {
    let all = stats["usage"].as_array().expect("usage is a list");
    let one = all.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("no {name}"));
    (one["used"].as_u64().expect("a number"), one["max"].as_u64().expect("a number"))
}

#[test]
fn stats_count_what_there_is() {
    let server = configured().start();
    let mut client = server.client();
    client.acquire(&ask("r", "a", 60_000)).token();
    let mut waiter = server.client();
    waiter.begin_acquire(&with(ask("r", "b", 60_000), json!({"wait_ms": 60_000})));
    eventually("it waits", || client.queue_length("r") == 1);
    client.open_lease("c", 60_000);
    let stats = client.get("/v1/stats").ok();
    let counts = ["locks", "grants", "waiters", "leases", "last_token", "node_id", "leader"];
    assert_eq!(counts.map(|name| stats[name].as_u64()), [1, 1, 1, 3, 1, 1, 1].map(Some));
    assert_eq!(usage(&stats, "waiters_max"), (1, 200_000));
    assert_eq!(usage(&stats, "grants_max"), (2, 2_000_000));
    let latency = stats["latency"].as_array().expect("latency is a list");
    let acquire = latency.iter().find(|one| one["route"] == "acquire-lock");
    assert_eq!(acquire.expect("it was asked for")["count"], 1, "the waiter has no answer yet");
}

#[test]
fn attention_is_asked_for_when_a_bound_comes_near() {
    let server = configured().flag("--grants-max", 10).start();
    let mut client = server.client();
    let concerns = |client: &mut leasehold_harness::Client| -> Vec<(String, String)> {
        let items = client.get("/v1/attention").ok()["items"].as_array().cloned();
        let word = |one: &Value, name: &str| one[name].as_str().unwrap_or_default().to_owned();
        let items = items.expect("items");
        items.iter().map(|one| (word(one, "severity"), word(one, "code"))).collect()
    };
    for i in 0..7 {
        client.acquire(&ask(&format!("r{i}"), "a", 60_000)).token();
    }
    assert_eq!(concerns(&mut client), []);
    client.acquire(&ask("r7", "a", 60_000)).token();
    assert_eq!(concerns(&mut client), [("warning".to_owned(), "grants_max".to_owned())]);
    for i in 8..10 {
        client.acquire(&ask(&format!("r{i}"), "a", 60_000)).token();
    }
    assert_eq!(concerns(&mut client), [("critical".to_owned(), "grants_max".to_owned())]);
    client.acquire(&ask("r10", "a", 60_000)).problem(429, "shed");
}

#[test]
fn settings_are_told_with_their_origin_and_what_the_cluster_has_counts() {
    let mut server = configured().flag("--queue-max", 7).flag("--drain-ms", 5_000).start();
    let setting = |client: &mut leasehold_harness::Client, name: &str| -> (String, String) {
        let config = client.get("/v1/config").ok();
        let all = config["settings"].as_array().cloned().expect("a list");
        let one = all.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("no {name}"));
        let word = |name: &str| one[name].as_str().expect("a text").to_owned();
        (word("value"), word("origin"))
    };
    let pair = |value: &str, origin: &str| (value.to_owned(), origin.to_owned());
    let mut client = server.client();
    assert_eq!(setting(&mut client, "queue_max"), pair("7", "flag"));
    assert_eq!(setting(&mut client, "drain_ms"), pair("5000", "flag"));
    assert_eq!(setting(&mut client, "events_max"), pair("262144", "default"));
    server.kill9();
    server.set_flag("--queue-max", 8);
    server.restart();
    assert_eq!(setting(&mut server.client(), "queue_max"), pair("7", "cluster"));
}
