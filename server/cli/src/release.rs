//! `leasehold release`: gives a lock back.

use crate::args;
use crate::failure::Failure;
use crate::service::Service;
use clap::{ArgMatches, Command};
use leasehold_wire::{Release, Released};

const AFTER: &str = "\
Giving it back twice is fine, and the second time says so.

Example:
  leasehold release payments/invoice/42 34";

pub(crate) fn command() -> Command {
    Command::new("release")
        .about("Give a lock back")
        .after_help(AFTER)
        .arg(args::resource())
        .arg(args::token())
        .arg(args::client_id().help("The label of the holder; compared if it is given"))
}

pub(crate) async fn run(given: &ArgMatches, service: &Service) -> Result<(), Failure> {
    let body = Release {
        resource: args::text(given, "resource").unwrap_or_default().into(),
        token: given.get_one("token").copied().unwrap_or_default(),
        client_id: args::text(given, "client-id").map(Into::into),
    };
    let released = service.post::<Released>("/v1/release-lock", &body).await?;
    service.show(
        &released,
        |released| {
            if released.released { "released" } else { "it was released before" }
        },
    )
}
