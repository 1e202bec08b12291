//! `leasehold why`: why a client waits, or would.

use crate::args;
use crate::duration::human;
use crate::failure::Failure;
use crate::lock::{holders, waiters};
use crate::output::shown;
use crate::service::Service;
use clap::{ArgGroup, ArgMatches, Command};
use leasehold_wire::Why;

const AFTER: &str = "\
Example:
  leasehold why payments/invoice/42 --client-id billing-worker-7";

pub(crate) fn command() -> Command {
    Command::new("why")
        .about("Say why a client waits for a lock, or would")
        .after_help(AFTER)
        .arg(args::resource())
        .arg(args::client_id().help("The client asked about"))
        .arg(args::filter("request-id", "ID", "The request asked about"))
        .group(ArgGroup::new("who").args(["client-id", "request-id"]).required(true))
}

pub(crate) async fn run(given: &ArgMatches, service: &Service) -> Result<(), Failure> {
    let query = [
        ("resource", args::text(given, "resource")),
        ("client_id", args::text(given, "client-id")),
        ("request_id", args::text(given, "request-id")),
    ];
    service.show(&service.get::<Why<'static>>("/v1/lock/why", &query).await?, told)
}

fn told(why: &Why<'_>) -> String {
    let mut parts = vec![shown(&why.explanation)];
    if let Some(waiter) = &why.waiter {
        parts.push(format!("It has waited for {}.", human(waiter.waiting_ms)));
    }
    if !why.holders.is_empty() {
        parts.push(holders(&why.holders).to_string());
    }
    if !why.ahead.is_empty() {
        parts.push(format!("Ahead of it, {} in all:\n{}", why.ahead_total, waiters(&why.ahead)));
    }
    for step in why.cycle.iter().flatten() {
        parts.push(format!("{} waits for {}", shown(&step.client_id), shown(&step.resource)));
    }
    let reached = why.limits.iter().filter(|limit| limit.used >= limit.max);
    for limit in reached {
        parts.push(format!("{} is used up: {} of {}", limit.name, limit.used, limit.max));
    }
    parts.join("\n\n")
}
