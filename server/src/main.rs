//! `leasehold`: a distributed lock service with fencing tokens.

use leasehold_cli::fence_proxy;
use leasehold_server::{args, data::Files, serve, telemetry};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let matches = match args::command().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => {
            // Help and version come this way too, and are no mistakes.
            let code = if error.use_stderr() { args::exit::USAGE } else { 0 };
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    match matches.subcommand() {
        Some(("serve", given)) => serve::main(given),
        Some((name, given)) if name == fence_proxy::NAME => {
            let given = match fence_proxy::complete(given) {
                Ok(given) => given,
                Err(code) => return code,
            };
            telemetry::start(fence_proxy::json_log(&given));
            leasehold_cli::main(name, &given, args::command(), &Files)
        }
        Some((name, given)) => leasehold_cli::main(name, given, args::command(), &Files),
        // Without a subcommand the help is printed by the parser itself.
        None => ExitCode::from(args::exit::USAGE),
    }
}
