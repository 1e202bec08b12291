//! Members come and go while the cluster works.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_harness::{
    Builder, Client, Cluster, Roaming, Server, Value, ask, eventually, free_ports, json, within,
};

use crate::nodes;

/// Generous: a loaded machine takes seconds for what takes a tenth of one.
const PATIENCE: Duration = Duration::from_secs(60);
/// A node that was removed from its cluster.
const REMOVED: i32 = 77;

/// An empty node, and where peers reach it.
fn empty(id: u64) -> (Builder, String) {
    let address = free_ports(1)[0].to_string();
    let builder = Server::builder(env!("CARGO_BIN_EXE_leasehold"));
    (builder.flag("--node-id", id).flag("--peer-listen", &address), address)
}

/// One that asks a running node to take it in.
fn joining(id: u64, at: &Server) -> Server {
    let (builder, _) = empty(id);
    builder.flag("--join", format!("http://{}", at.addr())).start()
}

fn change(client: &mut Client, what: &str, body: &Value) -> leasehold_harness::Answer {
    client.post(&format!("/v1/cluster/{what}"), body)
}

/// Gives a learner a vote, once it has caught up.
fn promote(client: &mut Client, id: u64) {
    within(PATIENCE, "the learner is promoted", || {
        let answer = change(client, "promote", &json!({ "id": id }));
        assert!(matches!(answer.status, 200 | 409), "{answer:?}");
        (answer.status == 200).then_some(())
    });
}

fn remove(client: &mut Client, id: u64) {
    change(client, "remove", &json!({ "id": id })).ok();
}

/// What a node sees of another one.
fn seen(client: &mut Client, id: u64) -> Option<Value> {
    let view = client.get("/v1/cluster").ok();
    let nodes = view["nodes"].as_array().expect("a list").clone();
    nodes.into_iter().find(|node| node["id"] == id)
}

fn role(client: &mut Client, id: u64) -> Option<String> {
    seen(client, id).and_then(|node| node["role"].as_str().map(str::to_owned))
}

/// Waits for the exit of a node that was removed.
fn assert_says_removed(mut node: Server) {
    let said = within(PATIENCE, "it says so", || {
        let said = node.said();
        said.contains("was removed from its cluster").then_some(said)
    });
    let status = node.finish_stop(PATIENCE);
    assert_eq!(status.code(), Some(REMOVED), "{said}");
}

#[test]
fn one_node_grows_into_three_by_the_wish_of_the_new_ones() {
    let (first, at) = empty(1);
    let first = first.flag("--peers", format!("1={at}")).start();
    let mut client = first.client();
    let held = client.acquire(&ask("r", "a", 600_000)).token();
    let mut grown = Vec::new();
    for id in [2, 3] {
        let node = joining(id, &first);
        assert_eq!(role(&mut client, id).as_deref(), Some("learner"));
        // A learner serves clients: it passes on what only the leader can answer.
        assert_eq!(node.client().holders("r"), [held]);
        promote(&mut client, id);
        assert_eq!(role(&mut client, id).as_deref(), Some("follower"));
        grown.push(node);
    }
    let refused = client.post("/v1/acquire-lock", &ask("s", "a", 1_000));
    refused.problem(400, "invalid_request");
    // The one that was alone is not needed any more.
    let mut first = first;
    first.kill9();
    let mut others = Roaming::new(grown.iter().map(Server::addr).collect::<Vec<_>>());
    let granted = others.post("/v1/acquire-lock", &ask("s", "a", 600_000), PATIENCE);
    assert!(granted.expect("two of three decide").token() > held);
}

#[test]
fn a_dead_node_is_replaced_under_load() {
    let mut cluster = nodes().start(3);
    let dead = cluster.follower();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let addresses = cluster.addresses();
        let (done, load) = (&done, move || work(addresses));
        let working = scope.spawn(move || load()(done));
        cluster.kill9(dead);
        let leader = cluster.leader();
        let new = joining(4, cluster.node(leader));
        let mut client = cluster.client(leader);
        remove(&mut client, dead);
        promote(&mut client, 4);
        let before = new.client().get("/v1/stats").ok()["last_token"].as_u64();
        eventually("the new node has what is granted now", || {
            new.client().get("/v1/stats").ok()["last_token"].as_u64() > before
        });
        done.store(true, Ordering::Release);
        let tokens = working.join().expect("the load is fine");
        assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]), "{tokens:?}");
        assert!(tokens.len() > 10, "there was load: {tokens:?}");

        // The dead one does not come back to where it was.
        let refused = cluster.node_mut(dead).try_restart().expect_err("it is no member");
        assert_eq!(refused.status.code(), Some(REMOVED), "{}", refused.output);
        assert!(refused.output.contains("was removed"), "{}", refused.output);
    });
}

/// Takes and gives back one lock again and again; answers its tokens.
fn work(addresses: Vec<std::net::SocketAddr>) -> impl FnOnce(&AtomicBool) -> Vec<u64> {
    move |done| {
        let mut client = Roaming::new(addresses);
        let mut tokens = Vec::new();
        while !done.load(Ordering::Acquire) {
            let mut wanted = ask("hot", "a", 60_000);
            wanted["request_id"] = json!(format!("r{}", tokens.len()));
            let answer = client.post("/v1/acquire-lock", &wanted, PATIENCE);
            let token = answer.expect("a quorum is there all the time").token();
            let release = json!({ "resource": "hot", "token": token });
            client.post("/v1/release-lock", &release, PATIENCE).expect("likewise").ok();
            tokens.push(token);
        }
        tokens
    }
}

#[test]
fn a_removed_leader_hands_over_says_so_and_stops() {
    let mut cluster = nodes().start(3);
    let leader = cluster.leader();
    let held = cluster.client(leader).acquire(&ask("r", "a", 600_000)).token();
    let others: Vec<u64> = cluster.up().into_iter().filter(|id| *id != leader).collect();
    remove(&mut cluster.client(others[0]), leader);
    let next = cluster.leader_among(&others);
    assert_eq!(cluster.client(next).holders("r"), [held]);
    let status = cluster.node_mut(leader).finish_stop(PATIENCE);
    assert_eq!(status.code(), Some(REMOVED));
    assert!(cluster.client(next).acquire(&ask("s", "a", 600_000)).token() > held);
}

#[test]
fn a_removed_follower_says_so_and_stops() {
    let cluster = nodes().start(3);
    let leader = cluster.leader();
    let new = joining(4, cluster.node(leader));
    let mut client = cluster.client(leader);
    promote(&mut client, 4);
    remove(&mut client, 4);
    assert_eq!(role(&mut client, 4), None);
    assert_says_removed(new);
    assert_eq!(cluster.leader(), leader, "nobody was disturbed");

    // An id is used once. What was refused is no removal.
    change(&mut client, "remove", &json!({ "id": 5 })).problem(404, "not_found");
    let (again, address) = empty(4);
    let again = again.begin();
    let asked = json!({ "id": 4, "peer_addr": address });
    let refused = change(&mut client, "add", &asked).problem(409, "conflict");
    assert_eq!(refused["reason"], "id_retired", "{refused}");
    drop(again);
    let url = format!("http://{}", cluster.node(leader).addr());
    let (again, _) = empty(4);
    let refused = again.flag("--join", url).try_start().expect_err("its id is used up");
    assert_eq!(refused.status.code(), Some(70), "{refused:?}");
    assert!(refused.output.contains("used once"), "{refused:?}");
    joining(5, cluster.node(leader));
}

#[test]
fn what_must_not_happen_to_members_is_refused_with_a_reason() {
    let mut cluster = nodes().start(3);
    let leader = cluster.leader();
    let mut client = cluster.client(leader);
    let others: Vec<u64> = cluster.up().into_iter().filter(|id| *id != leader).collect();
    let refused = change(&mut client, "promote", &json!({ "id": 9 }));
    assert!((400..500).contains(&refused.status), "{refused:?}");
    let nowhere = free_ports(1)[0].to_string();
    let refused = change(&mut client, "add", &json!({ "id": 4, "peer_addr": nowhere }));
    assert!(refused.status >= 400, "{refused:?}");

    // A wiped node is not let in under its old id, whatever it asks.
    wipe(&mut cluster, others[0]);
    let (_, address) = empty(9);
    let url = format!("http://{}", cluster.node(leader).addr());
    let wiped = Server::builder(env!("CARGO_BIN_EXE_leasehold"))
        .flag("--node-id", others[0])
        .flag("--peer-listen", &address)
        .flag("--join", url)
        .begin();
    within(PATIENCE, "it is told why", || wiped.said().contains("has other data").then_some(()));
    // With it gone, the other follower is needed.
    let refused = change(&mut client, "remove", &json!({ "id": others[1] }));
    let refused = refused.problem_of_any_kind();
    assert!(refused["detail"].as_str().is_some_and(|text| text.contains("voters")), "{refused}");
}

/// As when every container of a cluster is made anew.
#[test]
fn members_that_all_got_new_addresses_find_each_other() {
    let mut cluster = nodes().start(3);
    let held = cluster.client(cluster.leader()).acquire(&ask("r", "a", 600_000)).token();
    let at: Vec<String> = free_ports(3).iter().map(ToString::to_string).collect();
    let peers = format!("1={},2={},3={}", at[0], at[1], at[2]);
    for id in 1..=3 {
        cluster.kill9(id);
        cluster.node_mut(id).set_flag("--peers", &peers);
    }
    cluster.restart_all();
    let mut client = cluster.client(cluster.leader());
    assert_eq!(client.holders("r"), [held]);
    for (id, at) in (1..).zip(&at) {
        within(PATIENCE, "the members say where it is", || {
            seen(&mut client, id).filter(|node| node["peer_addr"] == **at)
        });
    }
    // From here on each of them finds the others by what the members say.
    let follower = cluster.follower();
    cluster.kill9(follower);
    cluster.restart(follower);
    assert_eq!(cluster.client(follower).holders("r"), [held]);
}

fn wipe(cluster: &mut Cluster, id: u64) {
    cluster.kill9(id);
    std::fs::remove_dir_all(cluster.node(id).data_dir()).expect("the data can be removed");
}
