//! Who has anything.

use leasehold_harness::{Client, Value, ask, ask_on, encode, eventually, json, with};

use crate::server;

/// All clients that a query lists, page by page.
fn walk(client: &mut Client, query: &str) -> Vec<Value> {
    let (mut all, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = client.get(&format!("/v1/clients?limit=2{query}{cursor}")).ok();
        let items = page["items"].as_array().expect("a page").clone();
        assert!(items.len() <= 2, "{page}");
        all.extend(items);
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={}", encode(next)),
            None => return all,
        }
    }
}

fn row(label: &str, leases: u64, grants: u64, waiting: u64) -> Value {
    json!({
        "client_id": label, "principal": "anonymous",
        "leases": leases, "grants": grants, "waiting": waiting,
    })
}

#[test]
fn clients_are_listed_by_label_with_what_they_have() {
    let server = server();
    let mut client = server.client();
    let lease = client.open_lease("é 1", 60_000);
    client.acquire(&ask_on("a", "é 1", &lease)).token();
    client.acquire(&ask_on("b", "é 1", &lease)).token();
    let c = client.acquire(&ask("c", "one", 60_000)).token();
    client.open_lease("idle", 60_000);
    let mut waiter = server.client();
    waiter.begin_acquire(&with(ask("c", "two", 60_000), json!({"wait_ms": 30_000})));
    eventually("it is in line", || client.queue_length("c") == 1);
    // What is only remembered is nothing that anybody has.
    let gone = client.acquire(&with(ask("d", "gone", 60_000), json!({"request_id": "r"}))).token();
    client.let_go("d", gone);

    let rows =
        [row("idle", 1, 0, 0), row("one", 1, 1, 0), row("two", 1, 0, 1), row("é 1", 1, 2, 0)];
    assert_eq!(walk(&mut client, ""), rows);
    assert_eq!(walk(&mut client, "&client_id=two"), rows[2..3]);
    assert_eq!(walk(&mut client, "&client_id=gone"), Vec::<Value>::new());
    assert_eq!(client.get("/v1/clients").ok()["total"], 4);

    client.let_go("c", c);
    waiter.finish().token();
    assert_eq!(walk(&mut client, "&client_id=two"), [row("two", 1, 1, 0)]);
}

#[test]
fn a_cursor_that_no_page_of_the_list_gave_out_is_refused() {
    let server = server();
    let mut client = server.client();
    for i in 0..4 {
        client.acquire(&ask(&format!("r{i}"), "a", 60_000)).token();
        client.acquire(&ask(&format!("s{i}"), "b", 60_000)).token();
    }
    let lists = ["/v1/locks?", "/v1/locks?client_id=a&", "/v1/leases?client_id=a&", "/v1/clients?"];
    let cursors = lists.map(|list| {
        let page = client.get(&format!("{list}limit=1")).ok();
        encode(page["next_cursor"].as_str().unwrap_or_else(|| panic!("{list}: {page}")))
    });
    for (at, list) in lists.iter().enumerate() {
        let page = client.get(&format!("{list}cursor={}", cursors[at])).ok();
        assert_eq!(
            page["items"].as_array().map(Vec::len),
            Some([7, 3, 3, 1][at]),
            "{list}: {page}"
        );
        let foreign = cursors.iter().enumerate().filter(|(other, _)| *other != at);
        // Both lists of one client's things go on after a thing, so each takes the other's cursor.
        let alike = |list: usize| list == 1 || list == 2;
        let foreign = foreign.filter(|(other, _)| !(alike(at) && alike(*other)));
        for cursor in foreign.map(|(_, cursor)| cursor.as_str()).chain(["", "r0", "%C3%A9", "n"]) {
            let problem =
                client.get(&format!("{list}cursor={cursor}")).problem(400, "invalid_request");
            assert_eq!(problem["field"], "cursor", "{list} {cursor}: {problem}");
        }
    }
}

#[test]
fn a_page_of_locks_names_no_lease_of_its_client() {
    let server = server();
    let mut client = server.client();
    let lease = client.open_lease("a", 60_000);
    for i in 0..3 {
        client.acquire(&ask_on(&format!("r{i}"), "a", &lease)).token();
    }
    let page = client.get("/v1/locks?client_id=a&limit=1");
    assert!(page.ok()["next_cursor"].is_string(), "{page}");
    assert!(!String::from_utf8_lossy(&page.body).contains(&lease), "{page}");
}

#[test]
fn a_label_that_is_none_is_refused_instead_of_forgotten() {
    let server = server();
    let mut client = server.client();
    for list in ["locks", "leases", "clients"] {
        let answer = client.get(&format!("/v1/{list}?client_id="));
        assert_eq!(answer.problem(400, "invalid_request")["field"], "client_id", "{list}");
    }
}
