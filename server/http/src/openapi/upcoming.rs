//! Entries of routes that are not in the table yet. An entry moves to a file of its area on the
//! day on which its route appears; until then a test sees that it can be built.

use super::entry::{Entry, Parameter, Revision, Shape, Tag, Where};
use super::parameters::{client_filter, client_id, cursor, limit, query, resource, text};
use crate::caller::Permission;
use crate::routes::{Body, Class, Route};
use actix_web::http::Method;
use leasehold_wire::schema::{self, REQUEST_ID_MAX, Schemas};
use leasehold_wire::{self as wire, Code};
use serde_json::{Value, json};

/// The routes as they are expected, with their entries.
pub(super) fn pending() -> Vec<(Route, Entry)> {
    vec![
        (get("/v1/watch", "watch"), watch()),
        (get("/v1/grants", "grants"), grants()),
        (get("/v1/lock/why", "why"), why()),
        (get("/v1/clients", "clients"), clients()),
        (get("/v1/stats", "stats"), stats()),
        (get("/v1/attention", "attention"), attention()),
        (get("/v1/config", "config"), config()),
        (get("/v1/audit", "audit"), audit()),
        (get("/v1/domains", "domains"), domains()),
        (row(Method::PUT, "/v1/domains", "set-domain", Body::Single), set_domain()),
        (row(Method::DELETE, "/v1/domains", "reset-domain", Body::None), reset_domain()),
        (
            row(Method::POST, "/v1/lock/force-release", "force-release", Body::Single),
            force_release(),
        ),
    ]
}

fn get(path: &'static str, name: &'static str) -> Route {
    Route { class: Class::Read, ..row(Method::GET, path, name, Body::None) }
}

fn row(method: Method, path: &'static str, name: &'static str, body: Body) -> Route {
    Route {
        method,
        path,
        name,
        permission: Permission::Operate,
        class: Class::Release,
        body,
        handler: |ask| Box::pin(super::get(ask)),
    }
}

impl Entry {
    /// A shape that is found inside an answer that is not JSON.
    fn beside<T: schemars::JsonSchema>(mut self) -> Self {
        self.beside.push(Schemas::answer::<T>);
        self
    }
}

const WATCH_PARAMETERS: &[&str] = &["resource", "prefix", "domain", "from"];

fn watch() -> Entry {
    let last_event_id = Parameter::new(
        Where::Header,
        "Last-Event-ID",
        "The same as `from`: what an event source sends when it connects again.",
        json!({ "type": "string" }),
    );
    Entry::new(
        "watch",
        Tag::History,
        "Watch what happens",
        "Server-sent events, in order and without holes, of at most one of `resource`, `prefix` \
         and `domain`. `id:` is the revision, `event:` the kind, `data:` an `Event`. Where changes \
         cannot be told any more, the kind is `gap` and the data a `Gap`. A comment comes at \
         least every 15 seconds.",
    )
    .query(
        WATCH_PARAMETERS,
        [
            resource("Only this one."),
            text("prefix", "Only resources whose name starts so."),
            text("domain", "Only resources of this domain."),
            text("from", "The revision after which to begin; left out: with what comes next."),
        ],
    )
    .with(last_event_id)
    .gives_as("text/event-stream", |_| json!({ "type": "string" }))
    .beside::<wire::Event<'static>>()
    .beside::<wire::Gap<'static>>()
    .revised(Revision::Always)
    .fails([(429, Code::Shed)])
}

const GRANTS_PARAMETERS: &[&str] = &["resource", "token", "client_id", "at", "limit", "cursor"];

fn grants() -> Entry {
    let exact = json!({ "type": "integer", "minimum": 1, "maximum": schema::EXACT_MAX });
    Entry::new(
        "grants",
        Tag::History,
        "List grants",
        "Those that are live or remembered, newest first. With a `token` and `at`, each says \
         whether it was valid at that time.",
    )
    .query(
        GRANTS_PARAMETERS,
        [
            resource("Only those of this resource."),
            query("token", "Only the one with this token.", exact),
            client_id("Only those of this client; not beside a token."),
            query(
                "at",
                "Only those that were valid at this time, which is past.",
                json!({ "type": "string", "format": "date-time" }),
            ),
            limit(),
            cursor(),
        ],
    )
    .gives::<wire::Page<'static, wire::GrantRecord<'static>>>()
    .revised(Revision::Always)
    .fails([(404, Code::NotFound)])
}

const WHY_PARAMETERS: &[&str] = &["resource", "client_id", "request_id"];

fn why() -> Entry {
    Entry::new(
        "why",
        Tag::Locks,
        "Ask why a client waits",
        "Where a client stands with a lock, and what is in its way. Names the client, the \
         request, or both.",
    )
    .query(
        WHY_PARAMETERS,
        [
            resource("Which lock.").required(),
            client_id("Which client."),
            query("request_id", "Which request.", schema::name(REQUEST_ID_MAX).to_value()),
        ],
    )
    .gives::<wire::Why<'static>>()
    .revised(Revision::Always)
}

const CLIENTS_PARAMETERS: &[&str] = &["limit", "cursor", "client_id"];

fn clients() -> Entry {
    Entry::new("clients", Tag::Operators, "List clients", "Those that hold or want anything.")
        .query(CLIENTS_PARAMETERS, [limit(), cursor(), client_filter()])
        .gives::<wire::Page<'static, wire::ClientSummary<'static>>>()
        .revised(Revision::Always)
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

const AUDIT_PARAMETERS: &[&str] = &["limit", "cursor"];

fn audit() -> Entry {
    Entry::new("audit", Tag::Operators, "Who did what", "Newest first.")
        .query(AUDIT_PARAMETERS, [limit(), cursor()])
        .gives::<wire::Page<'static, wire::AuditRecord<'static>>>()
        .revised(Revision::Always)
}

const DOMAINS_PARAMETERS: &[&str] = &["domain", "limit", "cursor"];
const DOMAIN_PARAMETERS: &[&str] = &["domain", "reason"];

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

fn domains() -> Entry {
    let shape: Shape = one_or_all;
    Entry::new(
        "domains",
        Tag::Operators,
        "Settings of domains",
        "Of one domain if it is named; otherwise a page of all that have any.",
    )
    .query(DOMAINS_PARAMETERS, [domain_name(), limit(), cursor()])
    .gives_as("application/json", shape)
    .revised(Revision::Always)
    .fails([(404, Code::NotFound)])
    .header("ETag", false, "The version of the one domain.")
}

fn reason() -> Parameter {
    query("reason", "Why, for the audit.", schema::name(schema::REASON_MAX).to_value())
}

fn domain_reset(_: &mut Schemas) -> Value {
    json!({
        "type": "object",
        "properties": { "domain": { "type": "string" }, "reset": { "type": "boolean" } },
        "required": ["domain", "reset"],
    })
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
    .query(DOMAIN_PARAMETERS, [domain_name().required(), reason()])
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
    .query(DOMAIN_PARAMETERS, [domain_name().required(), reason()])
    .with(if_match())
    .gives_as("application/json", domain_reset)
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
