//! The log as openraft asks for it. Nothing here touches the file.

use super::queue::Op;
use super::{LogReader, LogStore};
use crate::fatal::StorageFault;
use crate::types::{Entry, IoFlushed, LogId, LogState, TypeConfig, Vote};
use openraft::OptionalSend;
use openraft::storage::RaftLogStorage;
use std::io;
use std::sync::Arc;
use tokio::sync::oneshot;

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = LogReader;

    async fn get_log_state(&mut self) -> Result<LogState, io::Error> {
        let tail = self.core.view.tail.lock();
        Ok(LogState { last_purged_log_id: tail.purged(), last_log_id: tail.last() })
    }

    async fn get_log_reader(&mut self) -> LogReader {
        LogReader::new(
            Arc::clone(&self.core.db),
            Arc::clone(&self.core.view),
            self.core.fatal.clone(),
        )
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        let (done, durable) = oneshot::channel();
        self.submit(Op::Vote { vote: *vote, done })?;
        durable.await.unwrap_or_else(|_| Err(self.gone()))
    }

    /// Kept in line and written with the next batch: a commit of its own would double the syncs.
    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        let Some(id) = committed else { return Ok(()) };
        *self.core.view.committed.lock() = Some(id);
        self.submit(Op::Committed(id))
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        Ok(*self.core.view.committed.lock())
    }

    async fn append<I>(&mut self, entries: I, callback: IoFlushed) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        self.append_op(entries.into_iter().collect(), callback)
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> Result<(), io::Error> {
        self.core.view.tail.lock().truncate_after(last_log_id);
        self.submit(Op::TruncateAfter(last_log_id))
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), io::Error> {
        self.core.view.tail.lock().purge(log_id);
        self.submit(Op::Purge(log_id))
    }
}

impl LogStore {
    /// The writer ended without an answer.
    fn gone(&self) -> io::Error {
        let fault = self.core.queue.fault();
        fault
            .unwrap_or_else(|| StorageFault::new(super::FILE, "write", "the log is closed"))
            .to_io()
    }
}
