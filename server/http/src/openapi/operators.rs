//! What operators do.

use super::entry::{Entry, Parameter, Revision, Shape, Tag, Where};
use super::parameters::{client_filter, consistency, cursor, limit, query, reason};
use crate::{backup, clients, domains};
use leasehold_wire::schema::{self, Schemas};
use leasehold_wire::{self as wire, Code};
use serde_json::{Value, json};

pub(super) fn entries() -> Vec<Entry> {
    vec![list_clients(), settings(), set_domain(), reset_domain(), force_release(), backup()]
}

fn domain_name() -> Parameter {
    // A domain is the first part of a resource's name, so it has no slash.
    let schema = json!({
        "type": "string",
        "minLength": 1,
        "maxLength": schema::RESOURCE_MAX,
        "pattern": r"^[^/\u0000-\u001f\u007f-\u009f]*$",
    });
    query("domain", "Which domain.", schema)
}

fn one_or_all(schemas: &mut Schemas) -> Value {
    let one = schemas.answer::<wire::Domain<'static>>();
    let all = schemas.answer::<wire::Page<'static, wire::Domain<'static>>>();
    json!({ "anyOf": [one, all] })
}

fn settings() -> Entry {
    let shape: Shape = one_or_all;
    Entry::new(
        "domains",
        Tag::Operators,
        "Settings of domains",
        "Of one domain if it is named; otherwise a page of all that have any.",
    )
    .query(domains::PARAMETERS, [domain_name(), limit(), cursor()])
    .gives_as("application/json", shape)
    .revised(Revision::Always)
    .header("ETag", false, "The version of the one domain.")
    .fails([(404, Code::NotFound)])
}

fn if_match() -> Parameter {
    Parameter::new(
        Where::Header,
        "If-Match",
        "The `ETag` that the caller saw, or `*`. If it is another one by now, nothing is changed.",
        json!({ "type": "string" }),
    )
}

fn set_domain() -> Entry {
    let if_none_match = Parameter::new(
        Where::Header,
        "If-None-Match",
        "`*`: only if the domain has no settings yet.",
        // Not a constant: generators do not take those in headers.
        json!({ "type": "string", "pattern": r"^\*$" }),
    );
    Entry::new(
        "set-domain",
        Tag::Operators,
        "Replace the settings of a domain",
        "What is left out is as the service has it. Goes into the audit.",
    )
    .query(domains::ONE_PARAMETERS, [domain_name().required(), reason("Why, for the audit.")])
    .with(if_match())
    .with(if_none_match)
    .takes::<wire::SetDomain>()
    .gives::<wire::Domain<'static>>()
    .revised(Revision::Always)
    .header("ETag", true, "The new version.")
    .fails([
        (404, Code::NotFound),
        (412, Code::PreconditionFailed),
        (428, Code::PreconditionRequired),
        (429, Code::Shed),
    ])
}

fn reset_domain() -> Entry {
    Entry::new(
        "reset-domain",
        Tag::Operators,
        "Drop the settings of a domain",
        "From then on it is as the service has it. Goes into the audit.",
    )
    .query(domains::ONE_PARAMETERS, [domain_name().required(), reason("Why, for the audit.")])
    .with(if_match())
    .gives::<wire::DomainReset<'static>>()
    .revised(Revision::Always)
    .fails([
        (404, Code::NotFound),
        (412, Code::PreconditionFailed),
        (428, Code::PreconditionRequired),
    ])
}

fn force_release() -> Entry {
    Entry::new(
        "force-release",
        Tag::Operators,
        "End a grant against its holder's will",
        "`drain` lets it run to its deadline, so that nobody overlaps; `now` lets the next client \
         in at once, and then only fencing stops the old holder. Goes into the audit.",
    )
    .takes::<wire::ForceRelease<'static>>()
    .gives::<wire::ForceReleased>()
    .revised(Revision::Always)
    .fails([(409, Code::NotHolder), (409, Code::Conflict), (410, Code::GrantEnded)])
}

fn list_clients() -> Entry {
    Entry::new("clients", Tag::Operators, "List clients", "Those that hold or want anything.")
        .query(clients::PARAMETERS, [client_filter(), limit(), cursor(), consistency()])
        .gives::<wire::Page<'static, wire::ClientSummary<'static>>>()
        .revised(Revision::UnlessStale)
}

fn backup() -> Entry {
    let file: Shape = |_| json!({ "type": "string", "format": "binary" });
    Entry::new(
        "backup",
        Tag::Operators,
        "A backup of everything",
        "All that was answered before this was asked for, by any node. The file has checksums and an \
         end of its own, so one that was cut off is seen as such; `leasehold restore` takes it.",
    )
    .query(backup::PARAMETERS, [])
    .gives_as("application/octet-stream", file)
    .revised(Revision::Always)
    .fails([(503, Code::Overloaded)])
}
