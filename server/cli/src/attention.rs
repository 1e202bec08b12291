//! `leasehold attention`: what needs somebody now.

use crate::failure::Failure;
use crate::service::Service;
use crate::table::Table;
use clap::{ArgMatches, Command};
use leasehold_wire::{Attention, Severity};

const AFTER: &str = "\
Example:
  leasehold attention --output json | jq -e '.items == []'";

pub(crate) fn command() -> Command {
    Command::new("attention").about("Show what needs somebody now").after_help(AFTER)
}

pub(crate) async fn run(_given: &ArgMatches, service: &Service) -> Result<(), Failure> {
    service.show(&service.get::<Attention<'static>>("/v1/attention", &[]).await?, told)
}

fn told(attention: &Attention<'_>) -> String {
    let mut table = Table::new(&["SEVERITY", "WHAT", "VALUE", "BOUND", "MESSAGE"]);
    for one in &attention.items {
        let severity = if one.severity == Severity::Critical { "critical" } else { "warning" };
        table.row([
            severity.to_owned(),
            one.code.clone().into_owned(),
            one.value.to_string(),
            one.threshold.to_string(),
            one.message.clone().into_owned(),
        ]);
    }
    if table.is_empty() { "Nothing needs attention.".to_owned() } else { table.to_string() }
}
