//! Opening the data directory of a node.
//!
//! ```text
//! lock          held by the process that uses the directory
//! format        the version of the layout, as text
//! log.redb      Raft log and vote
//! state.redb    snapshots of the lock table
//! history.redb  grants that ended, changes, deeds of operators
//! barred        only if nobody may start on it: why
//! ```
//!
//! A directory that this binary cannot use is refused before anything in it changes: each file is
//! first opened through an overlay that keeps all writes in memory, its repair after a crash
//! included, and checked from end to end. Only then is it opened in earnest.

pub(crate) mod directory;
mod overlay;
pub(crate) mod probe;

#[cfg(test)]
pub(crate) mod disk;
#[cfg(test)]
pub(crate) mod support;
#[cfg(test)]
mod tests;

use directory::Barrier;
pub(crate) use directory::DirHold;
pub use directory::FORMAT_VERSION as DATA_FORMAT;

use crate::codec::SlotHead;
use crate::fatal::{Fatal, StorageFault};
use crate::history::{self, History, HistorySetup};
use crate::level::Outdated;
use crate::log::{self, LogObserver, LogSetup, LogStore};
use crate::state::slots::{self, SlotStore};
use crate::state::{self, Position, Shared, Sink, StateMachine};
use leasehold_core::{Limits, LockTable};
use redb::Database;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What a node opens its storage with.
pub(crate) struct Setup {
    pub(crate) dir: PathBuf,
    /// Which node of the cluster this is.
    pub(crate) node: u64,
    /// The highest version of commands that it knows.
    pub(crate) commands: u16,
    /// The limits of a table that starts empty. Later ones are part of the table.
    pub(crate) seed: Limits,
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) observer: Arc<dyn LogObserver>,
    pub(crate) fatal: Fatal,
    pub(crate) sizes: Sizes,
    /// Changes that watchers can still be told of.
    pub(crate) keep_changes: u64,
    /// Deeds of operators on record.
    pub(crate) keep_audits: u64,
    /// Entries from one digest of the state to the next; 0 for none.
    pub(crate) digest_every: u64,
}

/// How much memory storage uses, and how lazily history is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Bytes that redb caches of the log.
    pub(crate) log_cache_bytes: usize,
    /// Bytes that redb caches of snapshots: they are read once and in order.
    pub(crate) state_cache_bytes: usize,
    /// Bytes that redb caches of the history: enough for its indexes, or batches read pages back.
    pub(crate) history_cache_bytes: usize,
    /// Bytes of durable log entries kept decoded for readers.
    pub(crate) tail_bytes: usize,
    /// Ended grants and changes in memory at which applying waits for the history file.
    pub(crate) pending_max: usize,
    /// Ended grants at which a batch of history is written at once.
    pub(crate) history_batch: usize,
    /// The longest time for which an ended grant is in memory alone.
    pub(crate) history_settle: Duration,
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            log_cache_bytes: 64 << 20,
            state_cache_bytes: 16 << 20,
            history_cache_bytes: 128 << 20,
            tail_bytes: 32 << 20,
            pending_max: 524_288,
            history_batch: 32_768,
            history_settle: Duration::from_secs(5),
        }
    }
}

/// The storage of a node, ready for Raft.
#[derive(Clone)]
pub(crate) struct Opened {
    /// Which life of the node this is.
    pub(crate) incarnation: u128,
    pub(crate) log: LogStore,
    pub(crate) machine: StateMachine,
    pub(crate) shared: Arc<Shared>,
    pub(crate) history: History,
    /// Kept until everything above is gone.
    pub(crate) _hold: Arc<DirHold>,
}

impl Opened {
    /// Writes what waits. After Raft has stopped. Blocks.
    pub(crate) fn close(&self) -> Result<(), StorageFault> {
        let log = self.log.close();
        self.history.close().and(log)
    }
}

/// Why the data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The system refuses something.
    #[error("{}: {doing}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// What the system says.
        #[source]
        cause: io::Error,
    },
    /// Another process has the directory.
    #[error("{}: another process uses this data directory", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// Another version wrote it.
    #[error(
        "{}: the data directory has format {found}; this binary reads format {reads}. \
         Nothing was changed",
        path.display()
    )]
    Format {
        /// The directory.
        path: PathBuf,
        /// The format that it has.
        found: String,
        /// The newest format that this binary reads.
        reads: u32,
    },
    /// A newer release wrote commands that this one does not know.
    #[error(
        "{}: this file takes a binary that knows commands of version {}, and this one knows them \
         up to version {}. Start a newer release on this directory. Nothing was changed",
        path.display(), outdated.needs, outdated.knows
    )]
    Outdated {
        /// The file.
        path: PathBuf,
        /// What it takes.
        outdated: Outdated,
    },
    /// Somebody has left word that nobody may start on it.
    #[error("{}: nobody may start on this data directory: {why}", path.display())]
    Barred {
        /// The file that says so.
        path: PathBuf,
        /// What it says.
        why: String,
    },
    /// Files of a node, but nothing that says of which format.
    #[error("{}: there are data files and no format file beside them. Nothing was changed", path.display())]
    NoFormat {
        /// The directory.
        path: PathBuf,
    },
    /// One file of several is gone.
    #[error("{}: the file is missing, and others of this node are there. Nothing was changed", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// Another node's files.
    #[error(
        "{}: these are the files of node {found}, and this is node {asked}. Nothing was changed",
        path.display()
    )]
    OtherNode {
        /// The directory.
        path: PathBuf,
        /// Whose files they are.
        found: u64,
        /// Who was to use them.
        asked: u64,
    },
    /// A file is damaged, or is not one of ours.
    #[error("{}: the file cannot be used: {what}. Nothing was changed", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
        /// What the storage says.
        #[source]
        cause: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// The storage failed while it was started.
    #[error(transparent)]
    Start(#[from] StorageFault),
}

/// Opens, or makes, the storage of a node. Blocks.
pub(crate) fn open(setup: Setup) -> Result<Opened, OpenError> {
    let hold = Arc::new(directory::take(&setup.dir)?);
    let path = |file| setup.dir.join(file);
    Barrier::check(&setup.dir)?;
    directory::ensure_files(
        &setup.dir,
        &[(state::FILE, slots::create), (history::FILE, history::tables::create)],
        (log::FILE, log::tables::create),
    )?;
    // All are looked at before any is opened in earnest, since that may repair it.
    let found = probe::probe(&path(log::FILE), log::tables::load)?;
    if let Some(node) = found.node.filter(|node| *node != setup.node) {
        return Err(OpenError::OtherNode {
            path: setup.dir.clone(),
            found: node,
            asked: setup.node,
        });
    }
    let outdated = |file, needs| outdated(path(file), needs, setup.commands);
    if found.needs > setup.commands {
        return Err(outdated(log::FILE, found.needs));
    }
    let loaded = probe::probe(&path(state::FILE), |db| slots::load_known(db, setup.commands))?
        .map_err(|needs| outdated(state::FILE, needs))?;
    let complete_upto = probe::probe(&path(history::FILE), history::tables::check)?;
    check_history(&path(history::FILE), complete_upto, loaded.as_ref().map(|(head, _)| head))?;

    let sizes = &setup.sizes;
    let history =
        history_store(&setup, open_file(&path(history::FILE), sizes.history_cache_bytes)?)?;
    let log_setup = LogSetup {
        observer: Arc::clone(&setup.observer),
        fatal: setup.fatal.clone(),
        tail_bytes: sizes.tail_bytes,
    };
    let log_file = open_file(&path(log::FILE), sizes.log_cache_bytes)?;
    if found.node.is_none() {
        log::tables::set_node(&log_file, setup.node)
            .map_err(|cause| StorageFault::new(log::FILE, "keep the node's id", cause))?;
    }
    let incarnation = found.incarnation;
    let log = LogStore::start(log_file, found, log_setup)
        .map_err(|cause| io_error(&path(log::FILE), "could not start its writer", cause))?;
    let slots = open_file(&path(state::FILE), sizes.state_cache_bytes)?;
    let (shared, slots) = state_store(&setup, slots, loaded);
    let machine = StateMachine::new(
        Arc::clone(&shared),
        slots,
        history.clone(),
        Arc::clone(&setup.sink),
        setup.fatal.clone(),
    );
    Ok(Opened { incarnation, log, machine, shared, history, _hold: hold })
}

pub(crate) fn outdated(path: PathBuf, needs: u16, knows: u16) -> OpenError {
    OpenError::Outdated { path, outdated: Outdated { needs, knows } }
}

/// A snapshot is valid only after the history was durable up to it, and the log before it may be
/// purged: a history that ends earlier is damaged or older, and nothing could complete it.
pub(crate) fn check_history(
    path: &Path,
    complete_upto: u64,
    head: Option<&SlotHead>,
) -> Result<(), OpenError> {
    let snapshot = head.and_then(|head| head.meta.last_log_id).map_or(0, |id| id.index);
    if complete_upto >= snapshot {
        return Ok(());
    }
    let what = format!(
        "it ends at log entry {complete_upto}, and the snapshot at {snapshot}: it is damaged, or older than the other files"
    );
    Err(OpenError::Refused { path: path.to_owned(), what, cause: None })
}

fn history_store(setup: &Setup, db: Database) -> Result<History, StorageFault> {
    let sizes = &setup.sizes;
    History::start(
        db,
        HistorySetup {
            fatal: setup.fatal.clone(),
            pending_max: sizes.pending_max,
            batch: sizes.history_batch,
            settle: sizes.history_settle,
            keep: setup.seed.history_max,
            keep_changes: setup.keep_changes,
            keep_audits: setup.keep_audits,
        },
    )
}

fn state_store(
    setup: &Setup,
    db: Database,
    loaded: Option<(SlotHead, LockTable)>,
) -> (Arc<Shared>, Arc<SlotStore>) {
    let (head, table) = loaded.unzip();
    let position = head.as_ref().map_or_else(Position::default, |head: &SlotHead| Position {
        last: head.meta.last_log_id,
        membership: head.meta.last_membership.clone(),
    });
    let table = table.unwrap_or_else(|| LockTable::new(setup.seed.clone()));
    let slots = SlotStore::new(db, head, setup.fatal.clone());
    let shared = Shared::new(table, position).with_digests(setup.digest_every);
    (Arc::new(shared), Arc::new(slots))
}

fn open_file(path: &Path, cache_bytes: usize) -> Result<Database, OpenError> {
    let opened = Database::builder().set_cache_size(cache_bytes).open(path);
    opened.map_err(|cause| probe::refused(path, "redb cannot open it", cause))
}

fn io_error(path: &Path, doing: &'static str, cause: io::Error) -> OpenError {
    OpenError::Io { path: path.to_owned(), doing, cause }
}
