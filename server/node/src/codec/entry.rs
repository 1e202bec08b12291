//! Log entries.
//!
//! Layout: version byte, CRC-32 of all that follows (little endian), the highest version of the
//! commands inside (two bytes, little endian), postcard. redb checks its pages only when it repairs
//! a file, so a flipped bit in the log would otherwise be applied.
//!
//! The version of the commands stands before them, so that a node that does not know it can say so:
//! to its postcard they would only be malformed, or worse, something else.

use super::command::{StoredCommand, command_in, command_out};
use super::raft::{StoredLogId, StoredMembers, log_id_in, log_id_out, members_in, members_out};
use super::{DecodeError, Format, read_bare, versioned, write_bare};
use crate::types::{Batch, Entry, LogId, Payload};
use leasehold_core::Command;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

pub(super) const ENTRY: Format = Format { what: "log entry", version: 1 };

const CRC_BYTES: usize = 4;
const NEEDS_BYTES: usize = 2;

/// What is known of an entry without understanding its commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peeked {
    pub(crate) log_id: LogId,
    /// The version of commands that a node must know to apply it.
    pub(crate) needs: u16,
}

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
    out.extend_from_slice(&needs(entry).to_le_bytes());
    write_bare(&entry_out(entry), out);
    let crc = crc32fast::hash(&out[crc_at + CRC_BYTES..]);
    out[crc_at..crc_at + CRC_BYTES].copy_from_slice(&crc.to_le_bytes());
}

fn needs(entry: &Entry) -> u16 {
    let Payload::Normal(batch) = &entry.payload else { return Command::FIRST };
    batch.commands.iter().map(Command::version).fold(Command::FIRST, u16::max)
}

/// Reads one entry of a version that was found to be known.
pub(crate) fn decode_entry(bytes: &[u8]) -> Result<Entry, DecodeError> {
    let (_, body) = opened(bytes)?;
    entry_in(read_bare(ENTRY, body)?)
}

/// Reads one entry if this node can apply it.
pub(crate) fn decode_known_entry(bytes: &[u8], knows: u16) -> Result<Entry, DecodeError> {
    let (needs, body) = opened(bytes)?;
    super::known(ENTRY, needs, knows)?;
    entry_in(read_bare(ENTRY, body)?)
}

/// Checks the checksum and reads no more than what every version has.
pub(crate) fn peek_entry(bytes: &[u8]) -> Result<Peeked, DecodeError> {
    let (needs, body) = opened(bytes)?;
    let (id, _) = postcard::take_from_bytes(body)
        .map_err(|cause| DecodeError::Malformed { what: ENTRY.what, cause })?;
    Ok(Peeked { log_id: log_id_in(id), needs })
}

/// Checks version and checksum, and answers what they protect.
fn opened(bytes: &[u8]) -> Result<(u16, &[u8]), DecodeError> {
    let what = ENTRY.what;
    let short = DecodeError::Checksum { what };
    let Some((crc, body)) = versioned(ENTRY, bytes)?.split_first_chunk::<CRC_BYTES>() else {
        return Err(short);
    };
    if crc32fast::hash(body) != u32::from_le_bytes(*crc) {
        return Err(short);
    }
    let (needs, body) = body.split_first_chunk::<NEEDS_BYTES>().ok_or(short)?;
    Ok((u16::from_le_bytes(*needs), body))
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
