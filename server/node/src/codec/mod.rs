//! Stored formats: a leading version byte, then postcard of structs that mirror the meaning.
//!
//! The mirrored structs exist so that nothing on disk changes because somebody renames a field in
//! `core` or upgrades openraft. postcard writes neither names nor tags beyond the position of an
//! enum's variant, so fields keep their order and variants are only ever appended.
//!
//! | file | holds |
//! | --- | --- |
//! | `words` | what several formats share: owners, modes, verdicts |
//! | `command`, `acquire`, `administer` | commands; records of the audit |
//! | `entry` | log entries |
//! | `row`, `row_parts`, `ticket` | rows of a snapshot |
//! | `peer`, `carried` | messages between peers; requests on their way to the leader |
//! | `status` | how a node is, as its peers are told |
//! | `backup` | the parts of a backup |
//! | `record`, `change` | history records; changes that watchers are told of |
//! | `raft` | votes, log ids, memberships, the head of a snapshot |

mod acquire;
mod administer;
mod backup;
mod carried;
mod change;
mod command;
mod entry;
#[cfg(test)]
mod golden;
mod peer;
mod raft;
mod record;
mod row;
mod row_parts;
#[cfg(test)]
pub(crate) mod samples;
mod status;
mod ticket;
mod words;

pub(crate) use administer::{decode_audit, encode_audit};
pub(crate) use backup::{
    decode_backup_end, decode_backup_head, decode_backup_piece, encode_backup_end,
    encode_backup_head, encode_backup_piece,
};
pub(crate) use carried::{
    Carried, decode_carried, encode_answer, encode_beat, encode_hang_up, encode_request,
};
pub(crate) use change::{decode_changes, encode_changes};
pub(crate) use entry::{Peeked, decode_entry, encode_entry, peek_entry};
pub(crate) use peer::{
    About, Ask, Dating, Hello, SnapshotAsk, Standing, Told, Unwelcome, Welcome, decode_ask,
    decode_hello, decode_told, decode_welcome, encode_append, encode_chunk, encode_digests_ask,
    encode_hello, encode_parcel, encode_read_index, encode_session, encode_snapshot, encode_told,
    encode_transfer, encode_vote_ask, encode_welcome,
};
pub(crate) use raft::{
    SlotHead, decode_log_id, decode_slot, decode_vote, encode_log_id, encode_slot, encode_vote,
};
pub(crate) use record::{decode_record, encode_record};
pub(crate) use row::{ROW, decode_row, encode_row};
pub(crate) use status::{Report, StatusAsk, encode_status_ask};

use entry::decode_known_entry;
use leasehold_core::name::NameError;
use serde::{Deserialize, Serialize};

/// A kind of stored value, and the version of it that this binary writes and reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Format {
    pub(crate) what: &'static str,
    pub(crate) version: u8,
}

/// Why stored bytes have no meaning here.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DecodeError {
    #[error("a {what} without any bytes")]
    Empty { what: &'static str },
    #[error("a {what} of version {found}; this binary reads version {reads}")]
    Version { what: &'static str, found: u8, reads: u8 },
    #[error("a {what} with commands of version {needs}; this binary knows them up to {knows}")]
    Commands { what: &'static str, needs: u16, knows: u16 },
    #[error("a {what} that ends too early or has values out of range")]
    Malformed {
        what: &'static str,
        #[source]
        cause: postcard::Error,
    },
    #[error("a {what} with {bytes} bytes after its end")]
    Trailing { what: &'static str, bytes: usize },
    #[error("a {what} of a kind that no release writes")]
    Unused { what: &'static str },
    #[error("a {what} whose checksum does not match")]
    Checksum { what: &'static str },
    #[error("a name that {0}")]
    Name(NameError),
    #[error("a membership that openraft refuses: {0}")]
    Membership(String),
}

/// Appends the version byte and the value.
pub(crate) fn write<T: Serialize>(format: Format, value: &T, out: &mut Vec<u8>) {
    out.push(format.version);
    write_bare(value, out);
}

/// Appends the value alone, for places where one version byte stands before many values.
pub(crate) fn write_bare<T: Serialize>(value: &T, out: &mut Vec<u8>) {
    // An error would mean a full buffer, which a growing one never is, or a sequence of unknown
    // length, which none of the mirrored structs has.
    postcard::serialize_with_flavor(value, Grow(out)).expect("a growing buffer takes every value");
}

/// Reads what [`write`] wrote, all of it.
pub(crate) fn read<'a, T: Deserialize<'a>>(
    format: Format,
    bytes: &'a [u8],
) -> Result<T, DecodeError> {
    read_bare(format, versioned(format, bytes)?)
}

/// Checks and takes off the version byte.
pub(crate) fn versioned(format: Format, bytes: &[u8]) -> Result<&[u8], DecodeError> {
    let what = format.what;
    let (found, rest) = bytes.split_first().ok_or(DecodeError::Empty { what })?;
    if *found != format.version {
        return Err(DecodeError::Version { what, found: *found, reads: format.version });
    }
    Ok(rest)
}

/// Refuses what a node that knows commands up to a version cannot apply.
fn known(format: Format, needs: u16, knows: u16) -> Result<(), DecodeError> {
    match needs > knows {
        true => Err(DecodeError::Commands { what: format.what, needs, knows }),
        false => Ok(()),
    }
}

/// Reads what [`write_bare`] wrote, all of it.
pub(crate) fn read_bare<'a, T: Deserialize<'a>>(
    format: Format,
    bytes: &'a [u8],
) -> Result<T, DecodeError> {
    let what = format.what;
    let (value, rest) =
        postcard::take_from_bytes(bytes).map_err(|cause| DecodeError::Malformed { what, cause })?;
    if !rest.is_empty() {
        return Err(DecodeError::Trailing { what, bytes: rest.len() });
    }
    Ok(value)
}

/// A buffer of the caller, used again and again: `postcard::to_extend` would take it by value.
struct Grow<'a>(&'a mut Vec<u8>);

impl postcard::ser_flavors::Flavor for Grow<'_> {
    type Output = ();

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}
