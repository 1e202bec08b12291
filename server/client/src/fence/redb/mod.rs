//! T_max in redb: in a file of the fence's own, or in the transactions of the caller's.
//!
//! | file | holds |
//! | --- | --- |
//! | [`RedbFence`] | the fence with a file of its own |
//! | [`guard`], [`seal`] | the rule inside the caller's transaction |
//! | `writer`, `storage` | one sync for many; opening again after a failure |
//! | `file`, `tables`, `watched` | making and opening; the layout; failed syncs |

mod file;
mod guard;
mod storage;
mod tables;
#[cfg(test)]
mod tests;
mod watched;
mod writer;

pub use file::OpenError;
pub use guard::{guard, seal};

use super::counts::Counts;
use super::engine::{Engine, Store};
use super::line::{Aim, Job, Pass};
use super::options::{Options, Stats};
use super::refused::{Refused, StorageFault};
use super::row::Row;
use super::{Fence, Usage};
use ::redb::ReadableDatabase;
use file::Opener;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use storage::Storage;
use tokio::sync::oneshot;
use writer::{Message, Writer};

/// A fence whose T_max is in a redb file: it is durable before a write is let through.
///
/// Many newer tokens at one time share one sync; a token that was seen before costs no write. One
/// process has the file at a time. Clones share the fence.
///
/// ```
/// use leasehold_client::fence::{Fence, Options, RedbFence, Usage};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("fence.redb");
/// let fence = RedbFence::open(&path, Options::default())?;
/// if !fence.was_closed_cleanly() {
///     // Writes that the last process let through may still be executed somewhere.
///     fence.hold_newer_for(Duration::from_secs(30));
/// }
/// fence.seal("invoice/42", 34).await?;
/// let pass = fence.admit("invoice/42", 34, Usage::Many).await?;
/// // ... the write ...
/// drop(pass);
/// fence.close().await?;
///
/// let fence = RedbFence::open(&path, Options::default())?;
/// assert!(fence.was_closed_cleanly());
/// assert_eq!(fence.highest("invoice/42").await?, Some(34));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct RedbFence(Arc<Engine<File>>);

/// Why a fence is not marked as closed cleanly.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CloseError {
    /// Writes may be in flight. The fence is closed, and its next process is told.
    #[error("{}", unclean(*in_flight))]
    Unclean {
        /// Passes that were not dropped; 0 if it is only that newer tokens were held still.
        in_flight: u64,
    },
    /// The mark could not be made durable.
    #[error("the fence could not be closed cleanly")]
    Storage(#[source] StorageFault),
}

fn unclean(in_flight: u64) -> String {
    match in_flight {
        0 => "newer tokens were held, since writes of an earlier process may be in flight".into(),
        1 => "1 write was in flight".into(),
        more => format!("{more} writes were in flight"),
    }
}

struct File {
    storage: Arc<Storage>,
    /// Nothing once it is dropped: the writer ends when nobody can write to it.
    messages: Option<mpsc::Sender<Message>>,
    writer: Option<JoinHandle<()>>,
    was_clean: bool,
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("File").field("was_clean", &self.was_clean).finish_non_exhaustive()
    }
}

impl RedbFence {
    /// Opens the file, or makes it; its directory must be there. Reads all of it once. Blocks.
    ///
    /// # Errors
    /// [`OpenError`] says why the file cannot be used.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self, OpenError> {
        let path = path.as_ref();
        file::ensure(path)?;
        let sync_failed = Arc::new(AtomicBool::new(false));
        let opener = file::opener(path, Arc::clone(&sync_failed));
        Self::start(path, options, opener, sync_failed)
    }

    fn start(
        path: &Path,
        options: Options,
        opener: Opener,
        sync_failed: Arc<AtomicBool>,
    ) -> Result<Self, OpenError> {
        let (storage, was_clean) = Storage::open(opener, sync_failed)?;
        let (storage, counts) = (Arc::new(storage), Arc::new(Counts::default()));
        let (messages, received) = mpsc::channel();
        let writer = Writer {
            storage: Arc::clone(&storage),
            counts: Arc::clone(&counts),
            resources_max: options.resources_max.max(1),
        };
        writer.look();
        let writer = thread::Builder::new()
            .name("leasehold-fence".into())
            .spawn(move || writer.run(&received))
            .map_err(|cause| file::io_error(path, "could not start its writer", cause))?;
        let (messages, writer) = (Some(messages), Some(writer));
        let file = File { storage, messages, writer, was_clean };
        Ok(Self(Arc::new(Engine::new(options, counts, file))))
    }

    /// Whether the last process closed the file with nothing in flight; yes for a new file.
    #[must_use]
    pub fn was_closed_cleanly(&self) -> bool {
        self.0.store.was_clean
    }

    /// For `span` from now on, writes may be in flight that this process knows nothing of: a
    /// token waits unless it is known that none of them can be older. The token of the present
    /// holder passes; a newer one is recorded at once, and waits.
    ///
    /// A token that was recorded while older writes were in flight waits as well, although it is
    /// T_max: its turn had not come when the last process ended.
    pub fn hold_newer_for(&self, span: Duration) {
        self.0.lanes.hold(span);
    }

    /// What it has counted.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.0.stats()
    }

    /// The highest token that any resource has seen, as it is durable; nothing if none has.
    ///
    /// Comparing tokens of two resources says nothing about either. This is for whoever has to
    /// tell a number that can have been here from one that cannot.
    ///
    /// # Errors
    /// The file cannot be read.
    pub async fn highest_of_all(&self) -> Result<Option<u64>, StorageFault> {
        self.0.store.read(tables::highest).await
    }

    /// Lets nobody in any more, and marks the file as closed cleanly. Calls that wait are
    /// refused. A fence that is dropped without it was not closed cleanly.
    ///
    /// # Errors
    /// [`CloseError::Unclean`] while a pass is not dropped, or the time of
    /// [`RedbFence::hold_newer_for`] is not over: the file says so, and is closed all the same.
    pub async fn close(&self) -> Result<(), CloseError> {
        let (in_flight, held) = self.0.lanes.close();
        let clean = in_flight == 0 && !held;
        let (closed, answer) = oneshot::channel();
        self.0.store.send(Message::Close { clean, closed });
        let gone = || Err(StorageFault::plain("the fence is closed already"));
        answer.await.unwrap_or_else(|_| gone()).map_err(CloseError::Storage)?;
        if clean { Ok(()) } else { Err(CloseError::Unclean { in_flight }) }
    }
}

impl Fence for RedbFence {
    async fn seal(&self, resource: &str, token: u64) -> Result<Option<u64>, Refused> {
        self.0.seal(resource, token).await
    }

    async fn admit(&self, resource: &str, token: u64, usage: Usage) -> Result<Pass, Refused> {
        self.0.admit(resource, token, Aim::from(usage)).await
    }

    async fn highest(&self, resource: &str) -> Result<Option<u64>, Refused> {
        self.0.highest(resource).await
    }
}

impl File {
    /// Looks at the file as it is durable. A page that is not cached comes from the disk.
    async fn read<T: Send + 'static>(
        &self,
        look: impl FnOnce(&::redb::ReadTransaction) -> Result<T, ::redb::Error> + Send + 'static,
    ) -> Result<T, StorageFault> {
        const READING: &str = "the fence could not read its file";
        let storage = Arc::clone(&self.storage);
        let read = tokio::task::spawn_blocking(move || {
            let db = storage.database()?;
            let read = || -> Result<T, ::redb::Error> { look(&db.begin_read()?) };
            read().map_err(|cause| {
                storage.give_up();
                StorageFault::new(READING, cause)
            })
        });
        read.await.map_err(|cause| StorageFault::new(READING, cause))?
    }

    fn send(&self, message: Message) {
        if let Some(messages) = &self.messages {
            // What cannot be sent is dropped, and tells its call so.
            drop(messages.send(message));
        }
    }
}

impl Store for File {
    async fn load(&self, resource: &str) -> Result<Row, StorageFault> {
        let resource = resource.to_owned();
        self.read(move |txn| tables::read(txn, &resource)).await
    }

    fn failed(&self) -> Option<StorageFault> {
        self.storage.sync_failed()
    }

    fn submit(&self, job: Job) {
        self.send(Message::Change(job));
    }
}

impl Drop for File {
    fn drop(&mut self) {
        drop(self.messages.take());
        if let Some(writer) = self.writer.take() {
            // One sync at the longest, and then the file is free for the next to open it.
            drop(writer.join());
        }
    }
}
