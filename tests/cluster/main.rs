//! Several nodes, each a real process: what clients see when nodes die, freeze and come back.

mod answers;
mod kill;
mod lifetime;
mod place;
mod storm;
mod watch_moves;

use leasehold_harness::Nodes;

fn nodes() -> Nodes {
    Nodes::of(env!("CARGO_BIN_EXE_leasehold"))
}
