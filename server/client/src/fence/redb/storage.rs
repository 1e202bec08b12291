//! The open database, and opening it again after a failure.

use super::file::{OpenError, Opener};
use crate::fence::refused::StorageFault;
use ::redb::Database;
use parking_lot::Mutex;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// For the writer and for those who read.
pub(super) struct Storage {
    state: Mutex<State>,
    opener: Opener,
    sync_failed: Arc<AtomicBool>,
}

enum State {
    Open(Arc<Database>),
    /// After a failure. Whoever needs it next opens it.
    GivenUp,
    Closed,
}

impl Storage {
    /// Opens the database, and answers whether it was closed cleanly.
    pub(super) fn open(
        opener: Opener,
        sync_failed: Arc<AtomicBool>,
    ) -> Result<(Self, bool), OpenError> {
        let (db, clean) = opener()?;
        let state = Mutex::new(State::Open(Arc::new(db)));
        Ok((Self { state, opener, sync_failed }, clean))
    }

    /// The database. Blocks while it is opened again.
    pub(super) fn database(&self) -> Result<Arc<Database>, StorageFault> {
        let mut state = self.state.lock();
        match &*state {
            State::Open(db) => return Ok(Arc::clone(db)),
            State::Closed => return Err(StorageFault::plain("the fence is closed")),
            State::GivenUp => {}
        }
        if let Some(fault) = self.sync_failed() {
            // What is read from the file now need not be on the disk.
            return Err(fault);
        }
        let opened = (self.opener)();
        let (db, _) = opened.map_err(|cause| {
            StorageFault::new("the fence could not open its file again", describe(&cause))
        })?;
        let db = Arc::new(db);
        *state = State::Open(Arc::clone(&db));
        Ok(db)
    }

    /// Once a sync has failed, a newer token may be on the disk or not: the next process may know it, so
    /// this one lets neither it nor an older one through.
    pub(super) fn sync_failed(&self) -> Option<StorageFault> {
        let what = "a sync of the fence's file failed before: check the disk and start again";
        self.sync_failed.load(SeqCst).then(|| StorageFault::plain(what))
    }

    /// redb does not use a file that failed before until it is opened anew.
    pub(super) fn give_up(&self) {
        let mut state = self.state.lock();
        if matches!(*state, State::Open(_)) {
            *state = State::GivenUp;
        }
    }

    pub(super) fn close(&self) {
        *self.state.lock() = State::Closed;
    }
}

/// An error with its cause.
fn describe(error: &dyn Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
