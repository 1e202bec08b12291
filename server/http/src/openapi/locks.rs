//! Locks: the verbs, and what readers ask.

use super::entry::{Entry, Revision, Tag};
use super::parameters::{
    client_filter, client_id, consistency, cursor, idempotency_key, limit, resource, text, words,
};
use crate::locks::{LIST_PARAMETERS, ONE_PARAMETERS};
use crate::why;
use leasehold_wire::schema::{self, REQUEST_ID_MAX};
use leasehold_wire::{self as wire, Code};

pub(super) fn entries() -> Vec<Entry> {
    vec![
        acquire(),
        renew(),
        release(),
        cancel_wait(),
        batch(),
        one(),
        reason(),
        list(),
        fence_check(),
    ]
}

fn acquire() -> Entry {
    Entry::new(
        "acquire-lock",
        Tag::Locks,
        "Take a lock",
        "Tries once, or stands in line for up to `wait_ms`. Either `ttl_ms` opens a lease for this \
         grant alone, or `lease_id` attaches it to one that is open. With a `request_id` the \
         request can be repeated: it gets the same grant, never a second one.",
    )
    .with(idempotency_key())
    .takes::<wire::Acquire<'static>>()
    .gives::<wire::Grant<'static>>()
    .revised(Revision::Always)
    .header(
        "Fencing-Token",
        false,
        "The token, for storage, where the grant is exclusive. A shared grant fences nothing.",
    )
    .fails([
        (403, Code::PolicyDenied),
        (404, Code::NotFound),
        (409, Code::Held),
        (409, Code::WaitTimeout),
        (409, Code::WouldDeadlock),
        (409, Code::Conflict),
        (410, Code::GrantEnded),
        (410, Code::LeaseEnded),
        (422, Code::RequestIdReused),
        (429, Code::Shed),
    ])
}

fn renew() -> Entry {
    Entry::new(
        "renew-lock",
        Tag::Locks,
        "Keep a lock",
        "Moves the end of the grant's lease to a full time to live from now.",
    )
    .takes::<wire::Renew<'static>>()
    .gives::<wire::Renewed<'static>>()
    .revised(Revision::Always)
    .fails([
        (403, Code::PolicyDenied),
        (409, Code::NotHolder),
        (409, Code::Conflict),
        (410, Code::GrantEnded),
    ])
}

fn release() -> Entry {
    Entry::new(
        "release-lock",
        Tag::Locks,
        "Give a lock back",
        "May be repeated: whoever gave it back before is told so.",
    )
    .takes::<wire::Release<'static>>()
    .gives::<wire::Released>()
    .revised(Revision::Always)
    .fails([(409, Code::NotHolder), (410, Code::GrantEnded)])
}

fn cancel_wait() -> Entry {
    Entry::new(
        "cancel-wait",
        Tag::Locks,
        "Leave the line",
        "Ends the wait of a request that was sent with a `request_id`, and gives up its place.",
    )
    .takes::<wire::CancelWait<'static>>()
    .gives::<wire::WaitCancelled>()
    .revised(Revision::Always)
    .fails([(404, Code::NotFound), (409, Code::Conflict), (410, Code::GrantEnded)])
}

fn batch() -> Entry {
    Entry::new(
        "batch",
        Tag::Locks,
        "Do several things in one request",
        "Operations in order, without waits, each with an outcome of its own. A batch with a \
         mistake in it is not begun.",
    )
    .takes::<wire::Batch<'static>>()
    .gives::<wire::BatchResults<'static>>()
    .revised(Revision::Always)
}

fn one() -> Entry {
    Entry::new("lock", Tag::Locks, "Look at one lock", "Who holds it and who stands in line.")
        .query(ONE_PARAMETERS, [resource("Which lock.").required(), consistency()])
        .gives::<wire::Lock<'static>>()
        .revised(Revision::UnlessStale)
}

fn list() -> Entry {
    Entry::new("locks", Tag::Locks, "List locks", "Those that are held or waited for, by name.")
        .query(
            LIST_PARAMETERS,
            [
                text("prefix", "Only those whose name starts so."),
                text("domain", "Only those of this domain: what stands before the first `/`."),
                client_filter(),
                words(
                    "state",
                    "`held`: somebody holds it; `contended`: somebody waits for it.",
                    &["held", "contended"],
                ),
                limit(),
                cursor(),
                consistency(),
            ],
        )
        .gives::<wire::Page<'static, wire::LockSummary<'static>>>()
        .revised(Revision::UnlessStale)
}

fn fence_check() -> Entry {
    Entry::new(
        "fence-check",
        Tag::Locks,
        "Ask whether a token is current",
        "For storage that cannot remember the largest token that it saw. Weaker than a check \
         inside the write itself: between the answer and the write the grant may end.",
    )
    .takes::<wire::FenceCheck<'static>>()
    .gives::<wire::FenceChecked>()
    .revised(Revision::Always)
}

fn reason() -> Entry {
    Entry::new(
        "why",
        Tag::Locks,
        "Ask why a client waits",
        "Where a client stands with a lock, and what is in its way. Names the client, the \
         request, or both.",
    )
    .query(
        why::PARAMETERS,
        [
            resource("Which lock.").required(),
            client_id("Which client."),
            super::parameters::query(
                "request_id",
                "Which request.",
                schema::name(REQUEST_ID_MAX).to_value(),
            ),
        ],
    )
    .gives::<wire::Why<'static>>()
    .revised(Revision::Always)
}
