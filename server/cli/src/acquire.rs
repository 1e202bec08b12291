//! `leasehold acquire`: asks for a lock and leaves its renewal and release to the caller.

use crate::duration::human;
use crate::failure::Failure;
use crate::output;
use crate::service::Service;
use crate::{args, when};
use clap::{Arg, ArgAction, ArgMatches, Command};
use leasehold_wire::{Grant, Mode};
use std::time::Duration;

const AFTER: &str = "\
Prints the token and the time for which the lock is valid, counted from before the request was sent.
Nothing renews it: see `renew`, or `exec`, which does all of that.

Example:
  leasehold acquire payments/invoice/42 --ttl 30s --wait 5s --output json";

pub(crate) fn command() -> Command {
    Command::new("acquire")
        .about("Ask for a lock")
        .after_help(AFTER)
        .arg(args::resource())
        .arg(
            args::ttl().default_value("10s").help("The lock ends this long after the last renewal"),
        )
        .arg(args::wait().default_value("0s").help("How long to stand in line; 0s tries once"))
        .arg(args::mode())
        .arg(args::client_id().help("The label of the holder [default: USER@HOST]"))
        .arg(
            Arg::new("request-id")
                .long("request-id")
                .value_name("ID")
                .help("Makes a repeat find the same grant [default: a random one]"),
        )
        .arg(
            Arg::new("metadata")
                .long("metadata")
                .value_name("NAME=VALUE")
                .action(ArgAction::Append)
                .value_parser(pair)
                .help("A string pair that readers of the lock see; may be given several times"),
        )
}

pub(crate) async fn run(given: &ArgMatches, service: &Service) -> Result<(), Failure> {
    let span = |name| given.get_one::<Duration>(name).copied().unwrap_or_default();
    let mut asked = service
        .client
        .acquire(args::text(given, "resource").unwrap_or_default())
        .ttl(span("ttl"))
        .wait(span("wait"))
        .mode(given.get_one::<Mode>("mode").copied().unwrap_or_default());
    if let Some(id) = args::text(given, "request-id") {
        asked = asked.request_id(id);
    }
    for (name, value) in given.get_many::<(String, String)>("metadata").into_iter().flatten() {
        asked = asked.metadata(name, value);
    }
    let grant = asked.grant().await?;
    service.show_value(&grant.value, told)
}

fn told(grant: &Grant<'_>) -> String {
    let mode = if grant.mode == Mode::Shared { "shared" } else { "exclusive" };
    format!(
        "{}: token {}, {mode}, valid for {}, granted {} to {}",
        output::shown(&grant.resource),
        grant.token,
        human(grant.valid_for_ms),
        when::ago(grant.granted_at),
        output::shown(&grant.client_id),
    )
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}
