//! Nodes that die or are stopped, and come back.

use std::time::{Duration, Instant};

use super::trial::{PATIENCE, nodes, trial};

/// From one kill of a leader to the next.
const EVERY: Duration = Duration::from_secs(4);

#[test]
fn the_leader_is_killed_every_few_seconds() {
    trial(&nodes(), |trial| {
        while trial.goes_on() {
            let next = Instant::now() + EVERY;
            let leader = trial.cluster.leader();
            trial.cluster.kill9(leader);
            trial.progress("without the leader that was killed");
            trial.cluster.restart(leader);
            trial.stay(next.saturating_duration_since(Instant::now()));
        }
    });
}

#[test]
fn all_nodes_are_killed_at_once_and_started_again() {
    trial(&nodes(), |trial| {
        while trial.goes_on() {
            // In any order: what the last one commits alone is none that the others know of.
            let mut ids = trial.cluster.up();
            while !ids.is_empty() {
                let next = trial.random.below(ids.len() as u64) as usize;
                trial.cluster.kill9(ids.swap_remove(next));
            }
            trial.cluster.restart_all();
            trial.progress("after all were started again");
            trial.stay_within(0..1_500);
        }
    });
}

#[test]
fn nodes_are_stopped_and_started_one_after_the_other() {
    trial(&nodes(), |trial| {
        while trial.goes_on() {
            for id in trial.cluster.up() {
                let status = trial.cluster.stop(id, PATIENCE);
                assert!(status.success(), "node {id} was asked to stop: {status}");
                trial.progress("while one is away");
                trial.cluster.restart(id);
            }
        }
    });
}
