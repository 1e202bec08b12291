//! What peers say to each other.
//!
//! A message is a version byte, the CRC-32 of all that follows (little endian), one byte for its
//! kind, and its content: postcard of a mirrored struct, and for entries, chunks and rows of the
//! history their own stored bytes behind it, as they are in the files. Versions of messages move
//! together with the protocol that [`Hello`] agrees on.
//!
//! | file | holds |
//! | --- | --- |
//! | `frame` | version, checksum and kind |
//! | `hello` | how a connection begins |
//! | `raft` | entries, votes, transfers of leadership |
//! | `snapshot` | a snapshot, and the history that goes along |
//! | `told` | what is answered |

mod frame;
mod hello;
mod raft;
mod snapshot;
mod told;

pub(super) use frame::{MESSAGE, STATUS, all, message, opened};
pub(crate) use hello::{
    About, Hello, Standing, Unwelcome, Welcome, decode_hello, decode_welcome, encode_hello,
    encode_welcome,
};
pub(crate) use raft::{Dating, encode_append, encode_transfer, encode_vote_ask};
pub(crate) use snapshot::{SnapshotAsk, encode_chunk, encode_parcel, encode_snapshot};
pub(crate) use told::{Told, decode_told, encode_told};

use super::DecodeError;
use super::status::StatusAsk;
use crate::history::Parcel;
use crate::types::{AppendAsk, TransferAsk, VoteAsk};
use frame::{
    APPEND, CHUNK, DIGESTS, PARCEL, PRE_VOTE, READ_INDEX, SESSION, SNAPSHOT, TRANSFER, VOTE,
};
use raft::{append_in, transfer_in, vote_ask_in};
use snapshot::{parcel_in, snapshot_in};

/// What one peer asks another.
#[derive(Debug)]
pub(crate) enum Ask {
    Append(AppendAsk, Dating),
    Vote(VoteAsk),
    PreVote(VoteAsk),
    Transfer(TransferAsk),
    /// The history up to there follows in parcels, then the chunks, each in a message of its own.
    Snapshot(SnapshotAsk),
    Parcel(Parcel),
    Chunk(Vec<u8>),
    /// From here on the connection is a session, which carries requests of clients.
    Session,
    /// Up to which entry must be applied for a read to see all that was answered before it?
    ReadIndex,
    /// How are you? Whoever asks says who it is.
    Status(StatusAsk),
    /// Which digests of its state does it remember?
    Digests,
}

pub(crate) fn encode_session() -> Vec<u8> {
    message(SESSION, &(), &[])
}

pub(crate) fn encode_read_index() -> Vec<u8> {
    message(READ_INDEX, &(), &[])
}

pub(crate) fn encode_digests_ask() -> Vec<u8> {
    message(DIGESTS, &(), &[])
}

/// Reads what a peer asks, unless it holds commands that a node who knows them up to `knows` does
/// not.
pub(crate) fn decode_ask(bytes: &[u8], knows: u16) -> Result<Ask, DecodeError> {
    let (kind, rest) = opened(bytes)?;
    Ok(match kind {
        APPEND => {
            let (ask, dating) = append_in(rest, knows)?;
            Ask::Append(ask, dating)
        }
        VOTE => Ask::Vote(vote_ask_in(all(rest)?)),
        PRE_VOTE => Ask::PreVote(vote_ask_in(all(rest)?)),
        TRANSFER => Ask::Transfer(transfer_in(all(rest)?)),
        SNAPSHOT => Ask::Snapshot(snapshot_in(rest, knows)?),
        PARCEL => Ask::Parcel(parcel_in(rest)?),
        CHUNK => Ask::Chunk(rest.to_vec()),
        SESSION => {
            let () = all(rest)?;
            Ask::Session
        }
        READ_INDEX => {
            let () = all(rest)?;
            Ask::ReadIndex
        }
        STATUS => Ask::Status(all(rest)?),
        DIGESTS => {
            let () = all(rest)?;
            Ask::Digests
        }
        _ => return Err(DecodeError::Unused { what: MESSAGE.what }),
    })
}
