//! `leasehold audit`: who did what to what is not their own.

use crate::failure::Failure;
use crate::pages;
use crate::service::Service;
use crate::table::Table;
use crate::when;
use clap::{ArgMatches, Command};
use leasehold_wire::AuditRecord;

const AFTER: &str = "\
Example:
  leasehold audit --limit 20";

pub(crate) fn command() -> Command {
    Command::new("audit")
        .about("List what operators did, newest first")
        .after_help(AFTER)
        .args(pages::flags())
}

pub(crate) async fn run(given: &ArgMatches, service: &Service) -> Result<(), Failure> {
    let empty = "No operator has done anything.";
    pages::show::<AuditRecord<'static>>(service, given, "/v1/audit", &[], empty, table).await
}

fn table(records: &[AuditRecord<'static>]) -> Table {
    let mut table =
        Table::new(&["WHEN", "WHO", "FROM", "ACTION", "TARGET", "TOKEN", "RESULT", "REASON"]);
    for one in records {
        table.row([
            when::both(one.happened_at),
            one.principal.clone().into_owned(),
            one.source.clone().into_owned(),
            one.action.clone().into_owned(),
            one.target.clone().into_owned(),
            one.token.map(|token| token.to_string()).unwrap_or_default(),
            one.result.clone().into_owned(),
            one.reason.clone().into_owned(),
        ]);
    }
    table
}
