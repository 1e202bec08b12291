//! The Raft log: one file, one thread that writes it.
//!
//! | file | holds |
//! | --- | --- |
//! | `queue` | what waits to be written: votes and appends in one line |
//! | `writer`, `cut` | the thread: everything that waits becomes one transaction, one sync |
//! | `runs` | which term each index belongs to, to keep `committed` inside the log |
//! | `tail` | the newest entries in memory, for readers |
//! | `growth` | bytes written since an index, for the snapshot trigger |
//! | `reader` | tail first, then the file |
//! | `tables` | the layout of the file, and what is checked when it is opened |
//!
//! What must stay true:
//!
//! - **L1** Nothing is acknowledged before the sync that covers it; after a failed sync nothing
//!   is acknowledged any more.
//! - **L2** Votes, appends, truncations and purges take effect in the order in which openraft
//!   asked for them.
//! - **L3** The stored `committed` names an entry that the file holds, or one before them all.
//! - **L4** An entry is in memory or in the file at any moment between its append and its purge.

mod cut;
mod growth;
mod queue;
mod reader;
mod runs;
mod storage;
pub(crate) mod tables;
mod tail;
mod writer;

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod tests;

pub(crate) use reader::LogReader;

use crate::fatal::{Fatal, StorageFault};
use crate::types::{IoFlushed, LogId, Vote};
use growth::Growth;
use parking_lot::Mutex;
use queue::{Op, Queue};
use redb::Database;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tables::Found;
use tail::Tail;
use writer::Writer;

/// The name by which faults and errors call this file.
pub(crate) const FILE: &str = "log.redb";

/// One durable commit, told to whoever keeps metrics.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogSync {
    /// Entries in it.
    pub(crate) entries: usize,
    /// Bytes of the encoded entries.
    pub(crate) bytes: usize,
    /// How long its oldest request had waited.
    pub(crate) queued: Duration,
    /// Encoding and inserting.
    pub(crate) write: Duration,
    /// The commit, nearly all of it the sync.
    pub(crate) sync: Duration,
}

/// Hears of every durable commit, on the writer thread, before anything is acknowledged.
pub(crate) trait LogObserver: Send + Sync + 'static {
    /// Must be quick: the next commit waits for it.
    fn synced(&self, sync: &LogSync);
}

/// What the log needs besides its file.
#[derive(Clone)]
pub(crate) struct LogSetup {
    pub(crate) observer: Arc<dyn LogObserver>,
    pub(crate) fatal: Fatal,
    /// Bytes of durable entries kept in memory for readers.
    pub(crate) tail_bytes: usize,
}

/// A handle to the log. Clones share it; the last one to go stops the writer.
#[derive(Clone, Debug)]
pub(crate) struct LogStore {
    core: Arc<Core>,
}

struct Core {
    db: Arc<Database>,
    queue: Arc<Queue>,
    view: Arc<View>,
    fatal: Fatal,
    writer: Mutex<Option<JoinHandle<()>>>,
}

/// What the writer and the handles both look at.
struct View {
    tail: Mutex<Tail>,
    growth: Mutex<Growth>,
    /// The newest durable vote.
    vote: Mutex<Option<Vote>>,
    /// The newest `committed` that was saved or found.
    committed: Mutex<Option<LogId>>,
    /// The node is known to have been a member of its cluster.
    was_member: AtomicBool,
}

impl LogStore {
    /// Starts the writer on a file that was opened and checked.
    pub(crate) fn start(db: Database, found: Found, setup: LogSetup) -> std::io::Result<Self> {
        let db = Arc::new(db);
        let queue = Arc::new(Queue::default());
        let view = Arc::new(View {
            tail: Mutex::new(Tail::new(&found, setup.tail_bytes)),
            growth: Mutex::new(found.growth),
            vote: Mutex::new(found.vote),
            committed: Mutex::new(found.committed),
            was_member: AtomicBool::new(found.was_member),
        });
        let fatal = setup.fatal.clone();
        let writer = Writer::new(
            Arc::clone(&db),
            Arc::clone(&queue),
            Arc::clone(&view),
            setup,
            found.durable,
        );
        let thread =
            std::thread::Builder::new().name("log-writer".into()).spawn(move || writer.run())?;
        let writer = Mutex::new(Some(thread));
        Ok(Self { core: Arc::new(Core { db, queue, view, fatal, writer }) })
    }

    /// Encoded bytes of the entries above `index`, to within some tens of kilobytes.
    pub(crate) fn bytes_since(&self, index: Option<u64>) -> u64 {
        self.core.view.growth.lock().since(index)
    }

    pub(crate) fn last_index(&self) -> Option<u64> {
        self.core.view.tail.lock().last().map(|id| id.index)
    }

    /// Keeps with the votes that the node is a member of its cluster. The first call writes.
    pub(crate) fn note_member(&self) {
        if !self.core.view.was_member.swap(true, Ordering::Relaxed)
            && let Err(error) = self.submit(Op::Member)
        {
            tracing::debug!(%error, "it is not kept that this node is a member");
        }
    }

    /// Whether the node is known to have been a member, in this run or one before.
    pub(crate) fn was_member(&self) -> bool {
        self.core.view.was_member.load(Ordering::Relaxed)
    }

    /// Requests that no transaction has taken up yet.
    pub(crate) fn queued(&self) -> usize {
        self.core.queue.len()
    }

    /// Writes what waits and the newest `committed`, and ends the writer. Blocks.
    pub(crate) fn close(&self) -> Result<(), StorageFault> {
        self.core.stop();
        self.core.queue.fault().map_or(Ok(()), Err)
    }

    fn submit(&self, op: Op) -> std::io::Result<()> {
        self.core.queue.push(op).map_err(|fault| fault.to_io())
    }

    fn append_op(&self, entries: Vec<crate::types::Entry>, done: IoFlushed) -> std::io::Result<()> {
        // The tail first: an entry must be readable when this returns, and the writer looks for
        // it there when it is durable.
        self.core.view.tail.lock().append(&entries)?;
        self.submit(Op::Append { entries, done })
    }
}

impl Core {
    fn stop(&self) {
        self.queue.close();
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
        f.debug_struct("Log").field("queued", &self.queue.len()).finish_non_exhaustive()
    }
}
