//! What can be asked without changing anything.

use leasehold_harness::{Client, Value, ask, encode, eventually, json, with};

use crate::server;

fn names(page: &Value) -> Vec<String> {
    let items = page["items"].as_array().unwrap_or_else(|| panic!("no items in {page}"));
    items.iter().filter_map(|item| item["resource"].as_str()).map(str::to_owned).collect()
}

/// All names that a query lists, page by page.
fn walk(client: &mut Client, query: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = client.get(&format!("/v1/locks?limit=7&{query}{cursor}")).ok();
        let found = names(&page);
        assert!(found.len() <= 7, "{page}");
        all.extend(found);
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={}", encode(next)),
            None => return all,
        }
    }
}

#[test]
fn the_last_token_of_a_lock_with_very_many_holders_is_the_last() {
    let server = server();
    let mut client = server.client();
    let shared = |i: u64| with(ask("r", &format!("c{i}"), 60_000), json!({"mode": "shared"}));
    let last = (0..300).map(|i| client.acquire(&shared(i)).token()).last();
    assert_eq!(client.lock("r")["last_token"].as_u64(), last);
}

#[test]
fn locks_are_listed_by_name_page_by_page_and_by_what_one_looks_for() {
    let server = server();
    let mut client = server.client();
    let mut expected = Vec::new();
    for i in 0..30 {
        for name in [format!("pay/{i:02}"), format!("ship/é {i:02}")] {
            let who = if i < 10 { "few" } else { "many" };
            client.acquire(&ask(&name, who, 60_000)).token();
            expected.push(name);
        }
    }
    expected.sort_unstable();

    assert_eq!(walk(&mut client, ""), expected);
    assert_eq!(walk(&mut client, "prefix=pay/"), expected[..30]);
    assert_eq!(walk(&mut client, "prefix=pay/1"), expected[10..20]);
    assert_eq!(walk(&mut client, "domain=ship"), expected[30..]);
    assert_eq!(walk(&mut client, "client_id=few").len(), 20);
    assert_eq!(walk(&mut client, "client_id=few&prefix=ship"), expected[30..40]);
    assert_eq!(walk(&mut client, "state=held").len(), 60);
    assert_eq!(walk(&mut client, "prefix=nothing"), Vec::<String>::new());
}

#[test]
fn a_page_goes_on_where_the_last_one_ended_whatever_came_and_went_meanwhile() {
    let server = server();
    let mut client = server.client();
    let tokens: Vec<u64> =
        (0..20).map(|i| client.acquire(&ask(&format!("r{i:02}"), "a", 60_000)).token()).collect();
    let first = client.get("/v1/locks?limit=10").ok();
    client.let_go("r09", tokens[9]);
    client.let_go("r10", tokens[10]);
    client.acquire(&ask("r00b", "a", 60_000)).token();
    let cursor = encode(first["next_cursor"].as_str().expect("more to come"));
    let second = client.get(&format!("/v1/locks?limit=10&cursor={cursor}")).ok();
    assert_eq!(names(&second), (11..20).map(|i| format!("r{i:02}")).collect::<Vec<_>>());
}

#[test]
fn a_query_that_cannot_be_meant_is_refused() {
    let server = server();
    let mut client = server.client();
    let wrong = [
        ("/v1/lock", "resource"),
        ("/v1/lock?resource=", "resource"),
        ("/v1/lock?resource=a%0Ab", "resource"),
        ("/v1/lock?resource=a&colour=red", "colour"),
        ("/v1/lock?resource=a&resource=b", "resource"),
        ("/v1/locks?limit=0", "limit"),
        ("/v1/locks?limit=-1", "limit"),
        ("/v1/locks?limit=many", "limit"),
        ("/v1/locks?limit=10000000", "limit"),
        ("/v1/locks?state=asleep", "state"),
    ];
    for (path, field) in wrong {
        let answer = client.get(path);
        let problem = answer.problem(400, "invalid_request");
        assert_eq!(problem["field"], field, "{path}: {problem}");
    }
    for path in ["/v1/lock?resource=%ff", "/v1/lock?resource=%zz", "/v1/lock?resource=%e9"] {
        client.get(path).problem(400, "invalid_request");
    }
}

#[test]
fn a_lock_shows_its_holder_and_its_line_in_order() {
    let server = server();
    let mut client = server.client();
    let free = client.lock("r");
    assert_eq!((&free["state"], &free["queue_length"]), (&json!("free"), &json!(0)), "{free}");
    let token = client.acquire(&ask("r", "a", 60_000)).token();
    let waiters: Vec<Client> = (0..5)
        .map(|i| {
            let mut waiter = server.client();
            let wait = json!({"wait_ms": 30_000});
            waiter.begin_acquire(&with(ask("r", &format!("w{i}"), 60_000), wait));
            eventually("it is in line", || client.queue_length("r") == i + 1);
            waiter
        })
        .collect();
    let lock = client.lock("r");
    assert_eq!((&lock["resource"], &lock["state"]), (&json!("r"), &json!("held")));
    assert_eq!(lock["last_token"], token);
    assert_eq!(lock["holders"][0]["client_id"], "a");
    for (i, ticket) in lock["queue"].as_array().expect("a line").iter().enumerate() {
        assert_eq!(ticket["position"], i + 1, "{lock}");
        assert_eq!(ticket["client_id"], format!("w{i}"), "{lock}");
        assert!(ticket["waiting_ms"].is_u64(), "{lock}");
    }
    let problem = client.acquire(&ask("r", "b", 60_000)).problem(409, "held");
    assert_eq!((&problem["queue_length"], &problem["holders_total"]), (&json!(5), &json!(1)));
    drop(waiters);
}

#[test]
fn a_refusal_names_eight_holders_at_most_and_says_how_many_there_are() {
    let server = server();
    let mut client = server.client();
    for i in 0..12 {
        let shared = json!({"mode": "shared"});
        client.acquire(&with(ask("r", &format!("s{i}"), 60_000), shared)).token();
    }
    let problem = client.acquire(&ask("r", "x", 60_000)).problem(409, "held");
    assert_eq!(problem["holders"].as_array().map(Vec::len), Some(8), "{problem}");
    assert_eq!(problem["holders_total"], 12, "{problem}");
}

#[test]
fn every_linearizable_answer_carries_the_revision_that_it_saw() {
    let server = server();
    let mut client = server.client();
    let grant = client.acquire(&ask("r", "a", 60_000));
    let token = grant.token();
    let check = json!({"resource": "r", "token": token});
    let answers = [
        grant,
        client.get("/v1/lock?resource=r"),
        client.get("/v1/locks"),
        client.post("/v1/fence/check", &check),
        client.release("r", token),
    ];
    for answer in &answers {
        assert_eq!(answer.status, 200, "{answer}");
        assert!(answer.header("leasehold-revision").is_some_and(|r| !r.is_empty()), "{answer}");
    }
    // What only reads changes no revision; a release does.
    let seen = |i: usize| answers[i].header("leasehold-revision");
    assert_eq!(seen(1), seen(3));
    assert_ne!(seen(3), seen(4));
}
