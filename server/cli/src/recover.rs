//! `leasehold recover`: a new cluster from the one node that is left.

use crate::data::{self, Data};
use crate::failure::Failure;
use crate::output::{self, Output};
use crate::service::{json, wanted};
use clap::{Arg, ArgAction, ArgMatches, Command};

const BEFORE: &str = "\
A cluster that has lost the majority of its nodes for good answers nobody any more. This makes the
data of one stopped node that is left the beginning of another cluster, of that node alone.

It is unsafe, as the name of its flag says: what only the lost nodes had is lost, also locks that
were granted and answered. So nothing that is on record goes on, as after a restore. Never do it
while the other nodes may come back: then there are two services, each of which grants the locks of
the other. The files of before are kept beside the new ones.";

const EXAMPLE: &str = "\
Example:
  leasehold recover --unsafe-from-one --data-dir /var/lib/leasehold --token-floor auto

Exit codes: 0 done, 1 refused or failed, and the data is as it was, 64 wrong use, 69 a storage could
not be asked.";

const LOSS: &str = "what only the lost nodes had is gone. They must never come back: empty their \
                    data directories, and let them join this cluster under new ids";

/// The command.
pub(crate) const NAME: &str = "recover";

pub(crate) fn command() -> Command {
    Command::new(NAME)
        .about("Make a new cluster from the one node that is left of another")
        .long_about(BEFORE)
        .after_help(format!("{}\n\n{EXAMPLE}", data::AFTER))
        .arg(
            Arg::new("unsafe-from-one")
                .long("unsafe-from-one")
                .action(ArgAction::SetTrue)
                .help("Yes: the other nodes are gone for good, and what only they had is lost"),
        )
        .args(data::arguments())
}

pub(crate) fn run(given: &ArgMatches, data: &dyn Data) -> Result<(), Failure> {
    if !given.get_flag("unsafe-from-one") {
        return Err(Failure::Usage(
            "--unsafe-from-one is missing. It says that the other nodes are gone for good, and \
             that what only they had may be lost: see --help"
                .to_owned(),
        ));
    }
    // The node keeps the id that it has.
    let recovered = data.recover(&data::wanted(given, 0)?)?;
    match wanted(given) {
        Output::Json => output::line(&json(&recovered)?)?,
        Output::Human => output::line(&recovered.told())?,
    }
    crate::complain(LOSS);
    Ok(())
}
