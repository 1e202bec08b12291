//! A backup read and checked, piece by piece.

use super::frame::{END, Frames, HEAD, HISTORY, STATE};
use super::{BackupEnd, BackupHead};
use crate::codec::{self, DecodeError};
use crate::history::Parcel;
use crate::level::Outdated;
use crate::state::{Joiner, Totals};
use leasehold_core::row::Row;
use leasehold_core::{Command, ImportError};
use std::io::{self, Read};

/// Why a file is not a backup that can be used.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The system refuses to read it.
    #[error("it could not be read")]
    Read(#[source] io::Error),
    /// It begins otherwise.
    #[error("it is not a backup of Leasehold")]
    NoBackup,
    /// Another version wrote it.
    #[error(
        "it is a backup of format {found}, and this binary reads format {reads}: use the version \
         that wrote it, or a later one"
    )]
    Version {
        /// The format that it has.
        found: u32,
        /// The format that this binary reads.
        reads: u32,
    },
    /// A later release wrote it, for commands that this one does not know.
    #[error(transparent)]
    Outdated(#[from] Outdated),
    /// It ends too early.
    #[error(
        "it is cut off after {at} bytes: the backup was not completed or not copied whole, or the \
         length of its last part is damaged"
    )]
    CutOff {
        /// How far it goes.
        at: u64,
    },
    /// Its bytes are not what was written.
    #[error("it is damaged at byte {at}: {what}")]
    Damaged {
        /// Where.
        at: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// A part of it has no meaning.
    #[error("it is damaged at byte {at}")]
    Part {
        /// Where.
        at: u64,
        /// What the part says.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Its state contradicts itself.
    #[error("its state is no state of a lock service")]
    State(#[from] ImportError),
}

/// What is in a backup, for whoever looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupSummary {
    /// The cluster it was taken from, as 32 hexadecimal digits.
    pub cluster: Option<String>,
    /// The newest change in it.
    pub revision: u64,
    /// The newest token in it.
    pub last_token: u64,
    /// When it was taken, by the wall clock of the node that gave it out, in milliseconds.
    pub taken_at_ms: u64,
    /// The node that gave it out.
    pub node: u64,
    /// The version of that node.
    pub version: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// The digest of its state, as its end says.
    pub digest: u128,
}

/// Reads a whole backup and checks all that can be checked without building its state.
///
/// # Errors
/// [`BackupError`] says what is wrong with it.
pub fn check(from: impl Read) -> Result<BackupSummary, BackupError> {
    let mut reader = Reader::begin(from)?;
    let mut joiner = Joiner::default();
    while let Some(piece) = reader.next()? {
        if let Piece::State(chunk) = piece {
            reader.rows_of(&mut joiner, &chunk, |_| ())?;
        }
    }
    let digest = reader.compare(&joiner)?;
    let BackupHead { cluster, revision, last_token, taken_at_ms, node, version, .. } = reader.head;
    Ok(BackupSummary {
        cluster: cluster.map(|cluster| cluster.to_string()),
        revision,
        last_token,
        taken_at_ms,
        node,
        version,
        bytes: reader.frames.at(),
        digest,
    })
}

/// A part of a backup.
pub(super) enum Piece {
    /// A chunk of the state.
    State(Vec<u8>),
    /// A part of the history.
    History(Parcel),
}

/// A backup being read: first the state, then the history, then nothing.
pub(super) struct Reader<R> {
    pub(super) head: BackupHead,
    frames: Frames<R>,
    counted: BackupEnd,
    end: Option<BackupEnd>,
    last: bool,
}

impl<R: Read> Reader<R> {
    pub(super) fn begin(from: R) -> Result<Self, BackupError> {
        let mut frames = Frames::begin(from)?;
        let at = frames.at();
        let head = match frames.next()? {
            (HEAD, content, _) => codec::decode_backup_head(&content).map_err(part(at))?,
            _ => return Err(BackupError::Damaged { at, what: "it does not begin with its head" }),
        };
        let knows = Command::NEWEST;
        if head.level > knows {
            return Err(Outdated { needs: head.level, knows }.into());
        }
        Ok(Self { head, frames, counted: BackupEnd::default(), end: None, last: false })
    }

    /// The next piece; nothing after the last, once the end has said that all of it was there.
    pub(super) fn next(&mut self) -> Result<Option<Piece>, BackupError> {
        if self.end.is_some() {
            return Ok(None);
        }
        let at = self.frames.at();
        let (kind, content, before) = self.frames.next()?;
        match kind {
            STATE if self.counted.pieces == 0 => {
                self.counted.state.chunks += 1;
                Ok(Some(Piece::State(content)))
            }
            HISTORY if self.counted.state.chunks > 0 && !self.last => {
                let parcel = codec::decode_backup_piece(&content).map_err(part(at))?;
                let Parcel { records, audits, changes, last, .. } = &parcel;
                self.last = *last;
                self.counted.pieces += 1;
                self.counted.history_rows += (records.len() + audits.len() + changes.len()) as u64;
                Ok(Some(Piece::History(parcel)))
            }
            END if self.last => {
                let end = codec::decode_backup_end(&content).map_err(part(at))?;
                let state = Totals { chunks: self.counted.state.chunks, ..end.state };
                if end != (BackupEnd { state, sum: before, ..self.counted }) {
                    return Err(BackupError::Damaged { at, what: "its parts do not add up" });
                }
                if !self.frames.is_over()? {
                    return Err(BackupError::Damaged { at, what: "something follows its end" });
                }
                self.end = Some(end);
                Ok(None)
            }
            _ => Err(BackupError::Damaged { at, what: "its parts are not in order" }),
        }
    }

    /// The rows that are complete with this chunk.
    pub(super) fn rows_of(
        &self,
        joiner: &mut Joiner,
        chunk: &[u8],
        mut each: impl FnMut(Row),
    ) -> Result<(), BackupError> {
        let damaged = part(self.frames.at());
        joiner.add(chunk).map_err(damaged)?;
        while let Some(row) = joiner.row().map_err(damaged)? {
            each(row);
        }
        Ok(())
    }

    /// Whether the rows are those that the end speaks of; answers the digest that they should have.
    pub(super) fn compare(&self, joiner: &Joiner) -> Result<u128, BackupError> {
        let at = self.frames.at();
        let Some(end) = &self.end else { return Err(BackupError::CutOff { at }) };
        let found = (joiner.count, joiner.bytes, joiner.is_done());
        if found != (end.state.rows, end.state.bytes, true) {
            return Err(BackupError::Damaged { at, what: "its state is not the one it promises" });
        }
        Ok(end.state.digest)
    }
}

fn part(at: u64) -> impl Fn(DecodeError) -> BackupError + Copy {
    move |cause| BackupError::Part { at, cause: Box::new(cause) }
}
