//! Changes as watchers are told of them, many in one value: their numbers follow each other, so
//! only the first one's is stored, as the key.

use super::administer::{StoredResult, result_in, result_out};
use super::words::{
    StoredEnded, StoredLeft, StoredMode, client_in, ended_in, ended_out, left_in, left_out,
    mode_in, mode_out, principal_in, resource_in,
};
use super::{DecodeError, Format, read, write};
use crate::change::{Change, ChangeKind, Named};
use leasehold_core::Token;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

const CHANGES: Format = Format { what: "block of changes", version: 1 };

#[derive(Serialize, Deserialize)]
struct StoredChange<'a> {
    at_ms: u64,
    #[serde(borrow)]
    kind: StoredKind<'a>,
}

#[derive(Serialize, Deserialize)]
struct StoredNamed<'a> {
    resource: &'a str,
    client: &'a str,
    token: u64,
    mode: StoredMode,
}

#[derive(Serialize, Deserialize)]
enum StoredKind<'a> {
    LeaseOpened {
        client: &'a str,
        ttl_ms: u64,
    },
    LeaseChanged {
        ttl_ms: u64,
    },
    LeaseEnding,
    LeaseEnded {
        client: &'a str,
        how: StoredEnded,
    },
    Queued {
        resource: &'a str,
        client: &'a str,
        mode: StoredMode,
        priority: u8,
    },
    Left {
        resource: &'a str,
        client: &'a str,
        how: StoredLeft,
    },
    Granted {
        #[serde(borrow)]
        grant: StoredNamed<'a>,
        ttl_ms: u64,
    },
    Ended {
        #[serde(borrow)]
        grant: StoredNamed<'a>,
        granted_at_ms: u64,
        how: StoredEnded,
    },
    Draining {
        #[serde(borrow)]
        grant: StoredNamed<'a>,
    },
    Audited {
        by: &'a str,
        action: &'a str,
        resource: Option<&'a str>,
        domain: Option<&'a str>,
        token: Option<u64>,
        reason: &'a str,
        result: StoredResult,
    },
    LimitsChanged,
    DomainChanged {
        domain: &'a str,
    },
    HistoryTrimmed {
        before_ms: u64,
    },
}

/// Appends changes whose numbers follow each other.
pub(crate) fn encode_changes(changes: &[Change], out: &mut Vec<u8>) {
    let stored: Vec<_> = changes.iter().map(change_out).collect();
    write(CHANGES, &stored, out);
}

/// Reads changes of which the first has the number `first`.
pub(crate) fn decode_changes(first: u64, bytes: &[u8]) -> Result<Vec<Change>, DecodeError> {
    let stored: Vec<StoredChange<'_>> = read(CHANGES, bytes)?;
    let numbered = stored.into_iter().zip((0..).map(|nth| first.saturating_add(nth)));
    numbered.map(|(stored, revision)| change_in(revision, stored)).collect()
}

fn change_out(change: &Change) -> StoredChange<'_> {
    StoredChange { at_ms: change.at_ms, kind: kind_out(&change.kind) }
}

fn named_out(grant: &Named) -> StoredNamed<'_> {
    StoredNamed {
        resource: grant.resource.as_str(),
        client: grant.client.as_str(),
        token: grant.token.0,
        mode: mode_out(grant.mode),
    }
}

fn kind_out(kind: &ChangeKind) -> StoredKind<'_> {
    match kind {
        ChangeKind::LeaseOpened { client, ttl_ms } => {
            StoredKind::LeaseOpened { client: client.as_str(), ttl_ms: *ttl_ms }
        }
        ChangeKind::LeaseChanged { ttl_ms } => StoredKind::LeaseChanged { ttl_ms: *ttl_ms },
        ChangeKind::LeaseEnding => StoredKind::LeaseEnding,
        ChangeKind::LeaseEnded { client, how } => {
            StoredKind::LeaseEnded { client: client.as_str(), how: ended_out(*how) }
        }
        ChangeKind::Queued { resource, client, mode, priority } => StoredKind::Queued {
            resource: resource.as_str(),
            client: client.as_str(),
            mode: mode_out(*mode),
            priority: *priority,
        },
        ChangeKind::Left { resource, client, how } => StoredKind::Left {
            resource: resource.as_str(),
            client: client.as_str(),
            how: left_out(*how),
        },
        ChangeKind::Granted { grant, ttl_ms } => {
            StoredKind::Granted { grant: named_out(grant), ttl_ms: *ttl_ms }
        }
        ChangeKind::Ended { grant, granted_at_ms, how } => StoredKind::Ended {
            grant: named_out(grant),
            granted_at_ms: *granted_at_ms,
            how: ended_out(*how),
        },
        ChangeKind::Draining { grant } => StoredKind::Draining { grant: named_out(grant) },
        ChangeKind::Audited { by, action, resource, domain, token, reason, result } => {
            StoredKind::Audited {
                by: by.as_str(),
                action,
                resource: resource.as_ref().map(leasehold_core::ResourceName::as_str),
                domain: domain.as_deref(),
                token: token.map(|token| token.0),
                reason,
                result: result_out(*result),
            }
        }
        ChangeKind::LimitsChanged => StoredKind::LimitsChanged,
        ChangeKind::DomainChanged { domain } => StoredKind::DomainChanged { domain },
        ChangeKind::HistoryTrimmed { before_ms } => {
            StoredKind::HistoryTrimmed { before_ms: *before_ms }
        }
    }
}

fn change_in(revision: u64, stored: StoredChange<'_>) -> Result<Change, DecodeError> {
    Ok(Change { revision, at_ms: stored.at_ms, kind: kind_in(stored.kind)? })
}

fn named_in(stored: &StoredNamed<'_>) -> Result<Named, DecodeError> {
    Ok(Named {
        resource: resource_in(stored.resource)?,
        client: client_in(stored.client)?,
        token: Token(stored.token),
        mode: mode_in(stored.mode),
    })
}

fn kind_in(stored: StoredKind<'_>) -> Result<ChangeKind, DecodeError> {
    Ok(match stored {
        StoredKind::LeaseOpened { client, ttl_ms } => {
            ChangeKind::LeaseOpened { client: client_in(client)?, ttl_ms }
        }
        StoredKind::LeaseChanged { ttl_ms } => ChangeKind::LeaseChanged { ttl_ms },
        StoredKind::LeaseEnding => ChangeKind::LeaseEnding,
        StoredKind::LeaseEnded { client, how } => {
            ChangeKind::LeaseEnded { client: client_in(client)?, how: ended_in(how) }
        }
        StoredKind::Queued { resource, client, mode, priority } => ChangeKind::Queued {
            resource: resource_in(resource)?,
            client: client_in(client)?,
            mode: mode_in(mode),
            priority,
        },
        StoredKind::Left { resource, client, how } => ChangeKind::Left {
            resource: resource_in(resource)?,
            client: client_in(client)?,
            how: left_in(how),
        },
        StoredKind::Granted { grant, ttl_ms } => {
            ChangeKind::Granted { grant: named_in(&grant)?, ttl_ms }
        }
        StoredKind::Ended { grant, granted_at_ms, how } => {
            ChangeKind::Ended { grant: named_in(&grant)?, granted_at_ms, how: ended_in(how) }
        }
        StoredKind::Draining { grant } => ChangeKind::Draining { grant: named_in(&grant)? },
        StoredKind::Audited { by, action, resource, domain, token, reason, result } => {
            ChangeKind::Audited {
                by: principal_in(by)?,
                action: Arc::from(action),
                resource: resource.map(resource_in).transpose()?,
                domain: domain.map(Arc::from),
                token: token.map(Token),
                reason: Arc::from(reason),
                result: result_in(result),
            }
        }
        StoredKind::LimitsChanged => ChangeKind::LimitsChanged,
        StoredKind::DomainChanged { domain } => {
            ChangeKind::DomainChanged { domain: Arc::from(domain) }
        }
        StoredKind::HistoryTrimmed { before_ms } => ChangeKind::HistoryTrimmed { before_ms },
    })
}
