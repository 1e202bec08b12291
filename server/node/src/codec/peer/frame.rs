//! What all messages have in common: version, checksum and kind.

use crate::codec::{DecodeError, Format, read_bare, versioned, write_bare};
use serde::{Deserialize, Serialize};

pub(in crate::codec) const MESSAGE: Format = Format { what: "message between peers", version: 1 };

pub(super) const APPEND: u8 = 1;
pub(super) const VOTE: u8 = 2;
pub(super) const PRE_VOTE: u8 = 3;
pub(super) const TRANSFER: u8 = 4;
pub(super) const SNAPSHOT: u8 = 5;
pub(super) const CHUNK: u8 = 6;
pub(super) const TOLD: u8 = 7;
pub(super) const HELLO: u8 = 8;
pub(super) const WELCOME: u8 = 9;
// 10 to 14 are those of a session.
pub(super) const SESSION: u8 = 15;
pub(super) const READ_INDEX: u8 = 16;
pub(super) const PARCEL: u8 = 17;
pub(in crate::codec) const STATUS: u8 = 18;
pub(super) const DIGESTS: u8 = 24;

pub(in crate::codec) fn message<T: Serialize>(kind: u8, head: &T, rest: &[u8]) -> Vec<u8> {
    let mut out = vec![MESSAGE.version, 0, 0, 0, 0, kind];
    out.reserve(64 + rest.len());
    write_bare(head, &mut out);
    out.extend_from_slice(rest);
    let crc = crc32fast::hash(&out[5..]);
    out[1..5].copy_from_slice(&crc.to_le_bytes());
    out
}

/// Checks version and checksum, and answers the kind and the content.
pub(in crate::codec) fn opened(bytes: &[u8]) -> Result<(u8, &[u8]), DecodeError> {
    let what = MESSAGE.what;
    let (crc, body) = versioned(MESSAGE, bytes)?
        .split_first_chunk::<4>()
        .ok_or(DecodeError::Checksum { what })?;
    if crc32fast::hash(body) != u32::from_le_bytes(*crc) {
        return Err(DecodeError::Checksum { what });
    }
    let (kind, rest) = body.split_first().ok_or(DecodeError::Empty { what })?;
    Ok((*kind, rest))
}

pub(in crate::codec) fn all<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, DecodeError> {
    read_bare(MESSAGE, bytes)
}

pub(super) fn of_kind(wanted: u8, bytes: &[u8]) -> Result<&[u8], DecodeError> {
    match opened(bytes)? {
        (kind, rest) if kind == wanted => Ok(rest),
        _ => Err(DecodeError::Unused { what: MESSAGE.what }),
    }
}

/// The bytes behind the head of a message, taken off piece by piece.
pub(super) struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    pub(super) fn after<T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<(T, Self), DecodeError> {
        let what = MESSAGE.what;
        let (head, rest) = postcard::take_from_bytes(bytes)
            .map_err(|cause| DecodeError::Malformed { what, cause })?;
        Ok((head, Self(rest)))
    }

    pub(super) fn take(&mut self, length: u32) -> Result<&'a [u8], DecodeError> {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let short = DecodeError::Checksum { what: MESSAGE.what };
        let (piece, after) = self.0.split_at_checked(length).ok_or(short)?;
        self.0 = after;
        Ok(piece)
    }

    pub(super) fn end(&self) -> Result<(), DecodeError> {
        match self.0.len() {
            0 => Ok(()),
            bytes => Err(DecodeError::Trailing { what: MESSAGE.what, bytes }),
        }
    }
}
