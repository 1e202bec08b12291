//! Words that several stored formats share.

use super::DecodeError;
use leasehold_core::command::{Caller, EndedHow, LeftHow, Metadata, Mode, PolicyVerdict};
use leasehold_core::{ClientId, ClusterId, LeaseId, Owner, Principal, RequestId, ResourceName};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// 128 random bits: fixed bytes, because a variable-length integer would be longer.
pub(super) type LeaseBytes = [u8; 16];

pub(super) type ClusterBytes = [u8; 16];

pub(super) fn cluster_out(id: ClusterId) -> ClusterBytes {
    id.0.to_be_bytes()
}

pub(super) fn cluster_in(bytes: ClusterBytes) -> ClusterId {
    ClusterId(u128::from_be_bytes(bytes))
}

pub(super) fn lease_out(id: LeaseId) -> LeaseBytes {
    id.0.to_be_bytes()
}

pub(super) fn lease_in(bytes: LeaseBytes) -> LeaseId {
    LeaseId(u128::from_be_bytes(bytes))
}

pub(super) fn resource_in(text: &str) -> Result<ResourceName, DecodeError> {
    ResourceName::parse(text).map_err(DecodeError::Name)
}

pub(super) fn request_in(text: Option<&str>) -> Result<Option<RequestId>, DecodeError> {
    text.map(|text| RequestId::parse(text).map_err(DecodeError::Name)).transpose()
}

pub(super) fn principal_in(text: &str) -> Result<Principal, DecodeError> {
    Principal::parse(text).map_err(DecodeError::Name)
}

pub(super) fn client_in(text: &str) -> Result<ClientId, DecodeError> {
    ClientId::parse(text).map_err(DecodeError::Name)
}

#[derive(Serialize, Deserialize)]
pub(super) struct StoredOwner<'a> {
    principal: &'a str,
    client: &'a str,
}

pub(super) fn owner_out(owner: &Owner) -> StoredOwner<'_> {
    StoredOwner { principal: owner.principal.as_str(), client: owner.client.as_str() }
}

pub(super) fn owner_in(stored: &StoredOwner<'_>) -> Result<Owner, DecodeError> {
    Ok(Owner { principal: principal_in(stored.principal)?, client: client_in(stored.client)? })
}

#[derive(Serialize, Deserialize)]
pub(super) struct StoredCaller<'a> {
    principal: &'a str,
    #[serde(borrow)]
    client: Option<&'a str>,
}

pub(super) fn caller_out(caller: &Caller) -> StoredCaller<'_> {
    StoredCaller {
        principal: caller.principal.as_str(),
        client: caller.client.as_ref().map(ClientId::as_str),
    }
}

pub(super) fn caller_in(stored: &StoredCaller<'_>) -> Result<Caller, DecodeError> {
    Ok(Caller {
        principal: principal_in(stored.principal)?,
        client: stored.client.map(client_in).transpose()?,
    })
}

#[derive(Serialize, Deserialize, Clone, Copy)]
pub(super) enum StoredMode {
    Exclusive,
    Shared,
}

pub(super) fn mode_out(mode: Mode) -> StoredMode {
    match mode {
        Mode::Exclusive => StoredMode::Exclusive,
        Mode::Shared => StoredMode::Shared,
    }
}

pub(super) fn mode_in(stored: StoredMode) -> Mode {
    match stored {
        StoredMode::Exclusive => Mode::Exclusive,
        StoredMode::Shared => Mode::Shared,
    }
}

#[derive(Serialize, Deserialize, Clone, Copy)]
pub(super) enum StoredEnded {
    Released,
    Expired,
    Forced,
    Revoked,
    PassedOn,
    Restored,
    Cancelled,
}

pub(super) fn ended_out(how: EndedHow) -> StoredEnded {
    match how {
        EndedHow::Released => StoredEnded::Released,
        EndedHow::Expired => StoredEnded::Expired,
        EndedHow::Forced => StoredEnded::Forced,
        EndedHow::Revoked => StoredEnded::Revoked,
        EndedHow::PassedOn => StoredEnded::PassedOn,
        EndedHow::Restored => StoredEnded::Restored,
        EndedHow::Cancelled => StoredEnded::Cancelled,
    }
}

pub(super) fn ended_in(stored: StoredEnded) -> EndedHow {
    match stored {
        StoredEnded::Released => EndedHow::Released,
        StoredEnded::Expired => EndedHow::Expired,
        StoredEnded::Forced => EndedHow::Forced,
        StoredEnded::Revoked => EndedHow::Revoked,
        StoredEnded::PassedOn => EndedHow::PassedOn,
        StoredEnded::Restored => EndedHow::Restored,
        StoredEnded::Cancelled => EndedHow::Cancelled,
    }
}

#[derive(Serialize, Deserialize, Clone, Copy)]
pub(super) enum StoredLeft {
    TimedOut,
    Disconnected,
    Cancelled,
    LeaseEnded,
    Deadlock,
}

pub(super) fn left_out(how: LeftHow) -> StoredLeft {
    match how {
        LeftHow::TimedOut => StoredLeft::TimedOut,
        LeftHow::Disconnected => StoredLeft::Disconnected,
        LeftHow::Cancelled => StoredLeft::Cancelled,
        LeftHow::LeaseEnded => StoredLeft::LeaseEnded,
        LeftHow::Deadlock => StoredLeft::Deadlock,
    }
}

pub(super) fn left_in(stored: StoredLeft) -> LeftHow {
    match stored {
        StoredLeft::TimedOut => LeftHow::TimedOut,
        StoredLeft::Disconnected => LeftHow::Disconnected,
        StoredLeft::Cancelled => LeftHow::Cancelled,
        StoredLeft::LeaseEnded => LeftHow::LeaseEnded,
        StoredLeft::Deadlock => LeftHow::Deadlock,
    }
}

pub(super) type StoredMetadata<'a> = Vec<(&'a str, &'a str)>;

pub(super) fn metadata_out(metadata: Option<&Metadata>) -> Option<StoredMetadata<'_>> {
    metadata.map(|pairs| pairs.iter().map(|(key, value)| (&**key, &**value)).collect())
}

pub(super) fn metadata_in(stored: Option<StoredMetadata<'_>>) -> Option<Metadata> {
    stored.map(|pairs| {
        pairs.into_iter().map(|(key, value)| (Arc::from(key), Arc::from(value))).collect()
    })
}

/// Name, version, verdict.
pub(super) type StoredVerdicts<'a> = Vec<(&'a str, &'a str, &'a str)>;

pub(super) fn verdicts_out(verdicts: Option<&Arc<[PolicyVerdict]>>) -> Option<StoredVerdicts<'_>> {
    verdicts.map(|list| list.iter().map(|v| (&*v.name, &*v.version, &*v.verdict)).collect())
}

pub(super) fn verdicts_in(stored: Option<StoredVerdicts<'_>>) -> Option<Arc<[PolicyVerdict]>> {
    stored.map(|list| {
        let verdict = |(name, version, verdict): (&str, &str, &str)| PolicyVerdict {
            name: Arc::from(name),
            version: Arc::from(version),
            verdict: Arc::from(verdict),
        };
        list.into_iter().map(verdict).collect()
    })
}
