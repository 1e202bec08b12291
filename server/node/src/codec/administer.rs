//! What operators did: in commands, and with its result in the audit.

use super::row_parts::{StoredLimitsOfDomain, domain_limits_in, domain_limits_out};
use super::words::{LeaseBytes, lease_in, lease_out, principal_in, resource_in};
use super::{DecodeError, Format, read, write};
use leasehold_core::command::{Action, Administer, ClusterChange, Expected, ForceWhen, Stage};
use leasehold_core::outcome::{AuditRecord, AuditResult};
use leasehold_core::{Revision, Token};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

#[derive(Serialize, Deserialize)]
pub(super) struct StoredOrder<'a> {
    by: &'a str,
    source: &'a str,
    reason: &'a str,
    #[serde(borrow)]
    action: StoredAction<'a>,
}

#[derive(Serialize, Deserialize)]
enum StoredAction<'a> {
    ForceRelease { resource: &'a str, token: u64, now: bool },
    RevokeLease { lease: LeaseBytes },
    SetDomain { domain: &'a str, limits: Option<StoredLimitsOfDomain>, expected: StoredExpected },
    ChangeCluster { change: StoredChange, refused: bool },
}

#[derive(Serialize, Deserialize, Clone, Copy)]
enum StoredChange {
    Add(u64),
    Promote(u64),
    Remove(u64),
    Transfer(Option<u64>),
}

#[derive(Serialize, Deserialize, Clone, Copy)]
enum StoredExpected {
    Any,
    Absent,
    Version(u64),
}

pub(super) fn order_out(order: &Administer) -> StoredOrder<'_> {
    StoredOrder {
        by: order.by.as_str(),
        source: &order.source,
        reason: &order.reason,
        action: action_out(&order.action),
    }
}

fn action_out(action: &Action) -> StoredAction<'_> {
    match action {
        Action::ForceRelease { resource, token, when } => StoredAction::ForceRelease {
            resource: resource.as_str(),
            token: token.0,
            now: *when == ForceWhen::Now,
        },
        Action::RevokeLease { lease } => StoredAction::RevokeLease { lease: lease_out(*lease) },
        Action::SetDomain { domain, limits, expected } => StoredAction::SetDomain {
            domain,
            limits: limits.map(domain_limits_out),
            expected: match expected {
                Expected::Any => StoredExpected::Any,
                Expected::Absent => StoredExpected::Absent,
                Expected::Version(version) => StoredExpected::Version(version.0),
            },
        },
        Action::ChangeCluster { change, stage } => StoredAction::ChangeCluster {
            change: match change {
                ClusterChange::Add { node } => StoredChange::Add(*node),
                ClusterChange::Promote { node } => StoredChange::Promote(*node),
                ClusterChange::Remove { node } => StoredChange::Remove(*node),
                ClusterChange::Transfer { node } => StoredChange::Transfer(*node),
            },
            refused: *stage == Stage::Refused,
        },
    }
}

pub(super) fn order_in(stored: StoredOrder<'_>) -> Result<Administer, DecodeError> {
    Ok(Administer {
        by: principal_in(stored.by)?,
        source: Arc::from(stored.source),
        reason: Arc::from(stored.reason),
        action: action_in(stored.action)?,
    })
}

fn action_in(stored: StoredAction<'_>) -> Result<Action, DecodeError> {
    Ok(match stored {
        StoredAction::ForceRelease { resource, token, now } => Action::ForceRelease {
            resource: resource_in(resource)?,
            token: Token(token),
            when: if now { ForceWhen::Now } else { ForceWhen::Drain },
        },
        StoredAction::RevokeLease { lease } => Action::RevokeLease { lease: lease_in(lease) },
        StoredAction::SetDomain { domain, limits, expected } => Action::SetDomain {
            domain: Arc::from(domain),
            limits: limits.map(domain_limits_in),
            expected: match expected {
                StoredExpected::Any => Expected::Any,
                StoredExpected::Absent => Expected::Absent,
                StoredExpected::Version(version) => Expected::Version(Revision(version)),
            },
        },
        StoredAction::ChangeCluster { change, refused } => Action::ChangeCluster {
            change: match change {
                StoredChange::Add(node) => ClusterChange::Add { node },
                StoredChange::Promote(node) => ClusterChange::Promote { node },
                StoredChange::Remove(node) => ClusterChange::Remove { node },
                StoredChange::Transfer(node) => ClusterChange::Transfer { node },
            },
            stage: if refused { Stage::Refused } else { Stage::Begun },
        },
    })
}

/// Version 1 of a record of the audit.
const AUDIT: Format = Format { what: "record of the audit", version: 1 };

#[derive(Serialize, Deserialize)]
struct StoredAudit<'a> {
    at_ms: u64,
    #[serde(borrow)]
    order: StoredOrder<'a>,
    result: StoredResult,
}

#[derive(Serialize, Deserialize, Clone, Copy)]
pub(super) enum StoredResult {
    Done,
    NotLive,
    NoLease,
    VersionDiffers,
    Full,
    Begun,
    Refused,
}

pub(crate) fn encode_audit(at_ms: u64, record: &AuditRecord, out: &mut Vec<u8>) {
    let stored =
        StoredAudit { at_ms, order: order_out(&record.order), result: result_out(record.result) };
    write(AUDIT, &stored, out);
}

/// When it was, and the record.
pub(crate) fn decode_audit(bytes: &[u8]) -> Result<(u64, AuditRecord), DecodeError> {
    let stored: StoredAudit<'_> = read(AUDIT, bytes)?;
    let record = AuditRecord { order: order_in(stored.order)?, result: result_in(stored.result) };
    Ok((stored.at_ms, record))
}

pub(super) fn result_out(result: AuditResult) -> StoredResult {
    match result {
        AuditResult::Done => StoredResult::Done,
        AuditResult::NotLive => StoredResult::NotLive,
        AuditResult::NoLease => StoredResult::NoLease,
        AuditResult::VersionDiffers => StoredResult::VersionDiffers,
        AuditResult::Full => StoredResult::Full,
        AuditResult::Begun => StoredResult::Begun,
        AuditResult::Refused => StoredResult::Refused,
    }
}

pub(super) fn result_in(stored: StoredResult) -> AuditResult {
    match stored {
        StoredResult::Done => AuditResult::Done,
        StoredResult::NotLive => AuditResult::NotLive,
        StoredResult::NoLease => AuditResult::NoLease,
        StoredResult::VersionDiffers => AuditResult::VersionDiffers,
        StoredResult::Full => AuditResult::Full,
        StoredResult::Begun => AuditResult::Begun,
        StoredResult::Refused => AuditResult::Refused,
    }
}
