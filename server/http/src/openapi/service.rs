//! The service about itself: health, metrics, and this document.

use super::entry::{Entry, Tag};
use leasehold_wire::{self as wire, Code};
use serde_json::json;

pub(super) fn entries() -> Vec<Entry> {
    vec![
        live("livez"),
        live("healthz"),
        ready(),
        metrics(),
        document(),
        stats(),
        attention(),
        config(),
    ]
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

fn stats() -> Entry {
    Entry::new("stats", Tag::Service, "Numbers", "What there is, and how long requests take.")
        .gives::<wire::Stats<'static>>()
}

fn attention() -> Entry {
    Entry::new("attention", Tag::Service, "What needs somebody now", "The worst first.")
        .gives::<wire::Attention<'static>>()
}

fn config() -> Entry {
    Entry::new("config", Tag::Service, "Settings in force", "Secrets are left out.")
        .gives::<wire::Config<'static>>()
}
