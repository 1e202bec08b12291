//! What a load balancer, a supervisor and a scraper ask.

use leasehold_harness::{ask, json};

use crate::server;

#[test]
fn a_running_node_is_alive_ready_and_healthy() {
    let server = server();
    let mut client = server.client();
    for path in ["/livez", "/readyz", "/healthz"] {
        let answer = client.get(path);
        assert_eq!(answer.status, 200, "{path}: {answer}");
    }
}

#[test]
fn metrics_are_there_from_the_start_and_count_what_happens() {
    let server = server();
    let mut client = server.client();
    let grant = client.acquire(&ask("r/1", "a", 10_000));
    client.renew("r/1", grant.token()).ok();
    client.let_go("r/1", grant.token());

    let answer = client.get("/metrics");
    assert!(answer.header("content-type").is_some_and(|kind| kind.starts_with("text/plain")));
    let text = String::from_utf8(answer.body).expect("metrics are text");
    assert!(text.contains("# TYPE leasehold_"), "{text}");
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let known = ["leasehold_", "process_"].iter().any(|prefix| line.starts_with(prefix));
        assert!(known, "a metric under a foreign name: {line}");
        // One label value per resource or client would make the scraper pay for every name.
        assert!(!line.contains("r/1"), "a resource became a label: {line}");
    }
}

#[test]
fn the_three_verbs_stand_at_the_root_as_well() {
    let server = server();
    let mut client = server.client();
    let token = client.post("/acquire-lock", &ask("invoice/42", "w1", 10_000)).token();
    let named = json!({"resource": "invoice/42", "token": token});
    assert!(client.post("/renew-lock", &named).ok()["valid_for_ms"].is_u64());
    assert_eq!(client.post("/release-lock", &named).ok()["released"], true);
}
