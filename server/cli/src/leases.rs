//! `leasehold leases`: leases that can hold many grants.

use crate::args;
use crate::duration::human;
use crate::failure::Failure;
use crate::pages;
use crate::service::Service;
use crate::table::Table;
use crate::when;
use clap::{Arg, ArgMatches, Command};
use leasehold_wire::{HexId, KeepAlive, KeptAlive, Lease, LeaseOpened, OpenLease};
use std::time::Duration;

const AFTER: &str = "\
Example:
  leasehold leases open --ttl 1m --output json | jq -r .lease_id";

pub(crate) fn command() -> Command {
    let id = || {
        Arg::new("lease")
            .value_name("LEASE_ID")
            .required(true)
            .value_parser(|text: &str| {
                HexId::parse(text).ok_or("a lease id has 32 hexadecimal digits")
            })
            .help("The id that `open` printed")
    };
    let sub = |name, about| Command::new(name).about(about);
    Command::new("leases")
        .about("Open, keep, show and end leases that hold many grants")
        .after_help(AFTER)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            sub("list", "List the leases that are open")
                .arg(args::filter("client-id", "LABEL", "Of this client"))
                .args(pages::flags()),
        )
        .subcommand(
            sub("open", "Open a lease")
                .arg(
                    args::ttl()
                        .default_value("10s")
                        .help("It ends this long after it was kept alive"),
                )
                .arg(args::client_id().help("The label of its client [default: USER@HOST]")),
        )
        .subcommand(sub("show", "Show one lease").arg(id()))
        .subcommand(sub("keep-alive", "Renew a lease and everything on it").arg(id()))
        .subcommand(
            sub("end", "End a lease with all its grants and waits")
                .arg(id())
                .arg(args::client_id().help("The label of its client; compared if it is given")),
        )
}

pub(crate) async fn run(given: &ArgMatches, service: &Service) -> Result<(), Failure> {
    match given.subcommand() {
        Some(("list", given)) => list(given, service).await,
        Some(("open", given)) => open(given, service).await,
        Some((name, given)) => {
            let id = given.get_one::<HexId>("lease").copied().unwrap_or(HexId(0));
            match name {
                "keep-alive" => keep_alive(id, service).await,
                "end" => end(id, given, service).await,
                _ => show(id, service).await,
            }
        }
        None => Err(Failure::Usage("list, open, show, keep-alive or end?".to_owned())),
    }
}

async fn list(given: &ArgMatches, service: &Service) -> Result<(), Failure> {
    let query = [("client_id", args::text(given, "client-id"))];
    let empty = "No lease is open.";
    pages::show::<Lease<'static>>(service, given, "/v1/leases", &query, empty, table).await
}

async fn open(given: &ArgMatches, service: &Service) -> Result<(), Failure> {
    let ttl = given.get_one::<Duration>("ttl").copied().unwrap_or_default();
    let asked = OpenLease {
        client_id: service.client.client_id().into(),
        ttl_ms: args::ms(ttl),
        metadata: None,
    };
    let opened = service.client.open_lease_raw(&asked).await?;
    service.show_value(&opened.value, |opened: &LeaseOpened<'_>| {
        format!("{}  valid for {}", opened.lease_id, human(opened.valid_for_ms))
    })
}

async fn keep_alive(id: HexId, service: &Service) -> Result<(), Failure> {
    let path = format!("/v1/leases/{id}/keep-alive");
    let kept = service.post::<KeptAlive<'static>>(&path, &KeepAlive::default()).await?;
    service.show(&kept, |kept| match kept.valid_for_ms {
        Some(left) => format!("valid for {}", human(left)),
        None => "kept".to_owned(),
    })
}

/// The service compares the label of the client. Whoever knows the secret id need not know it.
async fn end(id: HexId, given: &ArgMatches, service: &Service) -> Result<(), Failure> {
    let ended = match args::text(given, "client-id") {
        Some(_) => service.client.end_lease(id).await?,
        None => {
            let lease = service.client.lease_status(id).await?;
            let owner = lease.client_id.clone().into_owned();
            service.acting_for(given, owner)?.client.end_lease(id).await?
        }
    };
    service.show_value(&ended.value, |_| "ended")
}

async fn show(id: HexId, service: &Service) -> Result<(), Failure> {
    let lease = service.get::<Lease<'static>>(&format!("/v1/leases/{id}"), &[]).await?;
    service.show(&lease, told)
}

fn told(lease: &Lease<'_>) -> String {
    let mut table = Table::new(&["LOCK", "TOKEN", "MODE", "SINCE"]);
    for one in lease.grants.iter().flatten() {
        table.row([
            one.resource.clone().into_owned(),
            one.token.to_string(),
            crate::lock::mode(one.mode),
            when::both(one.granted_at),
        ]);
    }
    let summary = self::table(std::slice::from_ref(lease));
    if table.is_empty() {
        format!("{summary}\n\nIt holds nothing.")
    } else {
        format!("{summary}\n\n{table}")
    }
}

fn table(leases: &[Lease<'_>]) -> Table {
    let mut table = Table::new(&[
        "LEASE",
        "CLIENT",
        "TTL",
        "OPENED",
        "ENDS IN",
        "AT MOST",
        "HOLDS",
        "WAITS FOR",
    ]);
    for one in leases {
        table.row([
            one.lease_id.to_string(),
            one.client_id.clone().into_owned(),
            human(one.ttl_ms),
            when::ago(one.opened_at),
            human(one.earliest_end_in_ms),
            human(one.latest_end_in_ms),
            one.grants_total.to_string(),
            one.waiting_total.to_string(),
        ]);
    }
    table
}
