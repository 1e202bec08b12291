//! A leader that stops to run, as a suspended machine does, and goes on as if nothing had been.

use std::time::Duration;

use super::trial::{is_long, nodes, trial};

#[test]
fn the_leader_is_frozen_and_thawed() {
    // Longer than two elections and than the leases of those who work.
    let frozen = Duration::from_secs(if is_long() { 30 } else { 6 });
    trial(&nodes(), |trial| {
        while trial.goes_on() {
            let leader = trial.cluster.leader();
            trial.cluster.node(leader).freeze();
            trial.stay(frozen);
            trial.progress("without the leader that is frozen");
            trial.cluster.node(leader).thaw();
            trial.progress("after the old leader was thawed");
        }
    });
}

/// For a moment, again and again: shorter and longer than an election.
#[test]
fn nodes_stumble_one_after_the_other() {
    trial(&nodes(), |trial| {
        while trial.goes_on() {
            let ids = trial.cluster.up();
            let id = ids[trial.random.below(3) as usize];
            trial.cluster.node(id).freeze();
            trial.stay_within(100..1_300);
            trial.cluster.node(id).thaw();
            trial.stay_within(0..600);
        }
    });
}
