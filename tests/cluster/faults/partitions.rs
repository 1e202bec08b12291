//! Nodes that do not hear each other, while clients reach all of them.

use std::time::Duration;

use leasehold_harness::Network;

use super::trial::{Trial, is_long, nodes, trial};

/// Set where a kernel is known to have none: a test that is passed over in silence shows nothing.
const WITHOUT: &str = "LEASEHOLD_WITHOUT_NAMESPACES";

/// Runs a trial on a network of its own, which is healed at the end.
fn on_wires(harm: impl Fn(&mut Trial<'_>, &Network)) {
    let Some(network) = wires(3) else { return };
    trial(&nodes().on(&network), |trial| {
        while trial.goes_on() {
            harm(trial, &network);
            network.heal();
            trial.progress("after the wires were mended");
        }
    });
}

/// Wires between so many nodes; none where that is known to be impossible.
#[allow(clippy::print_stderr)]
pub(crate) fn wires(size: u64) -> Option<Network> {
    match Network::between(size) {
        Ok(network) => Some(network),
        Err(said) if std::env::var_os(WITHOUT).is_some() => {
            eprintln!("SKIPPED, as the kernel has no network namespaces for this test: {said}");
            None
        }
        Err(said) => panic!(
            "the kernel has no network namespaces for this test ({said}); with {WITHOUT}=1 it is \
             passed over"
        ),
    }
}

/// Beyond two elections, and beyond the leases of those who work.
fn cut_off() -> Duration {
    Duration::from_secs(if is_long() { 20 } else { 6 })
}

#[test]
fn a_follower_is_cut_off() {
    on_wires(|trial, network| {
        network.isolate(trial.cluster.follower());
        trial.stay(cut_off() / 2);
        trial.progress("while a follower is cut off");
    });
}

#[test]
fn the_leader_is_cut_off() {
    on_wires(|trial, network| {
        network.isolate(trial.cluster.leader());
        trial.stay(cut_off());
        trial.progress("while the old leader is cut off");
    });
}

#[test]
fn the_leader_is_heard_and_does_not_hear_or_the_other_way_round() {
    on_wires(|trial, network| {
        let leader = trial.cluster.leader();
        let deaf = trial.random.chance(50);
        for other in network.ids().filter(|id| *id != leader) {
            match deaf {
                true => network.cut(other, leader),
                false => network.cut(leader, other),
            }
        }
        trial.stay(cut_off() / 2);
        trial.progress(if deaf { "while the leader is deaf" } else { "while it is mute" });
    });
}

#[test]
fn the_leader_loses_one_follower_of_two() {
    on_wires(|trial, network| {
        let (leader, follower) = (trial.cluster.leader(), trial.cluster.follower());
        network.cut(leader, follower);
        if trial.random.chance(50) {
            network.cut(follower, leader);
        }
        trial.stay(cut_off() / 2);
        trial.progress("while two nodes are apart that a third one hears");
    });
}

#[test]
fn wires_come_and_go() {
    on_wires(|trial, network| {
        for _ in 0..10 {
            let leader = trial.cluster.leader();
            network.isolate(leader);
            trial.stay_within(100..1_000);
            network.heal();
            trial.stay_within(50..450);
        }
    });
}

#[test]
fn no_node_hears_another() {
    on_wires(|trial, network| {
        network.ids().for_each(|id| network.isolate(id));
        trial.stay(cut_off());
    });
}
