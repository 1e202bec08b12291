//! `leasehold`: a distributed lock service with fencing tokens.

use leasehold_server::{args, serve};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let matches = args::command().get_matches();
    match matches.subcommand() {
        Some(("serve", given)) => serve::main(given),
        // Without a subcommand the help is printed by the parser itself.
        _ => ExitCode::from(64),
    }
}
