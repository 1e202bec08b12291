//! Watching: every change once and in order, or an explicit gap, whatever happens to the stream.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use leasehold_harness::{Client, Told, Value, Watcher, ask, eventually, json, with};

use crate::{configured, server};

/// Longer than a stop takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Takes and gives back locks, `rounds` times on each of four connections. Two changes a round.
/// Answers every token with its resource.
fn traffic(addr: SocketAddr, rounds: u64, name: &str) -> BTreeMap<u64, String> {
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|worker| scope.spawn(move || work(addr, rounds, &format!("{name}/{worker}"))))
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a worker ends")).collect()
    })
}

fn work(addr: SocketAddr, rounds: u64, resource: &str) -> Vec<(u64, String)> {
    let mut client = Client::new(addr);
    let round = |_| {
        let token = client.acquire(&ask(resource, "worker", 60_000)).token();
        client.let_go(resource, token);
        (token, resource.to_owned())
    };
    (0..rounds).map(round).collect()
}

fn revision(event: &Value) -> u64 {
    let text = event["revision"].as_str().expect("an event has its revision");
    text.parse().expect("revisions are numbers to the server")
}

/// Checks that exactly these grants were granted and given back, and in which order.
fn tells_of(events: &[Value], tokens: &BTreeMap<u64, String>) {
    let of = |kind: &str| -> BTreeMap<u64, String> {
        let events = events.iter().filter(|event| event["event"] == kind);
        let token = |event: &Value| event["token"].as_u64().expect("a grant has its token");
        events.map(|e| (token(e), e["resource"].as_str().unwrap_or_default().to_owned())).collect()
    };
    assert_eq!(of("granted"), *tokens);
    assert_eq!(of("released"), *tokens);
    for pair in events.windows(2) {
        assert!(revision(&pair[0]) < revision(&pair[1]), "{pair:?}");
    }
}

/// Follows until it has been told of everything up to `last`.
fn follow(watcher: &mut Watcher, last: u64) -> Vec<Value> {
    let mut events: Vec<Value> = Vec::new();
    while events.last().is_none_or(|event| revision(event) < last) {
        events.push(watcher.wait().event());
    }
    events
}

fn present(client: &mut Client) -> u64 {
    let answer = client.get("/v1/lock?resource=nothing");
    let revision = answer.header("leasehold-revision").expect("it says what it saw");
    revision.parse().expect("revisions are numbers to the server")
}

#[test]
fn a_watcher_that_is_cut_again_and_again_is_told_of_everything_once_and_in_order() {
    let server = server();
    let addr = server.addr();
    let mut watcher = Watcher::new(addr, "", None);
    watcher.connect();
    let start = watcher.position().expect("it says where it is");
    let (tokens, events) = std::thread::scope(|scope| {
        let traffic = scope.spawn(|| traffic(addr, 1_250, "r"));
        let mut events: Vec<Value> = Vec::new();
        let mut last = None;
        let (mut cuts, mut cut_at) = (0, Instant::now() + Duration::from_millis(50));
        while last.is_none_or(|last| events.last().map_or(start, revision) < last) {
            if last.is_none() && traffic.is_finished() {
                last = Some(present(&mut Client::new(addr)));
            }
            if Instant::now() >= cut_at {
                watcher.cut();
                cuts += 1;
                cut_at = Instant::now() + Duration::from_millis(50);
            }
            if let Some(told) = watcher.next_within(Duration::from_millis(20)) {
                events.push(told.event());
            }
        }
        assert!(cuts > 3, "it was cut {cuts} times");
        (traffic.join().expect("the traffic ends"), events)
    });
    assert_eq!(events.len(), 10_000);
    let told: Vec<u64> = events.iter().map(revision).collect();
    assert_eq!(told, (start + 1..=start + 10_000).collect::<Vec<_>>(), "each once, in order");
    tells_of(&events, &tokens);
}

#[test]
fn a_watcher_that_stalls_is_cut_off_and_misses_nothing() {
    let server = configured().flag("--write-timeout-ms", 300).start();
    let addr = server.addr();
    let mut client = server.client();
    let mut watcher = Watcher::new(addr, "", None).narrow();
    watcher.connect();
    let start = watcher.position().expect("it says where it is");
    // Names as long as they may be, so that no buffer on the way takes everything.
    let tokens = traffic(addr, 1_250, &"n".repeat(500));
    eventually("the stream is cut off", || client.metric("leasehold_watch_streams") == 0);
    // It read a little of what it was sent, and goes on from there.
    let mut events = vec![watcher.wait().event()];
    let mut watcher = watcher.widened();
    events.extend(follow(&mut watcher, start + 10_000));
    assert_eq!(events.len(), 10_000);
    tells_of(&events, &tokens);
}

#[test]
fn a_list_and_a_watch_from_its_revision_have_no_hole_between_them() {
    let server = server();
    let addr = server.addr();
    let held = |client: &mut Client| -> (BTreeMap<u64, String>, u64) {
        let answer = client.get("/v1/locks?prefix=r/&limit=1000");
        let at = answer.header("leasehold-revision").expect("it says what it saw").to_owned();
        let items = answer.ok()["items"].as_array().cloned().expect("a page has items");
        let holder = |item: &Value| {
            let token = item["holders"][0]["token"].as_u64()?;
            Some((token, item["resource"].as_str()?.to_owned()))
        };
        (items.iter().filter_map(holder).collect(), at.parse().expect("a number to the server"))
    };
    std::thread::scope(|scope| {
        let traffic = scope.spawn(|| traffic(addr, 400, "r"));
        let mut client = server.client();
        let mut views = Vec::new();
        while !traffic.is_finished() {
            let (state, at) = held(&mut client);
            views.push((state, Watcher::new(addr, "prefix=r/", Some(at))));
            std::thread::yield_now();
        }
        traffic.join().expect("the traffic ends");
        client.acquire(&ask("r/last", "a", 60_000)).token();
        let (expected, last) = held(&mut client);
        // All of them would take long; these are from all over the run.
        let step = views.len().div_ceil(20);
        for (mut state, mut watcher) in views.into_iter().step_by(step) {
            let from = watcher.position();
            for event in follow(&mut watcher, last) {
                let token = event["token"].as_u64().expect("a grant has its token");
                let resource = event["resource"].as_str().unwrap_or_default().to_owned();
                match event["event"].as_str() {
                    Some("granted") => assert_eq!(state.insert(token, resource), None, "{event}"),
                    Some("released") => assert_eq!(state.remove(&token), Some(resource), "{event}"),
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(state, expected, "from {from:?}");
        }
    });
}

#[test]
fn changes_are_kept_over_a_crash_and_what_is_not_kept_is_a_gap() {
    let mut server = configured().flag("--events-max", 1_000).start();
    let founded = present(&mut server.client());
    let tokens = traffic(server.addr(), 50, "before");
    let last = founded + 400;
    let mut watcher = Watcher::new(server.addr(), "", Some(0));
    let first = follow(&mut watcher, last);
    tells_of(&first, &tokens);

    server.kill9();
    server.restart();
    let mut again = Watcher::new(server.addr(), "", Some(0));
    assert_eq!(follow(&mut again, last), first, "the same after a crash");

    // An orderly stop writes what waits; after it the file is all that a node knows.
    traffic(server.addr(), 400, "after");
    let newest = present(&mut server.client());
    server.begin_stop();
    assert!(server.finish_stop(PATIENCE).success());
    server.restart();
    let mut late = Watcher::new(server.addr(), "", Some(5));
    let Told::Gap(5, to) = late.wait() else { panic!("what is gone is said to be gone") };
    assert!(newest - to >= 1_000 && newest - to < 2_000, "{to} of {newest}");
    assert_eq!(revision(&late.wait().event()), to + 1);
    assert_eq!(server.client().metric("leasehold_watch_gaps_total"), 1);
    watcher.moved_to(server.addr());
    let Told::Gap(from, _) = watcher.wait() else { panic!("it was away for too long") };
    assert_eq!(from, last);
}

#[test]
fn a_revision_of_the_future_is_a_gap_and_garbage_an_error() {
    let server = server();
    let mut watcher = Watcher::new(server.addr(), "", Some(1_000_000));
    watcher.connect();
    // Before it is told of the gap nothing moves it: cut here, it would ask for the same again.
    watcher.cut();
    let Told::Gap(1_000_000, to) = watcher.wait() else { panic!("nobody knows that revision") };
    let token = server.client().acquire(&ask("r", "a", 60_000)).token();
    let event = watcher.wait().event();
    assert_eq!((revision(&event), event["token"].as_u64()), (to + 1, Some(token)));

    let mut client = server.client();
    for (query, field) in [
        ("from=x", "from"),
        ("from=-1", "from"),
        ("from=", "from"),
        ("from=99999999999999999999", "from"),
        ("resource=", "resource"),
        ("resource=a&prefix=a", "prefix"),
        ("resource=a&domain=a", "domain"),
        ("prefix=a&domain=a", "prefix"),
        ("since=1", "since"),
    ] {
        let answer = client.get(&format!("/v1/watch?{query}"));
        assert_eq!(answer.problem(400, "invalid_request")["field"], field, "{query}");
    }
    let answer = client.call("GET", "/v1/watch", &[("Accept", "text/html")], b"");
    answer.problem(406, "not_acceptable");
    let answer = client.call("GET", "/v1/watch", &[("Last-Event-ID", "x")], b"");
    assert_eq!(answer.problem(400, "invalid_request")["field"], "Last-Event-ID");
}

#[test]
fn each_filter_lets_its_own_through() {
    let server = server();
    let mut client = server.client();
    for (resource, client_id) in [("a/1", "x"), ("a/12", "y"), ("b", "x")] {
        let token = client.acquire(&ask(resource, client_id, 60_000)).token();
        client.let_go(resource, token);
    }
    let lease = client.open_lease("x", 60_000);
    client.call("DELETE", &format!("/v1/leases/{lease}"), &[], b"").ok();
    client
        .call("PUT", "/v1/domains?domain=a", &[("If-None-Match", "*")], b"{\"queue_max\":1}")
        .ok();
    let last = present(&mut client);

    let kinds = |query: &str| -> Vec<String> {
        let mut watcher = Watcher::new(server.addr(), query, Some(0));
        let mut told = Vec::new();
        while watcher.position().is_none_or(|at| at < last) {
            // Silence moves the position as well, though nothing is told.
            let Some(Told::Event(event)) = watcher.next_within(Duration::from_secs(15)) else {
                continue;
            };
            let resource = event["resource"].as_str().unwrap_or("-");
            told.push(format!("{} {resource}", event["event"].as_str().unwrap_or_default()));
        }
        told
    };
    assert_eq!(kinds("resource=a/1"), ["granted a/1", "released a/1"]);
    assert_eq!(
        kinds("prefix=a/1"),
        ["granted a/1", "released a/1", "granted a/12", "released a/12"]
    );
    assert_eq!(kinds("domain=default"), ["granted b", "released b"]);
    let of_a = ["granted a/1", "released a/1", "granted a/12", "released a/12"];
    assert_eq!(kinds("domain=a")[..4], of_a);
    assert_eq!(kinds("domain=a")[4..], ["domain_changed -", "audited -"]);
    assert_eq!(
        kinds("")[7..],
        ["lease_opened -", "lease_ended -", "domain_changed -", "audited -"]
    );
}

#[test]
fn waiting_is_told_too_and_no_lease_id_is() {
    let server = server();
    let mut watcher = Watcher::new(server.addr(), "resource=r", Some(0));
    let mut holder = server.client();
    let token = holder.acquire(&ask("r", "a", 60_000)).token();
    let mut waiter = server.client();
    waiter.begin_acquire(&with(ask("r", "b", 60_000), json!({"wait_ms": 60_000})));
    eventually("it waits", || holder.queue_length("r") == 1);
    let mut gone = server.client();
    gone.begin_acquire(&with(ask("r", "c", 60_000), json!({"wait_ms": 60_000})));
    eventually("so does another", || holder.queue_length("r") == 2);
    drop(gone);
    eventually("which leaves", || holder.queue_length("r") == 1);
    holder.let_go("r", token);
    waiter.finish().ok();

    let mut told = Vec::new();
    for _ in 0..6 {
        let event = watcher.wait().event();
        assert!(!event.to_string().contains("lease_id"), "{event}");
        let word = |name: &str| event[name].as_str().unwrap_or("-").to_owned();
        told.push([word("event"), word("client_id"), word("how")].join(" "));
    }
    assert_eq!(
        told,
        [
            "granted a -",
            "queued b -",
            "queued c -",
            "left c disconnected",
            "released a -",
            "granted b -"
        ]
    );
}

#[test]
fn streams_are_bounded_and_end_when_the_server_stops() {
    let mut server = configured().flag("--watch-streams-max", 2).start();
    let mut watchers: Vec<_> = (0..2).map(|_| Watcher::new(server.addr(), "", None)).collect();
    watchers.iter_mut().for_each(Watcher::connect);
    let answer = server.client().get("/v1/watch");
    let problem = answer.problem(429, "shed");
    assert_eq!((&problem["reason"], &problem["max"]), (&json!("capacity"), &json!(2)));
    let mut socket = TcpStream::connect(server.addr()).expect("the server listens");
    let head = b"HEAD /v1/watch HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    socket.write_all(head).expect("a request can be sent");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("the answer ends");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\n"), "{answer}");

    watchers.pop();
    eventually("a place is free", || server.client().metric("leasehold_watch_streams") == 1);
    Watcher::new(server.addr(), "", None).connect();
    // Streams hold up nobody's stop.
    server.begin_stop();
    assert!(server.finish_stop(PATIENCE).success());
}
