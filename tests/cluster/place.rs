//! Who belongs to a cluster, and who does not any more.

use leasehold_harness::ask;

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
