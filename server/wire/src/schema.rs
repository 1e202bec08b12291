//! JSON Schemas (2020-12, as OpenAPI 3.1 has them) of the shapes, taken from the types themselves.
//!
//! A request's schema says what [`crate::parse()`] and the checks behind it take; an answer's says
//! what is always there, and leaves room for fields to come. Where JSON Schema has no word for a
//! rule, the schema is the wider one and the description says the rest: lengths of names count
//! bytes of UTF-8 but `maxLength` counts characters, and the range of a TTL is a setting.

use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform as _};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value};

/// The longest name of a resource, in bytes.
pub const RESOURCE_MAX: u32 = 512;
/// The longest label of a client, in bytes.
pub const CLIENT_ID_MAX: u32 = 256;
/// The longest id of a request, in bytes.
pub const REQUEST_ID_MAX: u32 = 128;
/// The longest reason of an operator, in bytes.
pub const REASON_MAX: u32 = 512;
/// The largest whole number that every reader of JSON reads exactly; tokens end here.
pub const EXACT_MAX: u64 = (1 << 53) - 1;

/// The longest address of a node, in bytes.
pub const ADDR_MAX: u32 = 261;

/// Text without control characters, in the dialect that all readers of JSON Schema share.
pub const NO_CONTROL: &str = r"^[^\u0000-\u001f\u007f-\u009f]*$";
/// The id of a lease: 32 hexadecimal digits in lower case.
pub const HEX_ID: &str = "^[0-9a-f]{32}$";

/// Collects the schemas that a document refers to under `#/components/schemas/`.
#[derive(Debug)]
pub struct Schemas {
    requests: SchemaGenerator,
    answers: SchemaGenerator,
}

impl Default for Schemas {
    fn default() -> Self {
        let settings = || {
            SchemaSettings::draft2020_12().with(|settings| {
                settings.definitions_path = "/components/schemas".into();
                settings.meta_schema = None;
            })
        };
        Self {
            requests: settings().for_deserialize().into_generator(),
            answers: settings().for_serialize().into_generator(),
        }
    }
}

impl Schemas {
    /// A reference to the schema of something that clients send.
    pub fn request<T: JsonSchema>(&mut self) -> Value {
        self.requests.subschema_for::<T>().to_value()
    }

    /// A reference to the schema of something that clients get.
    pub fn answer<T: JsonSchema>(&mut self) -> Value {
        self.answers.subschema_for::<T>().to_value()
    }

    /// All schemas that were referred to, by name.
    #[must_use]
    pub fn into_components(mut self) -> Map<String, Value> {
        let mut all = self.requests.take_definitions(true);
        for (name, schema) in self.answers.take_definitions(true) {
            let twin = all.insert(name.clone(), schema.clone());
            // What both directions use has no optional fields, or it would need two names.
            debug_assert!(twin.is_none_or(|twin| twin == schema), "{name} has two meanings");
        }
        for schema in all.values_mut() {
            if let Ok(schema) = <&mut Schema>::try_from(schema) {
                RecursiveTransform(plain).transform(schema);
            }
        }
        all
    }
}

/// Takes out of a schema what the type system says and JSON does not.
fn plain(schema: &mut Schema) {
    refuse_null(schema);
    join_words(schema);
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = without_links(text);
    }
    // Names of integer types of this language, which mean nothing to others.
    if schema.get("format").and_then(Value::as_str).is_some_and(|name| name.starts_with("uint")) {
        schema.remove("format");
    }
}

/// A field that may be left out is never `null`: requests refuse it and answers do not have it.
fn refuse_null(schema: &mut Schema) {
    let required: Vec<String> = schema
        .get("required")
        .and_then(Value::as_array)
        .map(|names| names.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        .unwrap_or_default();
    let Some(Value::Object(properties)) = schema.get_mut("properties") else { return };
    for (name, property) in properties {
        if !required.contains(name) {
            without_null(property);
        }
    }
}

fn without_null(property: &mut Value) {
    let Value::Object(property) = property else { return };
    property.remove("default");
    if let Some(Value::Array(types)) = property.get_mut("type") {
        types.retain(|one| one != "null");
        if let [only] = &types[..] {
            let only = only.clone();
            property.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(branches)) = property.get("anyOf")
        && let [Value::Object(one), Value::Object(null)] = &branches[..]
        && null.get("type").is_some_and(|kind| kind == "null")
    {
        let one = one.clone();
        property.remove("anyOf");
        property.extend(one);
    }
}

/// One list of words instead of a branch a word; what each means goes into the description.
fn join_words(schema: &mut Schema) {
    let Some(Value::Array(branches)) = schema.get("oneOf") else { return };
    let words: Option<Vec<(&str, Option<&str>)>> = branches
        .iter()
        .map(|branch| {
            let word = branch.get("const")?.as_str()?;
            Some((word, branch.get("description").and_then(Value::as_str)))
        })
        .collect();
    let Some(words) = words else { return };
    let mut text = schema.get("description").and_then(Value::as_str).unwrap_or_default().to_owned();
    text.push('\n');
    for (word, meaning) in &words {
        text.push_str(&format!("\n- `{word}`: {}", meaning.unwrap_or_default()));
    }
    let words: Vec<Value> = words.iter().map(|(word, _)| (*word).into()).collect();
    schema.remove("oneOf");
    schema.insert("type".to_owned(), "string".into());
    schema.insert("enum".to_owned(), words.into());
    schema.insert("description".to_owned(), text.into());
}

/// The names that doc comments link to, as mere names.
fn without_links(text: &str) -> String {
    text.replace("[`", "`").replace("`]", "`").replace("(parse())", "")
}

/// A name that the service keeps: at least one byte, no control characters.
#[must_use]
pub fn name(bytes_max: u32) -> Schema {
    json_schema!({
        "type": "string",
        "minLength": 1,
        "maxLength": bytes_max,
        "pattern": NO_CONTROL,
    })
}

/// The name of a resource.
pub fn resource(_: &mut SchemaGenerator) -> Schema {
    name(RESOURCE_MAX)
}

/// The label of a client.
pub fn client_id(_: &mut SchemaGenerator) -> Schema {
    name(CLIENT_ID_MAX)
}

/// The id that makes a request safe to repeat.
pub fn request_id(_: &mut SchemaGenerator) -> Schema {
    name(REQUEST_ID_MAX)
}

/// Why an operator does something.
pub fn reason(_: &mut SchemaGenerator) -> Schema {
    name(REASON_MAX)
}

/// The id of a lease.
pub fn hex_id(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "pattern": HEX_ID })
}

/// A token.
pub fn token(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer", "minimum": 1, "maximum": EXACT_MAX })
}

/// The id of a node.
pub fn node_id(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer", "minimum": 1, "maximum": EXACT_MAX })
}

/// Where a node answers other nodes.
pub fn peer_addr(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "minLength": 1,
        "maxLength": ADDR_MAX,
        "pattern": concat!(
            r"^[^\u0000-\u0020\u007f-\u009f/@]+:",
            "(6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[1-9][0-9]{0,3})$"
        ),
    })
}

/// A duration whose bounds are settings.
pub fn duration_ms(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer", "minimum": 1, "maximum": EXACT_MAX })
}

pub(crate) fn lease_ids(generator: &mut SchemaGenerator) -> Schema {
    let item = hex_id(generator);
    json_schema!({
        "type": "array",
        "items": item,
        "maxItems": crate::KeepAliveMany::LEASES_MAX,
    })
}

/// Either the one field or the other, and never both.
pub(crate) fn basis(schema: &mut Schema) {
    schema.insert("if".to_owned(), serde_json::json!({ "required": ["lease_id"] }));
    schema.insert("then".to_owned(), serde_json::json!({ "not": { "required": ["ttl_ms"] } }));
    schema.insert("else".to_owned(), serde_json::json!({ "required": ["ttl_ms"] }));
}

/// The schema of one operation of a batch: that of its verb, with the verb, and without what
/// needs a request of its own.
pub(crate) fn operation<T: JsonSchema>(
    generator: &mut SchemaGenerator,
    verb: &str,
    without: &[&str],
) -> Schema {
    let mut schema = T::json_schema(generator);
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.retain(|name, _| !without.contains(&name.as_str()));
        properties.insert("op".to_owned(), serde_json::json!({ "const": verb, "type": "string" }));
    }
    if let Some(Value::Array(required)) = schema.get_mut("required") {
        required.insert(0, "op".into());
    }
    schema
}
