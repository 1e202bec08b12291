//! `leasehold config`: the settings in force on the answering node.

use crate::failure::Failure;
use crate::service::Service;
use crate::table::Table;
use clap::{ArgMatches, Command};
use leasehold_wire::Config;

const AFTER: &str = "\
Example:
  leasehold config --server http://10.0.0.7:7070";

pub(crate) fn command() -> Command {
    Command::new("config").about("Show the settings in force on a node").after_help(AFTER)
}

pub(crate) async fn run(_given: &ArgMatches, service: &Service) -> Result<(), Failure> {
    service.show(&service.get::<Config<'static>>("/v1/config", &[]).await?, told)
}

fn told(config: &Config<'_>) -> Table {
    let mut table = Table::new(&["SETTING", "VALUE", "FROM"]);
    for one in &config.settings {
        table.row([&one.name, &one.value, &one.origin].map(|cell| cell.clone().into_owned()));
    }
    table
}
