//! Many operations in one call, each with an outcome of its own.

use leasehold_harness::{Value, ask, json, with};

use crate::server;

fn acquire(resource: &str, client: &str) -> Value {
    with(ask(resource, client, 10_000), json!({"op": "acquire"}))
}

#[test]
fn operations_take_effect_in_order_and_a_refused_one_does_not_undo_its_neighbours() {
    let server = server();
    let mut client = server.client();
    let held = client.acquire(&ask("held", "a", 10_000)).token();
    let operations = json!([
        acquire("x", "a"),
        acquire("x", "b"),
        {"op": "release", "resource": "held", "token": held},
        acquire("held", "b"),
        {"op": "renew", "resource": "held", "token": held},
        {"op": "release", "resource": "held", "token": held},
    ]);
    let answer = client.post("/v1/batch", &json!({"operations": operations})).ok();
    let results = answer["results"].as_array().expect("a list of results");
    assert_eq!(results.len(), 6, "{answer}");

    let statuses: Vec<_> = results.iter().map(|result| result["status"].as_u64()).collect();
    assert_eq!(statuses, [200, 409, 200, 200, 410, 200].map(Some), "{answer}");
    let token = |i: usize| results[i]["grant"]["token"].as_u64().expect("a granted operation");
    assert!(token(0) > held && token(3) > token(0), "{answer}");
    assert_eq!(results[1]["problem"]["code"], "held", "{answer}");
    assert_eq!(results[2]["released"]["released"], true, "{answer}");
    assert_eq!(results[4]["problem"]["code"], "grant_ended", "{answer}");
    assert_eq!(results[5]["released"]["reason"], "already_released", "{answer}");
    assert_eq!(client.holders("x"), [token(0)]);
    assert_eq!(client.holders("held"), [token(3)]);
}

#[test]
fn a_full_batch_is_served_and_one_more_is_refused() {
    let server = server();
    let mut client = server.client();
    let batch = |n: usize| -> Value {
        let operations: Vec<Value> = (0..n).map(|i| acquire(&format!("r{i}"), "a")).collect();
        json!({"operations": operations})
    };
    let problem = client.post("/v1/batch", &batch(257)).problem(400, "invalid_request");
    assert_eq!(problem["field"], "operations");
    assert_eq!(client.lock("r0")["state"], "free");

    let answer = client.post("/v1/batch", &batch(256)).ok();
    let results = answer["results"].as_array().expect("a list of results");
    let token = |result: &Value| result["grant"]["token"].as_u64();
    let tokens: Vec<u64> = results.iter().filter_map(token).collect();
    assert_eq!(tokens.len(), 256);
    assert!(tokens.is_sorted_by(|a, b| a < b), "one token after the other");
}

#[test]
fn a_batch_does_not_wait() {
    let server = server();
    let mut client = server.client();
    let patient = with(acquire("r", "a"), json!({"wait_ms": 1_000}));
    let answer = client.post("/v1/batch", &json!({"operations": [patient]}));
    answer.problem(400, "invalid_request");
    assert_eq!(client.lock("r")["state"], "free");
}

#[test]
fn an_operation_that_is_no_operation_refuses_the_batch_before_anything_happens() {
    let server = server();
    let mut client = server.client();
    let broken = [
        json!({"op": "steal", "resource": "r", "token": 1}),
        json!({"resource": "r", "token": 1}),
        json!({"op": "release", "resource": "r"}),
        with(acquire("r", "a"), json!({"tll_ms": 1})),
        json!(7),
    ];
    for operation in broken {
        let body = json!({"operations": [acquire("good", "a"), operation]});
        client.post("/v1/batch", &body).problem(400, "invalid_request");
        assert_eq!(client.lock("good")["state"], "free");
    }
}
