//! A snapshot on its way: its head, the history in parcels, and the chunks.

use super::frame::{CHUNK, MESSAGE, PARCEL, Rest, SNAPSHOT, all, message};
use crate::codec::raft::{
    StoredLogId, StoredMembers, StoredVote, log_id_in, log_id_out, members_in, members_out,
    vote_in, vote_out,
};
use crate::codec::{DecodeError, Format, known};
use crate::history::Parcel;
use crate::state::Totals;
use crate::types::{SnapshotMeta, StoredMembership, Vote};
use serde::{Deserialize, Serialize};

/// What a snapshot will be once all of its chunks are there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SnapshotAsk {
    pub(crate) vote: Vote,
    pub(crate) meta: SnapshotMeta,
    pub(crate) totals: Totals,
}

#[derive(Serialize, Deserialize)]
struct SentSnapshot {
    vote: StoredVote,
    last: Option<StoredLogId>,
    members_at: Option<StoredLogId>,
    members: StoredMembers,
    chunks: u32,
    rows: u64,
    bytes: u64,
    digest: [u8; 16],
    level: u16,
}

/// Rows of a history: the bytes of each, and the number of a change where it has one.
#[derive(Serialize, Deserialize)]
struct SentParcel {
    dropped_ms: u64,
    before_ms: u64,
    last: bool,
    records: Vec<u32>,
    audits: Vec<(u64, u32)>,
    changes: Vec<(u64, u32)>,
}

pub(crate) fn encode_snapshot(ask: &SnapshotAsk) -> Vec<u8> {
    let sent = SentSnapshot {
        vote: vote_out(&ask.vote),
        last: ask.meta.last_log_id.map(log_id_out),
        members_at: ask.meta.last_membership.log_id().map(log_id_out),
        members: members_out(ask.meta.last_membership.membership()),
        chunks: ask.totals.chunks,
        rows: ask.totals.rows,
        bytes: ask.totals.bytes,
        digest: ask.totals.digest.to_be_bytes(),
        level: ask.totals.level,
    };
    message(SNAPSHOT, &sent, &[])
}

pub(crate) fn encode_parcel(parcel: &Parcel) -> Vec<u8> {
    let mut rows = Vec::new();
    let mut add = |row: &[u8]| {
        rows.extend_from_slice(row);
        u32::try_from(row.len()).unwrap_or(u32::MAX)
    };
    let sent = SentParcel {
        dropped_ms: parcel.dropped_ms,
        before_ms: parcel.before_ms,
        last: parcel.last,
        records: parcel.records.iter().map(|row| add(row)).collect(),
        audits: parcel.audits.iter().map(|(number, row)| (*number, add(row))).collect(),
        changes: parcel.changes.iter().map(|(number, row)| (*number, add(row))).collect(),
    };
    message(PARCEL, &sent, &rows)
}

pub(crate) fn encode_chunk(chunk: &[u8]) -> Vec<u8> {
    message(CHUNK, &(), chunk)
}

pub(super) fn snapshot_in(bytes: &[u8], knows: u16) -> Result<SnapshotAsk, DecodeError> {
    const SNAPSHOT: Format = Format { what: "snapshot", version: MESSAGE.version };
    let sent: SentSnapshot = all(bytes)?;
    known(SNAPSHOT, sent.level, knows)?;
    let members = members_in(sent.members)?;
    Ok(SnapshotAsk {
        vote: vote_in(sent.vote),
        meta: SnapshotMeta {
            last_log_id: sent.last.map(log_id_in),
            last_membership: StoredMembership::new(sent.members_at.map(log_id_in), members),
        },
        totals: Totals {
            chunks: sent.chunks,
            rows: sent.rows,
            bytes: sent.bytes,
            digest: u128::from_be_bytes(sent.digest),
            level: sent.level,
        },
    })
}

pub(super) fn parcel_in(bytes: &[u8]) -> Result<Parcel, DecodeError> {
    let (head, mut rest): (SentParcel, _) = Rest::after(bytes)?;
    let mut parcel = Parcel {
        dropped_ms: head.dropped_ms,
        before_ms: head.before_ms,
        last: head.last,
        ..Parcel::default()
    };
    for length in head.records {
        parcel.records.push(rest.take(length)?.to_vec());
    }
    for (number, length) in head.audits {
        parcel.audits.push((number, rest.take(length)?.to_vec()));
    }
    for (number, length) in head.changes {
        parcel.changes.push((number, rest.take(length)?.to_vec()));
    }
    rest.end()?;
    Ok(parcel)
}
