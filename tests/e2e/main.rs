//! The service as its clients see it: the real binary, real HTTP, one file per story.

mod about;
mod ages;
mod backup;
mod batch;
mod bounds;
mod browsers;
mod capacity;
mod claims;
mod cli;
mod clients;
mod deadlock;
mod edges;
mod exec;
mod exits;
mod forgetting;
mod freeze;
mod golden;
mod grants;
mod health;
mod idempotency;
mod leases;
mod line;
mod lone;
mod operators;
mod paused;
mod reads;
mod release;
mod renew;
mod requests;
mod rust_client;
mod shutdown;
mod stopping;
mod storage;
mod storm;
mod waiting;
mod watch;
mod why;

use leasehold_harness::{Builder, Server};

/// A server with the settings that an operator gets without asking.
fn server() -> Server {
    configured().start()
}

/// A server that a test wants to configure first.
fn configured() -> Builder {
    Server::builder(env!("CARGO_BIN_EXE_leasehold"))
}
