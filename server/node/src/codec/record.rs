//! History records: grants that ended.

use super::row_parts::{StoredGrant, grant_in, grant_out};
use super::words::{StoredEnded, ended_in, ended_out};
use super::{DecodeError, Format, read, write};
use leasehold_core::outcome::GrantRecord;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

pub(super) const RECORD: Format = Format { what: "history record", version: 1 };

#[derive(Serialize, Deserialize)]
struct StoredRecord<'a> {
    #[serde(borrow)]
    grant: StoredGrant<'a>,
    how: StoredEnded,
    ended_at_ms: u64,
}

/// Appends the record to `out`.
pub(crate) fn encode_record(record: &GrantRecord, out: &mut Vec<u8>) {
    let stored = StoredRecord {
        grant: grant_out(&record.grant),
        how: ended_out(record.how),
        ended_at_ms: record.ended_at_ms,
    };
    write(RECORD, &stored, out);
}

pub(crate) fn decode_record(bytes: &[u8]) -> Result<GrantRecord, DecodeError> {
    let stored: StoredRecord<'_> = read(RECORD, bytes)?;
    Ok(GrantRecord {
        grant: Arc::new(grant_in(stored.grant)?),
        how: ended_in(stored.how),
        ended_at_ms: stored.ended_at_ms,
    })
}
