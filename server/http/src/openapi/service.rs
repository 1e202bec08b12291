//! The service about itself: health, metrics, and this document.

use super::entry::{Entry, Tag};
use leasehold_wire::{self as wire, Code};
use serde_json::json;

pub(super) fn entries() -> Vec<Entry> {
    vec![live("livez"), live("healthz"), ready(), metrics(), document()]
}

fn live(name: &'static str) -> Entry {
    Entry::new(name, Tag::Health, "Whether the process works", "It does if it answers.")
        .gives::<wire::Health>()
}

fn ready() -> Entry {
    Entry::new(
        "readyz",
        Tag::Health,
        "Whether the node should get requests",
        "It has applied its log, and has not been without a leader for long.",
    )
    .gives::<wire::Health>()
    .fails([(503, Code::NotReady)])
}

fn metrics() -> Entry {
    Entry::new("metrics", Tag::Health, "Metrics", "In the text format of Prometheus.")
        .gives_as("text/plain", |_| json!({ "type": "string" }))
}

fn document() -> Entry {
    Entry::new("openapi", Tag::Service, "This document", "OpenAPI 3.1, for anybody.")
        .gives_as("application/json", |_| json!({ "type": "object" }))
}
