//! The lock table in memory, and its snapshots in a file.
//!
//! | file | holds |
//! | --- | --- |
//! | `machine` | what openraft asks for: apply, build, install |
//! | `build` | making a snapshot beside the writers |
//! | `chunk` | rows cut into checked chunks, and joined again |
//! | `data` | a snapshot as a thing that is read chunk by chunk |
//! | `incoming` | a snapshot that comes from a peer |
//! | `slots` | two slots in `state.redb`, one of them valid |
//!
//! What must stay true:
//!
//! - **S1** The table and the log id that it was applied up to are seen together by whoever holds
//!   the table's lock.
//! - **S2** A slot becomes valid by one durable row, after all its chunks are durable, and after
//!   the history is durable up to the same log entry.
//! - **S3** Writing a snapshot holds no lock that applying or reading needs.
//! - **S4** A snapshot of a peer's is taken over only after what the history lacked up to it has
//!   come; both become durable one after the other, the history first. See `history::intake`.

mod build;
mod chunk;
mod data;
mod incoming;
mod machine;
pub(crate) mod slots;

#[cfg(test)]
mod handover_tests;
#[cfg(test)]
mod tests;

pub(crate) use build::{SnapshotBuilder, write_first};
pub(crate) use chunk::{Cutter, Joiner};
pub(crate) use data::{SnapshotData, SnapshotError, Totals};
pub(crate) use incoming::Incoming;
pub(crate) use machine::StateMachine;

use crate::digests::Digests;
use crate::types::{Batch, LogId, StoredMembership};
use leasehold_core::{Applied, LockTable};
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;

/// The name by which faults and errors call this file.
pub(crate) const FILE: &str = "state.redb";

/// Hears of every applied entry, in log order, while the table is locked for writing. So what it
/// does is seen together with the change; and it must be quick.
pub(crate) trait Sink: Send + Sync + 'static {
    /// What the entry at `index` did.
    fn applied(&self, index: u64, term: u64, batch: &Batch, applied: Applied, table: &LockTable);

    /// A snapshot took the place of the whole table.
    fn replaced(&self, table: &LockTable);
}

/// What is applied, shared between the state machine and the readers of this node.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) table: RwLock<LockTable>,
    /// Changed only by who holds the write lock of `table`.
    position: Mutex<Position>,
    pub(crate) digests: Arc<Digests>,
}

/// How far the table is.
#[derive(Debug, Clone, Default)]
pub(crate) struct Position {
    pub(crate) last: Option<LogId>,
    pub(crate) membership: StoredMembership,
}

impl Shared {
    pub(crate) fn new(table: LockTable, position: Position) -> Self {
        let digests = Arc::default();
        Self { table: RwLock::new(table), position: Mutex::new(position), digests }
    }

    /// With a digest every so many entries.
    pub(crate) fn with_digests(self, every: u64) -> Self {
        Self { digests: Digests::every(every), ..self }
    }

    /// The newest applied entry. Exact for who holds a lock of `table`.
    pub(crate) fn applied(&self) -> Option<LogId> {
        self.position.lock().last
    }

    /// The members as the newest applied change of them has it.
    pub(crate) fn membership(&self) -> StoredMembership {
        self.position.lock().membership.clone()
    }
}
