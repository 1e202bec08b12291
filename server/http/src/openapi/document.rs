//! Puts routes, entries and the types' own schemas together.

use super::entry::{Entry, Parameter, Revision, Tag, Where};
use super::{parameters, problems};
use crate::routes::{Answers, Class, Route};
use leasehold_wire::schema::Schemas;
use leasehold_wire::{Code, Problem};
use serde_json::{Map, Value, json};

const DESCRIPTION: &str = "A lock service with fencing tokens. A grant carries a token that is \
    strictly larger than every one before it for the same resource; storage that remembers the \
    largest token it saw refuses writes of a holder that has lost its lock without noticing.\n\n\
    Request bodies with an unknown or repeated field, or with a `null`, are refused. Answers may \
    gain fields. Tokens are numbers below 2^53; revisions, cursors and ids are opaque strings. \
    Lengths of names count bytes of UTF-8. Whole numbers have \
    neither a fraction nor an exponent, not even `4.0`.";

/// The document about the routes that have an entry.
pub(super) fn build(table: &[Route], entries: &[Entry]) -> Value {
    let mut schemas = Schemas::default();
    let problem = schemas.answer::<Problem<'static>>();
    let mut paths = Map::new();
    for route in table {
        let Some(entry) = entries.iter().find(|entry| entry.name == route.name) else { continue };
        let described = operation(route, entry, &problem, &mut schemas);
        let method = route.method.as_str().to_ascii_lowercase();
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[method] = described;
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Leasehold",
            "version": env!("CARGO_PKG_VERSION"),
            "description": DESCRIPTION,
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        // The node that served the document, under whichever name it was reached.
        "servers": [{ "url": "/" }],
        "tags": Tag::ALL
            .iter()
            .map(|(tag, description)| json!({ "name": tag.name(), "description": description }))
            .collect::<Vec<_>>(),
        // None at all is allowed as well: a node may run without authentication.
        "security": [{}, { "bearer": [] }],
        "paths": paths,
        "components": {
            "schemas": schemas.into_components(),
            "securitySchemes": { "bearer": { "type": "http", "scheme": "bearer" } },
        },
    })
}

fn operation(route: &Route, entry: &Entry, problem: &Value, schemas: &mut Schemas) -> Value {
    let mut operation = json!({
        "operationId": operation_id(route),
        "tags": [entry.tag.name()],
        "summary": entry.summary,
        "description": entry.description,
        "responses": responses(route, entry, problem, schemas),
    });
    let shared = (route.class != Class::Ops).then(parameters::timeout);
    let parameters: Vec<Value> = entry.parameters.iter().chain(&shared).map(parameter).collect();
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    if let Some(shape) = entry.request {
        operation["requestBody"] = json!({
            "required": !entry.request_optional,
            "content": { "application/json": { "schema": shape(schemas) } },
        });
    }
    if route.class == Class::Ops {
        operation["security"] = json!([]);
    }
    for shape in &entry.beside {
        shape(schemas);
    }
    operation
}

/// Stable: generated clients name their functions after it. A route that stands at the root as
/// well has a name of its own there.
pub(super) fn operation_id(route: &Route) -> String {
    let mut words = route.name.split('-');
    let mut id = words.next().unwrap_or_default().to_owned();
    for word in words {
        let (first, rest) = word.split_at(1);
        id.push_str(&first.to_ascii_uppercase());
        id.push_str(rest);
    }
    if route.class != Class::Ops && !route.path.starts_with("/v1/") {
        id.push_str("AtRoot");
    }
    id
}

fn parameter(parameter: &Parameter) -> Value {
    let place = match parameter.place {
        Where::Query => "query",
        Where::Path => "path",
        Where::Header => "header",
    };
    json!({
        "name": parameter.name,
        "in": place,
        "required": parameter.required,
        "description": parameter.description,
        "schema": parameter.schema,
    })
}

fn responses(route: &Route, entry: &Entry, problem: &Value, schemas: &mut Schemas) -> Value {
    let mut responses = Map::new();
    responses.insert("200".to_owned(), good(route, entry, schemas));
    let pairs = problems::of(route, entry);
    for pairs in pairs.chunk_by(|one, other| one.0 == other.0) {
        let codes: Vec<Code> = pairs.iter().map(|(_, code)| *code).collect();
        responses.insert(pairs[0].0.to_string(), bad(route, pairs[0].0, &codes, problem));
    }
    responses.into()
}

fn good(route: &Route, entry: &Entry, schemas: &mut Schemas) -> Value {
    let mut headers = Map::new();
    if entry.revision != Revision::None {
        let always = entry.revision == Revision::Always;
        let description = "The number, in the order of all changes, that the answer reflects.";
        headers.insert("Leasehold-Revision".to_owned(), header(always, "string", description));
    }
    if entry.revision == Revision::UnlessStale {
        let description = "How old a stale answer may be, where that is known.";
        headers.insert("Leasehold-Age-Ms".to_owned(), header(false, "integer", description));
    }
    for (name, always, description) in &entry.headers {
        let kind = if *name == "Fencing-Token" { "integer" } else { "string" };
        headers.insert((*name).to_owned(), header(*always, kind, description));
    }
    if route.answers != Answers::Here {
        headers.insert("Leasehold-Leader".to_owned(), leader());
    }
    let mut good = json!({ "description": "It is done, or it is so.", "headers": headers });
    if let Some(shape) = entry.answer {
        good["content"] = json!({ entry.answer_type: { "schema": shape(schemas) } });
    }
    good
}

fn bad(route: &Route, status: u16, codes: &[Code], problem: &Value) -> Value {
    let meanings: Vec<String> =
        codes.iter().map(|code| format!("`{code}`: {}", code.title())).collect();
    let mut headers = json!({
        "Leasehold-Trace-Id": header(true, "string", "Finds the request in logs."),
    });
    if status == 429 || status == 503 {
        let description = "Seconds after which trying again makes sense.";
        headers["Retry-After"] = header(false, "integer", description);
    }
    if route.answers != Answers::Here || codes.contains(&Code::NoLeader) {
        headers["Leasehold-Leader"] = leader();
    }
    json!({
        "description": meanings.join("; "),
        "headers": headers,
        "content": { "application/problem+json": { "schema": problem } },
        "x-leasehold-codes": codes,
    })
}

fn leader() -> Value {
    let description = "The id of the node that leads: where that node answered for the one that \
                       was asked, and where nobody could answer but it.";
    header(false, "integer", description)
}

fn header(required: bool, kind: &str, description: &str) -> Value {
    json!({ "required": required, "description": description, "schema": { "type": kind } })
}
