//! The directory itself: who uses it, which format it has, which files are in it.

use super::{OpenError, io_error, probe};
use redb::Database;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

const LOCK: &str = "lock";
const FORMAT: &str = "format";
const BARRED: &str = "barred";
/// More is not read of a file that anybody may have written.
const WHY_BYTES_MAX: u64 = 4_096;
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
pub(crate) fn take(dir: &Path) -> Result<DirHold, OpenError> {
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

/// A file that keeps everybody from starting on a directory, and says why.
#[derive(Debug)]
pub(crate) struct Barrier {
    path: PathBuf,
}

impl Barrier {
    /// Puts it up, durably.
    pub(crate) fn put(dir: &Path, why: &str) -> Result<Self, OpenError> {
        let path = dir.join(BARRED);
        let put = || -> io::Result<()> {
            let unfinished = unfinished(&path);
            let mut file = File::create(&unfinished)?;
            writeln!(file, "{why}")?;
            file.sync_all()?;
            fs::rename(&unfinished, &path)?;
            sync_dir(dir)
        };
        put().map_err(|cause| io_error(&path, "could not write", cause))?;
        Ok(Self { path })
    }

    /// Takes it away.
    pub(crate) fn lift(self) -> Result<(), OpenError> {
        let dir = self.path.parent().unwrap_or(&self.path);
        let lifted = fs::remove_file(&self.path).and_then(|()| sync_dir(dir));
        lifted.map_err(|cause| io_error(&self.path, "could not remove", cause))
    }

    /// Refuses a directory that has one.
    pub(super) fn check(dir: &Path) -> Result<(), OpenError> {
        let path = dir.join(BARRED);
        let mut why = Vec::new();
        match File::open(&path).and_then(|file| file.take(WHY_BYTES_MAX).read_to_end(&mut why)) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(cause) => Err(io_error(&path, "could not read", cause)),
            Ok(_) => {
                let why = String::from_utf8_lossy(&why).trim().to_owned();
                Err(OpenError::Barred { path, why })
            }
        }
    }
}

/// Refuses a directory that a node could not start on, as far as that is seen without opening the
/// files. Nothing is made.
pub(crate) fn check(dir: &Path, files: &[&str]) -> Result<(), OpenError> {
    Barrier::check(dir)?;
    let format = dir.join(FORMAT);
    let text =
        fs::read_to_string(&format).map_err(|cause| io_error(&format, "could not read", cause))?;
    check_format(&format, &text)?;
    let missing = files.iter().map(|file| dir.join(file)).find(|path| !path.exists());
    missing.map_or(Ok(()), |path| Err(OpenError::Missing { path }))
}

/// Gives files their names that were made under unfinished ones, in this order.
pub(crate) fn complete(dir: &Path, files: &[&str]) -> Result<(), OpenError> {
    let format = dir.join(FORMAT);
    write_format(&format).map_err(|cause| io_error(&format, "could not write", cause))?;
    for file in files {
        let path = dir.join(file);
        fs::rename(unfinished(&path), &path)
            .map_err(|cause| io_error(&path, "could not name the file", cause))?;
    }
    sync_dir(dir).map_err(|cause| io_error(dir, "could not sync the directory", cause))
}

/// Removes what stands beside the files; answers whether nothing of it is left.
pub(crate) fn clear(dir: &Path) -> bool {
    [FORMAT, BARRED, LOCK].into_iter().all(|file| {
        let path = dir.join(file);
        fs::remove_file(&path).is_ok() || !path.exists()
    })
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

pub(crate) fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(UNFINISHED);
    PathBuf::from(name)
}

/// A new name is durable only with its directory.
fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
