//! A cluster on its way from this release to the next one, each node a real process: what the
//! leader proposes meanwhile, and what becomes of a node that stays behind.

use leasehold_harness::{Cluster, Nodes, Refused, ask, within};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

const THIS: &str = env!("CARGO_BIN_EXE_leasehold-this");
const NEXT: &str = env!("CARGO_BIN_EXE_leasehold-next");
const PATIENCE: Duration = Duration::from_secs(120);
/// As `leasehold serve --help` has it.
const OUTDATED: Option<i32> = Some(78);

type Files = BTreeMap<String, Vec<u8>>;

fn nodes(binary: &str) -> Nodes {
    Nodes::of(binary).flag("--reserve-bytes", 0)
}

/// Ends a node and starts it again from a binary.
fn run_from(cluster: &mut Cluster, id: u64, binary: &str) {
    cluster.kill9(id);
    cluster.node_mut(id).run_from(binary);
    cluster.restart(id);
}

/// Sees to it that another node than this one leads.
fn depose(cluster: &mut Cluster, id: u64) -> u64 {
    loop {
        match cluster.leader() {
            leader if leader != id => return leader,
            _ => {
                cluster.kill9(id);
                cluster.leader();
                cluster.restart(id);
            }
        }
    }
}

#[track_caller]
fn says(cluster: &Cluster, id: u64, what: &str) {
    within(PATIENCE, what, || cluster.node(id).said().contains(what).then_some(()));
}

fn level(cluster: &Cluster, id: u64) -> u64 {
    cluster.client(id).metric("leasehold_command_level ")
}

/// Takes a lock through one node and sees it on all.
fn take(cluster: &Cluster, through: u64, resource: &str) -> u64 {
    let token = cluster.client(through).acquire(&ask(resource, "a", 600_000)).token();
    for id in cluster.up() {
        assert_eq!(cluster.client(id).holders(resource), [token], "node {id}");
    }
    token
}

fn files(dir: &Path) -> Files {
    let files = fs::read_dir(dir).expect("the directory is there");
    let named = files.map(|file| {
        let path = file.expect("readable").path();
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        (name, fs::read(path).expect("readable"))
    });
    named.collect()
}

fn put(dir: &Path, files: &Files) {
    fs::remove_dir_all(dir).expect("the directory is there");
    fs::create_dir(dir).expect("it can be made");
    for (name, bytes) in files {
        fs::write(dir.join(name), bytes).expect("it can be written");
    }
}

/// Starts a node that must stop by itself because it is too old.
#[track_caller]
fn assert_too_old(started: Result<(), Refused>) {
    let refused = started.expect_err("it is too old");
    assert_eq!(refused.status.code(), OUTDATED, "{}", refused.output);
    assert!(refused.output.to_lowercase().contains("start a newer release"), "{}", refused.output);
}

#[test]
fn a_cluster_is_upgraded_node_by_node_and_nothing_older_comes_back() {
    let mut cluster = nodes(THIS).start(3);
    let first = take(&cluster, 1, "before");
    let last = cluster.leader();
    for id in [1, 2, 3].into_iter().filter(|id| *id != last) {
        run_from(&mut cluster, id, NEXT);
    }

    // The newer leader offers newer commands all the time, and one member is older.
    let leader = depose(&mut cluster, last);
    says(&cluster, leader, "a newer command was held back");
    says(&cluster, leader, &format!("to_upgrade=[{last}]"));
    let between = take(&cluster, last, "between");
    assert!(between > first, "{between} > {first}");
    for id in 1..=3 {
        assert_eq!(level(&cluster, id), 1, "node {id}");
    }
    // One that is away may come back as old as it was.
    cluster.kill9(last);
    says(&cluster, cluster.leader(), &format!("not_answering=[{last}]"));
    assert!(!cluster.node(leader).said().contains("a newer command was applied"));
    let old_files = files(cluster.node(last).data_dir());

    cluster.node_mut(last).run_from(NEXT);
    cluster.restart(last);
    says(&cluster, cluster.leader(), "a newer command was applied");
    for id in 1..=3 {
        within(PATIENCE, "the level rises", || (level(&cluster, id) == 2).then_some(()));
    }
    let after = take(&cluster, last, "after");
    assert!(after > between, "{after} > {between}");

    // What a newer release wrote is left as it is.
    cluster.kill9(last);
    let dir = cluster.node(last).data_dir().to_owned();
    let new_files = files(&dir);
    cluster.node_mut(last).run_from(THIS);
    assert_too_old(cluster.node_mut(last).try_restart());
    assert!(files(&dir) == new_files, "a refusal changed a file");
    // Files from before the upgrade say nothing of it, but the others do.
    put(&dir, &old_files);
    assert_too_old(cluster.node_mut(last).try_restart());
    assert_too_old(cluster.stranger(4).try_start().map(drop));

    put(&dir, &new_files);
    cluster.node_mut(last).run_from(NEXT);
    cluster.restart(last);
    for (resource, token) in [("before", first), ("between", between), ("after", after)] {
        assert_eq!(cluster.client(last).holders(resource), [token]);
    }
}

#[test]
fn a_node_alone_goes_to_the_next_release_and_not_back() {
    let mut cluster = nodes(THIS).start(1);
    let token = take(&cluster, 1, "r");
    assert_eq!(level(&cluster, 1), 1);
    run_from(&mut cluster, 1, NEXT);
    says(&cluster, 1, "a newer command was applied");
    assert_eq!(cluster.client(1).holders("r"), [token]);
    cluster.kill9(1);
    cluster.node_mut(1).run_from(THIS);
    assert_too_old(cluster.node_mut(1).try_restart());
}
