//! Lists, page by page.

use crate::args;
use crate::failure::Failure;
use crate::output::{self, Output};
use crate::service::Service;
use crate::table::Table;
use clap::{Arg, ArgAction, ArgMatches, value_parser};
use leasehold_wire::Page;
use serde::de::DeserializeOwned;

/// The flags of every list.
pub(crate) fn flags() -> [Arg; 3] {
    [
        Arg::new("limit")
            .long("limit")
            .value_name("N")
            .value_parser(value_parser!(u16).range(1..=1_000))
            .default_value("100")
            .help("Items a page, 1 to 1000"),
        Arg::new("cursor")
            .long("cursor")
            .value_name("CURSOR")
            .help("Go on where a page ended: its `next_cursor`"),
        Arg::new("all")
            .long("all")
            .action(ArgAction::SetTrue)
            .help("Page after page; as JSON one document a page"),
    ]
}

/// Reads one page, or all, and shows them. `empty` is what people are told if there is nothing.
pub(crate) async fn show<T: DeserializeOwned>(
    service: &Service,
    given: &ArgMatches,
    path: &str,
    query: &[(&str, Option<&str>)],
    empty: &str,
    table: fn(&[T]) -> Table,
) -> Result<(), Failure> {
    let limit = given.get_one::<u16>("limit").copied().unwrap_or(100).to_string();
    let mut cursor = args::text(given, "cursor").map(str::to_owned);
    loop {
        let page = [("limit", Some(limit.as_str())), ("cursor", cursor.as_deref())];
        let query: Vec<_> = query.iter().copied().chain(page).collect();
        let told = service.get::<Page<'static, T>>(path, &query).await?;
        let next = told.value.next_cursor.as_deref().map(str::to_owned);
        match service.output {
            Output::Json => output::line(&told.raw)?,
            Output::Human if told.value.items.is_empty() && cursor.is_none() => {
                output::line(&empty)?;
            }
            Output::Human => output::line(&table(&told.value.items))?,
        }
        cursor = match next {
            Some(next) if given.get_flag("all") => Some(next),
            Some(next) if service.output == Output::Human => {
                let total = told.value.total.map(|total| format!(" of {total}"));
                let total = total.unwrap_or_default();
                output::remark(&format!("there is more{total}: --cursor '{next}', or --all"));
                return Ok(());
            }
            _ => return Ok(()),
        };
    }
}
