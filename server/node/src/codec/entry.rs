//! Log entries.
//!
//! Layout: version byte, CRC-32 of all that follows (little endian), postcard. redb checks its
//! pages only when it repairs a file, so a flipped bit in the log would otherwise be applied.

use super::command::{StoredCommand, command_in, command_out};
use super::raft::{StoredLogId, StoredMembers, log_id_in, log_id_out, members_in, members_out};
use super::{DecodeError, Format, read_bare, versioned, write_bare};
use crate::types::{Batch, Entry, LogId, Payload};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

pub(super) const ENTRY: Format = Format { what: "log entry", version: 1 };

const CRC_BYTES: usize = 4;

#[derive(Serialize, Deserialize)]
struct StoredEntry<'a> {
    log_id: StoredLogId,
    #[serde(borrow)]
    payload: StoredPayload<'a>,
}

#[derive(Serialize, Deserialize)]
enum StoredPayload<'a> {
    Blank,
    #[serde(borrow)]
    Batch(StoredBatch<'a>),
    Members(StoredMembers),
}

#[derive(Serialize, Deserialize)]
struct StoredBatch<'a> {
    proposer: u64,
    seq: u64,
    at_ms: u64,
    #[serde(borrow)]
    commands: Vec<StoredCommand<'a>>,
}

/// Appends the entry to `out`.
pub(crate) fn encode_entry(entry: &Entry, out: &mut Vec<u8>) {
    out.push(ENTRY.version);
    let crc_at = out.len();
    out.extend_from_slice(&[0; CRC_BYTES]);
    write_bare(&entry_out(entry), out);
    let crc = crc32fast::hash(&out[crc_at + CRC_BYTES..]);
    out[crc_at..crc_at + CRC_BYTES].copy_from_slice(&crc.to_le_bytes());
}

/// Reads one entry.
pub(crate) fn decode_entry(bytes: &[u8]) -> Result<Entry, DecodeError> {
    entry_in(read_bare(ENTRY, checked(bytes)?)?)
}

/// Checks the checksum and reads no more than the id.
pub(crate) fn peek_entry(bytes: &[u8]) -> Result<LogId, DecodeError> {
    let (id, _) = postcard::take_from_bytes(checked(bytes)?)
        .map_err(|cause| DecodeError::Malformed { what: ENTRY.what, cause })?;
    Ok(log_id_in(id))
}

/// Checks version and checksum, and answers what they protect.
fn checked(bytes: &[u8]) -> Result<&[u8], DecodeError> {
    let what = ENTRY.what;
    let (crc, body) = versioned(ENTRY, bytes)?
        .split_first_chunk::<CRC_BYTES>()
        .ok_or(DecodeError::Checksum { what })?;
    if crc32fast::hash(body) != u32::from_le_bytes(*crc) {
        return Err(DecodeError::Checksum { what });
    }
    Ok(body)
}

fn entry_out(entry: &Entry) -> StoredEntry<'_> {
    let payload = match &entry.payload {
        Payload::Blank => StoredPayload::Blank,
        Payload::Normal(batch) => StoredPayload::Batch(StoredBatch {
            proposer: batch.proposer,
            seq: batch.seq,
            at_ms: batch.at_ms,
            commands: batch.commands.iter().map(command_out).collect(),
        }),
        Payload::Membership(members) => StoredPayload::Members(members_out(members)),
    };
    StoredEntry { log_id: log_id_out(entry.log_id), payload }
}

fn entry_in(stored: StoredEntry<'_>) -> Result<Entry, DecodeError> {
    let payload = match stored.payload {
        StoredPayload::Blank => Payload::Blank,
        StoredPayload::Batch(batch) => Payload::Normal(Arc::new(Batch {
            proposer: batch.proposer,
            seq: batch.seq,
            at_ms: batch.at_ms,
            commands: batch.commands.into_iter().map(command_in).collect::<Result<_, _>>()?,
        })),
        StoredPayload::Members(members) => Payload::Membership(members_in(members)?),
    };
    Ok(Entry { log_id: log_id_in(stored.log_id), payload })
}
