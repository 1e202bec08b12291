//! What operators do to what is not their own, and the record of it.

use leasehold_harness::{Client, Value, ask, ask_on, eventually, json, with};

use crate::{configured, server};

fn force(client: &mut Client, resource: &str, token: u64, when: &str) -> leasehold_harness::Answer {
    let order = json!({"resource": resource, "token": token, "reason": "stuck", "when": when});
    client.post("/v1/lock/force-release", &order)
}

/// Deeds, newest first, as words.
fn audit(client: &mut Client) -> Vec<String> {
    let page = client.get("/v1/audit").ok();
    let items = page["items"].as_array().cloned().expect("a page has items");
    let word = |item: &Value, name: &str| item[name].as_str().unwrap_or_default().to_owned();
    let deed = |item: &Value| {
        assert!(word(item, "source").starts_with("127.0.0.1:"), "{item}");
        assert_eq!(item["principal"], "anonymous");
        ["action", "target", "reason", "result"].map(|name| word(item, name)).join(" ")
    };
    items.iter().map(deed).collect()
}

#[test]
fn a_drained_grant_is_not_renewed_and_lets_nobody_in_before_its_deadline() {
    let server = server();
    let mut client = server.client();
    let granted = client.acquire(&ask("r", "a", 1_500));
    let token = granted.token();
    let mut waiter = server.client();
    waiter.begin_acquire(&with(ask("r", "b", 60_000), json!({"wait_ms": 60_000})));
    eventually("it waits", || client.queue_length("r") == 1);

    let drained = force(&mut client, "r", token, "drain").ok();
    assert_eq!((&drained["ended"], &drained["overlap"]), (&json!(false), &json!(false)));
    let renewal = client.renew("r", token).problem(409, "conflict");
    assert_eq!(renewal["reason"], "draining");
    assert_eq!(client.lock("r")["holders"][0]["draining"], true);
    let next = waiter.finish();
    assert_eq!(next.ok()["client_id"], "b");
    assert!(next.received >= granted.sent + granted.valid_for(), "nobody overlapped");
    assert_eq!(client.renew("r", token).problem(410, "grant_ended")["how"], "forced");
    assert_eq!(audit(&mut client), ["force_release_drain r stuck done"]);
}

#[test]
fn a_drained_grant_on_a_lease_for_many_ends_in_time_although_the_lease_is_kept() {
    let server = server();
    let mut client = server.client();
    let lease = client.open_lease("a", 2_000);
    let [drained, kept] =
        ["r", "s"].map(|resource| client.acquire(&ask_on(resource, "a", &lease)).token());
    client.keep_alive(&lease).ok();
    let order = force(&mut client, "r", drained, "drain").ok();
    let left = order["expires_in_ms"].as_u64().expect("a number");
    assert!(left <= 2_000, "{order}");
    // Kept alive as its owner should, and told each time which grant that does not keep.
    let mut valid = u64::MAX;
    let mut named = 0;
    eventually("the grant ends", || {
        let kept_alive = client.keep_alive(&lease).ok();
        assert!(kept_alive["valid_for_ms"].as_u64() > Some(1_900), "{kept_alive}");
        let draining = &kept_alive["draining_grants"][0];
        if draining.is_null() {
            assert_eq!(kept_alive["ended_grants"][0]["token"], drained, "{kept_alive}");
            return true;
        }
        assert_eq!((&draining["resource"], &draining["token"]), (&json!("r"), &json!(drained)));
        let now = draining["valid_for_ms"].as_u64().expect("a number");
        assert!(now <= valid, "{now} after {valid}");
        let shown = client.lock("r");
        if let Some(shown) = shown["holders"][0]["expires_in_ms"].as_u64() {
            assert!(shown <= now + 200, "{shown} and {draining}");
        }
        (valid, named) = (now, named + 1);
        false
    });
    assert!(named > 0, "it was named while it ran out");
    assert_eq!(client.lock("r")["state"], "free");
    assert_eq!(client.holders("s"), [kept]);
}

#[test]
fn what_ended_by_force_is_named_until_nobody_can_believe_in_it_any_more() {
    let server = server();
    let mut client = server.client();
    let lease = client.open_lease("a", 1_500);
    let token = client.acquire(&ask_on("r", "a", &lease)).token();
    force(&mut client, "r", token, "now").ok();
    let first = std::time::Instant::now();
    // Any of these answers might have been lost.
    let mut last_named = first;
    eventually("it is named no more", || {
        let kept = client.keep_alive(&lease).ok();
        let is_named = kept["ended_grants"][0]["token"] == token;
        if is_named {
            last_named = std::time::Instant::now();
        }
        !is_named
    });
    let named_for = last_named - first;
    assert!(named_for >= std::time::Duration::from_millis(1_500), "only for {named_for:?}");
}

#[test]
fn a_grant_ended_now_says_that_its_holder_may_not_know() {
    let server = server();
    let mut client = server.client();
    let token = client.acquire(&ask("r", "a", 60_000)).token();
    // Compare-and-set: whoever looks at an old page ends nothing.
    force(&mut client, "r", token + 1, "now").problem(409, "not_holder");
    force(&mut client, "s", token, "now").problem(409, "not_holder");
    assert_eq!(client.holders("r"), [token]);
    let ended = force(&mut client, "r", token, "now").ok();
    assert_eq!(ended, json!({"ended": true, "expires_in_ms": 0, "overlap": true}));
    assert_eq!(client.lock("r")["state"], "free");
    assert_eq!(force(&mut client, "r", token, "now").problem(410, "grant_ended")["how"], "forced");
    assert_eq!(
        audit(&mut client),
        [
            "force_release_now r stuck not_live",
            "force_release_now r stuck done",
            "force_release_now s stuck not_live",
            "force_release_now r stuck not_live",
        ]
    );
}

#[test]
fn a_revoked_lease_ends_with_all_that_is_on_it() {
    let server = server();
    let mut client = server.client();
    let lease = client.open_lease("a", 60_000);
    let tokens = ["r", "s"].map(|resource| client.acquire(&ask_on(resource, "a", &lease)).token());
    let path = format!("/v1/leases/{lease}?reason=left+the+company");
    client.call("DELETE", &path, &[], b"").ok();
    assert_eq!(client.renew("r", tokens[0]).problem(410, "grant_ended")["how"], "revoked");
    client.keep_alive(&lease).problem(410, "lease_ended");
    assert_eq!(client.lock("s")["state"], "free");
    client.call("DELETE", &path, &[], b"").problem(410, "lease_ended");
    let unknown = format!("/v1/leases/{}?reason=typo", "0".repeat(32));
    client.call("DELETE", &unknown, &[], b"").problem(404, "not_found");
    let short = format!("{}..", &lease[..8]);
    assert_eq!(
        audit(&mut client),
        [
            "revoke_lease 00000000.. typo no_lease".to_owned(),
            format!("revoke_lease {short} left the company no_lease"),
            format!("revoke_lease {short} left the company done"),
        ]
    );
}

#[test]
fn deeds_are_on_record_after_crash_and_stop_and_paged() {
    let mut server = configured().flag("--audit-max", 30).start();
    let mut client = server.client();
    for i in 0..25 {
        force(&mut client, &format!("r{i}"), 1_000, "now").problem(409, "not_holder");
    }
    let before = audit(&mut client);
    assert_eq!(before.len(), 25);
    server.kill9();
    server.restart();
    let mut client = server.client();
    assert_eq!(audit(&mut client), before);
    server.begin_stop();
    assert!(server.finish_stop(std::time::Duration::from_secs(30)).success());
    server.restart();
    let mut client = server.client();
    assert_eq!(audit(&mut client), before);

    let (mut paged, mut cursor) = (0, String::new());
    loop {
        let page = client.get(&format!("/v1/audit?limit=4{cursor}")).ok();
        paged += page["items"].as_array().expect("a page has items").len();
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(paged, 25);
    for i in 0..25 {
        force(&mut client, &format!("s{i}"), 1_000, "now").problem(409, "not_holder");
    }
    let mut kept = audit(&mut client);
    kept.retain(|deed| !deed.contains(" s"));
    drop(client);
    server.begin_stop();
    assert!(server.finish_stop(std::time::Duration::from_secs(30)).success());
    server.restart();
    assert_eq!(audit(&mut server.client()).len(), 30, "the newest are kept");
}

fn put(
    client: &mut Client,
    domain: &str,
    header: (&str, &str),
    body: &str,
) -> leasehold_harness::Answer {
    client.call("PUT", &format!("/v1/domains?domain={domain}"), &[header], body.as_bytes())
}

#[test]
fn a_domain_is_changed_only_as_it_was_seen() {
    let mut server = server();
    let mut client = server.client();
    client.get("/v1/domains?domain=pay").problem(404, "not_found");
    let blind = client.call("PUT", "/v1/domains?domain=pay", &[], b"{}");
    assert_eq!(blind.problem(428, "precondition_required")["current"], "none");
    put(&mut client, "pay", ("If-Match", "*"), "{}").problem(412, "precondition_failed");
    let set = put(&mut client, "pay", ("If-None-Match", "*"), r#"{"queue_max":1}"#);
    let (version, tag) = (set.ok()["version"].clone(), set.header("etag").map(str::to_owned));
    assert_eq!(tag, version.as_str().map(|version| format!("\"{version}\"")));
    let again = put(&mut client, "pay", ("If-None-Match", "*"), r#"{"queue_max":2}"#);
    assert_eq!(again.problem(412, "precondition_failed")["current"], version);

    // It counts at once, for this domain alone, and after a restart.
    server.kill9();
    server.restart();
    let mut client = server.client();
    for resource in ["pay/1", "other/1"] {
        client.acquire(&ask(resource, "a", 60_000)).token();
        let mut first = server.client();
        first.begin_acquire(&with(ask(resource, "b", 60_000), json!({"wait_ms": 60_000})));
        eventually("it waits", || client.queue_length(resource) == 1);
        let mut second = server.client();
        second.begin_acquire(&with(ask(resource, "c", 60_000), json!({"wait_ms": 60_000})));
        if resource == "pay/1" {
            assert_eq!(second.finish().problem(429, "shed")["max"], 1);
        } else {
            eventually("it waits too", || client.queue_length(resource) == 2);
        }
    }

    let tag = tag.expect("it has one");
    let changed = put(&mut client, "pay", ("If-Match", &tag), "{}").ok();
    assert_eq!(changed.get("queue_max"), None, "{changed}");
    let stale = client.call("DELETE", "/v1/domains?domain=pay", &[("If-Match", &tag)], b"");
    stale.problem(412, "precondition_failed");
    let all = client.get("/v1/domains").ok();
    assert_eq!((&all["total"], &all["items"][0]["domain"]), (&json!(1), &json!("pay")));
    client.call("DELETE", "/v1/domains?domain=pay&reason=tidy", &[("If-Match", "*")], b"").ok();
    assert_eq!(client.get("/v1/domains").ok()["items"], json!([]));
    client
        .call("DELETE", "/v1/domains?domain=pay", &[("If-Match", "*")], b"")
        .problem(412, "precondition_failed");
    assert_eq!(audit(&mut client)[0], "unset_domain pay tidy done");
}

#[test]
fn what_no_operator_can_mean_is_named() {
    let server = server();
    let mut client = server.client();
    let order = |more: Value| with(json!({"resource": "r", "token": 1, "reason": "x"}), more);
    for (body, field) in [
        (order(json!({"when": "later"})), "when"),
        (order(json!({"reason": ""})), "reason"),
        (order(json!({"reason": "x".repeat(513)})), "reason"),
        (order(json!({"reason": "a\nb"})), "reason"),
        (order(json!({"token": 0})), "token"),
        (order(json!({"why": "x"})), "why"),
        (json!({"resource": "r", "token": 1}), "reason"),
    ] {
        let answer = client.post("/v1/lock/force-release", &body);
        assert_eq!(answer.problem(400, "invalid_request")["field"], field, "{body}");
    }
    for (query, header, body, field) in [
        ("", ("If-Match", "*"), "{}", "domain"),
        ("?domain=a/b", ("If-Match", "*"), "{}", "domain"),
        ("?domain=", ("If-Match", "*"), "{}", "domain"),
        ("?domain=a", ("If-Match", "7"), "{}", "If-Match"),
        ("?domain=a", ("If-None-Match", "\"7\""), "{}", "If-None-Match"),
        ("?domain=a", ("If-Match", "*"), r#"{"queue_max":0}"#, "queue_max"),
        ("?domain=a", ("If-Match", "*"), r#"{"queue_max":4294967296}"#, "queue_max"),
        ("?domain=a", ("If-Match", "*"), r#"{"queue_max":null}"#, "queue_max"),
        ("?domain=a&reason=", ("If-Match", "*"), "{}", "reason"),
    ] {
        let answer = client.call("PUT", &format!("/v1/domains{query}"), &[header], body.as_bytes());
        assert_eq!(answer.problem(400, "invalid_request")["field"], field, "{query} {body}");
    }
    for query in ["cursor=x", "cursor=-1", "limit=0"] {
        client.get(&format!("/v1/audit?{query}")).problem(400, "invalid_request");
    }
    assert_eq!(audit(&mut client), Vec::<String>::new(), "none of it was begun");
}

#[test]
fn a_lone_node_is_a_cluster_of_one_that_nobody_can_join() {
    let server = server();
    let mut client = server.client();
    let cluster = client.get("/v1/cluster").ok();
    assert_eq!((&cluster["leader"], &cluster["this_node"]), (&json!(1), &json!(1)), "{cluster}");
    assert_eq!(cluster["nodes"].as_array().map(Vec::len), Some(1), "{cluster}");
    assert_eq!(cluster["nodes"][0]["role"], "leader", "{cluster}");
    let new = json!({"id": 2, "peer_addr": "127.0.0.1:7171", "reason": "more"});
    let refused = client.post("/v1/cluster/add", &new).problem(409, "conflict");
    assert_eq!(refused["reason"], "no_peer_address", "{refused}");
    for (body, field) in [
        (json!({"id": 0, "peer_addr": "a:1"}), "id"),
        (json!({"id": 2, "peer_addr": "a"}), "peer_addr"),
        (json!({"id": 2, "peer_addr": "a:0"}), "peer_addr"),
        (json!({"id": 2, "peer_addr": "a b:1"}), "peer_addr"),
        (json!({"id": 2, "peer_addr": "http://a:1"}), "peer_addr"),
        (json!({"id": 2, "peer_addr": "a:1", "reason": ""}), "reason"),
    ] {
        let problem = client.post("/v1/cluster/add", &body).problem(400, "invalid_request");
        assert_eq!(problem["field"], field, "{body}: {problem}");
    }
    // What was refused before it was begun left no mark.
    assert_eq!(audit(&mut client), ["add_node node 2 more refused", "add_node node 2 more begun"]);
}
