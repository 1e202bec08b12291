//! `leasehold serve`: starts the parts in order, waits, and stops them in the other order.

use crate::args::exit;
use crate::settings::{Raw, Settings};
use crate::{join, telemetry};
use clap::ArgMatches;
use leasehold_cli::fence_proxy::stop_signal;
use leasehold_core::{Command, Limits};
use leasehold_http::{Server, Sockets};
use leasehold_node::{Metrics, Node, OpenError, Outdated, Removed, StartError, StorageFault};
use prometheus::Registry;
use std::error::Error;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

/// Runs a node until a signal or a fault ends it.
#[must_use]
pub fn main(given: &ArgMatches) -> ExitCode {
    main_knowing(given, Command::NEWEST, |_| {})
}

/// The same for a node that says that it knows commands up to a version. `started` is called once
/// it has its place in the cluster. For tests of upgrades.
#[doc(hidden)]
#[must_use]
pub fn main_knowing(given: &ArgMatches, commands: u16, started: fn(Node)) -> ExitCode {
    // Variables of others may hold anything; ours are text.
    let environment = std::env::vars_os().filter_map(|(key, value)| {
        Some((key.into_string().ok()?, value.to_string_lossy().into_owned()))
    });
    let raw = Raw::gather(given, environment);
    if given.get_flag("print-config") {
        say(raw.print().trim_end());
    }
    let mut settings = match raw.resolve() {
        Ok(settings) => settings,
        Err(mistakes) => return wrong_settings(&mistakes),
    };
    settings.node.commands = commands;
    if given.get_flag("print-config") {
        return ExitCode::SUCCESS;
    }
    if given.get_flag("check-config") {
        say("the settings are right");
        return ExitCode::SUCCESS;
    }
    telemetry::start(settings.json_log);
    raise_descriptor_limit(settings.http.connections_max);
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("node")
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error),
    };
    runtime.block_on(serve(settings, &raw, started))
}

async fn serve(mut settings: Settings, raw: &Raw, started: fn(Node)) -> ExitCode {
    let registry = Registry::new();
    let metrics = match Metrics::new(&registry) {
        Ok(metrics) => metrics,
        Err(error) => return failed(&error),
    };
    // Peers are told where clients reach this node from the first word on.
    let sockets = match Sockets::bind(&settings.http) {
        Ok(sockets) => sockets,
        Err(error) => return failed(&error),
    };
    if let Some(address) = sockets.addresses().first().filter(|_| settings.http_as_bound) {
        settings.node.http = address.to_string();
    }
    let node = match Node::open(&settings.node, metrics).await {
        Ok(node) => node,
        Err(error @ StartError::Open(OpenError::Outdated { .. })) => {
            complain(&chain(&error));
            return ExitCode::from(exit::OUTDATED);
        }
        Err(error) => return failed(&error),
    };
    // From here on probes are answered: whoever restarts a node that says nothing would restart
    // one that waits for the others.
    let server = match listen(sockets, &settings, &node, registry, raw) {
        Ok(server) => server,
        Err(error) => {
            node.shutdown().await;
            return failed(&error);
        }
    };
    let end = tokio::select! {
        end = take_part(&settings, &node, started) => end,
        () = stop_signal() => End::Asked,
        removed = node.removed() => End::Removed(removed),
        outdated = node.outdated() => End::Outdated(outdated),
        fault = node.storage_failed() => End::Disk(fault),
    };
    let code = match end {
        End::Asked => ExitCode::SUCCESS,
        End::NoPlace(error) => failed(&error),
        End::NotTakenIn(error) => failed(&error),
        End::Removed(removed) => {
            complain(&removed.to_string());
            ExitCode::from(exit::REMOVED)
        }
        End::Outdated(outdated) => {
            complain(&outdated.to_string());
            ExitCode::from(exit::OUTDATED)
        }
        // No drain: nothing in memory may be acknowledged any more, and the next start finds
        // what is durable.
        End::Disk(fault) => {
            tracing::error!(error = %chain(&fault), "stopping at once");
            return stopped_by(&fault);
        }
    };
    tracing::info!("stopping");
    let stopped = async {
        // First, while everybody is still answered: what is asked from here on goes to the next
        // leader, and clients lose no election.
        node.hand_over().await;
        server.drain();
        node.refuse();
        server.stop(settings.drain).await;
        node.shutdown().await;
    };
    // The disk may fail on the way out as well, and then not everything answered is known.
    tokio::select! {
        () = stopped => {
            tracing::info!("stopped");
            code
        }
        fault = node.storage_failed() => {
            tracing::error!(error = %chain(&fault), "stopping at once");
            stopped_by(&fault)
        }
    }
}

/// Why a node ends.
enum End {
    /// A signal.
    Asked,
    /// It did not get a place in a cluster.
    NoPlace(StartError),
    /// The cluster will never take it in under its id.
    NotTakenIn(leasehold_client::Error),
    /// It has lost it.
    Removed(Removed),
    /// The cluster takes a newer release.
    Outdated(Outdated),
    Disk(StorageFault),
}

/// Starts the listeners, and says where they are.
fn listen(
    sockets: Sockets,
    settings: &Settings,
    node: &Node,
    registry: Registry,
    raw: &Raw,
) -> Result<Server, leasehold_http::StartError> {
    let raw = raw.clone();
    let shown = Arc::new(move |limits: &Limits| raw.shown(limits));
    let http = settings.http.clone();
    let server = leasehold_http::start(sockets, http, node.clone(), registry, shown)?;
    for address in server.addresses() {
        say(&format!("leasehold {} listening on http://{address}", env!("CARGO_PKG_VERSION")));
    }
    if let Some(address) = server.ops_address() {
        say(&format!("health and metrics on http://{address}"));
    }
    say(&format!("data in {}", settings.node.dir.display()));
    Ok(server)
}

/// Gets the node its place, and says once it serves. Returns only if it gets none.
async fn take_part(settings: &Settings, node: &Node, started: fn(Node)) -> End {
    let taken = tokio::select! {
        taken = node.take_part(&settings.node) => taken,
        refused = join::ask(settings, node) => return End::NotTakenIn(refused),
    };
    match taken {
        Ok(()) => {
            started(node.clone());
            say(&format!("node {} is ready", node.id()));
            std::future::pending().await
        }
        Err(error) => End::NoPlace(error),
    }
}

/// Every connection takes a descriptor.
fn raise_descriptor_limit(connections_max: usize) {
    /// Files, listeners and what the runtime itself needs.
    const OWN: u64 = 128;
    let now = leasehold_cli::descriptors::raise_limit();
    let needed = connections_max as u64 + OWN;
    if now.is_some_and(|now| now < needed) {
        tracing::warn!(
            limit = now,
            needed,
            "there are fewer file descriptors than connections_max needs: connections beyond them wait"
        );
    }
}

fn stopped_by(fault: &StorageFault) -> ExitCode {
    ExitCode::from(if fault.is_divergence() { exit::DIVERGED } else { exit::DISK })
}

fn wrong_settings(mistakes: &[crate::settings::Mistake]) -> ExitCode {
    for mistake in mistakes {
        complain(&mistake.to_string());
    }
    ExitCode::from(exit::USAGE)
}

fn failed(error: &dyn Error) -> ExitCode {
    complain(&chain(error));
    ExitCode::from(exit::FAILED)
}

/// An error with its causes, each said once.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let said = next.to_string();
        if !text.ends_with(&said) {
            text = format!("{text}: {said}");
        }
        cause = next.source();
    }
    text
}

/// A closed standard output is no reason to stop serving.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn complain(line: &str) {
    let _ = writeln!(std::io::stderr(), "leasehold: {line}");
}
