//! A snapshot as openraft passes it around: a handle that is read chunk by chunk.

use super::chunk::Joiner;
use super::incoming::Spool;
use super::slots::SlotChunks;
use crate::codec::DecodeError;
use crate::fatal::StorageFault;
use crate::history::History;
use leasehold_core::row::{Head, Row};
use leasehold_core::{ImportError, LockTable};

/// What the chunks of a snapshot amount to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Totals {
    pub(crate) chunks: u32,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    pub(crate) digest: u128,
    /// The version of commands that a node must know to understand it.
    pub(crate) level: u16,
}

/// A complete snapshot. One that is in the file stays readable as it is while newer ones are
/// written: the handle holds a read transaction, so it should not be kept for long.
#[derive(Debug)]
pub(crate) struct SnapshotData {
    source: Source,
    totals: Totals,
    /// What goes along with it to a peer.
    history: Option<History>,
}

#[derive(Debug)]
enum Source {
    Slot(SlotChunks),
    /// What came from a peer.
    Spool(Spool),
}

/// Why chunks are not a lock table.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SnapshotError {
    #[error("chunk {number} of {of} is missing")]
    Missing { number: u32, of: u32 },
    #[error("chunk {number} could not be read")]
    Read {
        number: u32,
        #[source]
        cause: StorageFault,
    },
    #[error("chunk {number} is damaged")]
    Chunk {
        number: u32,
        #[source]
        cause: DecodeError,
    },
    #[error("more than its {of} chunks came")]
    Surplus { of: u32 },
    #[error("it does not begin with its counters")]
    NoHead,
    #[error("it holds {found:?} and promises {promised:?}")]
    Totals { found: Totals, promised: Totals },
    #[error("its rows contradict each other")]
    Import(#[source] ImportError),
}

impl SnapshotData {
    pub(super) fn in_slot(chunks: SlotChunks, totals: Totals) -> Self {
        Self { source: Source::Slot(chunks), totals, history: None }
    }

    pub(super) fn spooled(chunks: Spool, totals: Totals) -> Self {
        Self { source: Source::Spool(chunks), totals, history: None }
    }

    pub(super) fn with_history(self, history: History) -> Self {
        Self { history: Some(history), ..self }
    }

    /// The history that goes at least as far as this snapshot.
    pub(crate) fn history(&self) -> Option<&History> {
        self.history.as_ref()
    }

    /// The counters that it begins with. Blocks like [`Self::chunk`].
    pub(crate) fn head(&self) -> Result<Head, SnapshotError> {
        let mut rows = Rows { data: self, joiner: Joiner::default(), next: 0, failed: None };
        match rows.advance()? {
            Some(Row::Head(head)) => Ok(head),
            _ => Err(SnapshotError::NoHead),
        }
    }

    pub(crate) fn totals(&self) -> Totals {
        self.totals
    }

    /// One chunk as it is stored. Blocks on the disk for what is not cached.
    pub(crate) fn chunk(&self, number: u32) -> Result<Vec<u8>, SnapshotError> {
        let found = match &self.source {
            Source::Slot(chunks) => {
                chunks.get(number).map_err(|cause| SnapshotError::Read { number, cause })?
            }
            Source::Spool(chunks) => chunks.get(number).map_err(|cause| {
                let cause = StorageFault::new("incoming snapshot", "read a chunk", cause);
                SnapshotError::Read { number, cause }
            })?,
        };
        found.ok_or(SnapshotError::Missing { number, of: self.totals.chunks })
    }

    /// Rebuilds the table and compares it with what the snapshot promises.
    pub(super) fn table(&self) -> Result<LockTable, SnapshotError> {
        let mut rows = Rows { data: self, joiner: Joiner::default(), next: 0, failed: None };
        let table = LockTable::import(&mut rows);
        if let Some(cause) = rows.failed {
            return Err(cause);
        }
        let table = table.map_err(SnapshotError::Import)?;
        let found = Totals {
            chunks: rows.next,
            rows: rows.joiner.count,
            bytes: rows.joiner.bytes,
            digest: table.freeze().digest(),
            level: table.level(),
        };
        if found != self.totals || !rows.joiner.is_done() {
            return Err(SnapshotError::Totals { found, promised: self.totals });
        }
        Ok(table)
    }
}

/// The rows of a snapshot. They end early when a chunk is damaged, and `failed` says why.
struct Rows<'a> {
    data: &'a SnapshotData,
    joiner: Joiner,
    next: u32,
    failed: Option<SnapshotError>,
}

impl Rows<'_> {
    fn advance(&mut self) -> Result<Option<Row>, SnapshotError> {
        loop {
            let number = self.next;
            let damaged = |cause| SnapshotError::Chunk { number, cause };
            if let Some(row) = self.joiner.row().map_err(damaged)? {
                return Ok(Some(row));
            }
            if number == self.data.totals.chunks {
                return Ok(None);
            }
            self.joiner.add(&self.data.chunk(number)?).map_err(damaged)?;
            self.next += 1;
        }
    }
}

impl Iterator for Rows<'_> {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        if self.failed.is_some() {
            return None;
        }
        self.advance().unwrap_or_else(|cause| {
            self.failed = Some(cause);
            None
        })
    }
}
