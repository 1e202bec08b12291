//! A data directory that begins with a state instead of nothing.
//!
//! Its log is empty and says that everything up to the state was in it. Its one member is the node
//! itself, in a life of its own, so it leads as soon as it starts and nobody else is asked.

use super::read::BackupError;
use crate::fatal::{Fatal, StorageFault};
use crate::history::{self, Happened, History, HistorySetup};
use crate::log::{self, tables::Beginning};
use crate::open::{OpenError, directory};
use crate::runtime;
use crate::state::{self, slots};
use crate::types::{CommittedLeader, LogId, Member, Membership, SnapshotMeta, StoredMembership};
use leasehold_core::restore::RestoreError;
use leasehold_core::{ClusterId, LockTable, Restore};
use redb::Database;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Above which number tokens go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenFloor {
    /// This one.
    At(u64),
    /// Above whatever a service can have given out since, and above this one, which somebody has
    /// seen.
    Auto {
        /// The highest token that any storage has seen.
        seen: u64,
    },
}

/// What was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// The new cluster, as 32 hexadecimal digits.
    pub cluster: String,
    /// The node that it consists of.
    pub node: u64,
    /// Every token from here on is above this one.
    pub token_floor: u64,
    /// The newest token that was on record.
    pub last_token: u64,
    /// The newest change on record before it was brought back.
    pub before: u64,
    /// The newest change now.
    pub revision: u64,
    /// For how long nothing is granted after it starts, in milliseconds.
    pub hold_ms: u64,
    /// Grants that were live and have ended.
    pub grants: usize,
    /// Leases that were open and have ended.
    pub leases: usize,
    /// Places in line that are gone.
    pub waiters: usize,
    /// Where the files of before are, if there were any.
    pub kept: Option<PathBuf>,
}

/// Why nothing was restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreFailed {
    /// The backup cannot be used.
    #[error("{}", path.display())]
    Backup {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        cause: BackupError,
    },
    /// There is something in the directory already.
    #[error(
        "{}: the directory is not empty. A restore changes no data that is there: name a new one",
        path.display()
    )]
    NotEmpty {
        /// The directory.
        path: PathBuf,
    },
    /// There is nothing in the directory.
    #[error("{}: no node has run on this data directory, so there is nothing to recover", path.display())]
    Nothing {
        /// The directory.
        path: PathBuf,
    },
    /// The tokens or revisions do not allow it.
    #[error(transparent)]
    Rule(#[from] RestoreError),
    /// The directory cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The disk fails.
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
    /// A file that is being made cannot be written.
    #[error(transparent)]
    Storage(#[from] StorageFault),
    /// A file that is being made is refused by the database.
    #[error("{}: it could not be made", path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// What the database says.
        #[source]
        cause: Box<redb::Error>,
    },
    /// A part of the history is not what it should be.
    #[error("its history cannot be taken over")]
    History(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// How a state is brought back, as the operator wants it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) floor: TokenFloor,
    /// `None`: for the longest TTL.
    pub(super) hold_ms: Option<u64>,
}

impl Wanted {
    pub(super) fn of(self, table: &LockTable) -> Result<Restore, RestoreError> {
        let now_ms = runtime::wall_clock_ms();
        let token_floor = match self.floor {
            TokenFloor::At(floor) => floor,
            TokenFloor::Auto { seen } => table.auto_token_floor(now_ms)?.max(seen),
        };
        let cluster = ClusterId(runtime::random());
        Ok(Restore { cluster, token_floor, now_ms, hold_ms: self.hold_ms })
    }
}

/// Where a file is while it is made.
pub(super) fn unfinished(dir: &Path, file: &str) -> PathBuf {
    directory::unfinished(&dir.join(file))
}

/// A history that is being made, with nothing in it or with what its file holds already.
pub(super) fn history(path: &Path, is_new: bool) -> Result<History, RestoreFailed> {
    let failed = |cause: redb::Error| database(path, cause);
    let db = Database::create(path).map_err(|cause| failed(cause.into()))?;
    if is_new {
        history::tables::create(&db).map_err(failed)?;
    }
    // What is too much goes when the node runs, by settings that nobody knows here.
    let setup = HistorySetup {
        fatal: Fatal::new(),
        pending_max: usize::MAX,
        batch: 32_768,
        settle: Duration::from_secs(5),
        keep: u64::MAX,
        keep_changes: u64::MAX,
        keep_audits: u64::MAX,
    };
    Ok(History::start(db, setup)?)
}

fn database(path: &Path, cause: redb::Error) -> RestoreFailed {
    RestoreFailed::Database { path: path.to_owned(), cause: Box::new(cause) }
}

/// What a directory begins with.
pub(super) struct Beginnings<'a> {
    /// Where the files are made, under unfinished names.
    pub(super) dir: &'a Path,
    pub(super) node: u64,
    /// The newest log entry that is in the state.
    pub(super) term: u64,
    pub(super) index: u64,
    /// Up to that entry.
    pub(super) history: History,
}

impl Beginnings<'_> {
    /// Ends what the state holds and makes the files of a node that begins with what is left.
    pub(super) fn make(
        self,
        mut table: LockTable,
        restore: &Restore,
    ) -> Result<Restored, RestoreFailed> {
        let counts = table.counts();
        let (before, last_token) = (table.revision(), table.last_token().0);
        let mut index = self.index;
        for events in table.restore(restore)? {
            index += 1;
            self.history.push(Happened::of(&events), index);
            self.history.flush(index)?;
        }
        // The place of the members, and one at least that no entry of the old cluster has.
        index += 1;
        self.history.push(Happened::default(), index);
        self.history.flush(index)?;
        // Whatever came after this state is in nobody's history any more, and more may come until
        // somebody starts on it: what it was taken from goes on, perhaps.
        self.history.lost_until(history::UNTIL_IT_BEGINS)?;
        self.history.close()?;
        let last = LogId::new(CommittedLeader::new(self.term + 1), index);
        self.make_state(&table, last)?;
        Ok(Restored {
            cluster: restore.cluster.to_string(),
            node: self.node,
            token_floor: restore.token_floor,
            last_token,
            before,
            revision: table.revision(),
            hold_ms: table.hold_ms(),
            grants: counts.grants,
            leases: counts.leases,
            waiters: counts.tickets,
            kept: None,
        })
    }

    fn make_state(&self, table: &LockTable, last: LogId) -> Result<(), RestoreFailed> {
        let incarnation = runtime::random();
        let path = unfinished(self.dir, log::FILE);
        let beginning = Beginning { incarnation, node: self.node, last };
        let made = make_file(&path, |db| log::tables::create_after(db, beginning));
        made.map_err(|cause| database(&path, cause))?;

        let path = unfinished(self.dir, state::FILE);
        let made = make_file(&path, slots::create);
        made.map_err(|cause| database(&path, cause))?;
        let db = Database::open(&path).map_err(|cause| database(&path, cause.into()))?;
        let member = Member { incarnation, ..Member::default() };
        let members =
            Membership::new(vec![[self.node].into()], BTreeMap::from([(self.node, member)]))
                .expect("one voter with its address is a membership");
        let meta = SnapshotMeta {
            last_log_id: Some(last),
            last_membership: StoredMembership::new(Some(last), members),
        };
        Ok(state::write_first(db, meta, &table.freeze())?)
    }
}

fn make_file(
    path: &Path,
    create: impl FnOnce(&Database) -> Result<(), redb::Error>,
) -> Result<(), redb::Error> {
    let db = Database::create(path)?;
    create(&db)?;
    Ok(db.close()?)
}
