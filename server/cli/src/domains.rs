//! `leasehold domains`: the settings of domains.

use crate::args;
use crate::failure::Failure;
use crate::output::shown;
use crate::pages;
use crate::service::Service;
use crate::table::Table;
use clap::{Arg, ArgMatches, Command, value_parser};
use leasehold_wire::{Code, Domain, SetDomain};

const AFTER: &str = "\
The domain of a lock is what stands before the first slash of its name, or `default`.

Example:
  leasehold domains set payments --queue-max 500";

pub(crate) fn command() -> Command {
    let name =
        || Arg::new("domain").value_name("DOMAIN").required(true).help("The name of the domain");
    Command::new("domains")
        .about("Show and set the settings of domains")
        .after_help(AFTER)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            Command::new("list").about("List the domains with settings").args(pages::flags()),
        )
        .subcommand(Command::new("get").about("Show the settings of a domain").arg(name()))
        .subcommand(
            Command::new("set")
                .about(
                    "Replace all settings of a domain; what is left out is as the service has it",
                )
                .arg(name())
                .arg(
                    Arg::new("queue-max")
                        .long("queue-max")
                        .value_name("N")
                        .value_parser(value_parser!(u64).range(1..))
                        .help("Waiters for one of its locks"),
                )
                .arg(condition())
                .arg(reason()),
        )
        .subcommand(
            Command::new("reset")
                .about("Drop all settings of a domain: what the service has counts again")
                .arg(name())
                .arg(condition())
                .arg(reason()),
        )
}

fn reason() -> Arg {
    args::filter("reason", "TEXT", "Why, for the audit: 1 to 512 bytes")
}

fn condition() -> Arg {
    args::filter(
        "if-version",
        "VERSION",
        "Only if this still is its version [default: what it is just before]",
    )
}

pub(crate) async fn run(given: &ArgMatches, service: &Service) -> Result<(), Failure> {
    match given.subcommand() {
        Some(("list", given)) => {
            let empty = "No domain has settings of its own.";
            pages::show::<Domain<'static>>(service, given, "/v1/domains", &[], empty, table).await
        }
        Some(("set", given)) => set(given, service).await,
        Some(("reset", given)) => reset(given, service).await,
        Some((_, given)) => {
            let query = [("domain", args::text(given, "domain"))];
            service.show(&service.get::<Domain<'static>>("/v1/domains", &query).await?, told)
        }
        None => Err(Failure::Usage("list, get, set or reset?".to_owned())),
    }
}

async fn set(given: &ArgMatches, service: &Service) -> Result<(), Failure> {
    let domain = args::text(given, "domain").unwrap_or_default();
    let settings = SetDomain { queue_max: given.get_one("queue-max").copied() };
    let now = match version(given, service, domain).await? {
        Some(version) => {
            service
                .client
                .set_domain(domain, &settings, &version, args::text(given, "reason"))
                .await?
        }
        None => {
            service.client.create_domain(domain, &settings, args::text(given, "reason")).await?
        }
    };
    service.show_value(&now.value, told)
}

async fn reset(given: &ArgMatches, service: &Service) -> Result<(), Failure> {
    let domain = args::text(given, "domain").unwrap_or_default();
    let version = match args::text(given, "if-version") {
        Some(version) => version.to_owned(),
        None => service.client.domain(domain).await?.version.clone().into_owned(),
    };
    let done = service.client.reset_domain(domain, &version, args::text(given, "reason")).await?;
    service.show_value(&done.value, |_| "it is as the service has it again")
}

/// What the change is conditional on: what was given, or what is there now.
async fn version(
    given: &ArgMatches,
    service: &Service,
    domain: &str,
) -> Result<Option<String>, Failure> {
    if let Some(version) = args::text(given, "if-version") {
        return Ok(Some(version.to_owned()));
    }
    match service.client.domain(domain).await {
        Ok(found) => Ok(Some(found.version.clone().into_owned())),
        Err(error) if error.code() == Some(Code::NotFound) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn told(domain: &Domain<'_>) -> String {
    let queue_max = match domain.queue_max {
        Some(max) => format!("at most {max} waiters for one lock"),
        None => "as many waiters for one lock as the service allows".to_owned(),
    };
    format!("{}: {queue_max} (version {})", shown(&domain.domain), shown(&domain.version))
}

fn table(domains: &[Domain<'static>]) -> Table {
    let mut table = Table::new(&["DOMAIN", "QUEUE MAX", "VERSION"]);
    for one in domains {
        table.row([
            one.domain.clone().into_owned(),
            one.queue_max.map(|max| max.to_string()).unwrap_or_default(),
            one.version.clone().into_owned(),
        ]);
    }
    table
}
