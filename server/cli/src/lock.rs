//! `leasehold lock`: one lock with its holders and its line.

use crate::args;
use crate::failure::Failure;
use crate::output::shown;
use crate::service::Service;
use crate::table::Table;
use crate::when;
use clap::{ArgMatches, Command};
use leasehold_wire::{Holder, Lock, Mode, Waiter};

const AFTER: &str = "\
Example:
  leasehold lock payments/invoice/42";

pub(crate) fn command() -> Command {
    Command::new("lock")
        .about("Show one lock: who holds it and who waits")
        .after_help(AFTER)
        .arg(args::resource())
}

pub(crate) async fn run(given: &ArgMatches, service: &Service) -> Result<(), Failure> {
    let query = [("resource", args::text(given, "resource"))];
    service.show(&service.get::<Lock<'static>>("/v1/lock", &query).await?, told)
}

fn told(lock: &Lock<'_>) -> String {
    let token = lock.last_token.map(|token| format!(" The last token was {token}."));
    let token = token.unwrap_or_default();
    let name = shown(&lock.resource);
    if lock.holders.is_empty() && lock.queue.is_empty() {
        return format!("{name} is free.{token}");
    }
    let mut text = match lock.holders.len() {
        0 => format!("{name} is free.{token}\n"),
        _ => format!("{name} is held.\n\n{}\n", holders(&lock.holders)),
    };
    text.push('\n');
    match lock.queue_length {
        0 => text.push_str("Nobody waits."),
        all => {
            text.push_str(&waiters(&lock.queue).to_string());
            if all > lock.queue.len() {
                text.push_str(&format!("\n... {all} in all"));
            }
        }
    }
    text
}

pub(crate) fn holders(holders: &[Holder<'_>]) -> Table {
    let mut table = Table::new(&["HOLDER", "TOKEN", "MODE", "SINCE", "ENDS IN", "NOTE"]);
    for one in holders {
        table.row([
            one.client_id.clone().into_owned(),
            one.token.to_string(),
            mode(one.mode),
            when::both(one.granted_at),
            when::left(one.expires_in_ms),
            note(one),
        ]);
    }
    table
}

fn note(holder: &Holder<'_>) -> String {
    let draining = holder.draining.then(|| "draining".to_owned());
    let pairs = holder.metadata.iter().flat_map(|pairs| &pairs.0);
    let pairs = pairs.map(|(name, value)| format!("{name}={value}"));
    draining.into_iter().chain(pairs).collect::<Vec<_>>().join(" ")
}

pub(crate) fn waiters(waiters: &[Waiter<'_>]) -> Table {
    let mut table = Table::new(&["#", "WAITER", "MODE", "PRIORITY", "WAITS FOR", "NOTE"]);
    for one in waiters {
        table.row([
            one.position.to_string(),
            one.client_id.clone().into_owned(),
            mode(one.mode),
            one.priority.to_string(),
            when::left(Some(one.waiting_ms)),
            if one.attached { String::new() } else { "connection lost, place kept".to_owned() },
        ]);
    }
    table
}

pub(crate) fn mode(mode: Mode) -> String {
    if mode == Mode::Shared { "shared" } else { "exclusive" }.to_owned()
}
