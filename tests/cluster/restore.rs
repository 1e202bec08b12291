//! Nodes that are lost for good: a service from a backup, and from the one node that is left.

use std::process::Command;

use leasehold_harness::process::client_of;
use leasehold_harness::{Value, ask};

use crate::nodes;

const LEASEHOLD: &str = env!("CARGO_BIN_EXE_leasehold");
const JUMP: u64 = 1 << 40;

#[test]
fn a_follower_gives_a_backup_of_everything_that_was_answered() {
    let home = tempfile::tempdir().expect("a directory");
    let cluster = nodes().start(3);
    let follower = cluster.follower();
    let mut client = cluster.client(cluster.leader());
    for round in 0..10 {
        let token = client.acquire(&ask(&format!("r/{round}"), "a", 600_000)).token();
        let file = home.path().join(format!("backup-{round}"));
        let mut command = client_of(LEASEHOLD, cluster.node(follower));
        let command = command.arg("backup").arg(&file).args(["--output", "json"]);
        let output = command.output().expect("the binary is there");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let taken: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
        assert_eq!((&taken["last_token"], &taken["node"]), (&token.into(), &follower.into()));
    }
}

#[test]
fn the_one_node_that_is_left_goes_on_without_issuing_a_token_twice() {
    let mut cluster = nodes().start(3);
    let mut client = cluster.client(cluster.leader());
    let tokens: Vec<u64> =
        (0..20).map(|n| client.acquire(&ask(&format!("r/{n}"), "a", 600_000)).token()).collect();
    let newest = *tokens.last().expect("some");
    // Not the leader: it may not know of everything as committed.
    let left = cluster.follower();
    for id in cluster.up() {
        cluster.kill9(id);
    }
    let dir = cluster.node(left).data_dir().to_owned();
    let mut recover = Command::new(LEASEHOLD);
    recover.args(["recover", "--unsafe-from-one", "--no-wait", "--token-floor", "auto"]);
    recover.arg("--data-dir").arg(&dir).args(["--output", "json"]);
    let output = recover.output().expect("the binary is there");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("must never come back"), "{said}");
    let made: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert_eq!(made["node"], left);
    let kept = made["files_before"].as_str().expect("they are kept");
    assert!(std::path::Path::new(kept).join("log.redb").exists());

    // The founders that its command line still names change nothing.
    cluster.restart(left);
    let mut client = cluster.client(left);
    let floor = made["token_floor"].as_u64().expect("a number");
    assert!(floor >= newest + JUMP || made["last_token"].as_u64() < Some(newest));
    for n in [0, 7, 19] {
        let token = client.acquire(&ask(&format!("r/{n}"), "b", 600_000)).token();
        assert!(token > floor && token > newest, "{token}");
    }
    let grants = client.get(&format!("/v1/grants?resource=r/0&token={}", tokens[0])).ok();
    assert_eq!(grants["items"][0]["how"], "restored", "{grants}");
}
