//! Commands, as log entries carry them.

use super::DecodeError;
use super::acquire::{
    StoredAcquire, StoredGrantRef, acquire_in, acquire_out, grant_ref_in, grant_ref_out,
};
use super::administer::{StoredOrder, order_in, order_out};
use super::row_parts::{StoredLimits, limits_in, limits_out};
use super::words::{
    ClusterBytes, LeaseBytes, StoredCaller, StoredLeft, StoredMetadata, StoredOwner, caller_in,
    caller_out, cluster_in, cluster_out, lease_in, lease_out, left_in, left_out, metadata_in,
    metadata_out, owner_in, owner_out,
};
use leasehold_core::command::OpenLease;
use leasehold_core::{Command, RequestId, TicketId, Token};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
pub(super) enum StoredCommand<'a> {
    #[serde(borrow)]
    Acquire(Box<StoredAcquire<'a>>),
    Release(StoredGrantRef<'a>),
    OpenLease {
        lease: LeaseBytes,
        owner: StoredOwner<'a>,
        ttl_ms: u64,
        metadata: Option<StoredMetadata<'a>>,
    },
    Renew {
        grant: StoredGrantRef<'a>,
        ttl_ms: u64,
    },
    EndLease {
        lease: LeaseBytes,
        caller: StoredCaller<'a>,
    },
    CancelWait {
        owner: StoredOwner<'a>,
        request_id: &'a str,
    },
    Administer(StoredOrder<'a>),
    Expire {
        leases: Vec<LeaseBytes>,
        term: u64,
    },
    EndDrained {
        token: u64,
        term: u64,
    },
    PassOn {
        token: u64,
        attachment: u32,
        term: u64,
    },
    Detach {
        ticket: u64,
        attachment: u32,
        term: u64,
    },
    Leave {
        ticket: u64,
        attachment: u32,
        how: StoredLeft,
        term: u64,
    },
    Continue {
        lease: LeaseBytes,
    },
    Trim {
        ended_before_ms: u64,
        history_before_ms: u64,
    },
    SetLimits(StoredLimits),
    Found {
        cluster: ClusterBytes,
        limits: StoredLimits,
    },
    ConfirmEnded {
        lease: LeaseBytes,
        tokens: Vec<u64>,
    },
    RaiseLevel {
        to: u16,
    },
    EndHold {
        term: u64,
    },
}

pub(super) fn command_out(command: &Command) -> StoredCommand<'_> {
    match command {
        Command::Acquire(acquire) => StoredCommand::Acquire(Box::new(acquire_out(acquire))),
        Command::Release(grant) => StoredCommand::Release(grant_ref_out(grant)),
        Command::OpenLease(open) => StoredCommand::OpenLease {
            lease: lease_out(open.lease),
            owner: owner_out(&open.owner),
            ttl_ms: open.ttl_ms,
            metadata: metadata_out(open.metadata.as_ref()),
        },
        Command::Renew { grant, ttl_ms } => {
            StoredCommand::Renew { grant: grant_ref_out(grant), ttl_ms: *ttl_ms }
        }
        Command::EndLease { lease, caller } => {
            StoredCommand::EndLease { lease: lease_out(*lease), caller: caller_out(caller) }
        }
        Command::CancelWait { owner, request_id } => {
            StoredCommand::CancelWait { owner: owner_out(owner), request_id: request_id.as_str() }
        }
        Command::Administer(order) => StoredCommand::Administer(order_out(order)),
        Command::Expire { leases, term } => StoredCommand::Expire {
            leases: leases.iter().copied().map(lease_out).collect(),
            term: *term,
        },
        Command::EndDrained { token, term } => {
            StoredCommand::EndDrained { token: token.0, term: *term }
        }
        Command::PassOn { token, attachment, term } => {
            StoredCommand::PassOn { token: token.0, attachment: *attachment, term: *term }
        }
        Command::Detach { ticket, attachment, term } => {
            StoredCommand::Detach { ticket: ticket.0, attachment: *attachment, term: *term }
        }
        Command::Leave { ticket, attachment, how, term } => StoredCommand::Leave {
            ticket: ticket.0,
            attachment: *attachment,
            how: left_out(*how),
            term: *term,
        },
        Command::Continue { lease } => StoredCommand::Continue { lease: lease_out(*lease) },
        Command::Trim { ended_before_ms, history_before_ms } => StoredCommand::Trim {
            ended_before_ms: *ended_before_ms,
            history_before_ms: *history_before_ms,
        },
        Command::Found { cluster, limits } => {
            StoredCommand::Found { cluster: cluster_out(*cluster), limits: limits_out(limits) }
        }
        Command::SetLimits(limits) => StoredCommand::SetLimits(limits_out(limits)),
        Command::ConfirmEnded { lease, tokens } => StoredCommand::ConfirmEnded {
            lease: lease_out(*lease),
            tokens: tokens.iter().map(|token| token.0).collect(),
        },
        Command::RaiseLevel { to } => StoredCommand::RaiseLevel { to: *to },
        Command::EndHold { term } => StoredCommand::EndHold { term: *term },
    }
}

pub(super) fn command_in(stored: StoredCommand<'_>) -> Result<Command, DecodeError> {
    Ok(match stored {
        StoredCommand::Acquire(acquire) => Command::Acquire(Box::new(acquire_in(*acquire)?)),
        StoredCommand::Release(grant) => Command::Release(grant_ref_in(&grant)?),
        StoredCommand::OpenLease { lease, owner, ttl_ms, metadata } => {
            Command::OpenLease(OpenLease {
                lease: lease_in(lease),
                owner: owner_in(&owner)?,
                ttl_ms,
                metadata: metadata_in(metadata),
            })
        }
        StoredCommand::Renew { grant, ttl_ms } => {
            Command::Renew { grant: grant_ref_in(&grant)?, ttl_ms }
        }
        StoredCommand::EndLease { lease, caller } => {
            Command::EndLease { lease: lease_in(lease), caller: caller_in(&caller)? }
        }
        StoredCommand::CancelWait { owner, request_id } => Command::CancelWait {
            owner: owner_in(&owner)?,
            request_id: RequestId::parse(request_id).map_err(DecodeError::Name)?,
        },
        StoredCommand::Expire { leases, term } => {
            Command::Expire { leases: leases.into_iter().map(lease_in).collect(), term }
        }
        StoredCommand::EndDrained { token, term } => {
            Command::EndDrained { token: Token(token), term }
        }
        StoredCommand::PassOn { token, attachment, term } => {
            Command::PassOn { token: Token(token), attachment, term }
        }
        StoredCommand::Detach { ticket, attachment, term } => {
            Command::Detach { ticket: TicketId(ticket), attachment, term }
        }
        StoredCommand::Leave { ticket, attachment, how, term } => {
            Command::Leave { ticket: TicketId(ticket), attachment, how: left_in(how), term }
        }
        StoredCommand::Continue { lease } => Command::Continue { lease: lease_in(lease) },
        StoredCommand::Trim { ended_before_ms, history_before_ms } => {
            Command::Trim { ended_before_ms, history_before_ms }
        }
        StoredCommand::SetLimits(limits) => Command::SetLimits(Box::new(limits_in(&limits))),
        StoredCommand::Administer(order) => Command::Administer(Box::new(order_in(order)?)),
        StoredCommand::Found { cluster, limits } => {
            Command::Found { cluster: cluster_in(cluster), limits: Box::new(limits_in(&limits)) }
        }
        StoredCommand::ConfirmEnded { lease, tokens } => Command::ConfirmEnded {
            lease: lease_in(lease),
            tokens: tokens.into_iter().map(Token).collect(),
        },
        StoredCommand::RaiseLevel { to } => Command::RaiseLevel { to },
        StoredCommand::EndHold { term } => Command::EndHold { term },
    })
}
