//! Rows of a snapshot. The version stands once, before the first row of a blob.

use super::row_parts::{
    StoredDomain, StoredGrant, StoredLimits, domain_in, domain_out, grant_in, grant_out, limits_in,
    limits_out,
};
use super::ticket::{StoredTicket, ticket_in, ticket_out};
use super::words::{
    ClusterBytes, LeaseBytes, StoredEnded, StoredMetadata, StoredOwner, cluster_in, cluster_out,
    ended_in, ended_out, lease_in, lease_out, metadata_in, metadata_out, owner_in, owner_out,
    resource_in,
};
use super::{DecodeError, Format, read_bare, write_bare};
use leasehold_core::row::{EndedRow, EndedWhat, Got, Head, LeaseRow, LiveRequest, LostGrant, Row};
use leasehold_core::{RequestId, TicketId, Token};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

pub(crate) const ROW: Format = Format { what: "snapshot row", version: 1 };

#[derive(Serialize, Deserialize)]
enum StoredRow<'a> {
    Head {
        cluster: Option<ClusterBytes>,
        revision: u64,
        last_token: u64,
        last_ticket: u64,
        last_ended: u64,
        at_ms: u64,
        level: u16,
        hold_ms: u64,
    },
    Limits(StoredLimits),
    Domain {
        domain: &'a str,
        settings: StoredDomain,
    },
    #[serde(borrow)]
    Lease(StoredLease<'a>),
    Grant(StoredGrant<'a>),
    Ticket(StoredTicket<'a>),
    Live {
        owner: StoredOwner<'a>,
        id: &'a str,
        fingerprint: u64,
        got: StoredGot,
    },
    Ended {
        seq: u64,
        how: StoredEnded,
        ended_at_ms: u64,
        what: StoredWhat<'a>,
    },
}

#[derive(Serialize, Deserialize)]
struct StoredLease<'a> {
    id: LeaseBytes,
    #[serde(borrow)]
    owner: StoredOwner<'a>,
    ttl_ms: u64,
    longest_ttl_ms: u64,
    single: bool,
    opened_at_ms: u64,
    #[serde(borrow)]
    metadata: Option<StoredMetadata<'a>>,
    ending: Option<StoredEnded>,
    #[serde(borrow)]
    lost: Vec<StoredLost<'a>>,
}

/// Resource, token, how, when.
type StoredLost<'a> = (&'a str, u64, StoredEnded, u64);

#[derive(Serialize, Deserialize)]
enum StoredGot {
    Ticket(u64),
    Grant(u64),
}

#[derive(Serialize, Deserialize)]
enum StoredWhat<'a> {
    Request { owner: StoredOwner<'a>, id: &'a str, fingerprint: u64, token: Option<u64> },
    Lease { id: LeaseBytes },
}

/// Appends the row, without a version byte.
pub(crate) fn encode_row(row: &Row, out: &mut Vec<u8>) {
    write_bare(&row_out(row), out);
}

pub(crate) fn decode_row(bytes: &[u8]) -> Result<Row, DecodeError> {
    row_in(read_bare(ROW, bytes)?)
}

fn row_out(row: &Row) -> StoredRow<'_> {
    match row {
        Row::Head(head) => StoredRow::Head {
            cluster: head.cluster.map(cluster_out),
            revision: head.revision,
            last_token: head.last_token,
            last_ticket: head.last_ticket,
            last_ended: head.last_ended,
            at_ms: head.at_ms,
            level: head.level,
            hold_ms: head.hold_ms,
        },
        Row::Limits(limits) => StoredRow::Limits(limits_out(limits)),
        Row::Domain { domain, settings } => {
            StoredRow::Domain { domain, settings: domain_out(*settings) }
        }
        Row::Lease(lease) => StoredRow::Lease(lease_row_out(lease)),
        Row::Grant(grant) => StoredRow::Grant(grant_out(grant)),
        Row::Ticket(ticket) => StoredRow::Ticket(ticket_out(ticket)),
        Row::Live(live) => StoredRow::Live {
            owner: owner_out(&live.owner),
            id: live.id.as_str(),
            fingerprint: live.fingerprint,
            got: match live.got {
                Got::Ticket(ticket) => StoredGot::Ticket(ticket.0),
                Got::Grant(token) => StoredGot::Grant(token.0),
            },
        },
        Row::Ended(ended) => StoredRow::Ended {
            seq: ended.seq,
            how: ended_out(ended.how),
            ended_at_ms: ended.ended_at_ms,
            what: what_out(&ended.what),
        },
    }
}

fn row_in(stored: StoredRow<'_>) -> Result<Row, DecodeError> {
    Ok(match stored {
        StoredRow::Head {
            cluster,
            revision,
            last_token,
            last_ticket,
            last_ended,
            at_ms,
            level,
            hold_ms,
        } => {
            let cluster = cluster.map(cluster_in);
            Row::Head(Head {
                cluster,
                revision,
                last_token,
                last_ticket,
                last_ended,
                at_ms,
                level,
                hold_ms,
            })
        }
        StoredRow::Limits(limits) => Row::Limits(Box::new(limits_in(&limits))),
        StoredRow::Domain { domain, settings } => {
            Row::Domain { domain: Arc::from(domain), settings: domain_in(settings) }
        }
        StoredRow::Lease(lease) => Row::Lease(lease_row_in(lease)?),
        StoredRow::Grant(grant) => Row::Grant(Arc::new(grant_in(grant)?)),
        StoredRow::Ticket(ticket) => Row::Ticket(Arc::new(ticket_in(ticket)?)),
        StoredRow::Live { owner, id, fingerprint, got } => Row::Live(LiveRequest {
            owner: Arc::new(owner_in(&owner)?),
            id: id_in(id)?,
            fingerprint,
            got: match got {
                StoredGot::Ticket(ticket) => Got::Ticket(TicketId(ticket)),
                StoredGot::Grant(token) => Got::Grant(Token(token)),
            },
        }),
        StoredRow::Ended { seq, how, ended_at_ms, what } => {
            Row::Ended(EndedRow { seq, how: ended_in(how), ended_at_ms, what: what_in(what)? })
        }
    })
}

fn lease_row_out(lease: &LeaseRow) -> StoredLease<'_> {
    StoredLease {
        id: lease_out(lease.id),
        owner: owner_out(&lease.owner),
        ttl_ms: lease.ttl_ms,
        longest_ttl_ms: lease.longest_ttl_ms,
        single: lease.single,
        opened_at_ms: lease.opened_at_ms,
        metadata: metadata_out(lease.metadata.as_ref()),
        ending: lease.ending.map(ended_out),
        lost: lease.lost.iter().map(lost_out).collect(),
    }
}

fn lease_row_in(stored: StoredLease<'_>) -> Result<LeaseRow, DecodeError> {
    Ok(LeaseRow {
        id: lease_in(stored.id),
        owner: Arc::new(owner_in(&stored.owner)?),
        ttl_ms: stored.ttl_ms,
        longest_ttl_ms: stored.longest_ttl_ms,
        single: stored.single,
        opened_at_ms: stored.opened_at_ms,
        metadata: metadata_in(stored.metadata),
        ending: stored.ending.map(ended_in),
        lost: stored.lost.into_iter().map(lost_in).collect::<Result<_, _>>()?,
    })
}

fn lost_out(lost: &LostGrant) -> StoredLost<'_> {
    (lost.resource.as_str(), lost.token.0, ended_out(lost.how), lost.ended_at_ms)
}

fn lost_in((resource, token, how, ended_at_ms): StoredLost<'_>) -> Result<LostGrant, DecodeError> {
    let (resource, how) = (resource_in(resource)?, ended_in(how));
    Ok(LostGrant { resource, token: Token(token), how, ended_at_ms })
}

fn what_out(what: &EndedWhat) -> StoredWhat<'_> {
    match what {
        EndedWhat::Request { owner, id, fingerprint, token } => StoredWhat::Request {
            owner: owner_out(owner),
            id: id.as_str(),
            fingerprint: *fingerprint,
            token: token.map(|token| token.0),
        },
        EndedWhat::Lease { id } => StoredWhat::Lease { id: lease_out(*id) },
    }
}

fn what_in(stored: StoredWhat<'_>) -> Result<EndedWhat, DecodeError> {
    Ok(match stored {
        StoredWhat::Request { owner, id, fingerprint, token } => EndedWhat::Request {
            owner: Arc::new(owner_in(&owner)?),
            id: id_in(id)?,
            fingerprint,
            token: token.map(Token),
        },
        StoredWhat::Lease { id } => EndedWhat::Lease { id: lease_in(id) },
    })
}

fn id_in(text: &str) -> Result<RequestId, DecodeError> {
    RequestId::parse(text).map_err(DecodeError::Name)
}
