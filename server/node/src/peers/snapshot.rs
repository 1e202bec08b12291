//! A snapshot on its way, with the history that belongs to it.
//!
//! ```text
//! Snapshot(vote, meta, totals)  ->
//!                               <-  Reach(how far the receiver's history goes)
//! Parcel(rows, last?) ...       ->      as they are stored; at least one
//!                               <-  GoOn ...
//! Chunk(bytes) ...              ->      spooled to a file where they arrive
//!                               <-  GoOn ...
//!                               <-  Snapshot(vote), once all of it is in place
//! ```
//!
//! The history comes first and stays if the rest does not: a transfer that breaks off is begun
//! anew, and its history is sent from where it had come to.

use super::line::{Line, LineError, Open};
use crate::codec::{self, SnapshotAsk, Told};
use crate::fatal::StorageFault;
use crate::history::{History, Intake, IntakeError, Outgoing, Parcel, Reach};
use crate::runtime;
use crate::state::{Incoming, SnapshotData, SnapshotError};
use crate::types::{Snapshot, Vote};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Chunks or parcels that may be on their way at once: enough for a fast line between two towns.
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
    Read(#[from] SnapshotError),
    #[error("the history of the snapshot could not be read")]
    History(#[from] StorageFault),
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
    let theirs = match told(&mut open, TAKEN_WITHIN).await? {
        Told::Reach(reach) => {
            send_history(&mut open, &data, reach).await?;
            send_chunks(&mut open, &data).await?
        }
        // It may know of a newer leader before any of it has come.
        Told::Snapshot(theirs) => theirs,
        _ => return Err(open.other_answer().into()),
    };
    line.put_back(open);
    Ok(theirs)
}

async fn send_history(
    open: &mut Open,
    data: &Arc<SnapshotData>,
    reach: Reach,
) -> Result<(), SendError> {
    let mut outgoing = outgoing(data, reach).await?;
    let (mut more, mut on_their_way) = (true, 0);
    while more || on_their_way > 0 {
        if more && on_their_way < WINDOW {
            let parcel;
            (outgoing, parcel) = next_parcel(outgoing).await?;
            more = outgoing.as_ref().is_some_and(|outgoing| !outgoing.is_done());
            open.ask(codec::encode_parcel(&parcel)).await?;
            on_their_way += 1;
            continue;
        }
        match told(open, TAKEN_WITHIN).await? {
            Told::GoOn => on_their_way -= 1,
            _ => return Err(open.other_answer().into()),
        }
    }
    Ok(())
}

/// Nothing for a snapshot that came without a history.
async fn outgoing(data: &Arc<SnapshotData>, reach: Reach) -> Result<Option<Outgoing>, SendError> {
    let Some(history) = data.history().cloned() else { return Ok(None) };
    let data = Arc::clone(data);
    let head = runtime::blocking(move || data.head()).await.ok_or(SendError::Lost)??;
    Ok(Some(history.outgoing(reach, head)))
}

async fn next_parcel(outgoing: Option<Outgoing>) -> Result<(Option<Outgoing>, Parcel), SendError> {
    let Some(mut outgoing) = outgoing else {
        return Ok((None, Parcel { last: true, ..Parcel::default() }));
    };
    let read = runtime::blocking(move || outgoing.next().map(|parcel| (Some(outgoing), parcel)));
    Ok(read.await.ok_or(SendError::Lost)??)
}

async fn send_chunks(open: &mut Open, data: &Arc<SnapshotData>) -> Result<Vote, SendError> {
    let chunks = data.totals().chunks;
    let (mut sent, mut taken) = (0, 0);
    // One answer for each chunk: the last of them is the vote.
    while taken < chunks {
        while sent < chunks && sent < taken + WINDOW {
            let chunk = read(data, sent).await?;
            open.ask(codec::encode_chunk(&chunk)).await?;
            sent += 1;
        }
        taken += 1;
        let last = taken == chunks;
        match told(open, if last { INSTALLED_WITHIN } else { TAKEN_WITHIN }).await? {
            Told::Snapshot(theirs) if last => return Ok(theirs),
            Told::GoOn if !last => {}
            _ => break,
        }
    }
    Err(open.other_answer().into())
}

async fn told(open: &mut Open, within: Duration) -> Result<Told, LineError> {
    let told = runtime::timeout_at(runtime::now() + within, open.told()).await;
    told.unwrap_or_else(|| Err(open.silent(within)))
}

async fn read(data: &Arc<SnapshotData>, number: u32) -> Result<Vec<u8>, SendError> {
    let data = Arc::clone(data);
    let chunk = runtime::blocking(move || data.chunk(number)).await.ok_or(SendError::Lost)?;
    Ok(chunk?)
}

/// Why a snapshot that arrives is not taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum ArriveError {
    #[error("a snapshot without chunks")]
    Empty,
    #[error("a chunk before all of the history")]
    TooEarly,
    #[error("a part of a history that is there already")]
    TooLate,
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error(transparent)]
    History(#[from] IntakeError),
    #[error("the task that keeps it was lost")]
    Lost,
}

/// A snapshot that is arriving.
pub(super) struct Arriving {
    ask: SnapshotAsk,
    intake: Option<Intake>,
    spool: Option<Incoming>,
}

impl Arriving {
    /// Gets ready; answers how far the history of this node goes.
    pub(super) async fn begin(
        ask: SnapshotAsk,
        dir: &Path,
        history: History,
    ) -> Result<(Self, Reach), ArriveError> {
        if ask.totals.chunks == 0 {
            return Err(ArriveError::Empty);
        }
        let spool = Some(Incoming::create(dir, ask.totals)?);
        let upto = ask.meta.last_log_id.map_or(0, |id| id.index);
        let begun = runtime::blocking(move || history.take_in(upto)).await;
        let (intake, reach) = begun.ok_or(ArriveError::Lost)?.map_err(IntakeError::from)?;
        Ok((Self { ask, intake: Some(intake), spool }, reach))
    }

    /// Keeps a part of the history.
    pub(super) async fn parcel(&mut self, parcel: Parcel) -> Result<(), ArriveError> {
        let Some(mut intake) = self.intake.take() else { return Err(ArriveError::TooLate) };
        let kept = runtime::blocking(move || intake.add(parcel).map(|()| intake)).await;
        let intake = kept.ok_or(ArriveError::Lost)??;
        self.intake = (!intake.is_whole()).then_some(intake);
        Ok(())
    }

    /// Keeps a chunk; answers the whole snapshot once this was the last one.
    pub(super) async fn chunk(
        &mut self,
        chunk: Vec<u8>,
    ) -> Result<Option<(Vote, Snapshot)>, ArriveError> {
        if self.intake.is_some() {
            return Err(ArriveError::TooEarly);
        }
        let Some(mut spool) = self.spool.take() else { return Err(ArriveError::Lost) };
        let kept = runtime::blocking(move || spool.add(&chunk).map(|()| spool)).await;
        let spool = kept.ok_or(ArriveError::Lost)??;
        if !spool.is_complete() {
            self.spool = Some(spool);
            return Ok(None);
        }
        let snapshot = Snapshot { meta: self.ask.meta.clone(), snapshot: spool.into_data() };
        Ok(Some((self.ask.vote, snapshot)))
    }
}
