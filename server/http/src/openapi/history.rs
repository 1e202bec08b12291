//! What happens, and how it was.

use super::entry::{Entry, Parameter, Revision, Tag, Where};
use super::parameters::{client_filter, cursor, limit, query, resource, text};
use crate::{audit, grants, watch};
use leasehold_wire::schema::{self, Schemas};
use leasehold_wire::{self as wire, Code};
use serde_json::json;

pub(super) fn entries() -> Vec<Entry> {
    vec![follow(), list_grants(), list_audit()]
}

impl Entry {
    /// A shape that is found inside an answer that is not JSON.
    fn beside<T: schemars::JsonSchema>(mut self) -> Self {
        self.beside.push(Schemas::answer::<T>);
        self
    }
}

fn follow() -> Entry {
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
        watch::PARAMETERS,
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
    .fails([(429, Code::Shed)])
}

fn list_grants() -> Entry {
    let exact = json!({ "type": "integer", "minimum": 1, "maximum": schema::EXACT_MAX });
    Entry::new(
        "grants",
        Tag::History,
        "List grants",
        "Those that are live, then those that have ended and are remembered, each newest first. \
         With a `token` it is that one, or a problem whose `reason` is `never_issued`, \
         `forgotten` or `other_resource`; with `at` beside it, the grant says whether it was \
         `valid` then.",
    )
    .query(
        grants::PARAMETERS,
        [
            resource("Only those of this resource."),
            query("token", "Only the one with this token.", exact),
            client_filter(),
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

fn list_audit() -> Entry {
    Entry::new("audit", Tag::Operators, "Who did what", "Newest first.")
        .query(audit::PARAMETERS, [limit(), cursor()])
        .gives::<wire::Page<'static, wire::AuditRecord<'static>>>()
        .revised(Revision::Always)
}
