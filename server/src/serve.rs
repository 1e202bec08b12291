//! `leasehold serve`: starts the parts in order, waits, and stops them in the other order.

use crate::args::exit;
use crate::settings::{Raw, Settings};
use crate::telemetry;
use clap::ArgMatches;
use leasehold_cli::fence_proxy::stop_signal;
use leasehold_node::{Metrics, Node};
use prometheus::Registry;
use std::error::Error;
use std::io::Write as _;
use std::process::ExitCode;

/// Runs a node until a signal or a fault ends it.
#[must_use]
pub fn main(given: &ArgMatches) -> ExitCode {
    // Variables of others may hold anything; ours are text.
    let environment = std::env::vars_os().filter_map(|(key, value)| {
        Some((key.into_string().ok()?, value.to_string_lossy().into_owned()))
    });
    let raw = Raw::gather(given, environment);
    if given.get_flag("print-config") {
        say(raw.print().trim_end());
    }
    let settings = match raw.resolve() {
        Ok(settings) => settings,
        Err(mistakes) => return wrong_settings(&mistakes),
    };
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
    runtime.block_on(serve(settings, &raw))
}

async fn serve(settings: Settings, raw: &Raw) -> ExitCode {
    let registry = Registry::new();
    let metrics = match Metrics::new(&registry) {
        Ok(metrics) => metrics,
        Err(error) => return failed(&error),
    };
    let data_dir = settings.node.dir.clone();
    let node = match Node::open(&settings.node, metrics).await {
        Ok(node) => node,
        Err(error) => return failed(&error),
    };
    let taking_part = tokio::select! {
        taken = node.take_part(&settings.node) => taken.map_err(|error| failed(&error)),
        () = stop_signal() => Err(ExitCode::SUCCESS),
        fault = node.storage_failed() => {
            tracing::error!(error = %chain(&fault), "stopping at once");
            return ExitCode::from(exit::DISK);
        }
    };
    if let Err(code) = taking_part {
        node.shutdown().await;
        return code;
    }
    let shown = raw.shown(&node.limits());
    let server = match leasehold_http::start(settings.http, node.clone(), registry, shown) {
        Ok(server) => server,
        Err(error) => {
            node.shutdown().await;
            return failed(&error);
        }
    };
    for address in server.addresses() {
        say(&format!("leasehold {} listening on http://{address}", env!("CARGO_PKG_VERSION")));
    }
    if let Some(address) = server.ops_address() {
        say(&format!("health and metrics on http://{address}"));
    }
    say(&format!("data in {}", data_dir.display()));
    let fault = tokio::select! {
        () = stop_signal() => None,
        fault = node.storage_failed() => Some(fault),
    };
    if let Some(fault) = fault {
        // No drain: nothing in memory may be acknowledged any more, and the next start finds
        // what is durable.
        tracing::error!(error = %chain(&fault), "stopping at once");
        return ExitCode::from(exit::DISK);
    }
    tracing::info!("stopping");
    server.drain();
    node.refuse();
    let stopped = async {
        server.stop(settings.drain).await;
        node.shutdown().await;
    };
    // The disk may fail on the way out as well, and then not everything answered is known.
    tokio::select! {
        () = stopped => {
            tracing::info!("stopped");
            ExitCode::SUCCESS
        }
        fault = node.storage_failed() => {
            tracing::error!(error = %chain(&fault), "stopping at once");
            ExitCode::from(exit::DISK)
        }
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
fn chain(error: &dyn Error) -> String {
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
