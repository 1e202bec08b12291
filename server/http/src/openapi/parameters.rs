//! The parameters that several routes share.

use super::entry::{Parameter, Where};
use crate::locks::{LIMIT, LIMIT_DEFAULT};
use leasehold_wire::schema::{self, CLIENT_ID_MAX, REQUEST_ID_MAX, RESOURCE_MAX};
use serde_json::json;

pub(super) fn query(
    name: &'static str,
    description: &'static str,
    schema: serde_json::Value,
) -> Parameter {
    Parameter::new(Where::Query, name, description, schema)
}

pub(super) fn resource(description: &'static str) -> Parameter {
    query("resource", description, schema::name(RESOURCE_MAX).to_value())
}

pub(super) fn client_id(description: &'static str) -> Parameter {
    query("client_id", description, schema::name(CLIENT_ID_MAX).to_value())
}

pub(super) fn client_filter() -> Parameter {
    client_id("Only those of this client.")
}

/// An operator's words.
pub(super) fn reason(description: &'static str) -> Parameter {
    query("reason", description, schema::name(schema::REASON_MAX).to_value())
}

pub(super) fn text(name: &'static str, description: &'static str) -> Parameter {
    query(name, description, json!({ "type": "string" }))
}

pub(super) fn words(
    name: &'static str,
    description: &'static str,
    words: &'static [&'static str],
) -> Parameter {
    query(name, description, json!({ "type": "string", "enum": words }))
}

pub(super) fn limit() -> Parameter {
    let schema = json!({
        "type": "integer",
        "minimum": LIMIT.start(),
        "maximum": LIMIT.end(),
        "default": LIMIT_DEFAULT,
    });
    query("limit", "How many items the page may have.", schema)
}

pub(super) fn cursor() -> Parameter {
    text("cursor", "The `next_cursor` of the page before. Opaque; of the same list only.")
}

pub(super) fn consistency() -> Parameter {
    let description = "`stale` answers from what this node knows, without asking the leader.";
    words("consistency", description, &["linearizable", "stale"])
}

pub(super) fn lease_id() -> Parameter {
    let schema = json!({ "type": "string", "pattern": schema::HEX_ID });
    Parameter::new(Where::Path, "id", "The id of the lease.", schema)
}

pub(super) fn idempotency_key() -> Parameter {
    let description = "The same as `request_id` in the body. If both are there, they agree.";
    let schema = json!({
        "type": "string",
        "minLength": 1,
        "maxLength": REQUEST_ID_MAX,
        "pattern": schema::NO_CONTROL,
    });
    Parameter::new(Where::Header, "Idempotency-Key", description, schema)
}

/// Of every route.
pub(super) fn timeout() -> Parameter {
    let description =
        "For how long the caller is still prepared to wait; work whose time is over is not begun.";
    let schema = json!({ "type": "integer", "minimum": 1, "maximum": crate::ask::TIMEOUT_MS_MAX });
    Parameter::new(Where::Header, crate::ask::TIMEOUT, description, schema)
}
