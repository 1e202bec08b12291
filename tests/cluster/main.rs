//! Several nodes, each a real process: what clients see when nodes die, freeze and come back.

mod answers;
mod client;
mod faults;
mod hand_over;
mod kill;
mod lifetime;
mod membership;
mod place;
mod restore;
mod silence;
mod storm;
mod watch_moves;

use leasehold_harness::Nodes;

fn nodes() -> Nodes {
    Nodes::of(env!("CARGO_BIN_EXE_leasehold"))
}
