//! `GET /v1/openapi.json`: the API as an OpenAPI 3.1 document.
//!
//! | file | holds |
//! | --- | --- |
//! | `entry` | what can be said about one route |
//! | `locks`, `leases`, `history`, `operators`, `service` | an entry a route, by the name that it has in `routes` |
//! | `parameters` | the parameters that several routes share |
//! | `problems` | which problems a route can answer with |
//! | `document` | puts routes, entries and the types' own schemas together |
//!
//! Methods, paths and bodies come from the table of routes, shapes from the types. An entry adds
//! only what neither can say. Tests hold the two against each other.

mod cluster;
mod document;
mod entry;
mod history;
mod leases;
mod locks;
mod operators;
mod parameters;
mod problems;
mod service;
#[cfg(test)]
mod tests;

use crate::answer::{Answer, Answered};
use crate::ask::Ask;
use actix_web::http::header::HeaderValue;
use entry::Entry;
use std::sync::LazyLock;

/// Built at the first request: most nodes are never asked.
static DOCUMENT: LazyLock<Vec<u8>> = LazyLock::new(|| {
    serde_json::to_vec(&document::build(crate::routes::TABLE, &entries()))
        .expect("a JSON value can be written")
});

/// `GET /v1/openapi.json`
pub(crate) async fn get(ask: Ask) -> Answered {
    ask.query(&[])?;
    Ok(Answer::bytes(DOCUMENT.clone(), HeaderValue::from_static("application/json")))
}

/// Every route has one.
fn entries() -> Vec<Entry> {
    [
        locks::entries(),
        leases::entries(),
        history::entries(),
        operators::entries(),
        cluster::entries(),
        service::entries(),
    ]
    .concat()
}
