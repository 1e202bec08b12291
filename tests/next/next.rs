//! A node that says that it knows one version of commands more than this release, and that proposes
//! a command of that version all the time: what a binary built from the next release would do.
//!
//! It says on standard output what becomes of those commands, a line for each change.

use leasehold_core::Command;
use leasehold_node::{Failure, Node};
use leasehold_server::{args, serve};
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

/// The first version that this release does not know.
const NEXT: u16 = Command::NEWEST + 1;

fn main() -> ExitCode {
    let matches = args::command().get_matches();
    match matches.subcommand() {
        Some(("serve", given)) => serve::main_knowing(given, NEXT, |node| {
            tokio::spawn(propose(node));
        }),
        _ => ExitCode::from(args::exit::USAGE),
    }
}

async fn propose(node: Node) {
    let mut said = "";
    loop {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let says = match node.propose_version(NEXT).await {
            Ok(()) => "a newer command was applied",
            Err(Failure::AboveLevel { .. }) => "a newer command was held back",
            // It does not lead, or is stopping.
            Err(_) => continue,
        };
        if says != said {
            said = says;
            let _ = writeln!(std::io::stdout(), "{said}");
        }
    }
}
