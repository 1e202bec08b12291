//! `leasehold restore`: a new cluster from a backup.

use crate::data::{self, Data};
use crate::failure::Failure;
use crate::output::{self, Output};
use crate::service::{json, wanted};
use clap::{Arg, ArgMatches, Command, value_parser};
use std::path::PathBuf;

const EXAMPLE: &str = "\
Example:
  leasehold restore /backups/leasehold-2026-11-30 --data-dir /var/lib/leasehold \\
    --token-floor auto --fence-url postgres://owner@db/shop
  leasehold serve --data-dir /var/lib/leasehold
Other nodes join it empty, as they join any cluster.

Exit codes: 0 done, 1 refused or failed, and nothing is left in the directory, 64 wrong use, 69 a
storage could not be asked.";

/// The command.
pub(crate) const NAME: &str = "restore";

pub(crate) fn command() -> Command {
    Command::new(NAME)
        .about("Make a new cluster of one node from a backup")
        .after_help(format!("{}\n\n{EXAMPLE}", data::AFTER))
        .arg(
            Arg::new("file")
                .value_name("FILE")
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help("The backup"),
        )
        .args(data::arguments())
        .arg(
            Arg::new("node-id")
                .long("node-id")
                .value_name("N")
                .default_value("1")
                .value_parser(value_parser!(u64).range(1..=leasehold_wire::schema::EXACT_MAX))
                .help("The id of the new node"),
        )
}

pub(crate) fn run(given: &ArgMatches, data: &dyn Data) -> Result<(), Failure> {
    let file = given.get_one::<PathBuf>("file").cloned().unwrap_or_default();
    let node = given.get_one::<u64>("node-id").copied().unwrap_or(1);
    let restored = data.restore(&file, &data::wanted(given, node)?)?;
    match wanted(given) {
        Output::Json => output::line(&json(&restored)?),
        Output::Human => output::line(&restored.told()),
    }
}
