//! Entries, votes and transfers of leadership.

use super::frame::{APPEND, PRE_VOTE, Rest, TRANSFER, VOTE, message};
use crate::codec::raft::{StoredLogId, StoredVote, log_id_in, log_id_out, vote_in, vote_out};
use crate::codec::{DecodeError, decode_known_entry, encode_entry};
use crate::types::{AppendAsk, TransferAsk, VoteAsk};
use serde::{Deserialize, Serialize};

/// What an append says of when it is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Dating {
    /// Appends on this connection that had been answered when the one before this was sent.
    pub(crate) answered: u64,
    /// How long ago the leader sent the newest message that a quorum has answered, rounded up.
    pub(crate) quorum_ms: Option<u64>,
}

/// Entries after which a message ends. One entry alone may be larger.
const ENTRIES_BYTES: usize = 192 << 10;

#[derive(Serialize, Deserialize)]
pub(super) struct SentAppend {
    vote: StoredVote,
    prev: Option<StoredLogId>,
    commit: Option<StoredLogId>,
    answered: u64,
    quorum_ms: Option<u64>,
    /// Bytes of each entry.
    entries: Vec<u32>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct SentVote {
    vote: StoredVote,
    last: Option<StoredLogId>,
    transfer: bool,
}

#[derive(Serialize, Deserialize)]
pub(super) struct SentTransfer {
    from: StoredVote,
    to: u64,
    last: Option<StoredLogId>,
}

/// The message, and how many of the entries are in it: the rest goes into the next one.
pub(crate) fn encode_append(ask: &AppendAsk, dating: Dating) -> (Vec<u8>, usize) {
    let mut entries = Vec::new();
    let mut lengths = Vec::new();
    for entry in &ask.entries {
        let before = entries.len();
        encode_entry(entry, &mut entries);
        if before > 0 && entries.len() > ENTRIES_BYTES {
            entries.truncate(before);
            break;
        }
        lengths.push(u32::try_from(entries.len() - before).unwrap_or(u32::MAX));
    }
    let count = lengths.len();
    let head = SentAppend {
        vote: vote_out(&ask.vote),
        prev: ask.prev_log_id.map(log_id_out),
        commit: ask.leader_commit.map(log_id_out),
        answered: dating.answered,
        quorum_ms: dating.quorum_ms,
        entries: lengths,
    };
    (message(APPEND, &head, &entries), count)
}

pub(crate) fn encode_vote_ask(ask: &VoteAsk, pre: bool) -> Vec<u8> {
    let sent = SentVote {
        vote: vote_out(&ask.vote),
        last: ask.last_log_id.map(log_id_out),
        transfer: ask.leadership_transfer,
    };
    message(if pre { PRE_VOTE } else { VOTE }, &sent, &[])
}

pub(crate) fn encode_transfer(ask: &TransferAsk) -> Vec<u8> {
    let sent = SentTransfer {
        from: vote_out(ask.from_leader()),
        to: *ask.to_node_id(),
        last: ask.last_log_id().copied().map(log_id_out),
    };
    message(TRANSFER, &sent, &[])
}

pub(super) fn append_in(bytes: &[u8], knows: u16) -> Result<(AppendAsk, Dating), DecodeError> {
    let (head, mut rest): (SentAppend, _) = Rest::after(bytes)?;
    let mut entries = Vec::with_capacity(head.entries.len().min(1_024));
    for length in head.entries {
        entries.push(decode_known_entry(rest.take(length)?, knows)?);
    }
    rest.end()?;
    let ask = AppendAsk {
        vote: vote_in(head.vote),
        prev_log_id: head.prev.map(log_id_in),
        entries,
        leader_commit: head.commit.map(log_id_in),
    };
    Ok((ask, Dating { answered: head.answered, quorum_ms: head.quorum_ms }))
}

pub(super) fn vote_ask_in(sent: SentVote) -> VoteAsk {
    let mut ask = VoteAsk::new(vote_in(sent.vote), sent.last.map(log_id_in));
    ask.leadership_transfer = sent.transfer;
    ask
}

pub(super) fn transfer_in(sent: SentTransfer) -> TransferAsk {
    TransferAsk::new(vote_in(sent.from), sent.to, sent.last.map(log_id_in))
}
