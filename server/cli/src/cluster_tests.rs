//! What an operator reads about a cluster.

use super::*;

fn node(id: u64, role: &str) -> serde_json::Value {
    serde_json::json!({
        "id": id,
        "peer_addr": format!("10.0.0.{id}:7171"),
        "http_addr": format!("http://10.0.0.{id}:7070"),
        "role": role,
        "voter": role != "learner",
        "log_index": 1_042,
        "applied_index": 1_042,
        "version": "0.1.0",
    })
}

fn with(mut node: serde_json::Value, more: serde_json::Value) -> serde_json::Value {
    let (Some(node_fields), serde_json::Value::Object(more)) = (node.as_object_mut(), more) else {
        panic!("objects")
    };
    node_fields.extend(more);
    node
}

fn read(leader: Option<u64>, nodes: Vec<serde_json::Value>) -> String {
    let cluster = serde_json::json!({
        "cluster_id": "0123", "leader": leader, "term": 7, "this_node": 2, "nodes": nodes,
    });
    told(&serde_json::from_value(cluster).expect("the shape of a cluster"))
}

#[test]
fn a_cluster_that_is_well_says_how_much_it_can_lose() {
    let text = read(Some(1), vec![node(1, "leader"), node(2, "follower"), node(3, "follower")]);
    let mut lines = text.lines();
    assert_eq!(
        lines.next(),
        Some("Cluster 0123: node 1 leads in term 7, 3 of 3 voters answer, 1 more may fail.")
    );
    assert_eq!(lines.next(), Some(""));
    assert!(lines.next().is_some_and(|head| head.starts_with("NODE  ROLE")), "{text}");
    assert!(text.contains("2     follower"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("2 ") && line.ends_with("answers")), "{text}");
    assert!(text.lines().any(|line| line.starts_with("3 ") && line.ends_with('-')), "{text}");
}

#[test]
fn whatever_is_odd_about_a_node_is_noted() {
    let silent = with(
        node(3, "unreachable"),
        serde_json::json!({
            "unreachable": "no answer\u{1b}[2J", "log_index": null, "applied_index": null,
            "version": null,
        }),
    );
    let odd = serde_json::json!({
        "applied_index": 42, "storage_full": true, "clock_ahead_ms": -61_000,
        "waits_for": "its log",
    });
    let text = read(None, vec![with(node(2, "follower"), odd), silent, node(4, "learner")]);
    assert!(text.starts_with("Cluster 0123: nobody leads, only 1 of 2 voters answer, and 2 are"));
    let note = "answers; waits for its log; 1000 entries behind; disk full; clock 1m1s behind";
    assert!(text.contains(note), "{text}");
    assert!(text.contains("no answer\\u{1b}[2J"), "{text}");
}

#[test]
fn timing_is_noted_where_it_is_not_the_same() {
    let profiled = |id, profile: &str| {
        with(node(id, "follower"), serde_json::json!({ "raft_profile": profile }))
    };
    let text = read(Some(1), vec![profiled(1, "lan"), profiled(2, "wan"), node(3, "follower")]);
    assert!(text.contains("answers; raft profile wan") && text.contains("profile lan"), "{text}");
    let text = read(Some(1), vec![profiled(1, "lan"), profiled(2, "lan"), node(3, "follower")]);
    assert!(!text.contains("profile"), "{text}");
}
