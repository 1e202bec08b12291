//! `leasehold completions`: for shells.

use crate::failure::Failure;
use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::Shell;
use std::io;
use std::io::Write as _;

const AFTER: &str = "\
Example:
  leasehold completions bash > /etc/bash_completion.d/leasehold";

pub(crate) fn command() -> Command {
    Command::new("completions").about("Print completions for a shell").after_help(AFTER).arg(
        Arg::new("shell").value_name("SHELL").required(true).value_parser(value_parser!(Shell)),
    )
}

pub(crate) fn run(given: &ArgMatches, whole: &Command) -> Result<(), Failure> {
    let Some(shell) = given.get_one::<Shell>("shell") else {
        return Err(Failure::Usage("for which shell?".to_owned()));
    };
    // What `exec` starts of itself is nobody else's to type.
    let shown = whole.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let mut whole = Command::new("leasehold").subcommands(shown.collect::<Vec<_>>());
    // The generator panics when it cannot write, as into a closed pipe; into memory it can.
    let mut text = Vec::new();
    clap_complete::generate(*shell, &mut whole, "leasehold", &mut text);
    match io::stdout().write_all(&text) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(Failure::Output),
    }
}
