//! `leasehold grants`: the history.

use crate::args;
use crate::duration::human;
use crate::failure::Failure;
use crate::pages;
use crate::service::Service;
use crate::table::Table;
use crate::when;
use clap::{Arg, ArgMatches, Command, value_parser};
use leasehold_wire::{EndedHow, GrantRecord, GrantState};

const AFTER: &str = "\
With --token and --at it answers whether that token was valid at that time.

Example:
  leasehold grants --resource payments/invoice/42
  leasehold grants --token 34 --at 2026-01-31T10:00:00.000Z";

pub(crate) fn command() -> Command {
    Command::new("grants")
        .about("List grants, live and ended, newest first")
        .after_help(AFTER)
        .arg(args::filter("resource", "RESOURCE", "Of this lock"))
        .arg(
            Arg::new("token")
                .long("token")
                .value_name("TOKEN")
                .value_parser(value_parser!(u64))
                .help("With this token"),
        )
        .arg(args::filter("client-id", "LABEL", "Of this client"))
        .arg(args::filter("at", "TIME", "Valid at this time, like 2026-01-31T10:00:00.000Z"))
        .args(pages::flags())
}

pub(crate) async fn run(given: &ArgMatches, service: &Service) -> Result<(), Failure> {
    let token = given.get_one::<u64>("token").map(u64::to_string);
    let query = [
        ("resource", args::text(given, "resource")),
        ("token", token.as_deref()),
        ("client_id", args::text(given, "client-id")),
        ("at", args::text(given, "at")),
    ];
    let empty = "No such grant is on record: there was none, or it is not remembered any more.";
    pages::show::<GrantRecord<'static>>(service, given, "/v1/grants", &query, empty, table).await
}

fn table(grants: &[GrantRecord<'static>]) -> Table {
    // Only a question about a time has an answer in the last column.
    let asked = grants.iter().any(|one| one.valid.is_some());
    let head = ["TOKEN", "LOCK", "CLIENT", "MODE", "GRANTED", "STATE", "VALID THEN"];
    let mut table = Table::new(if asked { &head } else { &head[..6] });
    for one in grants {
        table.row([
            one.token.to_string(),
            one.resource.clone().into_owned(),
            one.client_id.clone().into_owned(),
            crate::lock::mode(one.mode),
            when::both(one.granted_at),
            state(one),
            one.valid.map(|valid| if valid { "yes" } else { "no" }.to_owned()).unwrap_or_default(),
        ]);
    }
    table
}

fn state(grant: &GrantRecord<'_>) -> String {
    if grant.state == GrantState::Live {
        return match grant.expires_in_ms {
            Some(left) => format!("live, ends in {}", human(left)),
            None => "live".to_owned(),
        };
    }
    let how = grant.how.map(how).unwrap_or("ended");
    let after = grant.ended_at.map(|ended| ended.0.saturating_sub(grant.granted_at.0));
    match after {
        Some(after) => format!("{how} after {}", human(after)),
        None => how.to_owned(),
    }
}

fn how(how: EndedHow) -> &'static str {
    match how {
        EndedHow::Released => "released",
        EndedHow::Expired => "expired",
        EndedHow::Forced => "forced",
        EndedHow::Revoked => "revoked",
        EndedHow::PassedOn => "passed on",
        EndedHow::Restored => "restored",
        EndedHow::Cancelled => "cancelled",
    }
}
