//! `leasehold acquire`: asks for a lock and leaves its renewal and release to the caller.

use crate::duration::{duration, human};
use crate::failure::Failure;
use crate::output;
use crate::service::{ATTEMPT_MAX, Service};
use crate::{args, when};
use clap::{Arg, ArgAction, ArgMatches, Command};
use leasehold_wire::{Acquire, Grant, Holding, Metadata, Mode};
use std::time::Duration;

const AFTER: &str = "\
Prints the token and the time for which the lock is valid, counted from before the request was sent.
Nothing renews it: see `renew`, or `exec`, which does all of that.

With --lease or --keep-place the wait is that of one request: 60s at most.

Examples:
  leasehold acquire payments/invoice/42 --ttl 30s --wait 5s --output json
  leasehold acquire payments/ledger --wait 5s --holding payments/invoice/42=34";

pub(crate) fn command() -> Command {
    Command::new("acquire")
        .about("Ask for a lock")
        .after_help(AFTER)
        .arg(args::resource())
        .arg(
            args::ttl()
                .default_value("10s")
                .conflicts_with("lease")
                .help("The lock ends this long after the last renewal"),
        )
        .arg(args::filter("lease", "ID", "Put it on this lease, opened before, and its TTL"))
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
        .arg(
            Arg::new("claim")
                .long("claim")
                .value_name("TIME")
                .value_parser(duration)
                .help("The lock passes on unless a renewal or release comes within this time"),
        )
        .arg(
            Arg::new("keep-place")
                .long("keep-place")
                .action(ArgAction::SetTrue)
                .requires("request-id")
                .help("Keep the place in line for a while after the wait, for a repeat"),
        )
        .arg(
            Arg::new("holding")
                .long("holding")
                .value_name("RESOURCE=TOKEN")
                .action(ArgAction::Append)
                .value_parser(held)
                .help(
                    "What you hold already, so that a deadlock is seen; may be given several times",
                ),
        )
}

pub(crate) async fn run(given: &ArgMatches, service: &Service) -> Result<(), Failure> {
    let grant = if args::text(given, "lease").is_some() || given.get_flag("keep-place") {
        in_one_request(given, service).await?
    } else {
        in_any_number(given, service).await?
    };
    service.show_value(&grant, told)
}

/// Waits for as long as it takes, and leaves nothing behind.
async fn in_any_number(given: &ArgMatches, service: &Service) -> Result<Grant<'static>, Failure> {
    let mut asked = service
        .client
        .acquire(args::text(given, "resource").unwrap_or_default())
        .ttl(span(given, "ttl").unwrap_or_default())
        .wait(span(given, "wait").unwrap_or_default())
        .mode(mode(given));
    if let Some(id) = args::text(given, "request-id") {
        asked = asked.request_id(id);
    }
    if let Some(claim) = span(given, "claim") {
        asked = asked.claim(claim);
    }
    for (name, value) in pairs(given) {
        asked = asked.metadata(name, value);
    }
    for (resource, token) in holding(given) {
        asked = asked.holding_token(resource, *token);
    }
    Ok(asked.grant().await?.value)
}

/// Asks for what belongs to the caller afterwards: a lease of its own, a place in line.
async fn in_one_request(given: &ArgMatches, service: &Service) -> Result<Grant<'static>, Failure> {
    let wait = span(given, "wait").unwrap_or_default();
    if args::ms(wait) > Acquire::WAIT_MS_MAX {
        let detail = "--wait: at most 60s together with --lease or --keep-place";
        return Err(Failure::Usage(detail.to_owned()));
    }
    let client_id = service.client.client_id().to_owned();
    let lease_id = args::text(given, "lease");
    let pair = |(name, value): &(String, String)| (name.clone().into(), value.clone().into());
    let metadata: Vec<_> = pairs(given).map(pair).collect();
    let held = |(resource, token): &(String, u64)| Holding {
        resource: resource.clone().into(),
        token: *token,
    };
    let asked = Acquire {
        resource: args::text(given, "resource").unwrap_or_default().into(),
        client_id: client_id.as_str().into(),
        ttl_ms: lease_id.is_none().then(|| span(given, "ttl").map(args::ms)).flatten(),
        lease_id: lease_id.map(Into::into),
        mode: mode(given),
        wait_ms: args::ms(wait),
        request_id: Some(match args::text(given, "request-id") {
            Some(id) => id.into(),
            None => leasehold_client::new_request_id()?.into(),
        }),
        claim_ms: span(given, "claim").map(args::ms),
        keep_place: given.get_flag("keep-place"),
        holding: holding(given).map(held).collect(),
        metadata: (!metadata.is_empty()).then_some(Metadata(metadata)),
    };
    let patience = wait + ATTEMPT_MAX;
    let client = Service::new(given, Some(client_id.clone()), patience)?.client;
    Ok(client.with_budget(patience).post("/v1/acquire-lock", &asked).await?.value)
}

fn span(given: &ArgMatches, name: &str) -> Option<Duration> {
    given.get_one(name).copied()
}

fn mode(given: &ArgMatches) -> Mode {
    given.get_one("mode").copied().unwrap_or_default()
}

fn pairs(given: &ArgMatches) -> impl Iterator<Item = &(String, String)> {
    given.get_many("metadata").into_iter().flatten()
}

fn holding(given: &ArgMatches) -> impl Iterator<Item = &(String, u64)> {
    given.get_many("holding").into_iter().flatten()
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

/// The name may have a `=` in it, the token has none.
fn held(text: &str) -> Result<(String, u64), String> {
    let (resource, token) = text.rsplit_once('=').ok_or("write RESOURCE=TOKEN")?;
    let token = token.parse().map_err(|_| "the token is a number: write RESOURCE=TOKEN")?;
    Ok((resource.to_owned(), token))
}
