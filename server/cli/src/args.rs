//! Arguments that several commands have.

use crate::duration::duration;
use clap::builder::PossibleValuesParser;
use clap::builder::TypedValueParser as _;
use clap::{Arg, ArgMatches};
use leasehold_wire::Mode;
use std::time::Duration;

pub(crate) fn resource() -> Arg {
    Arg::new("resource").value_name("RESOURCE").required(true).help("The name of the lock")
}

pub(crate) fn token() -> Arg {
    Arg::new("token")
        .value_name("TOKEN")
        .required(true)
        .value_parser(clap::value_parser!(u64))
        .help("The token of the grant")
}

pub(crate) fn client_id() -> Arg {
    Arg::new("client-id").long("client-id").value_name("LABEL")
}

pub(crate) fn ttl() -> Arg {
    Arg::new("ttl").long("ttl").value_name("TIME").value_parser(duration)
}

pub(crate) fn wait() -> Arg {
    Arg::new("wait").long("wait").value_name("TIME").value_parser(duration)
}

pub(crate) fn mode() -> Arg {
    let words = PossibleValuesParser::new(["exclusive", "shared"]);
    Arg::new("mode")
        .long("mode")
        .value_name("MODE")
        .value_parser(words.map(|word| match word.as_str() {
            "shared" => Mode::Shared,
            _ => Mode::Exclusive,
        }))
        .default_value("exclusive")
        .help("exclusive, or shared: many readers, no writer")
        .hide_possible_values(true)
}

/// A flag that narrows a list down.
pub(crate) fn filter(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

/// Whole milliseconds.
pub(crate) fn ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// The value of an argument that is text, where there is such an argument.
pub(crate) fn text<'a>(given: &'a ArgMatches, name: &str) -> Option<&'a str> {
    given.try_get_one::<String>(name).ok().flatten().map(String::as_str)
}
