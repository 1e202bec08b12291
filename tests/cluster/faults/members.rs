//! Members that are gone for good and replaced, while the others work.

use leasehold_harness::{Cluster, Server, free_ports, json, within};

use super::trial::{PATIENCE, nodes, trial};

#[test]
fn one_member_after_the_other_is_replaced() {
    trial(&nodes(), |trial| {
        // The founders have the first three ids, and none is used again.
        for id in 4.. {
            let leader = trial.cluster.leader();
            let gone = if trial.random.chance(50) { leader } else { trial.cluster.follower() };
            trial.cluster.kill9(gone);
            trial.progress("without the member that is gone");
            let new = newcomer(id, trial.cluster);
            change(trial.cluster, "remove", gone, |role| role.is_none());
            change(trial.cluster, "promote", id, |role| {
                matches!(role, Some("follower" | "leader"))
            });
            trial.cluster.exchange(gone, id, new);
            trial.progress("with the member that came");
            if !trial.goes_on() {
                return;
            }
        }
    });
}

/// An empty node that asks the others to take it in.
fn newcomer(id: u64, cluster: &Cluster) -> Server {
    let leader = cluster.node(cluster.leader()).addr();
    Server::builder(env!("CARGO_BIN_EXE_leasehold"))
        .flag("--node-id", id)
        .flag("--peer-listen", free_ports(1)[0])
        .flag("--join", format!("http://{leader}"))
        .flag("--reserve-bytes", 1 << 20)
        .flag("--snapshot-log-bytes", 1 << 20)
        .start()
}

/// Asks for a change until the others see it done: an answer may be lost on the way.
#[track_caller]
fn change(cluster: &Cluster, what: &str, id: u64, is_done: impl Fn(Option<&str>) -> bool) {
    within(PATIENCE, &format!("{what} {id} is done"), || {
        let mut client = cluster.client(cluster.leader());
        client.try_post(&format!("/v1/cluster/{what}"), &json!({ "id": id })).ok()?;
        let answer = client.try_call("GET", "/v1/cluster", &[], b"").ok()?;
        let view = if answer.status == 200 { answer.json() } else { return None };
        let node = view["nodes"].as_array()?.iter().find(|node| node["id"] == id);
        is_done(node.and_then(|node| node["role"].as_str())).then_some(())
    });
}
