//! Who belongs to a cluster, and who does not any more.

use std::time::Duration;

use leasehold_harness::{Builder, Client, Server, ask, eventually, free_ports};

use crate::nodes;

#[test]
fn a_node_that_lost_its_data_never_comes_back_under_its_id() {
    let mut cluster = nodes().start(3);
    let follower = cluster.follower();
    let token = cluster.client(cluster.leader()).acquire(&ask("r", "a", 600_000)).token();
    cluster.kill9(follower);
    let data = cluster.node(follower).data_dir().to_owned();
    std::fs::remove_dir_all(&data).expect("the data can be removed");
    let refused = cluster.node_mut(follower).try_restart().expect_err("it has lost its votes");
    assert!(refused.output.contains("has lost its data"), "{}", refused.output);
    assert_eq!(refused.status.code(), Some(70), "{}", refused.output);
    // The others go on without it.
    let leader = cluster
        .leader_among(&[1, 2, 3].into_iter().filter(|id| *id != follower).collect::<Vec<_>>());
    assert_eq!(cluster.client(leader).holders("r"), [token]);
}

#[test]
fn an_empty_node_founds_nothing_beside_a_cluster() {
    let cluster = nodes().start(3);
    let refused = cluster.stranger(4).try_start().expect_err("it is no member");
    assert!(refused.output.contains("is empty and not a member"), "{}", refused.output);
}

#[test]
fn a_directory_of_another_node_is_refused() {
    let mut cluster = nodes().start(3);
    cluster.kill9(1);
    let refused = cluster.node_mut(1).try_restart_as("--node-id", 2).expect_err("not its files");
    assert!(refused.output.contains("these are the files of node 1"), "{}", refused.output);
}

/// The founders of a cluster of two, not started.
fn two_founders() -> [Builder; 2] {
    let ports = free_ports(2);
    let peers = format!("1={},2={}", ports[0], ports[1]);
    [1, 2].map(|id| {
        let builder = Server::builder(env!("CARGO_BIN_EXE_leasehold"));
        builder.flag("--node-id", id).flag("--peers", &peers)
    })
}

/// What a node that is not ready says that it waits for.
fn waits_for(client: &mut Client) -> String {
    let problem = client.get("/readyz").problem(503, "not_ready");
    problem["detail"].as_str().expect("a text").to_owned()
}

#[test]
fn a_node_that_waits_for_others_answers_probes_and_says_what_it_waits_for() {
    let [first, second] = two_founders();
    let mut first = first.begin();
    let mut client = first.client();
    assert_eq!(client.get("/livez").status, 200);
    assert_eq!(client.get("/metrics").status, 200);
    eventually("it names who is missing", || {
        waits_for(&mut client).contains("the other founders: [2]")
    });
    let refused = client.post("/v1/acquire-lock", &ask("r", "a", 60_000));
    let refused = refused.problem(503, "not_ready");
    assert!(refused["detail"].as_str().is_some_and(|text| text.contains("founders")), "{refused}");
    client.get("/v1/lock?resource=r&consistency=stale").problem(503, "not_ready");
    client.get("/v1/stats").problem(503, "not_ready");
    assert!(first.said().contains("waiting for the other founders"), "{}", first.said());
    let mut second = second.start();
    first.ready();
    let token = second.client().acquire(&ask("r", "a", 600_000)).token();

    // The same for a quorum.
    first.kill9();
    second.kill9();
    first.begin_restart();
    let mut client = first.client();
    eventually("it names who is missing", || {
        waits_for(&mut client).contains("a quorum of the 2 voters: [2] do not answer")
    });
    assert_eq!(client.get("/livez").status, 200);
    second.restart();
    first.ready();
    assert_eq!(second.client().holders("r"), [token]);
}

#[test]
fn a_node_that_waits_stops_when_it_is_asked_to() {
    let [first, _] = two_founders();
    let mut first = first.begin();
    first.begin_stop();
    let status = first.finish_stop(Duration::from_secs(60));
    assert_eq!(status.code(), Some(0));
}
