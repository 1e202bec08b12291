//! A data directory from that of the one node that is left of a cluster.
//!
//! Everything that the node has counts, committed or not: an entry that a majority had may not have
//! been told to this node as such. What only the lost nodes had is lost.

use super::found::{Beginnings, RestoreFailed, Restored, TokenFloor, Wanted, history, unfinished};
use crate::codec::SlotHead;
use crate::history;
use crate::history::{Happened, History};
use crate::log;
use crate::open::directory::{self, Barrier};
use crate::open::{outdated, probe};
use crate::runtime;
use crate::state::{self, slots};
use crate::types::{Entry, LogId, Payload};
use leasehold_core::limits::Limits;
use leasehold_core::{Command, EventKind, Header, LockTable};
use std::fs;
use std::path::{Path, PathBuf};

/// Whose data to recover, and how.
#[derive(Debug, Clone)]
pub struct RecoverSettings {
    /// The data directory of the node that is left. The node does not run.
    pub dir: PathBuf,
    /// Above which number tokens go on.
    pub floor: TokenFloor,
    /// For how long nothing is granted, in milliseconds; `None`: for the longest TTL of a lease
    /// that was open.
    pub hold_ms: Option<u64>,
}

/// Makes the data of a node the beginning of another cluster, of itself alone. The files of before
/// are kept beside. Blocks.
///
/// # Errors
/// [`RestoreFailed`] says what stands in the way. Until all is made nothing is changed; what comes
/// after is a change of names, and an interruption there is told to whoever starts the node.
pub fn recover(settings: &RecoverSettings) -> Result<Restored, RestoreFailed> {
    let dir = &settings.dir;
    if !dir.join(log::FILE).exists() {
        return Err(RestoreFailed::Nothing { path: dir.clone() });
    }
    let hold = directory::take(dir)?;
    directory::check(dir, &[log::FILE, state::FILE, history::FILE])?;
    let found = probe::probe(&dir.join(log::FILE), log::tables::load)?;
    let node = found.node.ok_or_else(|| RestoreFailed::Nothing { path: dir.clone() })?;
    let knows = Command::NEWEST;
    let outdated = |file, needs| outdated(dir.join(file), needs, knows);
    if found.needs > knows {
        return Err(outdated(log::FILE, found.needs).into());
    }
    let loaded = probe::probe(&dir.join(state::FILE), |db| slots::load_known(db, knows))?;
    let loaded = loaded.map_err(|needs| outdated(state::FILE, needs))?;
    let complete = probe::probe(&dir.join(history::FILE), history::tables::check)?;
    let head = loaded.as_ref().map(|(head, _)| head);
    crate::open::check_history(&dir.join(history::FILE), complete, head)?;

    let making = fresh(dir, "recovering")?;
    let made =
        make(settings, &making, node, loaded, found.vote.map_or(0, |vote| vote.leader_id.term));
    let restored = made.inspect_err(|_| drop(fs::remove_dir_all(&making)))?;
    let kept = swap(dir, &making)?;
    drop(hold);
    Ok(Restored { kept: Some(kept), ..restored })
}

fn make(
    settings: &RecoverSettings,
    making: &Path,
    node: u64,
    loaded: Option<(SlotHead, LockTable)>,
    voted: u64,
) -> Result<Restored, RestoreFailed> {
    let dir = &settings.dir;
    let copy = unfinished(making, history::FILE);
    let copied = fs::copy(dir.join(history::FILE), &copy);
    copied.map_err(|cause| io(&copy, "could not copy the history", cause))?;
    let history = history(&copy, false)?;
    let (head, table) = loaded.unzip();
    let snapshot = head.and_then(|head| head.meta.last_log_id);
    let mut replay = Replay {
        table: table.unwrap_or_else(|| LockTable::new(Limits::default())),
        last: snapshot,
        history: history.clone(),
    };
    let from = snapshot.map_or(0, |id| id.index + 1);
    probe::probe(&dir.join(log::FILE), |db| {
        log::tables::walk(db, from, |entry| replay.apply(entry))
    })?;
    let Replay { table, last, .. } = replay;
    let last = last.ok_or_else(|| RestoreFailed::Nothing { path: dir.clone() })?;
    history.flush(last.index)?;
    let restore = Wanted { floor: settings.floor, hold_ms: settings.hold_ms }.of(&table)?;
    let term = voted.max(last.leader_id.term);
    Beginnings { dir: making, node, term, index: last.index, history }.make(table, &restore)
}

/// The log applied once more, to a table of its own.
struct Replay {
    table: LockTable,
    last: Option<LogId>,
    history: History,
}

impl Replay {
    fn apply(&mut self, entry: Entry) {
        let id = entry.log_id;
        let happened = match entry.payload {
            Payload::Normal(batch) => {
                let header = Header { term: id.leader_id.term, at_ms: batch.at_ms };
                let applied = self.table.apply(header, &batch.commands);
                for event in &applied.events {
                    if let EventKind::HistoryTrimmed { before_ms } = &event.kind {
                        self.history.trim_before(*before_ms);
                    }
                }
                Happened::of(&applied.events)
            }
            Payload::Membership(_) | Payload::Blank => Happened::default(),
        };
        self.history.push(happened, id.index);
        self.last = Some(id);
    }
}

/// The new files take the place of the old ones, which go where this answers.
fn swap(dir: &Path, making: &Path) -> Result<PathBuf, RestoreFailed> {
    let kept = fresh(dir, "before-recovery")?;
    let why = format!(
        "a recovery of it was interrupted. Its own files are in {} or still here, and the recovered \
         ones in {} or already here: move its own back, remove this file, and recover again",
        kept.display(),
        making.display()
    );
    let barrier = Barrier::put(dir, &why)?;
    let files = [log::FILE, state::FILE, history::FILE];
    for file in files {
        rename(&dir.join(file), &kept.join(file))?;
    }
    for file in files {
        rename(&unfinished(making, file), &directory::unfinished(&dir.join(file)))?;
    }
    directory::complete(dir, &[history::FILE, state::FILE, log::FILE])?;
    // Empty by now, and in nobody's way if it stays.
    let _ = fs::remove_dir(making);
    barrier.lift()?;
    Ok(kept)
}

/// A directory that nobody has used, with the time in its name.
fn fresh(dir: &Path, what: &str) -> Result<PathBuf, RestoreFailed> {
    let path = dir.join(format!("{what}-{}", runtime::wall_clock_ms()));
    fs::create_dir(&path).map_err(|cause| io(&path, "could not make the directory", cause))?;
    Ok(path)
}

fn rename(from: &Path, to: &Path) -> Result<(), RestoreFailed> {
    fs::rename(from, to).map_err(|cause| io(from, "could not move the file", cause))
}

fn io(path: &Path, doing: &'static str, cause: std::io::Error) -> RestoreFailed {
    RestoreFailed::Io { path: path.to_owned(), doing, cause }
}
