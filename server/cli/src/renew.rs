//! `leasehold renew`: keeps a lock.

use crate::args;
use crate::duration::human;
use crate::failure::Failure;
use crate::service::Service;
use clap::{ArgMatches, Command};
use leasehold_wire::Renewed;
use std::time::Duration;

const AFTER: &str = "\
Example:
  leasehold renew payments/invoice/42 34";

pub(crate) fn command() -> Command {
    Command::new("renew")
        .about("Renew a lock that is held")
        .after_help(AFTER)
        .arg(args::resource())
        .arg(args::token())
        .arg(args::ttl().help("A new TTL for it"))
        .arg(args::client_id().help("The label of the holder; compared if it is given"))
}

pub(crate) async fn run(given: &ArgMatches, service: &Service) -> Result<(), Failure> {
    let ttl = given.get_one::<Duration>("ttl").copied();
    let body = leasehold_wire::Renew {
        resource: args::text(given, "resource").unwrap_or_default().into(),
        token: given.get_one("token").copied().unwrap_or_default(),
        client_id: args::text(given, "client-id").map(Into::into),
        ttl_ms: ttl.map(args::ms),
    };
    let renewed = service.post::<Renewed<'static>>("/v1/renew-lock", &body).await?;
    service.show(&renewed, |renewed| format!("valid for {}", human(renewed.valid_for_ms)))
}
