//! Log lines on standard error.

use std::io::IsTerminal as _;
use tracing_subscriber::EnvFilter;

/// Starts logging. `LEASEHOLD_LOG` chooses what is logged, in the directives of
/// `tracing_subscriber`; by default our own information and everybody's warnings.
pub fn start(json: bool) {
    let filter = EnvFilter::try_from_env("LEASEHOLD_LOG").unwrap_or_else(|_| {
        EnvFilter::new("warn,leasehold=info,leasehold_node=info,leasehold_http=info,leasehold_http::refused=off,leasehold_fence_proxy::refused=off,openraft=off")
    });
    let colours = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt()
        .with_ansi(colours)
        .with_env_filter(filter)
        // Whoever reads the log may go away, and its disk may be full. The complaint about that
        // would go to the same place, and fail with a panic.
        .log_internal_errors(false)
        .with_writer(std::io::stderr);
    // An error means that a test has set a subscriber before.
    let _ = if json { lines.json().try_init() } else { lines.with_target(false).try_init() };
}
