//! The directory itself: who uses it, which format it has, which files are in it.

use super::{OpenError, io_error, probe};
use redb::Database;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const LOCK: &str = "lock";
const FORMAT: &str = "format";
/// Appended to the name of a file until it is complete.
const UNFINISHED: &str = ".new";

/// Raised when an older binary could not use what a newer one writes.
pub const FORMAT_VERSION: u32 = 1;
const FORMAT_PREFIX: &str = "leasehold data format ";

/// Makes the tables of a new file.
pub(super) type Create = fn(&Database) -> Result<(), redb::Error>;

/// The directory, for as long as this process uses it.
#[derive(Debug)]
pub(crate) struct DirHold {
    /// The operating system lets go of it when the process ends, however it ends.
    _lock: File,
}

/// Takes the directory for this process, making it if it is not there.
pub(super) fn take(dir: &Path) -> Result<DirHold, OpenError> {
    fs::create_dir_all(dir)
        .map_err(|cause| io_error(dir, "could not make the directory", cause))?;
    let path = dir.join(LOCK);
    let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let lock = lock.map_err(|cause| io_error(&path, "could not open the lock file", cause))?;
    match lock.try_lock() {
        Ok(()) => Ok(DirHold { _lock: lock }),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse { path: dir.to_owned() }),
        Err(TryLockError::Error(cause)) => Err(io_error(&path, "could not lock", cause)),
    }
}

/// Checks format and presence of the files, or makes them in a directory that has none.
///
/// `last` is made last: with it the directory is complete, and without it a crash interrupted the
/// making, in which case the others are still empty.
pub(super) fn ensure_files(
    dir: &Path,
    files: &[(&str, Create)],
    last: (&str, Create),
) -> Result<(), OpenError> {
    let all = || files.iter().chain([&last]);
    let format = dir.join(FORMAT);
    match fs::read_to_string(&format) {
        Ok(text) => check_format(&format, &text)?,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
            if all().any(|(name, _)| dir.join(name).exists()) {
                return Err(OpenError::NoFormat { path: format });
            }
            write_format(&format)
                .and_then(|()| sync_dir(dir))
                .map_err(|cause| io_error(&format, "could not write", cause))?;
        }
        Err(cause) => return Err(io_error(&format, "could not read", cause)),
    }
    if dir.join(last.0).exists() {
        let missing = files.iter().map(|(name, _)| dir.join(name)).find(|path| !path.exists());
        return missing.map_or(Ok(()), |path| Err(OpenError::Missing { path }));
    }
    files.iter().try_for_each(|(name, create)| {
        let path = dir.join(name);
        if path.exists() { refuse_used(&path, &dir.join(last.0)) } else { make(dir, name, *create) }
    })?;
    make(dir, last.0, last.1)
}

fn check_format(path: &Path, text: &str) -> Result<(), OpenError> {
    let found = text.trim_end().strip_prefix(FORMAT_PREFIX).unwrap_or("unknown").to_owned();
    if found.parse() == Ok(FORMAT_VERSION) {
        return Ok(());
    }
    Err(OpenError::Format { path: path.to_owned(), found, reads: FORMAT_VERSION })
}

fn write_format(path: &Path) -> io::Result<()> {
    let unfinished = unfinished(path);
    let mut file = File::create(&unfinished)?;
    writeln!(file, "{FORMAT_PREFIX}{FORMAT_VERSION}")?;
    file.sync_all()?;
    fs::rename(&unfinished, path)
}

/// Whoever lost the last file must not get an empty one beside files with content.
fn refuse_used(path: &Path, last: &Path) -> Result<(), OpenError> {
    if probe::probe(path, probe::is_empty)? {
        return Ok(());
    }
    Err(OpenError::Missing { path: last.to_owned() })
}

/// Under another name until it is complete, so that no crash leaves half a file.
fn make(dir: &Path, name: &str, create: Create) -> Result<(), OpenError> {
    let path = dir.join(name);
    let unfinished = unfinished(&path);
    let doing = "could not make the file";
    match fs::remove_file(&unfinished) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
            return Err(io_error(&unfinished, doing, cause));
        }
        _ => {}
    }
    build(&unfinished, create).map_err(|cause| io_error(&path, doing, io::Error::other(cause)))?;
    fs::rename(&unfinished, &path)
        .and_then(|()| sync_dir(dir))
        .map_err(|cause| io_error(&path, doing, cause))
}

fn build(path: &Path, create: Create) -> Result<(), redb::Error> {
    let db = Database::create(path)?;
    create(&db)?;
    Ok(db.close()?)
}

fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(UNFINISHED);
    PathBuf::from(name)
}

/// A new name is durable only with its directory.
fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
