//! The client and the commands know several nodes: what they do goes on when one of these dies or
//! freezes.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use leasehold_harness::process::client_of;
use leasehold_harness::{Cluster, Roaming, Value, ask, eventually, json, within};
use tempfile::TempDir;

use crate::nodes;

const PATIENCE: Duration = Duration::from_secs(60);

/// A command that knows these nodes, in this order.
fn leasehold(cluster: &Cluster, ids: &[u64], args: &[&str]) -> Command {
    let urls: Vec<String> =
        ids.iter().map(|id| format!("http://{}", cluster.node(*id).addr())).collect();
    let mut command = client_of(env!("CARGO_BIN_EXE_leasehold"), cluster.node(ids[0]));
    command.env("LEASEHOLD_SERVER", urls.join(",")).args(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn all(cluster: &Cluster) -> Vec<u64> {
    let mut ids = cluster.up();
    // The leader first: it is the one that every command would ask.
    let leader = cluster.leader();
    ids.sort_by_key(|id| *id != leader);
    ids
}

#[track_caller]
fn finish(mut child: Child) -> Output {
    within(PATIENCE, "the command ends", || child.try_wait().expect("the process is ours"));
    child.wait_with_output().expect("the process is ours")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_job_is_not_disturbed_when_the_leader_dies() {
    let mut cluster = nodes().start(3);
    let dir = TempDir::new().expect("a directory");
    let path = |name: &str| dir.path().join(name);
    let script = format!(
        "echo $FENCING_TOKEN > {}; until [ -e {} ]; do sleep 0.1; done; echo done",
        path("began").display(),
        path("end").display(),
    );
    let flags = ["exec", "--resource", "job", "--ttl", "8s", "--", "sh", "-c", &script];
    let exec = leasehold(&cluster, &all(&cluster), &flags).spawn().expect("the binary is there");
    eventually("the job runs", || fs::read_to_string(path("began")).is_ok_and(|it| it.len() > 1));
    let began = fs::read_to_string(path("began")).expect("the job left a mark");
    let token: u64 = began.trim().parse().expect("a token");

    let leader = cluster.leader();
    cluster.kill9(leader);
    cluster.leader();
    // Taken later and for as long, and never renewed: when it is over, the job's would be.
    let mut roaming = Roaming::new(cluster.addresses());
    let marker = roaming.post("/v1/acquire-lock", &ask("marker", "m", 8_000), PATIENCE);
    marker.expect("a node answers").ok();
    let mut client = cluster.client(cluster.follower());
    within(PATIENCE, "a lease that is not renewed ends", || {
        client.holders("marker").is_empty().then_some(())
    });
    assert_eq!(client.holders("job"), [token]);
    fs::write(path("end"), "").expect("the job looks for it");
    let output = finish(exec);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "done\n");
    eventually("the lock is given back", || client.holders("job").is_empty());
}

/// Whether the first in line is this client, and whether it is there at the moment.
fn first_in_line(lock: &Value, client: &str) -> Option<bool> {
    let first = &lock["queue"][0];
    (first["client_id"] == client).then(|| first["attached"] == json!(true))
}

#[test]
fn who_waits_through_a_node_that_freezes_keeps_the_place_through_another_one() {
    // Longer than a loaded machine takes to notice.
    let cluster = nodes().flag("--claim-window-ms", 50_000).start(3);
    let (leader, follower) = (cluster.leader(), cluster.follower());
    let mut client = cluster.client(leader);
    let held = client.acquire(&ask("r", "holder", 600_000)).token();
    let waits = |who: &str, ids: &[u64]| {
        let args = ["acquire", "r", "--wait", "300s", "--ttl", "60s", "--client-id", who];
        let args = args.into_iter().chain(["--output", "json"]).collect::<Vec<_>>();
        leasehold(&cluster, ids, &args).spawn().expect("the binary is there")
    };
    let first = waits("first", &[follower, leader]);
    within(PATIENCE, "it waits", || first_in_line(&client.lock("r"), "first")?.then_some(()));
    let second = waits("second", &[leader]);
    eventually("both wait", || client.queue_length("r") == 2);

    cluster.node(follower).freeze();
    let mut is_there = |wanted| {
        let lock = client.lock("r");
        assert!(first_in_line(&lock, "first").is_some(), "it has lost its place: {lock}");
        (first_in_line(&lock, "first") == Some(wanted)).then_some(())
    };
    within(PATIENCE, "its node is missed", || is_there(false));
    within(PATIENCE, "it is there again", || is_there(true));
    client.let_go("r", held);
    let granted: Value = serde_json::from_slice(&finish(first).stdout).expect("a grant");
    let token = granted["token"].as_u64().expect("a token");
    assert_eq!(client.holders("r"), [token]);
    client.let_go("r", token);
    let output = finish(second);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    cluster.node(follower).thaw();
}

#[test]
fn a_watch_goes_on_when_its_node_dies_and_tells_everything_once() {
    const CHANGES: usize = 40;
    let mut cluster = nodes().start(3);
    let ids = all(&cluster);
    let args = ["watch", "--prefix", "w/", "--output", "json", "--from", "0"];
    let mut watch = leasehold(&cluster, &ids, &args).spawn().expect("the binary is there");
    let mut lines = BufReader::new(watch.stdout.take().expect("it is piped")).lines();
    let mut next = || -> (String, u64) {
        let line = lines.next().expect("it goes on").expect("text");
        let event: Value = serde_json::from_str(&line).expect("a document a line");
        let kind = event["event"].as_str().expect("a kind").to_owned();
        (kind, event["token"].as_u64().expect("a token, since nothing is missing"))
    };
    let mut roaming = Roaming::new(cluster.addresses());
    for round in 0..CHANGES {
        let body = ask(&format!("w/{round}"), "a", 60_000);
        let body = leasehold_harness::with(body, json!({"request_id": round.to_string()}));
        let answer = roaming.post("/v1/acquire-lock", &body, PATIENCE).expect("a node answers");
        let token = answer.token();
        assert_eq!(next(), ("granted".to_owned(), token));
        if round == CHANGES / 2 {
            cluster.kill9(ids[0]);
        }
    }
    watch.kill().expect("the process is ours");
    watch.wait().expect("the process is ours");
}

#[test]
fn an_operator_sees_which_nodes_are_there() {
    let mut cluster = nodes().start(3);
    let status = |cluster: &Cluster| -> Value {
        let args = ["cluster", "status", "--output", "json"];
        let output = leasehold(cluster, &cluster.up(), &args).output().expect("the binary runs");
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("a document")
    };
    let before = status(&cluster);
    let leader = cluster.leader();
    assert_eq!(before["leader"], leader, "{before}");
    assert_eq!(before["cluster_id"].as_str().map(str::len), Some(32), "{before}");
    let roles = |told: &Value| -> Vec<String> {
        let nodes = told["nodes"].as_array().expect("nodes");
        nodes.iter().map(|node| node["role"].as_str().expect("a role").to_owned()).collect()
    };
    assert_eq!(roles(&before).iter().filter(|role| *role == "follower").count(), 2, "{before}");
    for node in before["nodes"].as_array().expect("nodes") {
        let id = node["id"].as_u64().expect("an id");
        let http = cluster.node(id).addr().to_string();
        assert!(node["http_addr"].as_str().is_some_and(|at| at.ends_with(&http)), "{node}");
        assert!(node["applied_index"].as_u64() <= node["log_index"].as_u64(), "{node}");
        assert_eq!(node["version"], env!("CARGO_PKG_VERSION"), "{node}");
    }

    cluster.kill9(leader);
    let after = cluster.leader();
    within(PATIENCE, "the new leader is seen", || {
        (status(&cluster)["leader"] == after).then_some(())
    });
    let told = status(&cluster);
    assert_eq!(roles(&told)[leader as usize - 1], "unreachable", "{told}");
    let args = ["cluster", "status"];
    let output = leasehold(&cluster, &cluster.up(), &args).output().expect("the binary runs");
    let shown = text(&output.stdout);
    assert!(shown.contains("2 of 3 voters answer, 0 more may fail"), "{shown}");
}

#[test]
fn an_operator_changes_who_belongs_to_the_cluster_and_who_leads() {
    let mut cluster = nodes().start(3);
    let leader = cluster.leader();
    let run = |cluster: &Cluster, args: &[&str]| {
        let args: Vec<&str> = ["cluster"].iter().chain(args).copied().collect();
        leasehold(cluster, &cluster.up(), &args).output().expect("the binary runs")
    };
    let said = |output: &Output| (output.status.code(), text(&output.stdout), text(&output.stderr));
    let heir = cluster.follower();
    let told = said(&run(&cluster, &["transfer", &heir.to_string(), "--reason", "patching"]));
    assert_eq!(told, (Some(0), format!("node {heir} leads\n"), String::new()));
    assert_eq!(cluster.leader(), heir);

    let told = said(&run(&cluster, &["promote", &leader.to_string()]));
    assert_eq!(told, (Some(0), format!("node {leader} has a vote\n"), String::new()));
    let (code, _, error) = said(&run(&cluster, &["promote", "9"]));
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("not_found: node 9 is not a member"), "{error}");
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = nobody.local_addr().expect("it is bound").to_string();
    drop(nobody);
    let (code, _, error) = said(&run(&cluster, &["add", "4", &address]));
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("conflict: no node answers at"), "{error}");

    cluster.kill9(leader);
    let told = said(&run(&cluster, &["remove", &leader.to_string(), "--reason", "it is gone"]));
    assert_eq!(told, (Some(0), format!("node {leader} is no member any more\n"), String::new()));
    let audit = cluster.client(cluster.leader()).get("/v1/audit").ok();
    let deeds: Vec<String> = audit["items"]
        .as_array()
        .expect("records")
        .iter()
        .map(|one| {
            let word = |name: &str| one[name].as_str().unwrap_or_default().to_owned();
            [word("action"), word("target"), word("reason"), word("result")].join(" ")
        })
        .collect();
    assert_eq!(
        deeds,
        [
            format!("remove_node node {leader} it is gone begun"),
            "add_node node 4  refused".to_owned(),
            "add_node node 4  begun".to_owned(),
            "promote_node node 9  refused".to_owned(),
            "promote_node node 9  begun".to_owned(),
            format!("promote_node node {leader}  begun"),
            format!("transfer_leadership node {heir} patching begun"),
        ]
    );
}
