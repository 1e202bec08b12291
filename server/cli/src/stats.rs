//! `leasehold stats`: the service in numbers.

use crate::duration::human;
use crate::failure::Failure;
use crate::output::shown;
use crate::service::Service;
use crate::table::Table;
use clap::{ArgMatches, Command};
use leasehold_wire::Stats;

const AFTER: &str = "\
Example:
  leasehold stats --output json | jq .locks";

pub(crate) fn command() -> Command {
    Command::new("stats").about("Show the service in numbers").after_help(AFTER)
}

pub(crate) async fn run(_given: &ArgMatches, service: &Service) -> Result<(), Failure> {
    service.show(&service.get::<Stats<'static>>("/v1/stats", &[]).await?, told)
}

fn told(stats: &Stats<'_>) -> String {
    let leader = match stats.leader {
        Some(leader) if leader == stats.node_id => "leads".to_owned(),
        Some(leader) => format!("follows node {leader}"),
        None => "knows no leader".to_owned(),
    };
    let head = format!(
        "Node {} ({}) {leader}, up for {}, at revision {}, last token {}.\n\
         {} locks, {} grants, {} waiters, {} leases, {} clients, {} watch streams.",
        stats.node_id,
        shown(&stats.version),
        human(stats.uptime_ms),
        shown(&stats.revision),
        stats.last_token,
        stats.locks,
        stats.grants,
        stats.waiters,
        stats.leases,
        stats.clients,
        stats.watch_streams,
    );
    let mut bounds = Table::new(&["BOUND", "USED", "OF"]);
    for one in &stats.usage {
        bounds.row([one.name.clone().into_owned(), one.used.to_string(), one.max.to_string()]);
    }
    let mut routes = Table::new(&["ROUTE", "REQUESTS", "HALF WITHIN", "99% WITHIN"]);
    for one in &stats.latency {
        routes.row([
            one.route.clone().into_owned(),
            one.count.to_string(),
            format!("{}ms", one.p50_ms),
            format!("{}ms", one.p99_ms),
        ]);
    }
    format!("{head}\n\n{bounds}\n\n{routes}")
}
