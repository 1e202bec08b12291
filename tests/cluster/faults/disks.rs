//! Disks that are full or slow.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use leasehold_harness::{Client, Disk, ask, json, slow_sync, with, within};

use super::trial::{PATIENCE, Trial, is_long, nodes, trial};

const MIB: u64 = 1 << 20;
const DISK: u64 = 48 * MIB;
const RESERVE: u64 = 8 * MIB;
/// Not below the reserve yet.
const LITTLE: u64 = 10 * MIB;
const WRITERS: usize = 4;
/// Below the reserve, and not below its half, where the node itself gives it up.
const SHORT: u64 = 6 * MIB;
const SLOW_MS: &str = "200";

#[test]
fn the_disk_of_the_leader_and_then_of_a_majority_is_full() {
    let disks: Vec<Disk> = (1..=3).map(|_| Disk::mount(DISK)).collect();
    let mut nodes = nodes().flag("--reserve-bytes", RESERVE);
    for (id, disk) in (1..).zip(&disks) {
        nodes = nodes.inside(id, disk.path());
    }
    trial(&nodes, |trial| {
        while trial.goes_on() {
            the_leader_is_short(trial, &disks);
            all_but_the_leader_are_short(trial, &disks);
            a_majority_is_short(trial, &disks);
            writes_fill_what_is_left(trial, &disks);
            a_majority_is_full(trial, &disks);
        }
    });
}

fn disk(disks: &[Disk], id: u64) -> &Disk {
    &disks[id as usize - 1]
}

/// Nothing is granted, and what is held is given back.
fn the_leader_is_short(trial: &mut Trial<'_>, disks: &[Disk]) {
    let leader = trial.cluster.leader();
    let mut client = trial.cluster.client(leader);
    let token =
        within(PATIENCE, "there is something to give back", || granted(&mut client, "kept"));
    disk(disks, leader).fill(SHORT);
    refused_for_want_of_space(&mut client);
    client.let_go("kept", token);
    trial.stay(Duration::from_secs(1));
    disk(disks, leader).clear();
    trial.progress("after the leader has space again");
}

/// The same while only those are short who would have to write what the leader grants.
fn all_but_the_leader_are_short(trial: &mut Trial<'_>, disks: &[Disk]) {
    let leader = trial.cluster.leader();
    let mut client = trial.cluster.client(leader);
    let token =
        within(PATIENCE, "there is something to give back", || granted(&mut client, "kept"));
    let others: Vec<u64> = trial.cluster.up().into_iter().filter(|id| *id != leader).collect();
    others.iter().for_each(|id| disk(disks, *id).fill(SHORT));
    refused_for_want_of_space(&mut client);
    client.let_go("kept", token);
    others.iter().for_each(|id| disk(disks, *id).clear());
    trial.progress("after the others have space again");
}

#[track_caller]
fn refused_for_want_of_space(client: &mut Client) {
    within(PATIENCE, "acquires are refused for want of space", || {
        let answer = client.acquire(&ask("new", "short", 2_000));
        (answer.status == 503 && answer.json()["code"] == "storage_full").then_some(())
    });
}

fn granted(client: &mut Client, resource: &str) -> Option<u64> {
    let answer = client.acquire(&ask(resource, "short", 60_000));
    (answer.status == 200).then(|| answer.token())
}

fn a_majority_is_short(trial: &mut Trial<'_>, disks: &[Disk]) {
    let both = [trial.cluster.leader(), trial.cluster.follower()];
    both.iter().for_each(|id| disk(disks, *id).fill(SHORT));
    trial.stay(Duration::from_secs(2));
    both.iter().for_each(|id| disk(disks, *id).clear());
    trial.progress("after both have space again");
}

/// The writes of clients themselves use the space up: whoever grants must know of it before those who
/// have to write can write no more.
fn writes_fill_what_is_left(trial: &mut Trial<'_>, disks: &[Disk]) {
    let leader = trial.cluster.leader();
    let others: Vec<u64> = trial.cluster.up().into_iter().filter(|id| *id != leader).collect();
    others.iter().for_each(|id| disk(disks, *id).fill(LITTLE));
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let mut client = trial.cluster.client(leader);
            scope.spawn(move || write_until_refused(&mut client, writer));
        }
    });
    trial.stay(Duration::from_secs(1));
    for id in others {
        assert!(!trial.cluster.node_mut(id).has_ended(), "node {id} ran out of space");
        disk(disks, id).clear();
    }
    trial.progress("after the others have space again");
}

fn write_until_refused(client: &mut Client, writer: usize) {
    let note = "x".repeat(500);
    let mut nth = 0;
    within(PATIENCE, "acquires are refused for want of space", || {
        nth += 1;
        let asked = ask(&format!("fill/{writer}/{nth}"), "writes", 2_000);
        let answer = client.acquire(&with(asked, json!({"metadata": {"note": note}})));
        (answer.status == 503 && answer.json()["code"] == "storage_full").then_some(())
    });
}

/// With no space at all a node goes on in the files that it has, or ends when it can write no more.
fn a_majority_is_full(trial: &mut Trial<'_>, disks: &[Disk]) {
    let both = [trial.cluster.leader(), trial.cluster.follower()];
    let cleared_at = Instant::now() + Duration::from_secs(if is_long() { 15 } else { 3 });
    while Instant::now() < cleared_at {
        // Again and again, for the reserve that a node gives up is taken as well.
        both.iter().for_each(|id| disk(disks, *id).fill(0));
        trial.stay(Duration::from_millis(50));
    }
    both.iter().for_each(|id| disk(disks, *id).clear());
    // What failed before is noticed in this time.
    trial.stay(Duration::from_secs(1));
    for id in both {
        if trial.cluster.node_mut(id).has_ended() {
            let status = trial.cluster.ended(id, PATIENCE);
            assert_eq!(status.code(), Some(74), "node {id}: {status}");
        }
    }
    trial.cluster.restart_all();
    trial.progress("after both have space again");
}

#[test]
fn the_disk_of_the_leader_is_slow() {
    let dir = tempfile::tempdir().expect("a directory");
    let library = slow_sync(dir.path());
    let delay = |id: u64| -> PathBuf { dir.path().join(format!("delay{id}")) };
    let set = |id, ms: &str| std::fs::write(delay(id), ms).expect("the file can be written");
    let mut nodes = nodes();
    for id in 1..=3 {
        set(id, "0");
        let own = nodes.with(id, "LD_PRELOAD", &library);
        nodes = own.with(id, "SLOW_SYNC_FILE", &delay(id));
    }
    trial(&nodes, |trial| {
        while trial.goes_on() {
            let leader = trial.cluster.leader();
            set(leader, SLOW_MS);
            trial.progress("while the disk of the leader is slow");
            trial.stay(Duration::from_secs(2));
            // What it has not flushed when it dies is on the others.
            if trial.random.chance(30) {
                trial.cluster.kill9(leader);
                trial.progress("without the leader that was killed");
                set(leader, "0");
                trial.cluster.restart(leader);
            }
            set(leader, "0");
            trial.progress("when it is fast again");
        }
    });
}
