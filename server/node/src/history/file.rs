//! The file of the history, and the order in which it is changed.
//!
//! Two write into it: the thread that empties memory, and whoever takes in what a peer sends. Each
//! change is one transaction, made while the books are locked, so both see what the other did.

use super::FILE;
use super::tables::{self, Layout, View};
use crate::fatal::{Fatal, StorageFault};
use parking_lot::{Mutex, RwLock};
use redb::{Database, Durability, WriteTransaction};
use std::sync::Arc;

pub(super) struct HistoryFile {
    db: Database,
    view: RwLock<Arc<View>>,
    /// Held for as long as a transaction takes.
    books: Mutex<Books>,
    fatal: Fatal,
    pub(super) keep_changes: u64,
    pub(super) keep_audits: u64,
}

/// What is known of the file without reading it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Books {
    pub(super) layout: Layout,
    /// Which of those who took in a peer's history is the newest: the others write no more.
    pub(super) turn: u64,
    /// What a peer sent is all there, up to the snapshot of this log entry.
    pub(super) whole: Option<u64>,
}

impl HistoryFile {
    pub(super) fn open(
        db: Database,
        fatal: Fatal,
        keep: (u64, u64),
    ) -> Result<(Self, Layout), redb::Error> {
        let layout = tables::read_layout(&db)?;
        let view = RwLock::new(Arc::new(View::open(&db)?));
        let books = Mutex::new(Books { layout, ..Books::default() });
        let (keep_changes, keep_audits) = keep;
        Ok((Self { db, view, books, fatal, keep_changes, keep_audits }, layout))
    }

    pub(super) fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.read())
    }

    pub(super) fn books(&self) -> Books {
        *self.books.lock()
    }

    /// One durable change of the file and of the books, of both or of neither.
    pub(super) fn transact<T>(
        &self,
        change: impl FnOnce(&WriteTransaction, &mut Books) -> Result<T, redb::Error>,
    ) -> Result<T, redb::Error> {
        let mut books = self.books.lock();
        let mut changed = *books;
        let mut txn = self.db.begin_write()?;
        txn.set_durability(Durability::Immediate)?;
        let answer = change(&txn, &mut changed)?;
        tables::write_layout(&txn, changed.layout)?;
        txn.commit()?;
        *books = changed;
        *self.view.write() = Arc::new(View::open(&self.db)?);
        Ok(answer)
    }

    /// After this the node ends: nothing about the file is certain.
    pub(super) fn broken(&self, cause: redb::Error) -> StorageFault {
        let fault = StorageFault::new(FILE, "write and sync", cause);
        self.fatal.report(&fault);
        fault
    }
}
