//! Leases that can hold many grants.

use super::entry::{Entry, Revision, Tag};
use super::parameters::{client_filter, client_id, consistency, cursor, lease_id, limit, reason};
use crate::leases::{END_PARAMETERS, LIST_PARAMETERS};
use leasehold_wire::{self as wire, Code};

pub(super) fn entries() -> Vec<Entry> {
    vec![open(), keep_alive(), keep_alive_many(), one(), list(), end()]
}

fn open() -> Entry {
    Entry::new(
        "open-lease",
        Tag::Leases,
        "Open a lease",
        "Acquires can name it, and then one heartbeat keeps all their grants.",
    )
    .takes::<wire::OpenLease<'static>>()
    .gives::<wire::LeaseOpened<'static>>()
    .revised(Revision::Always)
    .fails([(429, Code::Shed)])
}

fn keep_alive() -> Entry {
    Entry::new("keep-alive", Tag::Leases, "Keep a lease", "The body may be left out.")
        .with(lease_id())
        .may_take::<wire::KeepAlive<'static>>()
        .gives::<wire::KeptAlive<'static>>()
        .revised(Revision::Always)
        .fails([(404, Code::NotFound), (410, Code::LeaseEnded)])
}

fn keep_alive_many() -> Entry {
    Entry::new(
        "keep-alive-many",
        Tag::Leases,
        "Keep many leases",
        "Each has an outcome of its own, in the order of the request.",
    )
    .takes::<wire::KeepAliveMany<'static>>()
    .gives::<wire::KeptAliveMany<'static>>()
    .revised(Revision::Always)
}

fn one() -> Entry {
    Entry::new("lease", Tag::Leases, "Look at a lease", "With its grants and what it waits for.")
        .with(lease_id())
        .gives::<wire::Lease<'static>>()
        .revised(Revision::Always)
        .fails([(404, Code::NotFound), (410, Code::LeaseEnded)])
}

fn list() -> Entry {
    Entry::new("leases", Tag::Leases, "List leases", "Everybody's; for operators.")
        .query(LIST_PARAMETERS, [client_filter(), limit(), cursor(), consistency()])
        .gives::<wire::Page<'static, wire::Lease<'static>>>()
        .revised(Revision::UnlessStale)
}

fn end() -> Entry {
    Entry::new(
        "end-lease",
        Tag::Leases,
        "End a lease",
        "Gives back all its grants and all its places in lines.",
    )
    .with(lease_id())
    .query(
        END_PARAMETERS,
        [
            client_id("The label of the client; compared if it is given."),
            reason("Ends a lease of somebody else, for operators; goes into the audit."),
        ],
    )
    .gives::<wire::LeaseEnded>()
    .revised(Revision::Always)
    .fails([(404, Code::NotFound), (410, Code::LeaseEnded)])
}
