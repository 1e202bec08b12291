//! A snapshot on its way: sent chunk by chunk, spooled to a file where it arrives.

use super::line::{Line, LineError};
use crate::codec::{self, SnapshotAsk, Told};
use crate::runtime;
use crate::state::{Incoming, SnapshotData, SnapshotError};
use crate::types::{Snapshot, Vote};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Chunks that may be on their way at once: enough for a fast line between two towns.
const WINDOW: u32 = 16;
const CONNECTED_WITHIN: Duration = Duration::from_secs(2);
const TAKEN_WITHIN: Duration = Duration::from_secs(30);
/// The receiver checks, writes and takes over a million locks.
const INSTALLED_WITHIN: Duration = Duration::from_secs(300);

/// Why a snapshot did not arrive.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    #[error(transparent)]
    Line(#[from] LineError),
    #[error("the snapshot could not be read")]
    Read(#[source] SnapshotError),
    #[error("the task that reads it was lost")]
    Lost,
}

/// Sends all of it, and answers the vote of the receiver once it is in place there.
pub(super) async fn send(
    line: &mut Line,
    vote: Vote,
    snapshot: Snapshot,
) -> Result<Vote, SendError> {
    let data = Arc::new(snapshot.snapshot);
    let totals = data.totals();
    let mut open = line.take(CONNECTED_WITHIN).await?;
    open.ask(codec::encode_snapshot(&SnapshotAsk { vote, meta: snapshot.meta, totals })).await?;
    let (mut sent, mut taken) = (0, 0);
    // One answer for the head, and one for each chunk: the last of them is the vote.
    while taken <= totals.chunks {
        while sent < totals.chunks && sent < taken + WINDOW {
            let chunk = read(&data, sent).await?;
            open.ask(codec::encode_chunk(&chunk)).await?;
            sent += 1;
        }
        let last = taken == totals.chunks;
        let within = if last { INSTALLED_WITHIN } else { TAKEN_WITHIN };
        let told = runtime::timeout_at(runtime::now() + within, open.told()).await;
        match told.ok_or_else(|| open.silent(within))?? {
            // It may know of a newer leader before all of it has come.
            Told::Snapshot(theirs) => {
                if last {
                    line.put_back(open);
                }
                return Ok(theirs);
            }
            Told::GoOn if !last => taken += 1,
            _ => return Err(open.other_answer().into()),
        }
    }
    Err(open.other_answer().into())
}

async fn read(data: &Arc<SnapshotData>, number: u32) -> Result<Vec<u8>, SendError> {
    let data = Arc::clone(data);
    let chunk = runtime::blocking(move || data.chunk(number)).await.ok_or(SendError::Lost)?;
    chunk.map_err(SendError::Read)
}

/// A snapshot that is arriving.
pub(super) struct Arriving {
    ask: SnapshotAsk,
    spool: Option<Incoming>,
}

impl Arriving {
    pub(super) fn new(ask: SnapshotAsk, dir: &Path) -> Result<Self, SnapshotError> {
        let spool = Incoming::create(dir, ask.totals)?;
        Ok(Self { ask, spool: Some(spool) })
    }

    /// Keeps a chunk; answers the whole snapshot once this was the last one.
    pub(super) async fn add(
        &mut self,
        chunk: Vec<u8>,
    ) -> Result<Option<(Vote, Snapshot)>, SnapshotError> {
        let Some(mut spool) = self.spool.take() else { return Err(SnapshotError::Lost) };
        let kept = runtime::blocking(move || spool.add(&chunk).map(|()| spool)).await;
        let spool = kept.ok_or(SnapshotError::Lost)??;
        if !spool.is_complete() {
            self.spool = Some(spool);
            return Ok(None);
        }
        let snapshot = Snapshot { meta: self.ask.meta.clone(), snapshot: spool.into_data() };
        Ok(Some((self.ask.vote, snapshot)))
    }

    /// Nothing is left to come.
    pub(super) fn is_empty(&self) -> bool {
        self.ask.totals.chunks == 0
    }
}
