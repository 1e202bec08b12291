//! What a backup says of itself, and the pieces of a history in it. The frames around all of it
//! are in `backup::frame`.

use super::words::{ClusterBytes, cluster_in, cluster_out};
use super::{DecodeError, Format, read, write};
use crate::backup::{BackupEnd, BackupHead};
use crate::history::Parcel;
use serde::{Deserialize, Serialize};

const HEAD: Format = Format { what: "head of a backup", version: 1 };
const PIECE: Format = Format { what: "piece of history in a backup", version: 1 };
const END: Format = Format { what: "end of a backup", version: 1 };

#[derive(Serialize, Deserialize)]
struct StoredHead<'a> {
    cluster: Option<ClusterBytes>,
    revision: u64,
    last_token: u64,
    term: u64,
    index: u64,
    taken_at_ms: u64,
    node: u64,
    version: &'a str,
}

/// Rows as the files of a node have them: each begins with a version of its own.
#[derive(Serialize, Deserialize)]
struct StoredPiece<'a> {
    dropped_ms: u64,
    before_ms: u64,
    last: bool,
    #[serde(borrow)]
    records: Vec<&'a [u8]>,
    #[serde(borrow)]
    audits: Vec<(u64, &'a [u8])>,
    #[serde(borrow)]
    changes: Vec<(u64, &'a [u8])>,
}

#[derive(Serialize, Deserialize)]
struct StoredEnd {
    chunks: u32,
    rows: u64,
    bytes: u64,
    digest: [u8; 16],
    pieces: u64,
    history_rows: u64,
    sum: u32,
}

pub(crate) fn encode_backup_head(head: &BackupHead, out: &mut Vec<u8>) {
    let stored = StoredHead {
        cluster: head.cluster.map(cluster_out),
        revision: head.revision,
        last_token: head.last_token,
        term: head.term,
        index: head.index,
        taken_at_ms: head.taken_at_ms,
        node: head.node,
        version: &head.version,
    };
    write(HEAD, &stored, out);
}

pub(crate) fn decode_backup_head(bytes: &[u8]) -> Result<BackupHead, DecodeError> {
    let stored: StoredHead<'_> = read(HEAD, bytes)?;
    Ok(BackupHead {
        cluster: stored.cluster.map(cluster_in),
        revision: stored.revision,
        last_token: stored.last_token,
        term: stored.term,
        index: stored.index,
        taken_at_ms: stored.taken_at_ms,
        node: stored.node,
        version: stored.version.to_owned(),
    })
}

pub(crate) fn encode_backup_piece(piece: &Parcel, out: &mut Vec<u8>) {
    fn numbered(rows: &[(u64, Vec<u8>)]) -> Vec<(u64, &[u8])> {
        rows.iter().map(|(number, row)| (*number, row.as_slice())).collect()
    }
    let stored = StoredPiece {
        dropped_ms: piece.dropped_ms,
        before_ms: piece.before_ms,
        last: piece.last,
        records: piece.records.iter().map(Vec::as_slice).collect(),
        audits: numbered(&piece.audits),
        changes: numbered(&piece.changes),
    };
    write(PIECE, &stored, out);
}

pub(crate) fn decode_backup_piece(bytes: &[u8]) -> Result<Parcel, DecodeError> {
    let numbered = |rows: Vec<(u64, &[u8])>| {
        rows.into_iter().map(|(number, row)| (number, row.to_vec())).collect()
    };
    let stored: StoredPiece<'_> = read(PIECE, bytes)?;
    Ok(Parcel {
        dropped_ms: stored.dropped_ms,
        before_ms: stored.before_ms,
        last: stored.last,
        records: stored.records.into_iter().map(<[u8]>::to_vec).collect(),
        audits: numbered(stored.audits),
        changes: numbered(stored.changes),
    })
}

pub(crate) fn encode_backup_end(end: &BackupEnd, out: &mut Vec<u8>) {
    let stored = StoredEnd {
        chunks: end.state.chunks,
        rows: end.state.rows,
        bytes: end.state.bytes,
        digest: end.state.digest.to_be_bytes(),
        pieces: end.pieces,
        history_rows: end.history_rows,
        sum: end.sum,
    };
    write(END, &stored, out);
}

pub(crate) fn decode_backup_end(bytes: &[u8]) -> Result<BackupEnd, DecodeError> {
    let stored: StoredEnd = read(END, bytes)?;
    Ok(BackupEnd {
        state: crate::state::Totals {
            chunks: stored.chunks,
            rows: stored.rows,
            bytes: stored.bytes,
            digest: u128::from_be_bytes(stored.digest),
        },
        pieces: stored.pieces,
        history_rows: stored.history_rows,
        sum: stored.sum,
    })
}
