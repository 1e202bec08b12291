//! Reading the log: from memory where possible, else from the file, away from the async workers.

use super::tables::LOG;
use super::tail::Plan;
use super::{FILE, View};
use crate::codec;
use crate::fatal::{Fatal, StorageFault};
use crate::types::{Entry, TypeConfig, Vote};
use futures_util::{Stream, StreamExt, stream};
use openraft::storage::RaftLogReader;
use openraft::{OptionalSend, RaftTypeConfig};
use redb::{Database, ReadableDatabase};
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

/// Entries of one piece of a stream, or of one message to a follower.
const PIECE_COUNT: usize = 1024;
/// Bytes after which a piece that is read from the file ends.
const PIECE_BYTES: usize = 1 << 20;
/// A purge or a truncation can run between the look into memory and the look into the file.
const TRIES: usize = 8;

/// Reads the log beside the writer. Clones are independent.
#[derive(Clone)]
pub(crate) struct LogReader {
    db: Arc<Database>,
    view: Arc<View>,
    fatal: Fatal,
}

impl RaftLogReader<TypeConfig> for LogReader {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> Result<Vec<Entry>, io::Error>
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let (start, end) = half_open(&range);
        self.read(start, end, usize::MAX).await
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(*self.view.vote.lock())
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<Entry>, io::Error> {
        self.read(start, end, PIECE_COUNT).await
    }

    /// In pieces: at a restart the range is the whole log since the snapshot.
    async fn entries_stream<RB>(
        &mut self,
        range: RB,
    ) -> impl Stream<Item = Result<<TypeConfig as RaftTypeConfig>::Entry, io::Error>> + OptionalSend
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let (start, end) = half_open(&range);
        let end = end.min(self.view.tail.lock().next_index());
        let pieces = stream::try_unfold((self.clone(), start), move |(reader, next)| async move {
            if next >= end {
                return Ok(None);
            }
            let piece = reader.read(next, end, PIECE_COUNT).await?;
            let after = piece.last().map(|entry| entry.log_id.index + 1);
            Ok::<_, io::Error>(after.map(|after| (piece, (reader, after))))
        });
        pieces
            .flat_map(|piece| match piece {
                Ok(entries) => stream::iter(entries.into_iter().map(Ok).collect::<Vec<_>>()),
                Err(error) => stream::iter(vec![Err(error)]),
            })
            .boxed()
    }
}

impl LogReader {
    pub(super) fn new(db: Arc<Database>, view: Arc<View>, fatal: Fatal) -> Self {
        Self { db, view, fatal }
    }

    async fn read(&self, start: u64, end: u64, count_max: usize) -> io::Result<Vec<Entry>> {
        for _ in 0..TRIES {
            let plan = self.view.tail.lock().plan(start, end, count_max);
            let (from, to, then) = match plan {
                Plan::Memory(entries) => return Ok(entries),
                Plan::File { start, end, then } => (start, end, then),
            };
            let mut entries = self.read_file(from, to, count_max).await?;
            if is_whole(&entries, from, to, count_max) {
                entries.extend(then);
                return Ok(entries);
            }
        }
        let cause = format!("entries {start} to before {end} are not all there");
        Err(self.broken(StorageFault::new(FILE, "read", cause)))
    }

    async fn read_file(&self, from: u64, to: u64, count_max: usize) -> io::Result<Vec<Entry>> {
        let db = Arc::clone(&self.db);
        let reading = crate::runtime::blocking(move || read_range(&db, from, to, count_max));
        let read = reading.await.ok_or_else(crate::runtime::lost)?;
        read.map_err(|fault| self.broken(fault))
    }

    /// What cannot be read cannot be replicated or applied either.
    fn broken(&self, fault: StorageFault) -> io::Error {
        self.fatal.report(&fault);
        fault.to_io()
    }
}

/// Whether these are the entries from `from` on without a gap, all of them unless there is a limit.
fn is_whole(entries: &[Entry], from: u64, to: u64, count_max: usize) -> bool {
    let in_order = entries.iter().zip(from..).all(|(entry, index)| entry.log_id.index == index);
    let next = entries.last().map_or(from, |entry| entry.log_id.index + 1);
    in_order && (next == to || (count_max != usize::MAX && next > from))
}

fn read_range(
    db: &Database,
    from: u64,
    to: u64,
    count_max: usize,
) -> Result<Vec<Entry>, StorageFault> {
    let fault = |cause: redb::Error| StorageFault::new(FILE, "read", cause);
    let txn = db.begin_read().map_err(|cause| fault(cause.into()))?;
    let log = txn.open_table(LOG).map_err(|cause| fault(cause.into()))?;
    let mut entries = Vec::new();
    let mut bytes = 0;
    for item in log.range(from..to).map_err(|cause| fault(cause.into()))? {
        let (_, value) = item.map_err(|cause| fault(cause.into()))?;
        bytes += value.value().len();
        let entry = codec::decode_entry(value.value());
        entries.push(entry.map_err(|cause| StorageFault::new(FILE, "read", cause))?);
        if count_max != usize::MAX && (entries.len() >= count_max || bytes >= PIECE_BYTES) {
            break;
        }
    }
    Ok(entries)
}

fn half_open(range: &impl RangeBounds<u64>) -> (u64, u64) {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(start) => start.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(end) => end.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => u64::MAX,
    };
    (start, end)
}
