//! `leasehold locks`: the locks that are held or waited for.

use crate::args;
use crate::failure::Failure;
use crate::pages;
use crate::service::Service;
use crate::table::Table;
use crate::when;
use clap::{Arg, ArgAction, ArgMatches, Command};
use leasehold_wire::LockSummary;

const AFTER: &str = "\
Example:
  leasehold locks --prefix payments/ --state contended";

pub(crate) fn command() -> Command {
    Command::new("locks")
        .about("List the locks that are held or waited for, by name")
        .after_help(AFTER)
        .arg(args::filter("prefix", "TEXT", "Names that start with this"))
        .arg(args::filter("domain", "DOMAIN", "Names in this domain"))
        .arg(args::filter("client-id", "LABEL", "Held by this client"))
        .arg(
            Arg::new("state")
                .long("state")
                .value_name("held|contended")
                .value_parser(["held", "contended"])
                .hide_possible_values(true)
                .help("Only those that are held, or held and waited for"),
        )
        .arg(
            Arg::new("stale")
                .long("stale")
                .action(ArgAction::SetTrue)
                .help("What the answering node knows is good enough"),
        )
        .args(pages::flags())
}

pub(crate) async fn run(given: &ArgMatches, service: &Service) -> Result<(), Failure> {
    let query = [
        ("prefix", args::text(given, "prefix")),
        ("domain", args::text(given, "domain")),
        ("client_id", args::text(given, "client-id")),
        ("state", args::text(given, "state")),
        ("consistency", given.get_flag("stale").then_some("stale")),
    ];
    let empty = "No lock is held or waited for.";
    pages::show::<LockSummary<'static>>(service, given, "/v1/locks", &query, empty, table).await
}

fn table(locks: &[LockSummary<'static>]) -> Table {
    let mut table = Table::new(&["LOCK", "HOLDER", "TOKEN", "SINCE", "ENDS IN", "WAITING"]);
    for lock in locks {
        let first = lock.holders.first();
        let more = lock.holders_total.saturating_sub(1);
        let holder = first.map(|one| match more {
            0 => one.client_id.clone().into_owned(),
            _ => format!("{} and {more} more", one.client_id),
        });
        table.row([
            lock.resource.clone().into_owned(),
            holder.unwrap_or_default(),
            first.map(|one| one.token.to_string()).unwrap_or_default(),
            first.map(|one| when::ago(one.granted_at)).unwrap_or_default(),
            when::left(first.and_then(|one| one.expires_in_ms)),
            lock.queue_length.to_string(),
        ]);
    }
    table
}
