//! Making a snapshot beside the writers: freeze the table, then encode and write the frozen copy
//! on a thread that may block.

use super::chunk::Cutter;
use super::data::Totals;
use super::slots::SlotStore;
use super::{Position, SnapshotData};
use crate::fatal::{Fatal, StorageFault};
use crate::history::History;
use crate::types::{Snapshot, SnapshotMeta, TypeConfig};
use leasehold_core::Frozen;
use openraft::storage::RaftSnapshotBuilder;
use redb::Database;
use std::io;
use std::sync::Arc;

/// The state at one log entry, ready to be written.
pub(crate) struct SnapshotBuilder {
    frozen: Arc<Frozen>,
    position: Position,
    slots: Arc<SlotStore>,
    history: History,
}

impl SnapshotBuilder {
    pub(super) fn new(
        frozen: Frozen,
        position: Position,
        slots: Arc<SlotStore>,
        history: History,
    ) -> Self {
        Self { frozen: Arc::new(frozen), position, slots, history }
    }
}

impl RaftSnapshotBuilder<TypeConfig> for SnapshotBuilder {
    type SnapshotData = SnapshotData;

    async fn build_snapshot(&mut self) -> Result<Snapshot, io::Error> {
        let frozen = Arc::clone(&self.frozen);
        let (slots, history) = (Arc::clone(&self.slots), self.history.clone());
        let meta = SnapshotMeta {
            last_log_id: self.position.last,
            last_membership: self.position.membership.clone(),
        };
        let building = crate::runtime::blocking(move || {
            // The log is purged up to a snapshot, and the history is rebuilt from the log alone.
            let upto = meta.last_log_id.map_or(0, |id| id.index);
            write(&frozen, meta, &slots, || history.flush(upto))?;
            slots.current()
        });
        let current =
            building.await.ok_or_else(crate::runtime::lost)?.map_err(|fault| fault.to_io())?;
        let (meta, snapshot) =
            current.ok_or_else(|| io::Error::other("a snapshot was written and is not there"))?;
        Ok(Snapshot { meta, snapshot })
    }
}

/// Writes a table as the first snapshot of a file that has none. Blocks.
pub(crate) fn write_first(
    db: Database,
    meta: SnapshotMeta,
    frozen: &Frozen,
) -> Result<(), StorageFault> {
    write(frozen, meta, &SlotStore::new(db, None, Fatal::new()), || Ok(()))
}

fn write(
    frozen: &Frozen,
    meta: SnapshotMeta,
    slots: &SlotStore,
    settle: impl FnOnce() -> Result<(), StorageFault>,
) -> Result<(), StorageFault> {
    let cutter = std::cell::RefCell::new(Cutter::new(frozen.rows()));
    let totals = || {
        let cutter = cutter.borrow();
        let (rows, bytes, digest) = (cutter.count, cutter.bytes, frozen.digest());
        Totals { chunks: 0, rows, bytes, digest, level: frozen.level() }
    };
    slots.write(meta, || Ok(cutter.borrow_mut().next()), totals, settle)
}
