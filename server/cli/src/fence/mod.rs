//! `leasehold fence`: what refuses a stale token where the data is.
//!
//! | file | does |
//! | --- | --- |
//! | `args` | the command lines, and which store is meant |
//! | `kit` | `install`, `status`, `remove` |
//! | `test` | `test`: the races, their report, and stopping them |
//!
//! None of it needs a server of Leasehold.

mod args;
mod kit;
mod test;

pub(crate) use args::{NAME, command};

use crate::failure::Failure;
use crate::service::wanted;
use args::Store;
use clap::ArgMatches;
use std::process::ExitCode;

/// Runs `fence`.
pub(crate) fn main(given: &ArgMatches) -> ExitCode {
    let innermost = crate::innermost(given);
    let done = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Local(error.to_string()))
        .and_then(|runtime| runtime.block_on(run(given)));
    done.unwrap_or_else(|failure| {
        crate::complain_of(&failure, wanted(innermost));
        ExitCode::from(failure.exit_code())
    })
}

async fn run(given: &ArgMatches) -> Result<ExitCode, Failure> {
    let Some((name, given)) = given.subcommand() else {
        return Err(Failure::Usage("install, status, remove or test?".to_owned()));
    };
    if name == "install" && given.get_flag("print") {
        return kit::print(given).map(|()| ExitCode::SUCCESS);
    }
    let store = Store::from(given)?;
    match name {
        "install" => kit::install(&store, given).await,
        "status" => return kit::status(&store, given).await,
        "remove" => kit::remove(&store, given).await,
        _ => return test::run(&store, given).await,
    }
    .map(|()| ExitCode::SUCCESS)
}
