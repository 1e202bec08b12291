//! What is answered.

use super::frame::{TOLD, all, message, of_kind};
use crate::codec::DecodeError;
use crate::codec::raft::{StoredLogId, StoredVote, log_id_in, log_id_out, vote_in, vote_out};
use crate::codec::status::{Report, status_in, status_out};
use crate::digests::KnownDigests;
use crate::history::Reach;
use crate::types::{AppendTold, LogId, TransferRefusal, TransferTold, Vote, VoteTold};
use serde::{Deserialize, Serialize};

/// What it is told.
#[derive(Debug)]
pub(crate) enum Told {
    Append(AppendTold),
    Vote(VoteTold),
    Transfer(TransferTold),
    /// The vote of the receiver once the snapshot is in place.
    Snapshot(Vote),
    /// How far the history of the receiver goes: send what comes after it.
    Reach(Reach),
    /// Send the next parcel or chunk.
    GoOn,
    /// The entry up to which a reader has to wait.
    ReadIndex(u64),
    /// How it is.
    Status(Box<Report>),
    /// Digests of its state.
    Digests(KnownDigests),
    /// It could not: it is stopping, or has not started.
    Unable(String),
}

#[derive(Serialize, Deserialize)]
enum SentTold {
    Appended,
    AppendedTo(Option<StoredLogId>),
    Conflict,
    HigherVote(StoredVote),
    Vote {
        vote: StoredVote,
        granted: bool,
        last: Option<StoredLogId>,
    },
    Transferred,
    VoteChanged {
        expected: StoredVote,
        actual: StoredVote,
    },
    LogNotFlushed {
        expected: Option<StoredLogId>,
        actual: Option<StoredLogId>,
    },
    Installed(StoredVote),
    GoOn,
    Unable(String),
    ReadIndex(u64),
    Reach {
        ended_at_ms: u64,
        token: u64,
        revision: u64,
    },
    /// In bytes of their own, since they grow.
    Status(Vec<u8>),
    Digests {
        version: u16,
        known: Vec<(u64, u128)>,
    },
}

pub(crate) fn encode_told(told: &Told) -> Vec<u8> {
    message(TOLD, &told_out(told), &[])
}

pub(crate) fn decode_told(bytes: &[u8]) -> Result<Told, DecodeError> {
    told_in(all(of_kind(TOLD, bytes)?)?)
}

fn told_out(told: &Told) -> SentTold {
    match told {
        Told::Append(AppendTold::Success) => SentTold::Appended,
        Told::Append(AppendTold::PartialSuccess(to)) => SentTold::AppendedTo(to.map(log_id_out)),
        Told::Append(AppendTold::Conflict) => SentTold::Conflict,
        Told::Append(AppendTold::HigherVote(vote)) => SentTold::HigherVote(vote_out(vote)),
        Told::Vote(told) => SentTold::Vote {
            vote: vote_out(&told.vote),
            granted: told.vote_granted,
            last: told.last_log_id.map(log_id_out),
        },
        Told::Transfer(Ok(())) => SentTold::Transferred,
        Told::Transfer(Err(TransferRefusal::VoteChanged { expected, actual })) => {
            SentTold::VoteChanged { expected: vote_out(expected), actual: vote_out(actual) }
        }
        Told::Transfer(Err(TransferRefusal::LogNotFlushed { expected, actual })) => {
            SentTold::LogNotFlushed {
                expected: expected.map(log_id_out),
                actual: actual.map(log_id_out),
            }
        }
        Told::Snapshot(vote) => SentTold::Installed(vote_out(vote)),
        Told::GoOn => SentTold::GoOn,
        Told::ReadIndex(index) => SentTold::ReadIndex(*index),
        Told::Digests(KnownDigests { version, known }) => {
            SentTold::Digests { version: *version, known: known.clone() }
        }
        Told::Unable(why) => SentTold::Unable(why.clone()),
        Told::Reach(reach) => SentTold::Reach {
            ended_at_ms: reach.ended.0,
            token: reach.ended.1,
            revision: reach.revision,
        },
        Told::Status(report) => SentTold::Status(status_out(report)),
    }
}

fn told_in(sent: SentTold) -> Result<Told, DecodeError> {
    let id = |id: Option<StoredLogId>| -> Option<LogId> { id.map(log_id_in) };
    Ok(match sent {
        SentTold::Appended => Told::Append(AppendTold::Success),
        SentTold::AppendedTo(to) => Told::Append(AppendTold::PartialSuccess(id(to))),
        SentTold::Conflict => Told::Append(AppendTold::Conflict),
        SentTold::HigherVote(vote) => Told::Append(AppendTold::HigherVote(vote_in(vote))),
        SentTold::Vote { vote, granted, last } => {
            Told::Vote(VoteTold::new(vote_in(vote), id(last), granted))
        }
        SentTold::Transferred => Told::Transfer(Ok(())),
        SentTold::VoteChanged { expected, actual } => {
            let (expected, actual) = (vote_in(expected), vote_in(actual));
            Told::Transfer(Err(TransferRefusal::VoteChanged { expected, actual }))
        }
        SentTold::LogNotFlushed { expected, actual } => {
            let (expected, actual) = (id(expected), id(actual));
            Told::Transfer(Err(TransferRefusal::LogNotFlushed { expected, actual }))
        }
        SentTold::Installed(vote) => Told::Snapshot(vote_in(vote)),
        SentTold::GoOn => Told::GoOn,
        SentTold::ReadIndex(index) => Told::ReadIndex(index),
        SentTold::Digests { version, known } => Told::Digests(KnownDigests { version, known }),
        SentTold::Unable(why) => Told::Unable(why),
        SentTold::Reach { ended_at_ms, token, revision } => {
            Told::Reach(Reach { ended: (ended_at_ms, token), revision })
        }
        SentTold::Status(bytes) => Told::Status(Box::new(status_in(&bytes)?)),
    })
}
