//! A data directory from a backup.

use super::found::{Beginnings, RestoreFailed, Restored, TokenFloor, Wanted, history, unfinished};
use super::read::{self, BackupError, Piece, Reader};
use crate::history;
use crate::log;
use crate::open::directory::{self, Barrier};
use crate::state::{self, Joiner};
use leasehold_core::LockTable;
use leasehold_core::row::Row;
use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

const UNFINISHED: &str = "a restore into it was not completed. Empty it, and restore again";

/// What to restore, and how.
#[derive(Debug, Clone)]
pub struct RestoreSettings {
    /// The backup.
    pub file: PathBuf,
    /// Where the new node's data is going to be; empty, or not there.
    pub dir: PathBuf,
    /// The new node's id.
    pub node: u64,
    /// Above which number tokens go on.
    pub floor: TokenFloor,
    /// For how long nothing is granted, in milliseconds; `None`: for the longest TTL of a lease in
    /// the backup.
    pub hold_ms: Option<u64>,
}

/// The newest token that a backup has on record.
///
/// # Errors
/// [`RestoreFailed::Backup`] if the file is no whole backup.
pub fn token_counter(file: &Path) -> Result<u64, RestoreFailed> {
    let refused = |cause| RestoreFailed::Backup { path: file.to_owned(), cause };
    open(file).and_then(read::check).map(|summary| summary.last_token).map_err(refused)
}

/// Makes the data directory of a single node that begins with what is in a backup. Blocks.
///
/// # Errors
/// [`RestoreFailed`] says what stands in the way. Nothing is left behind, other than after a fault
/// of the disk, and then nobody starts on it.
pub fn restore(settings: &RestoreSettings) -> Result<Restored, RestoreFailed> {
    let RestoreSettings { file, dir, .. } = settings;
    let refused = |cause| RestoreFailed::Backup { path: file.clone(), cause };
    // All of it is read once before anything is made of it.
    let checked = open(file).and_then(read::check).map_err(refused)?;
    refuse_content(dir)?;
    let made = !dir.exists();
    let hold = directory::take(dir)?;
    let restored = fill(settings, checked.digest);
    if restored.is_err() {
        clear(dir, made);
    }
    drop(hold);
    restored
}

fn fill(settings: &RestoreSettings, digest: u128) -> Result<Restored, RestoreFailed> {
    let RestoreSettings { file, dir, node, floor, hold_ms } = settings;
    let refused = |cause| RestoreFailed::Backup { path: file.clone(), cause };
    let barrier = Barrier::put(dir, UNFINISHED)?;
    let mut reader = open(file).and_then(Reader::begin).map_err(refused)?;
    let (table, first) = state_of(&mut reader, digest).map_err(refused)?;
    // Refused now, before the long part.
    let restore = Wanted { floor: *floor, hold_ms: *hold_ms }.of(&table)?;
    table.clone().restore(&restore)?;
    let (term, index) = (reader.head.term, reader.head.index);
    let history = history(&unfinished(dir, history::FILE), true)?;
    let (mut intake, _) = history.take_in(index)?;
    let mut next = first;
    while let Some(Piece::History(parcel)) = next {
        intake.add(parcel).map_err(|cause| RestoreFailed::History(Box::new(cause)))?;
        next = reader.next().map_err(refused)?;
    }
    history.adopt(index, &table)?;
    let beginnings = Beginnings { dir, node: *node, term, index, history };
    let restored = beginnings.make(table, &restore)?;
    directory::complete(dir, &[history::FILE, state::FILE, log::FILE])?;
    barrier.lift()?;
    Ok(restored)
}

/// The state of a backup, and the first piece after it.
fn state_of<R: Read>(
    reader: &mut Reader<R>,
    digest: u128,
) -> Result<(LockTable, Option<Piece>), BackupError> {
    let (joiner, ready) = (Joiner::default(), Vec::new());
    let mut rows = Rows { reader, joiner, ready, next: None, failed: None };
    let table = LockTable::import(&mut rows);
    if let Some(cause) = rows.failed {
        return Err(cause);
    }
    let (next, table) = (rows.next, table?);
    if table.freeze().digest() != digest {
        return Err(BackupError::Damaged { at: 0, what: "its state has another digest" });
    }
    Ok((table, next))
}

/// The rows of a backup's state. They end early where it is damaged, and `failed` says how.
struct Rows<'a, R> {
    reader: &'a mut Reader<R>,
    joiner: Joiner,
    /// Rows that are complete, the next one last.
    ready: Vec<Row>,
    /// What came after the state.
    next: Option<Piece>,
    failed: Option<BackupError>,
}

impl<R: Read> Rows<'_, R> {
    fn more(&mut self) -> Result<bool, BackupError> {
        match self.reader.next()? {
            Some(Piece::State(chunk)) => {
                let ready = &mut self.ready;
                self.reader.rows_of(&mut self.joiner, &chunk, |row| ready.push(row))?;
                ready.reverse();
                Ok(true)
            }
            after => {
                self.next = after;
                Ok(false)
            }
        }
    }
}

impl<R: Read> Iterator for Rows<'_, R> {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        while self.ready.is_empty() && self.next.is_none() && self.failed.is_none() {
            match self.more() {
                Ok(true) => {}
                Ok(false) => break,
                Err(cause) => self.failed = Some(cause),
            }
        }
        self.ready.pop()
    }
}

fn open(file: &Path) -> Result<BufReader<File>, BackupError> {
    let opened = File::open(file).map_err(BackupError::Read)?;
    Ok(BufReader::with_capacity(1 << 20, opened))
}

/// What a file system brings along does not count.
const NO_CONTENT: &str = "lost+found";

fn refuse_content(dir: &Path) -> Result<(), RestoreFailed> {
    let io = |cause| RestoreFailed::Io {
        path: dir.to_owned(),
        doing: "could not look into the directory",
        cause,
    };
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(cause) => return Err(io(cause)),
    };
    for entry in entries {
        if entry.map_err(io)?.file_name() != NO_CONTENT {
            return Err(RestoreFailed::NotEmpty { path: dir.to_owned() });
        }
    }
    Ok(())
}

/// Takes away what this made. The barrier goes last, so that nobody starts on a part of it.
fn clear(dir: &Path, made: bool) {
    let files = [log::FILE, state::FILE, history::FILE];
    let mut files = files.iter().flat_map(|file| [dir.join(file), unfinished(dir, file)]);
    let cleared = files.all(remove) && directory::clear(dir);
    if cleared && made {
        // It stays if somebody has put something there.
        let _ = fs::remove_dir(dir);
    }
}

fn remove(path: PathBuf) -> bool {
    fs::remove_file(&path).is_ok() || !path.exists()
}
