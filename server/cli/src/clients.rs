//! `leasehold clients`: who has anything.

use crate::args;
use crate::failure::Failure;
use crate::pages;
use crate::service::Service;
use crate::table::Table;
use clap::{ArgMatches, Command};
use leasehold_wire::ClientSummary;

const AFTER: &str = "\
Example:
  leasehold clients --limit 20";

pub(crate) fn command() -> Command {
    Command::new("clients")
        .about("List the clients that hold, wait or have leases")
        .after_help(AFTER)
        .arg(args::filter("client-id", "LABEL", "Only this one"))
        .args(pages::flags())
}

pub(crate) async fn run(given: &ArgMatches, service: &Service) -> Result<(), Failure> {
    let empty = "No client holds, waits or has a lease.";
    let query = [("client_id", args::text(given, "client-id"))];
    pages::show::<ClientSummary<'static>>(service, given, "/v1/clients", &query, empty, table).await
}

fn table(clients: &[ClientSummary<'static>]) -> Table {
    let mut table = Table::new(&["CLIENT", "LEASES", "GRANTS", "WAITING", "PRINCIPAL"]);
    for one in clients {
        table.row([
            one.client_id.clone().into_owned(),
            one.leases.to_string(),
            one.grants.to_string(),
            one.waiting.to_string(),
            one.principal.clone().into_owned(),
        ]);
    }
    table
}
