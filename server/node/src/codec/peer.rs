//! What peers say to each other.
//!
//! A message is a version byte, the CRC-32 of all that follows (little endian), one byte for its
//! kind, and its content: postcard of a mirrored struct, and for entries, chunks and rows of the
//! history their own stored bytes behind it, as they are in the files. Versions of messages move together with the protocol
//! that [`Hello`] agrees on.

use super::raft::{
    StoredLogId, StoredMembers, StoredVote, log_id_in, log_id_out, members_in, members_out,
    vote_in, vote_out,
};
use super::status::{Report, StatusAsk, status_in, status_out};
use super::{DecodeError, Format, decode_known_entry, encode_entry, known, versioned, write_bare};
use crate::digests::KnownDigests;
use crate::history::{Parcel, Reach};
use crate::state::Totals;
use crate::types::{
    AppendAsk, AppendTold, LogId, SnapshotMeta, StoredMembership, TransferAsk, TransferRefusal,
    TransferTold, Vote, VoteAsk, VoteTold,
};
use serde::{Deserialize, Serialize};

pub(super) const MESSAGE: Format = Format { what: "message between peers", version: 1 };

/// Entries after which a message ends. One entry alone may be larger.
const ENTRIES_BYTES: usize = 192 << 10;

/// The first message of a connection.
///
/// It and its answer are what two releases understand of each other before anything is agreed on:
/// they keep their version, fields are appended at the end, and what follows those that a node
/// knows is passed over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// The oldest and newest protocol that the caller speaks.
    pub(crate) protocols: (u16, u16),
    /// Which cluster the caller belongs to; nothing if it belongs to none yet.
    pub(crate) cluster: Option<[u8; 16]>,
    /// Who calls.
    pub(crate) from: u64,
    /// Who is meant: a node that has another's address is told so.
    pub(crate) to: u64,
    /// Who the caller is, beyond its number.
    pub(crate) caller: About,
    /// The founders that the caller was told of, as one number, while it has no cluster.
    pub(crate) founders: Option<u32>,
    /// The version of commands that its log may hold, as far as it knows.
    pub(crate) level: u16,
}

/// What a node says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct About {
    /// Which life of the node this is.
    pub(crate) incarnation: u128,
    /// The highest version of commands that it can apply.
    pub(crate) commands: u16,
    /// Where clients reach it.
    pub(crate) http: String,
    /// Where peers reach it.
    pub(crate) peer: String,
}

/// How a node stands to its cluster, and its caller as far as it knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Standing {
    /// It has nothing: neither entries nor a cluster.
    pub(crate) empty: bool,
    /// Which cluster it belongs to.
    pub(crate) cluster: Option<[u8; 16]>,
    /// Whether the caller is a member, by the newest committed change that it knows.
    pub(crate) member: bool,
}

/// The answer to a [`Hello`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Welcome {
    /// What is spoken from here on.
    Protocol { version: u16, about: About, standing: Standing },
    /// Why nothing is.
    Refused(Unwelcome),
}

/// Why a peer does not talk to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub(crate) enum Unwelcome {
    /// Both are there, and have no protocol in common.
    #[error("it speaks protocols {0} to {1}; upgrade the older of the two nodes")]
    Protocol(u16, u16),
    /// An address that belongs to somebody else.
    #[error("it is node {0}")]
    OtherNode(u64),
    /// It remembers another life of the caller, whose votes and entries are gone.
    #[error("it knows node {0} from before that node lost its data; let it join under a new id")]
    OtherIncarnation(u64),
    /// Two nodes without a cluster that were told of different founders.
    #[error("it was told of other founders; `peers` must be the same on each of them")]
    OtherFounders,
    /// Two clusters that know an address of each other.
    #[error("it belongs to another cluster")]
    OtherCluster,
    /// It has as many connections as it takes.
    #[error("it has too many connections")]
    Full,
    /// One of the two is older than what is in their log.
    #[error(
        "the log of the cluster may hold commands of version {0}, which one of the two nodes does \
         not know: upgrade that one"
    )]
    Commands(u16),
}

/// What one peer asks another.
#[derive(Debug)]
pub(crate) enum Ask {
    Append(AppendAsk),
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

/// What a snapshot will be once all of its chunks are there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SnapshotAsk {
    pub(crate) vote: Vote,
    pub(crate) meta: SnapshotMeta,
    pub(crate) totals: Totals,
}

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
struct SentAppend {
    vote: StoredVote,
    prev: Option<StoredLogId>,
    commit: Option<StoredLogId>,
    /// Bytes of each entry.
    entries: Vec<u32>,
}

#[derive(Serialize, Deserialize)]
struct SentVote {
    vote: StoredVote,
    last: Option<StoredLogId>,
    transfer: bool,
}

#[derive(Serialize, Deserialize)]
struct SentTransfer {
    from: StoredVote,
    to: u64,
    last: Option<StoredLogId>,
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

const APPEND: u8 = 1;
const VOTE: u8 = 2;
const PRE_VOTE: u8 = 3;
const TRANSFER: u8 = 4;
const SNAPSHOT: u8 = 5;
const CHUNK: u8 = 6;
const TOLD: u8 = 7;
const HELLO: u8 = 8;
const WELCOME: u8 = 9;
// 10 to 14 are those of a session.
const SESSION: u8 = 15;
const READ_INDEX: u8 = 16;
const PARCEL: u8 = 17;
pub(super) const STATUS: u8 = 18;
const DIGESTS: u8 = 24;

/// The message, and how many of the entries are in it: the rest goes into the next one.
pub(crate) fn encode_append(ask: &AppendAsk) -> (Vec<u8>, usize) {
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

pub(crate) fn encode_session() -> Vec<u8> {
    message(SESSION, &(), &[])
}

pub(crate) fn encode_read_index() -> Vec<u8> {
    message(READ_INDEX, &(), &[])
}

pub(crate) fn encode_digests_ask() -> Vec<u8> {
    message(DIGESTS, &(), &[])
}

pub(crate) fn encode_told(told: &Told) -> Vec<u8> {
    message(TOLD, &told_out(told), &[])
}

pub(crate) fn encode_hello(hello: &Hello) -> Vec<u8> {
    message(HELLO, hello, &[])
}

pub(crate) fn encode_welcome(welcome: &Welcome) -> Vec<u8> {
    message(WELCOME, welcome, &[])
}

/// Reads what a peer asks, unless it holds commands that a node who knows them up to `knows` does
/// not.
pub(crate) fn decode_ask(bytes: &[u8], knows: u16) -> Result<Ask, DecodeError> {
    let (kind, rest) = opened(bytes)?;
    Ok(match kind {
        APPEND => Ask::Append(append_in(rest, knows)?),
        VOTE => Ask::Vote(vote_ask_in(all(rest)?)),
        PRE_VOTE => Ask::PreVote(vote_ask_in(all(rest)?)),
        TRANSFER => {
            let sent: SentTransfer = all(rest)?;
            let last = sent.last.map(log_id_in);
            Ask::Transfer(TransferAsk::new(vote_in(sent.from), sent.to, last))
        }
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

pub(crate) fn decode_told(bytes: &[u8]) -> Result<Told, DecodeError> {
    told_in(all(of_kind(TOLD, bytes)?)?)
}

pub(crate) fn decode_hello(bytes: &[u8]) -> Result<Hello, DecodeError> {
    Ok(Rest::after(of_kind(HELLO, bytes)?)?.0)
}

pub(crate) fn decode_welcome(bytes: &[u8]) -> Result<Welcome, DecodeError> {
    Ok(Rest::after(of_kind(WELCOME, bytes)?)?.0)
}

fn of_kind(wanted: u8, bytes: &[u8]) -> Result<&[u8], DecodeError> {
    match opened(bytes)? {
        (kind, rest) if kind == wanted => Ok(rest),
        _ => Err(DecodeError::Unused { what: MESSAGE.what }),
    }
}

pub(super) fn message<T: Serialize>(kind: u8, head: &T, rest: &[u8]) -> Vec<u8> {
    let mut out = vec![MESSAGE.version, 0, 0, 0, 0, kind];
    out.reserve(64 + rest.len());
    write_bare(head, &mut out);
    out.extend_from_slice(rest);
    let crc = crc32fast::hash(&out[5..]);
    out[1..5].copy_from_slice(&crc.to_le_bytes());
    out
}

/// Checks version and checksum, and answers the kind and the content.
pub(super) fn opened(bytes: &[u8]) -> Result<(u8, &[u8]), DecodeError> {
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

pub(super) fn all<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, DecodeError> {
    super::read_bare(MESSAGE, bytes)
}

/// The bytes behind the head of a message, taken off piece by piece.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn after<T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<(T, Self), DecodeError> {
        let what = MESSAGE.what;
        let (head, rest) = postcard::take_from_bytes(bytes)
            .map_err(|cause| DecodeError::Malformed { what, cause })?;
        Ok((head, Self(rest)))
    }

    fn take(&mut self, length: u32) -> Result<&'a [u8], DecodeError> {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let short = DecodeError::Checksum { what: MESSAGE.what };
        let (piece, after) = self.0.split_at_checked(length).ok_or(short)?;
        self.0 = after;
        Ok(piece)
    }

    fn end(&self) -> Result<(), DecodeError> {
        match self.0.len() {
            0 => Ok(()),
            bytes => Err(DecodeError::Trailing { what: MESSAGE.what, bytes }),
        }
    }
}

fn parcel_in(bytes: &[u8]) -> Result<Parcel, DecodeError> {
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

fn append_in(bytes: &[u8], knows: u16) -> Result<AppendAsk, DecodeError> {
    let (head, mut rest): (SentAppend, _) = Rest::after(bytes)?;
    let mut entries = Vec::with_capacity(head.entries.len().min(1_024));
    for length in head.entries {
        entries.push(decode_known_entry(rest.take(length)?, knows)?);
    }
    rest.end()?;
    Ok(AppendAsk {
        vote: vote_in(head.vote),
        prev_log_id: head.prev.map(log_id_in),
        entries,
        leader_commit: head.commit.map(log_id_in),
    })
}

fn vote_ask_in(sent: SentVote) -> VoteAsk {
    let mut ask = VoteAsk::new(vote_in(sent.vote), sent.last.map(log_id_in));
    ask.leadership_transfer = sent.transfer;
    ask
}

fn snapshot_in(bytes: &[u8], knows: u16) -> Result<SnapshotAsk, DecodeError> {
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
