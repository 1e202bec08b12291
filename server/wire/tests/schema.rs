//! The schemas say what the parser takes, and of answers what is always there.

use leasehold_wire::parse::{Field, Kind};
use leasehold_wire::schema::Schemas;
use leasehold_wire::*;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The schema that a reference leads to, with all others.
fn request<T: schemars::JsonSchema>() -> (Value, Map<String, Value>) {
    let mut schemas = Schemas::default();
    let reference = schemas.request::<T>();
    let all = schemas.into_components();
    (follow(&reference, &all).clone(), all)
}

fn answer<T: schemars::JsonSchema>() -> (Value, Map<String, Value>) {
    let mut schemas = Schemas::default();
    let reference = schemas.answer::<T>();
    let all = schemas.into_components();
    (follow(&reference, &all).clone(), all)
}

fn follow<'s>(schema: &'s Value, all: &'s Map<String, Value>) -> &'s Value {
    match schema.get("$ref").and_then(Value::as_str) {
        Some(path) => &all[path.strip_prefix("#/components/schemas/").expect("a component")],
        None => schema,
    }
}

fn required(schema: &Value) -> BTreeSet<&str> {
    let names = schema["required"].as_array().map(Vec::as_slice).unwrap_or_default();
    names.iter().filter_map(Value::as_str).collect()
}

/// The table that explains refusals and the schema describe the same fields.
fn agrees(schema: &Value, fields: &[Field], all: &Map<String, Value>) {
    assert_eq!(schema["additionalProperties"], json!(false), "{schema}");
    let properties = schema["properties"].as_object().expect("an object");
    let named: BTreeSet<&str> = properties.keys().map(String::as_str).collect();
    assert_eq!(named, fields.iter().map(|field| field.name).collect());
    let must: BTreeSet<&str> =
        fields.iter().filter(|field| field.required).map(|field| field.name).collect();
    assert_eq!(required(schema), must);
    for field in fields {
        let property = follow(&properties[field.name], all);
        let kind = match field.kind {
            Kind::Text | Kind::Choice(_) => "string",
            Kind::Count => "integer",
            Kind::Flag => "boolean",
            Kind::TextMap => "object",
            Kind::Texts | Kind::Objects(_) => "array",
        };
        assert_eq!(property["type"], json!(kind), "{}: {property}", field.name);
        match field.kind {
            Kind::Choice(words) => assert_eq!(property["enum"], json!(words), "{}", field.name),
            Kind::Objects(inner) if field.name == "holding" => {
                agrees(follow(&property["items"], all), inner, all);
            }
            Kind::Count => assert!(property["maximum"].is_u64(), "{}: {property}", field.name),
            _ => {}
        }
    }
}

fn agrees_as<T: schemars::JsonSchema + Shape<'static>>() {
    let (schema, all) = request::<T>();
    agrees(&schema, T::FIELDS, &all);
}

#[test]
fn requests_have_the_fields_that_the_parser_knows() {
    agrees_as::<Acquire<'static>>();
    agrees_as::<Renew<'static>>();
    agrees_as::<Release<'static>>();
    agrees_as::<CancelWait<'static>>();
    agrees_as::<Batch<'static>>();
    agrees_as::<OpenLease<'static>>();
    agrees_as::<KeepAlive<'static>>();
    agrees_as::<KeepAliveMany<'static>>();
    agrees_as::<FenceCheck<'static>>();
    agrees_as::<ForceRelease<'static>>();
    agrees_as::<SetDomain>();
    agrees_as::<AddNode<'static>>();
    agrees_as::<ChangeNode<'static>>();
    agrees_as::<TransferLeadership<'static>>();
}

#[test]
fn an_operation_of_a_batch_has_the_fields_of_its_verb() {
    let (_, all) = request::<Batch<'static>>();
    let names = |name: &str| -> BTreeSet<String> {
        all[name]["properties"].as_object().expect("an object").keys().cloned().collect()
    };
    let of = |fields: &[Field]| -> BTreeSet<String> {
        fields.iter().map(|field| field.name.to_owned()).chain(["op".to_owned()]).collect()
    };
    let mut acquire = of(Acquire::FIELDS);
    acquire.remove("wait_ms");
    acquire.remove("keep_place");
    assert_eq!(names("BatchAcquire"), acquire);
    assert_eq!(names("BatchRenew"), of(Renew::FIELDS));
    assert_eq!(names("BatchRelease"), of(Release::FIELDS));
    for (name, verb) in
        [("BatchAcquire", "acquire"), ("BatchRenew", "renew"), ("BatchRelease", "release")]
    {
        assert_eq!(all[name]["properties"]["op"]["const"], verb);
        assert!(required(&all[name]).contains("op"));
        assert_eq!(all[name]["additionalProperties"], json!(false));
    }
    assert_eq!(all["BatchAcquire"]["else"], json!({ "required": ["ttl_ms"] }));
}

/// Whether a schema admits `null` anywhere.
fn admits_null(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => {
            let here = match map.get("type") {
                Some(Value::Array(types)) => types.contains(&json!("null")),
                Some(one) => one == "null",
                None => false,
            };
            here || map.values().any(admits_null)
        }
        Value::Array(items) => items.iter().any(admits_null),
        _ => false,
    }
}

#[test]
fn no_request_takes_null() {
    for (schema, all) in [
        request::<Acquire<'static>>(),
        request::<Batch<'static>>(),
        request::<KeepAliveMany<'static>>(),
        request::<SetDomain>(),
        request::<AddNode<'static>>(),
        request::<TransferLeadership<'static>>(),
    ] {
        assert!(!admits_null(&schema) && !all.values().any(admits_null), "{schema}");
    }
}

#[test]
fn answers_say_what_is_always_there_and_may_gain_fields() {
    let (lock, _) = answer::<Lock<'static>>();
    let always = ["holders", "last_token", "queue", "queue_length", "resource", "state"];
    assert_eq!(required(&lock), BTreeSet::from(always));
    assert_eq!(lock["properties"]["last_token"]["type"], json!(["integer", "null"]));
    assert!(lock.get("additionalProperties").is_none());

    let (holder, all) = answer::<Holder<'static>>();
    assert!(!admits_null(&holder), "what is left out is not null: {holder}");
    assert!(!required(&holder).contains("draining"), "it is there only if it is true");
    assert!(all.contains_key("Metadata") && all.contains_key("Mode"));

    let (page, _) = answer::<Page<'static, LockSummary<'static>>>();
    assert_eq!(required(&page), BTreeSet::from(["items"]));

    let (stats, _) = answer::<Stats<'static>>();
    assert!(required(&stats).contains("leader"));
    assert!(admits_null(&stats["properties"]["leader"]));

    let (node, _) = answer::<ClusterNode<'static>>();
    let always = ["http_addr", "id", "peer_addr", "role", "voter"];
    assert_eq!(required(&node), BTreeSet::from(always), "a node that is away says nothing");
    assert!(!admits_null(&node), "{node}");
}

#[test]
fn words_are_listed_with_their_meaning() {
    let (code, _) = answer::<Code>();
    let words: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(code["enum"], json!(words));
    assert_eq!(code["type"], "string");
    let text = code["description"].as_str().expect("it is described");
    assert!(text.contains("- `held`: "), "{text}");
}

#[test]
fn bounds_are_those_of_the_types() {
    let (acquire, _) = request::<Acquire<'static>>();
    let properties = &acquire["properties"];
    assert_eq!(properties["wait_ms"]["maximum"], json!(Acquire::WAIT_MS_MAX));
    assert_eq!(properties["holding"]["maxItems"], json!(Acquire::HOLDING_MAX));
    let (batch, _) = request::<Batch<'static>>();
    assert_eq!(batch["properties"]["operations"]["maxItems"], json!(Batch::OPERATIONS_MAX));
    let (many, _) = request::<KeepAliveMany<'static>>();
    assert_eq!(many["properties"]["lease_ids"]["maxItems"], json!(KeepAliveMany::LEASES_MAX));
    let (force, _) = request::<ForceRelease<'static>>();
    assert_eq!(force["properties"]["reason"]["maxLength"], json!(ForceRelease::REASON_MAX));
}
