//! The state machine as openraft asks for it.

use super::data::{SnapshotData, Totals};
use super::slots::SlotStore;
use super::{FILE, Position, Shared, Sink, SnapshotBuilder};
use crate::fatal::{Fatal, Sentinel, StorageFault};
use crate::history::{Happened, History};
use crate::types::{
    Batch, LogId, Payload, Reply, Snapshot, SnapshotMeta, StoredMembership, TypeConfig,
};
use futures_util::stream::TryReadyChunksError;
use futures_util::{Stream, StreamExt, TryStreamExt};
use leasehold_core::{Applied, EventKind, Header, LockTable};
use openraft::OptionalSend;
use openraft::storage::{EntryResponder, RaftStateMachine};
use std::io;
use std::sync::Arc;

/// Entries that are applied under one lock of the table. Readers wait for no more than these.
const CHUNK: usize = 64;

/// Applies entries to the table that [`Shared`] holds.
#[derive(Clone)]
pub(crate) struct StateMachine {
    shared: Arc<Shared>,
    slots: Arc<SlotStore>,
    history: History,
    sink: Arc<dyn Sink>,
    fatal: Fatal,
}

impl StateMachine {
    pub(crate) fn new(
        shared: Arc<Shared>,
        slots: Arc<SlotStore>,
        history: History,
        sink: Arc<dyn Sink>,
        fatal: Fatal,
    ) -> Self {
        Self { shared, slots, history, sink, fatal }
    }

    /// The last entry that the valid snapshot covers.
    pub(crate) fn snapshot_index(&self) -> Option<u64> {
        self.slots.active().and_then(|head| head.meta.last_log_id).map(|id| id.index)
    }

    /// The size of the valid snapshot.
    pub(crate) fn snapshot_bytes(&self) -> u64 {
        self.slots.active().map_or(0, |head| head.bytes)
    }

    /// What a peer's snapshot needs besides the table.
    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    async fn apply_chunk(&self, items: Vec<EntryResponder<TypeConfig>>) {
        self.history.room().await;
        let mut responders = Vec::with_capacity(items.len());
        {
            let _sentinel = Sentinel { fatal: self.fatal.clone(), file: FILE };
            let mut table = self.shared.table.write();
            for (entry, responder) in items {
                responders.extend(responder);
                let id = entry.log_id;
                match entry.payload {
                    Payload::Normal(batch) => self.apply_batch(&mut table, id, &batch),
                    Payload::Membership(members) => {
                        let members = StoredMembership::new(Some(id), members);
                        self.shared.position.lock().membership = members;
                        self.history.push(Happened::default(), id.index);
                    }
                    Payload::Blank => self.history.push(Happened::default(), id.index),
                }
                self.shared.position.lock().last = Some(id);
                self.shared.digests.applied(id.index, &table);
            }
        }
        // Outside of the lock: this wakes tasks.
        responders.into_iter().for_each(|responder| responder.send(Reply));
    }

    fn apply_batch(&self, table: &mut LockTable, id: LogId, batch: &Batch) {
        let term = id.leader_id.term;
        let applied = table.apply(Header { term, at_ms: batch.at_ms }, &batch.commands);
        // Before the sink: whoever it wakes may ask at once how a grant ended.
        self.remember(&applied, id.index);
        self.sink.applied(id.index, term, batch, applied, table);
    }

    fn remember(&self, applied: &Applied, index: u64) {
        for event in &applied.events {
            if let EventKind::HistoryTrimmed { before_ms } = &event.kind {
                self.history.trim_before(*before_ms);
            }
        }
        self.history.push(Happened::of(&applied.events), index);
    }
}

impl RaftStateMachine<TypeConfig> for StateMachine {
    type SnapshotData = SnapshotData;
    type SnapshotBuilder = SnapshotBuilder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        let position = self.shared.position.lock().clone();
        Ok((position.last, position.membership))
    }

    async fn apply<Strm>(&mut self, entries: Strm) -> Result<(), io::Error>
    where
        Strm: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + OptionalSend,
    {
        let mut chunks = entries.try_ready_chunks(CHUNK);
        while let Some(chunk) = chunks.next().await {
            match chunk {
                Ok(items) => self.apply_chunk(items).await,
                Err(TryReadyChunksError(items, cause)) => {
                    self.apply_chunk(items).await;
                    return Err(cause);
                }
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder {
        let table = self.shared.table.read();
        let position = self.shared.position.lock().clone();
        let (slots, history) = (Arc::clone(&self.slots), self.history.clone());
        SnapshotBuilder::new(table.freeze(), position, slots, history)
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        snapshot: SnapshotData,
    ) -> Result<(), io::Error> {
        let (slots, history, to_keep) =
            (Arc::clone(&self.slots), self.history.clone(), meta.clone());
        let installing =
            crate::runtime::blocking(move || install(to_keep, &snapshot, &slots, &history));
        let table =
            installing.await.ok_or_else(crate::runtime::lost)?.map_err(|fault| fault.to_io())?;
        let mut current = self.shared.table.write();
        *current = table;
        *self.shared.position.lock() =
            Position { last: meta.last_log_id, membership: meta.last_membership.clone() };
        self.sink.replaced(&current);
        let newest = current.revision();
        drop(current);
        // Whoever follows looks at the table first: it must be the new one.
        self.history.wake(newest);
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, io::Error> {
        let current = self.slots.current().map_err(|fault| fault.to_io())?;
        Ok(current.map(|(meta, snapshot)| {
            let snapshot = snapshot.with_history(self.history.clone());
            Snapshot { meta, snapshot }
        }))
    }
}

/// Checks a snapshot, then keeps it. Nothing is touched before all of it was understood.
fn install(
    meta: SnapshotMeta,
    snapshot: &SnapshotData,
    slots: &SlotStore,
    history: &History,
) -> Result<LockTable, StorageFault> {
    let table =
        snapshot.table().map_err(|cause| StorageFault::new(FILE, "take over a snapshot", cause))?;
    let totals: Totals = snapshot.totals();
    let mut next = 0;
    let chunks = || {
        let number = next;
        next += 1;
        (number < totals.chunks).then(|| snapshot.chunk(number)).transpose()
    };
    let upto = meta.last_log_id.map_or(0, |id| id.index);
    // What ended between here and there is in no log of this node: it came from the peer.
    let settle = || history.adopt(upto, &table);
    slots.write(meta, chunks, || totals, settle)?;
    Ok(table)
}
