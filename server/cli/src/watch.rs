//! `leasehold watch`: what happens, as it happens.

use crate::args;
use crate::failure::Failure;
use crate::output::{self, Output, shown};
use crate::service::{Service, json};
use clap::{ArgGroup, ArgMatches, Command};
use leasehold_client::{WatchFilter, WatchItem};
use leasehold_wire::{Event, Gap};
use serde::Serialize;
use std::pin::pin;

const AFTER: &str = "\
Every event comes once and in order, however often the connection is cut. What the service does not
keep any more comes as a gap: then read the present state anew. As JSON, one object a line, a gap
with \"event\": \"gap\".

Example:
  leasehold watch --prefix payments/ --output json | jq .event";

pub(crate) fn command() -> Command {
    Command::new("watch")
        .about("Print what happens, as it happens")
        .after_help(AFTER)
        .arg(args::filter("resource", "RESOURCE", "Of this lock"))
        .arg(args::filter("prefix", "TEXT", "Of the locks whose names start with this"))
        .arg(args::filter("domain", "DOMAIN", "Of the locks of this domain, and its settings"))
        .arg(args::filter("from", "REVISION", "What came after this revision [default: now]"))
        .group(ArgGroup::new("what").args(["resource", "prefix", "domain"]))
}

pub(crate) async fn run(given: &ArgMatches, service: &Service) -> Result<(), Failure> {
    let text = |name| args::text(given, name).map(str::to_owned);
    let filter = text("resource")
        .map(WatchFilter::Resource)
        .or_else(|| text("prefix").map(WatchFilter::Prefix))
        .or_else(|| text("domain").map(WatchFilter::Domain))
        .unwrap_or_default();
    let mut watch = service.client.watch(filter, text("from"));
    let mut abandoned = pin!(output::abandoned());
    loop {
        let item = tokio::select! {
            item = watch.next() => item,
            () = &mut abandoned => None,
        };
        let Some(item) = item.transpose()? else { return Ok(()) };
        match service.output {
            Output::Json => output::line(&document(&item)?)?,
            Output::Human => output::line(&told(&item))?,
        }
    }
}

/// A gap among events, told apart by the same field.
#[derive(Serialize)]
struct GapLine<'a> {
    event: &'static str,
    #[serde(flatten)]
    gap: &'a Gap<'static>,
}

fn document(item: &WatchItem) -> Result<String, Failure> {
    match item {
        WatchItem::Event(event) => json(event),
        WatchItem::Gap(gap) => json(&GapLine { event: Gap::EVENT, gap }),
    }
}

fn told(item: &WatchItem) -> String {
    match item {
        WatchItem::Event(event) => sentence(event),
        WatchItem::Gap(gap) => {
            format!("gap: what happened after {} up to {} is not kept any more", gap.from, gap.to)
        }
    }
}

fn sentence(event: &Event<'_>) -> String {
    let mut parts = vec![event.happened_at.to_string(), event.revision.to_string()];
    parts.push(format!("{:<15}", event.event.as_str()));
    parts.extend([&event.resource, &event.domain].into_iter().flatten().map(|text| shown(text)));
    parts.extend(event.token.map(|token| format!("token {token}")));
    let named = [("client", &event.client_id), ("how", &event.how), ("by", &event.by)];
    let named = named.into_iter().chain([("did", &event.action), ("because", &event.reason)]);
    parts
        .extend(named.filter_map(|(name, text)| Some(format!("{name} {}", shown(text.as_ref()?)))));
    parts.join("  ")
}
