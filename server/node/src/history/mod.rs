//! Grants that ended, what changed and what operators did, kept in a file of their own and written
//! behind the hot path.
//!
//! | file | holds |
//! | --- | --- |
//! | `generation`, `pending` | what is not in the file yet, in memory, readable |
//! | `writer` | the thread that moves it there, thousands at a time |
//! | `trim` | forgetting by count and by age |
//! | `read`, `page` | look-ups and pages of grants, over memory and file together |
//! | `journal` | changes in order, for watchers; what operators did |
//! | `outgoing`, `intake` | what a snapshot needs at a peer, sent in parcels and taken in there |
//! | `file`, `tables` | the file and who may change it; its layout |
//!
//! Nothing is lost by writing late: until a snapshot says otherwise the log still has every
//! entry, and a snapshot is made valid only after [`History::flush`]. So the file is written
//! seldom and in large sorted batches, which is what makes four indexes affordable.
//!
//! The file says up to which log entry it has everything, in the transaction that adds the
//! records. Only the log of the same cluster may go on from there: a restore begins a new file.
//!
//! A node that takes over a peer's snapshot gets no entries for what lies before it. So the peer
//! sends what the history lacks up to there, before the snapshot itself.

mod file;
mod generation;
mod intake;
mod journal;
mod outgoing;
mod page;
mod pending;
mod read;
pub(crate) mod tables;
mod trim;
mod writer;

#[cfg(test)]
mod bench;
#[cfg(test)]
mod journal_tests;
#[cfg(test)]
mod tests;

pub(crate) use intake::{Intake, IntakeError};
pub(crate) use journal::{Audited, Next};
pub(crate) use outgoing::{Outgoing, Parcel, Reach};
pub(crate) use page::Cursor;
pub(crate) use page::Filter;

use crate::change::Change;
use crate::fatal::{Fatal, StorageFault};
use file::HistoryFile;
use leasehold_core::outcome::{Event, EventKind, GrantRecord};
use parking_lot::Mutex;
use pending::Pending;
use redb::Database;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tables::View;
use tokio::sync::watch;

/// The name by which faults and errors call this file.
pub(crate) const FILE: &str = "history.redb";

/// For [`History::lost_until`]: until whoever has it leads for the first time.
pub(crate) const UNTIL_IT_BEGINS: u64 = u64::MAX;

/// How the history is kept.
#[derive(Clone)]
pub(crate) struct HistorySetup {
    pub(crate) fatal: Fatal,
    /// Records in memory at which applying waits for the file.
    pub(crate) pending_max: usize,
    /// Records at which a batch is written at once.
    pub(crate) batch: usize,
    /// The longest time for which a record is in memory alone.
    pub(crate) settle: Duration,
    /// Records kept in the file.
    pub(crate) keep: u64,
    /// Changes kept in the file, for watchers.
    pub(crate) keep_changes: u64,
    /// Deeds of operators kept in the file.
    pub(crate) keep_audits: u64,
}

/// What one log entry did, as far as the history keeps it.
#[derive(Default)]
pub(crate) struct Happened {
    pub(crate) records: Vec<Arc<GrantRecord>>,
    pub(crate) changes: Arc<[Change]>,
    pub(crate) audits: Vec<Audited>,
}

impl Happened {
    pub(crate) fn of(events: &[Event]) -> Self {
        let (mut records, mut audits) = (Vec::new(), Vec::new());
        for event in events {
            match &event.kind {
                EventKind::Ended(record) => records.push(Arc::clone(record)),
                EventKind::Audited(record) => audits.push(Audited {
                    revision: event.revision.0,
                    at_ms: event.at_ms,
                    record: Arc::clone(record),
                }),
                _ => {}
            }
        }
        Self { records, changes: events.iter().map(Change::of).collect(), audits }
    }
}

/// A handle to the history. Clones share it; the last one to go stops the writer.
#[derive(Clone, Debug)]
pub(crate) struct History {
    core: Arc<Core>,
}

struct Core {
    file: Arc<HistoryFile>,
    pending: Arc<Pending>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl History {
    /// Starts the writer on a file that was opened and checked.
    pub(crate) fn start(db: Database, setup: HistorySetup) -> Result<Self, StorageFault> {
        let keep = (setup.keep_changes, setup.keep_audits);
        let (file, layout) = HistoryFile::open(db, setup.fatal.clone(), keep)
            .map_err(|cause| StorageFault::new(FILE, "start", cause))?;
        let (file, pending) = (Arc::new(file), Arc::new(Pending::new(layout, &setup)));
        let writer = writer::Writer::new(Arc::clone(&file), Arc::clone(&pending), setup.fatal);
        let thread = std::thread::Builder::new()
            .name("history-writer".into())
            .spawn(move || writer.run())
            .map_err(|cause| StorageFault::new(FILE, "start", cause))?;
        Ok(Self { core: Arc::new(Core { file, pending, writer: Mutex::new(Some(thread)) }) })
    }

    /// Waits until there is room for more. Called before the lock table is locked, so that a slow
    /// disk stops applying and not the readers of the table.
    pub(crate) async fn room(&self) {
        self.core.pending.room().await;
    }

    /// Takes over what happened in log entries up to and with `applied`, and nothing for entries
    /// that the file has already: a replay of the log changes nothing.
    pub(crate) fn push(&self, happened: Happened, applied: u64) {
        self.core.pending.push(happened, applied);
    }

    /// Wakes with every change.
    pub(crate) fn follow(&self) -> watch::Receiver<u64> {
        self.core.pending.follow()
    }

    /// Wakes those who follow: changes up to this one are in the state.
    pub(crate) fn wake(&self, newest: u64) {
        self.core.pending.wake(newest);
    }

    /// What ended in log entries up to and with this one survives a crash.
    pub(crate) fn durable_index(&self) -> u64 {
        self.core.pending.durable()
    }

    /// Makes everything durable that was pushed for entries up to `upto`. Blocks.
    pub(crate) fn flush(&self, upto: u64) -> Result<(), StorageFault> {
        self.core.pending.flush(upto)
    }

    /// Whatever ended at this instant or later is on record.
    pub(crate) fn complete_since_ms(&self) -> u64 {
        self.view().dropped_ms.max(self.core.pending.before_ms())
    }

    /// What ended up to this instant may have been lost: others knew of it, and are gone. Blocks.
    pub(crate) fn lost_until(&self, ms: u64) -> Result<(), StorageFault> {
        let file = &self.core.file;
        let told = file.transact(|_, books| {
            books.layout.dropped_ms = books.layout.dropped_ms.max(ms);
            Ok(())
        });
        told.map_err(|cause| file.broken(cause))
    }

    /// The state that this belongs to begins its life at this instant, if it was brought back and
    /// has not begun yet: until now others may have gone on with what it was made of. Blocks.
    pub(crate) fn begin(&self, ms: u64) -> Result<(), StorageFault> {
        if self.view().dropped_ms != UNTIL_IT_BEGINS {
            return Ok(());
        }
        let file = &self.core.file;
        let begun = file.transact(|_, books| {
            books.layout.dropped_ms = ms;
            Ok(())
        });
        begun.map_err(|cause| file.broken(cause))
    }

    /// Keeps this many records, forgetting those that ended first in parts of about a sixteenth.
    pub(crate) fn keep_at_most(&self, count: u64) {
        self.core.pending.set_retention(|retention| retention.keep = count);
    }

    /// While disk space is short: writes less often, which takes less of it.
    pub(crate) fn spare_space(&self, spare: bool) {
        self.core.pending.set_spare(spare);
    }

    /// Forgets what ended before this instant, by the proposers' wall clocks.
    pub(crate) fn trim_before(&self, ms: u64) {
        self.core.pending.set_retention(|retention| {
            retention.before_ms = retention.before_ms.max(ms);
        });
    }

    /// Writes what waits and ends the writer. Blocks.
    pub(crate) fn close(&self) -> Result<(), StorageFault> {
        self.core.stop();
        self.core.pending.fault().map_or(Ok(()), Err)
    }
}

impl History {
    fn view(&self) -> Arc<View> {
        self.core.file.view()
    }
}

impl Core {
    fn stop(&self) {
        self.pending.close();
        if let Some(thread) = self.writer.lock().take() {
            // A panic of the writer was reported by its sentinel.
            let _ = thread.join();
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.stop();
    }
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("History").field("durable", &self.pending.durable()).finish_non_exhaustive()
    }
}
