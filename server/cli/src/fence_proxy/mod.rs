//! `leasehold fence-proxy`: a reverse proxy that refuses stale writes, before any HTTP storage.
//!
//! Unlike the other commands it serves, so it has a runtime with a thread for each core, and
//! settings from a file and the environment as `serve` has them.
//!
//! | file | does |
//! | --- | --- |
//! | `args` | the command line, and what it says in the terms of the proxy |
//! | `sources` | file and environment, where the command line says nothing |

mod args;
mod sources;

use crate::failure::Failure;
use crate::service::{self, ATTEMPT_MAX, Service};
use crate::{complain, complain_of, descriptors, exit};
pub(crate) use args::command;
use clap::ArgMatches;
use leasehold_fence_proxy::{Home, Proxy, StartError, Stopped};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

/// The name of the command.
pub const NAME: &str = "fence-proxy";

/// Fills in what the command line leaves out: from the environment, and from a file.
///
/// # Errors
/// Every mistake in them is told on standard error, and this is the code to exit with.
pub fn complete(given: &ArgMatches) -> Result<ArgMatches, ExitCode> {
    // Variables of others may hold anything; ours are text.
    let environment = std::env::vars_os().filter_map(|(key, value)| {
        Some((key.into_string().ok()?, value.to_string_lossy().into_owned()))
    });
    sources::complete(given, environment).map_err(|failure| {
        complain_of(&failure, service::wanted(given));
        ExitCode::from(failure.exit_code())
    })
}

/// Whether log lines are wanted as JSON.
#[must_use]
pub fn json_log(given: &ArgMatches) -> bool {
    given.get_one::<String>("log-format").is_some_and(|format| format == "json")
}

/// Serves until a signal ends it.
pub(crate) fn main(given: &ArgMatches) -> ExitCode {
    let Err(failure) = run(given) else { return ExitCode::SUCCESS };
    complain_of(&failure, service::wanted(given));
    ExitCode::from(match failure {
        Failure::Local(_) => exit::FAILED,
        failure => failure.exit_code(),
    })
}

fn run(given: &ArgMatches) -> Result<(), Failure> {
    let settings = args::settings(given)?;
    let dir = given.get_one::<PathBuf>("data-dir").cloned().unwrap_or_default();
    // Before there is anything in the directory, as a start that comes to nothing leaves it.
    Proxy::check(&settings).map_err(not_started)?;
    Service::new(given, None, ATTEMPT_MAX)?;
    let home = Home::open(&dir, &service::own_label());
    let home = home.map_err(not_started)?;
    let client = Service::new(given, Some(home.client_id().to_owned()), ATTEMPT_MAX)?.client;
    // Every client takes two, its own and one to the upstream; those beyond the limit wait.
    descriptors::raise_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Local(error.to_string()))?;
    runtime.block_on(async {
        let upstream = settings.upstream.to_string();
        let proxy = Proxy::start(settings, home, client).await.map_err(not_started)?;
        say(&proxy, &upstream, &dir);
        stop_signal().await;
        stopped(proxy.stop().await)
    })
}

fn not_started(error: StartError) -> Failure {
    match error {
        StartError::Held { detail } => Failure::Held(detail),
        StartError::Service(error) => (*error).into(),
        StartError::Setting(detail) => Failure::Usage(detail),
        error @ StartError::OtherUpstream { .. } => Failure::Usage(error.to_string()),
        other => Failure::Local(other.to_string()),
    }
}

fn stopped(how: Stopped) -> Result<(), Failure> {
    match how {
        Stopped::Clean => Ok(()),
        // Nothing of this process was cut, so it did what it was asked to.
        Stopped::Settling => {
            complain(
                "stopped before the writes from before its start had settled: the next start waits \
                 for them",
            );
            Ok(())
        }
        Stopped::Untold => {
            complain(
                "stopped with nothing in flight, but the service could not be told: the next start \
                 waits as if something were",
            );
            Ok(())
        }
        Stopped::Unclean => Err(Failure::Unclean(
            "stopped while writes were in flight: the next start waits for them".to_owned(),
        )),
    }
}

/// A closed standard output is no reason to stop serving.
fn say(proxy: &Proxy, upstream: &str, dir: &Path) {
    let mut lines = vec![
        format!(
            "leasehold fence-proxy {} listening on http://{}",
            env!("CARGO_PKG_VERSION"),
            proxy.address()
        ),
        format!("passes on to {upstream}"),
        format!("holds the lock {}", crate::output::shown(proxy.lock())),
    ];
    lines.extend(
        proxy.ops_address().map(|address| format!("health and metrics on http://{address}")),
    );
    lines.push(format!("highest tokens in {}", dir.display()));
    let _ = writeln!(std::io::stdout(), "{}", lines.join("\n"));
}

/// Returns at SIGTERM or SIGINT.
pub async fn stop_signal() {
    let (term, int) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    let (Ok(mut term), Ok(mut int)) = (term, int) else {
        // Without handlers the signals end the process by themselves.
        return std::future::pending().await;
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
}
