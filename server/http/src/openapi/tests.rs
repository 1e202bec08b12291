//! The document against the table of routes, both ways, and against what the node can answer.

use super::document::operation_id;
use super::entry::{Entry, Where};
use super::{entries, problems};
use crate::failure;
use crate::routes::{Answers, Body, Class, Route, TABLE};
use leasehold_core::command::EndedHow;
use leasehold_core::outcome::{Blockers, Bound, Refusal};
use leasehold_core::{ClientId, RequestId, ResourceName};
use leasehold_node::{Failure, Gone};
use leasehold_wire::{Code, schema};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

fn served() -> Value {
    serde_json::from_slice(&super::DOCUMENT).expect("it is JSON")
}

/// Every operation, by method and path.
fn operations(document: &Value) -> BTreeMap<(String, String), Value> {
    let paths = document["paths"].as_object().expect("paths");
    paths
        .iter()
        .flat_map(|(path, methods)| {
            let methods = methods.as_object().expect("methods");
            methods.iter().map(move |(method, operation)| {
                ((method.to_ascii_uppercase(), path.clone()), operation.clone())
            })
        })
        .collect()
}

fn entry_of<'e>(route: &Route, entries: &'e [Entry]) -> &'e Entry {
    let mut found = entries.iter().filter(|entry| entry.name == route.name);
    let entry = found.next().unwrap_or_else(|| panic!("{} has no entry", route.name));
    assert!(found.next().is_none(), "{} has two entries", route.name);
    entry
}

#[test]
fn every_route_is_described_and_nothing_else() {
    let routes: BTreeSet<(String, String)> = TABLE
        .iter()
        .map(|route| (route.method.as_str().to_owned(), route.path.to_owned()))
        .collect();
    let described: BTreeSet<_> = operations(&served()).into_keys().collect();
    assert_eq!(described, routes);
    let names: BTreeSet<&str> = TABLE.iter().map(|route| route.name).collect();
    let entries: BTreeSet<&str> = entries().iter().map(|entry| entry.name).collect();
    assert_eq!(entries, names);
}

#[test]
fn operations_have_names_of_their_own() {
    let mut ids = BTreeSet::new();
    let mut at_root = Vec::new();
    for route in TABLE {
        let id = operation_id(route);
        if id.ends_with("AtRoot") {
            at_root.push(route.path);
        }
        assert!(ids.insert(id.clone()), "{id} stands there twice");
    }
    assert_eq!(at_root, ["/acquire-lock", "/release-lock", "/renew-lock"]);
}

fn segments(path: &str) -> BTreeSet<&str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect()
}

fn names(entry: &Entry, place: Where) -> BTreeSet<&str> {
    let there = entry.parameters.iter().filter(|parameter| parameter.place == place);
    there.map(|parameter| parameter.name).collect()
}

/// What a route reads is what its entry describes.
fn fits(route: &Route, entry: &Entry) {
    let name = route.name;
    let read: BTreeSet<&str> = entry.reads.iter().copied().collect();
    assert_eq!(names(entry, Where::Query), read, "{name}: the query");
    assert_eq!(names(entry, Where::Path), segments(route.path), "{name}: the path");
    let stale = route.answers == Answers::Either;
    assert_eq!(read.contains("consistency"), stale, "{name}: who answers");
    let body = route.body != Body::None;
    assert_eq!(entry.request.is_some(), body, "{name}: the body");
    assert!(entry.answer.is_some(), "{name}: the answer");
    assert!(!entry.summary.ends_with('.') && entry.description.ends_with('.'), "{name}");
}

#[test]
fn entries_fit_their_routes() {
    let entries = entries();
    for route in TABLE {
        fits(route, entry_of(route, &entries));
    }
}

/// Calls `look` with every object in a JSON value.
fn walk(value: &Value, look: &mut dyn FnMut(&serde_json::Map<String, Value>)) {
    match value {
        Value::Object(map) => {
            look(map);
            map.values().for_each(|inner| walk(inner, look));
        }
        Value::Array(items) => items.iter().for_each(|inner| walk(inner, look)),
        _ => {}
    }
}

fn references_lead_somewhere(document: &Value) {
    let mut seen = 0;
    walk(document, &mut |map| {
        let Some(reference) = map.get("$ref").and_then(Value::as_str) else { return };
        let pointer = reference.strip_prefix('#').expect("within the document");
        assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
        seen += 1;
    });
    assert!(seen > 0, "there are references");
}

#[test]
fn the_document_holds_together() {
    let document = served();
    references_lead_somewhere(&document);
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    assert!(document["components"]["schemas"]["Gap"].is_object(), "what a stream carries");
    walk(&document, &mut |map| {
        if let Some(Value::String(text)) = map.get("description") {
            assert!(!text.contains("[`"), "a link that leads nowhere: {text}");
        }
    });
}

#[test]
fn a_code_has_one_status() {
    let mut statuses: BTreeMap<Code, u16> = BTreeMap::new();
    let entries = entries();
    for route in TABLE {
        for (status, code) in problems::of(route, entry_of(route, &entries)) {
            let known = *statuses.entry(code).or_insert(status);
            assert_eq!(known, status, "{code} of {}", route.name);
        }
    }
}

/// The statuses and codes that the document names for a route.
fn listed(route: &Route, document: &Value) -> BTreeSet<(String, String)> {
    let method = route.method.as_str().to_ascii_lowercase();
    let responses = document["paths"][route.path][method]["responses"].as_object();
    responses
        .expect("responses")
        .iter()
        .flat_map(|(status, response)| {
            let codes = response["x-leasehold-codes"].as_array().cloned().unwrap_or_default();
            codes
                .into_iter()
                .map(|code| (status.clone(), code.as_str().expect("a code").to_owned()))
        })
        .collect()
}

#[test]
fn what_any_node_may_answer_is_listed_everywhere() {
    let document = served();
    let reads = || {
        vec![
            Failure::NoLeader,
            Failure::NotReady,
            Failure::Overloaded,
            Failure::ShuttingDown,
            Failure::DeadlinePassed,
            Failure::Internal(String::new()),
        ]
    };
    let request_id = RequestId::parse("r-1").ok();
    let writes =
        || vec![Failure::StorageFull, Failure::OutcomeUnknown { request_id: request_id.clone() }];
    for route in TABLE.iter().filter(|route| route.class != Class::Ops) {
        let mut failures = reads();
        if route.class != Class::Read {
            failures.extend(writes());
        }
        lists(route, &document, failures);
    }
}

fn lists(route: &Route, document: &Value, failures: Vec<Failure>) {
    let listed = listed(route, document);
    for failure in failures {
        let problem = failure::problem(failure);
        let pair = (problem.status.to_string(), problem.code.to_string());
        assert!(listed.contains(&pair), "{} {} misses {pair:?}", route.method, route.path);
    }
}

/// Which refusals of the rules reach which routes on their own. In a batch, and for many leases
/// at once, each operation has its own outcome instead.
fn refusals() -> Vec<(Failure, &'static [&'static str])> {
    let blockers = Blockers { holders: vec![], holders_total: 0, queue_length: 1 };
    let full = Refusal::Full { bound: Bound::Leases, max: 1, queue_length: 0 };
    let ended = Refusal::RequestEnded { token: None, how: EndedHow::Released, ended_at_ms: 0 };
    let lease_ended = Refusal::LeaseEnded { how: None, ended_at_ms: None };
    let all: Vec<(Refusal, &[&str])> = vec![
        (Refusal::Held(blockers), &["acquire-lock"]),
        (full, &["acquire-lock", "open-lease"]),
        (Refusal::WouldDeadlock { cycle: vec![] }, &["acquire-lock"]),
        (
            Refusal::TtlOutOfRange { min_ms: 1, max_ms: 2 },
            &["acquire-lock", "renew-lock", "open-lease"],
        ),
        (Refusal::TtlAboveCap { cap_ms: 1 }, &["acquire-lock", "renew-lock"]),
        (Refusal::LeaseIsExplicit, &["renew-lock"]),
        (Refusal::LeaseIsSingle, &["acquire-lock"]),
        (lease_ended, &["acquire-lock", "keep-alive", "end-lease"]),
        (Refusal::LeaseUnknown, &["acquire-lock", "keep-alive", "lease", "end-lease"]),
        (Refusal::NotOwner, &["acquire-lock", "keep-alive", "end-lease"]),
        (Refusal::NotLive, &["renew-lock", "release-lock"]),
        (Refusal::NotHolder, &["renew-lock", "release-lock"]),
        (Refusal::Draining, &["renew-lock"]),
        (ended, &["acquire-lock", "release-lock"]),
        (Refusal::RequestReused, &["acquire-lock"]),
        (Refusal::OnHold { hold_ms: 1 }, &["acquire-lock"]),
        (Refusal::NotWaiting, &["cancel-wait"]),
        (Refusal::VersionDiffers { current: None }, &["set-domain", "reset-domain"]),
        (Refusal::Void, &["acquire-lock", "renew-lock", "release-lock", "open-lease"]),
    ];
    all.into_iter().map(|(refusal, names)| (Failure::Refused(refusal), names)).collect()
}

#[test]
fn what_the_rules_may_refuse_is_listed_where_they_do() {
    let document = served();
    let gone = Failure::Gone(Gone::Forgotten);
    let never = Failure::Gone(Gone::Never { holders: vec![] });
    let grants: &[&str] = &["renew-lock", "release-lock", "force-release"];
    for (failure, names) in refusals().into_iter().chain([(gone, grants), (never, grants)]) {
        for route in TABLE.iter().filter(|route| names.contains(&route.name)) {
            lists(route, &document, vec![failure.clone()]);
        }
    }
}

#[test]
fn bounds_of_names_are_those_of_the_rules() {
    assert_eq!(schema::RESOURCE_MAX as usize, ResourceName::MAX_BYTES);
    assert_eq!(schema::CLIENT_ID_MAX as usize, ClientId::MAX_BYTES);
    assert_eq!(schema::REQUEST_ID_MAX as usize, RequestId::MAX_BYTES);
    assert_eq!(schema::EXACT_MAX, leasehold_core::Token::LIMIT - 1);
}
