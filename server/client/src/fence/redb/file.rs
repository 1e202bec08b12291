//! Making and opening the file.

use super::tables::{self, FORMAT, Tables};
use super::watched::Watched;
use ::redb::backends::FileBackend;
use ::redb::{Database, DatabaseError, ReadableDatabase, StorageBackend};
use std::error::Error;
use std::fs::{self, File};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Enough for the upper levels of a million rows; redb's own default is a gigabyte.
const CACHE_BYTES: usize = 64 << 20;

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The system refuses something.
    #[error("{}: {doing}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// What the system says.
        #[source]
        cause: io::Error,
    },
    /// Another fence has the file, in this process or in another one.
    #[error("{}: another process uses this fence", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// A file of something else. It was left as it is.
    #[error("{}: the file is not that of a fence", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What redb says, if it is not one of its files at all.
        #[source]
        cause: Option<Box<dyn Error + Send + Sync>>,
    },
    /// Another release wrote it.
    #[error("{}: the file has format {found}, and this release reads format {reads}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The format that it has.
        found: u64,
        /// The format that this release reads.
        reads: u64,
    },
    /// The file is damaged. Whoever takes it away takes the fence away with it.
    #[error("{}: the file is damaged", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What redb says, if it says anything.
        #[source]
        cause: Option<Box<dyn Error + Send + Sync>>,
    },
}

/// Opens a file as often as it takes, and marks it as in use.
pub(super) type Opener = Box<dyn Fn() -> Result<(Database, bool), OpenError> + Send + Sync>;

/// What opens the file at `path`, which is made if there is none.
pub(super) fn opener(path: &Path, sync_failed: Arc<AtomicBool>) -> Opener {
    let path = path.to_owned();
    Box::new(move || {
        let doing = "could not open the file";
        let file = File::options().read(true).write(true).open(&path);
        let file = file.map_err(|cause| io_error(&path, doing, cause))?;
        if file.metadata().map_err(|cause| io_error(&path, doing, cause))?.len() == 0 {
            // redb would make a new database of it, and a fence without T_max is none.
            return Err(OpenError::Foreign { path: path.clone(), cause: None });
        }
        let backend = FileBackend::new(file).map_err(|cause| told(&path, cause))?;
        open(&path, Watched { backend, sync_failed: Arc::clone(&sync_failed) })
    })
}

/// Makes the file unless there is one. A crash leaves it whole or not at all, and of two
/// processes one makes it.
pub(super) fn ensure(path: &Path) -> Result<(), OpenError> {
    if path.try_exists().map_err(|cause| io_error(path, "could not look for it", cause))? {
        return Ok(());
    }
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(format!(".new-{}-{:x}", std::process::id(), fastrand::u64(..)));
    let unfinished = PathBuf::from(unfinished);
    let made = build(&unfinished).and_then(|()| link(&unfinished, path));
    let removed = fs::remove_file(&unfinished);
    made.and(removed).map_err(|cause| io_error(path, "could not make the file", cause))
}

fn build(path: &Path) -> io::Result<()> {
    let run = || -> Result<(), ::redb::Error> {
        let db = Database::create(path)?;
        let txn = db.begin_write()?;
        let mut tables = Tables::open(&txn)?;
        tables.format()?;
        tables.mark(true)?;
        drop(tables);
        txn.commit()?;
        Ok(db.close()?)
    };
    run().map_err(io::Error::other)
}

fn link(unfinished: &Path, path: &Path) -> io::Result<()> {
    match fs::hard_link(unfinished, path) {
        // Another process was quicker, and made the same.
        Err(cause) if cause.kind() != io::ErrorKind::AlreadyExists => return Err(cause),
        _ => {}
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    // A new name is durable only with its directory.
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// Opens a database, checks it from end to end, and takes the mark of a clean end away.
pub(super) fn open(
    path: &Path,
    backend: impl StorageBackend,
) -> Result<(Database, bool), OpenError> {
    let run = move || {
        let db = Database::builder()
            .set_cache_size(CACHE_BYTES)
            .set_check_integrity_on_open(true)
            .create_with_backend(backend)
            .map_err(|cause| told(path, cause))?;
        let clean = begin(path, &db)?;
        Ok((db, clean))
    };
    // redb says that it may panic on a file that was altered by others. That is an answer here.
    catch_unwind(AssertUnwindSafe(run))
        .unwrap_or_else(|_| Err(OpenError::Damaged { path: path.to_owned(), cause: None }))
}

fn begin(path: &Path, db: &Database) -> Result<bool, OpenError> {
    let fail = |cause: ::redb::Error| failed(path, cause);
    let found = db.begin_read().map_err(Into::into).and_then(|txn| tables::format(&txn));
    match found.map_err(fail)? {
        None => return Err(OpenError::Foreign { path: path.to_owned(), cause: None }),
        Some(FORMAT) => {}
        Some(found) => {
            return Err(OpenError::Format { path: path.to_owned(), found, reads: FORMAT });
        }
    }
    let mark = || -> Result<bool, ::redb::Error> {
        let txn = db.begin_write()?;
        let clean = Tables::open(&txn)?.begin()?;
        txn.commit()?;
        Ok(clean)
    };
    mark().map_err(fail)
}

fn told(path: &Path, cause: DatabaseError) -> OpenError {
    let path = path.to_owned();
    match cause {
        DatabaseError::DatabaseAlreadyOpen => OpenError::InUse { path },
        DatabaseError::Storage(::redb::StorageError::Io(cause))
            if cause.kind() == io::ErrorKind::InvalidData =>
        {
            OpenError::Foreign { path, cause: Some(cause.into()) }
        }
        cause => failed(&path, cause.into()),
    }
}

fn failed(path: &Path, cause: ::redb::Error) -> OpenError {
    match cause {
        ::redb::Error::Io(cause) => io_error(path, "could not read or write the file", cause),
        cause => OpenError::Damaged { path: path.to_owned(), cause: Some(cause.into()) },
    }
}

pub(super) fn io_error(path: &Path, doing: &'static str, cause: io::Error) -> OpenError {
    OpenError::Io { path: path.to_owned(), doing, cause }
}
