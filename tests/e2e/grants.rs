//! How it was: every grant on record, and "was token N valid at time T".

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_harness::{Client, Random, Server, Value, Watcher, ask, encode, eventually, json};

use crate::{configured, server};

/// What a test knows of a grant from the stream of changes: when it was granted and ended.
#[derive(Debug, Clone)]
struct Known {
    resource: String,
    client: String,
    from: String,
    until: Option<String>,
}

/// A random life of some locks: taken, given back, run out, ended by force, handed on.
fn live(server: &Server, random: &mut Random) {
    let mut client = server.client();
    let mut held: Vec<(String, u64)> = Vec::new();
    for _ in 0..160 {
        match random.below(10) {
            0..6 => {
                let resource = format!("r/{}", random.below(5));
                let name = format!("c{}", random.below(3));
                let ttl_ms = if random.below(3) == 0 { 500 } else { 600_000 };
                let answer = client.acquire(&ask(&resource, &name, ttl_ms));
                if answer.status == 200 {
                    held.push((resource, answer.token()));
                }
            }
            6..9 if !held.is_empty() => {
                let at = random.below(held.len() as u64) as usize;
                let (resource, token) = held.swap_remove(at);
                // Some have run out by now, which is part of the life.
                client.release(&resource, token);
            }
            _ if !held.is_empty() => {
                let at = random.below(held.len() as u64) as usize;
                let (resource, token) = held.swap_remove(at);
                let order = json!({
                    "resource": resource, "token": token, "reason": "test", "when": "now"
                });
                client.post("/v1/lock/force-release", &order);
            }
            _ => {}
        }
    }
    // All that runs out has done so before anybody is asked.
    eventually("the short leases have run out", || {
        let page = client.get("/v1/leases?limit=1000").ok();
        let leases = page["items"].as_array().cloned().unwrap_or_default();
        leases.iter().all(|lease| lease["ttl_ms"] != 500)
    });
}

/// The truth, from the stream of changes.
fn known(server: &Server) -> BTreeMap<u64, Known> {
    let newest = server.client().get("/v1/lock?resource=nothing");
    let newest: u64 = newest.header("leasehold-revision").expect("told").parse().expect("a number");
    let mut watcher = Watcher::new(server.addr(), "", Some(0));
    let mut known: BTreeMap<u64, Known> = BTreeMap::new();
    while watcher.position().is_some_and(|at| at < newest) {
        let event = watcher.wait().event();
        let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
        let Some(token) = event["token"].as_u64() else { continue };
        match event["event"].as_str() {
            Some("granted") => {
                let grant = Known {
                    resource: text("resource"),
                    client: text("client_id"),
                    from: text("happened_at"),
                    until: None,
                };
                known.insert(token, grant);
            }
            Some("released" | "expired" | "forced") => {
                known.get_mut(&token).expect("granted before").until = Some(text("happened_at"));
            }
            _ => {}
        }
    }
    known
}

/// Instants worth asking about, of a history: every one at which anything changed, and between.
fn instants(known: &BTreeMap<u64, Known>) -> Vec<String> {
    let all = known.values().flat_map(|grant| [Some(grant.from.clone()), grant.until.clone()]);
    let mut all: Vec<String> = all.flatten().collect();
    all.sort();
    all.dedup();
    let step = all.len().div_ceil(12);
    let mut some: Vec<String> = all.into_iter().step_by(step).collect();
    some.push("2020-01-01T00:00:00.000Z".to_owned());
    some
}

fn was_valid(grant: &Known, at: &str) -> bool {
    grant.from.as_str() <= at && grant.until.as_ref().is_none_or(|until| at < until.as_str())
}

/// All tokens of a list, page by page.
fn tokens(client: &mut Client, query: &str, limit: usize) -> Vec<u64> {
    let (mut tokens, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = client.get(&format!("/v1/grants?limit={limit}{query}{cursor}")).ok();
        let items = page["items"].as_array().cloned().expect("a page has items");
        assert!(items.len() <= limit, "{page}");
        tokens.extend(items.iter().map(|item| item["token"].as_u64().expect("a token")));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={}", encode(next)),
            None => return tokens,
        }
    }
}

fn sorted(mut tokens: Vec<u64>) -> Vec<u64> {
    tokens.sort_unstable();
    tokens
}

/// Asks for everything that is known, every way there is.
fn check(server: &Server, known: &BTreeMap<u64, Known>) {
    let mut client = server.client();
    let expected = |wanted: &dyn Fn(&Known) -> bool| -> Vec<u64> {
        known.iter().filter(|(_, grant)| wanted(grant)).map(|(token, _)| *token).collect()
    };
    let all = known.keys().copied().collect::<Vec<_>>();
    for limit in [7, 1_000] {
        assert_eq!(sorted(tokens(&mut client, "", limit)), all);
        assert_eq!(
            sorted(tokens(&mut client, "&resource=r/1", limit)),
            expected(&|grant| grant.resource == "r/1")
        );
        let of_client = tokens(&mut client, "&client_id=c1", limit);
        assert_eq!(sorted(of_client), expected(&|grant| grant.client == "c1"));
        let of_both = tokens(&mut client, "&client_id=c1&resource=r/1", limit);
        let wanted = |grant: &Known| grant.client == "c1" && grant.resource == "r/1";
        assert_eq!(sorted(of_both), expected(&wanted));
    }
    for at in instants(known) {
        let query = format!("&at={}", encode(&at));
        let valid = sorted(tokens(&mut client, &query, 3));
        assert_eq!(valid, expected(&|grant| was_valid(grant, &at)), "at {at}");
        let of_one = sorted(tokens(&mut client, &format!("{query}&resource=r/2"), 1_000));
        let wanted = |grant: &Known| grant.resource == "r/2" && was_valid(grant, &at);
        assert_eq!(of_one, expected(&wanted), "at {at}");
        assert!(of_one.len() <= 1, "an exclusive lock has one holder at a time");
        for (token, grant) in known {
            let answer = client.get(&format!("/v1/grants?token={token}{query}"));
            let found = &answer.ok()["items"][0];
            assert_eq!(found["valid"], was_valid(grant, &at), "{token} at {at}: {found}");
            assert_eq!(found["ended_at"].as_str(), grant.until.as_deref(), "{found}");
        }
    }
}

#[test]
fn every_token_of_a_random_history_is_answered_right_also_after_crash_and_stop() {
    let mut random = Random::new(Random::seed_from_environment());
    let mut server = server();
    live(&server, &mut random);
    let truth = known(&server);
    assert!(truth.len() > 30, "{} grants", truth.len());
    check(&server, &truth);
    server.kill9();
    server.restart();
    check(&server, &truth);
    server.begin_stop();
    assert!(server.finish_stop(Duration::from_secs(30)).success());
    server.restart();
    check(&server, &truth);
}

#[test]
fn what_was_trimmed_is_said_to_be_forgotten_and_what_never_was_to_be_that() {
    let server = configured().flag("--history-ms", 1_000).start();
    let mut client = server.client();
    let token = client.acquire(&ask("r", "a", 60_000)).token();
    client.let_go("r", token);
    let live = client.acquire(&ask("r", "b", 600_000)).token();
    let reason = |client: &mut Client, token: u64| -> Value {
        let answer = client.get(&format!("/v1/grants?token={token}"));
        if answer.status == 200 {
            Value::Null
        } else {
            answer.problem(404, "not_found")["reason"].clone()
        }
    };
    eventually("it is forgotten", || reason(&mut client, token) == "forgotten");
    assert_eq!(reason(&mut client, live), Value::Null, "what is live is never forgotten");
    assert_eq!(reason(&mut client, live + 1), "never_issued");
    assert_eq!(tokens(&mut client, "", 100), [live]);
    let elsewhere = client.get(&format!("/v1/grants?token={live}&resource=s"));
    assert_eq!(elsewhere.problem(404, "not_found")["reason"], "other_resource");
}

#[test]
fn what_cannot_be_asked_is_named() {
    let server = server();
    let mut client = server.client();
    for (query, field) in [
        ("token=0", "token"),
        ("token=9007199254740992", "token"),
        ("token=x", "token"),
        ("token=1&client_id=a", "client_id"),
        ("token=1&cursor=e", "cursor"),
        ("at=yesterday", "at"),
        ("at=2999-01-01T00:00:00Z", "at"),
        ("cursor=x", "cursor"),
        ("cursor=l", "cursor"),
        ("cursor=e1", "cursor"),
        ("cursor=cxx", "cursor"),
        ("cursor=csg5", "cursor"),
        ("cursor=e0-5", "cursor"),
        ("client_id=c&cursor=l3", "cursor"),
        ("client_id=c&cursor=e5-5", "cursor"),
        ("resource=r&cursor=csg5", "cursor"),
        ("client_id=", "client_id"),
        ("resource=", "resource"),
        ("limit=0", "limit"),
        ("until=1", "until"),
    ] {
        let answer = client.get(&format!("/v1/grants?{query}"));
        assert_eq!(answer.problem(400, "invalid_request")["field"], field, "{query}");
    }
    for at in ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.5%2B02:00", "2026-01-01t00:00:00.000z"]
    {
        assert_eq!(client.get(&format!("/v1/grants?at={at}")).ok()["items"], json!([]));
    }
}
