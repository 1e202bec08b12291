//! What a node gives out as a backup.
//!
//! The state is frozen at one entry, which stops nobody, and what the history has up to there is
//! read from its file. A thread that may block makes the frames and waits whenever whoever takes
//! them is slower. There is one backup at a time: each keeps a copy of what the table changes
//! meanwhile.

use super::frame::{END, Framer, HEAD, HISTORY, STATE};
use super::{BackupEnd, BackupHead};
use crate::answer::{Call, Failure};
use crate::codec;
use crate::fatal::StorageFault;
use crate::history::History;
use crate::node::Node;
use crate::runtime;
use crate::state::{Cutter, Totals};
use leasehold_core::Frozen;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Frames that wait for whoever takes them: about a megabyte.
const WAITING: usize = 4;

/// The right to give out the one backup that a node gives out at a time.
#[derive(Debug, Clone)]
pub(crate) struct Turn(Arc<Semaphore>);

impl Default for Turn {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

/// A backup that is being given out. Dropping it ends it.
#[derive(Debug)]
pub struct Backup {
    frames: mpsc::Receiver<Result<Vec<u8>, Failure>>,
    revision: u64,
}

impl Backup {
    /// The next bytes of the file; nothing after the last.
    ///
    /// # Errors
    /// [`Failure::Internal`] if the node cannot go on. What came before is no backup.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        self.frames.recv().await.transpose()
    }

    /// The newest change in it.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }
}

impl Node {
    /// Begins a backup of everything that was answered before this call. Any node gives one.
    ///
    /// # Errors
    /// [`Failure::Overloaded`] while another backup is given out, [`Failure::NoLeader`] if this
    /// node cannot tell whether it knows everything.
    pub async fn backup(&self, _call: Call) -> Result<Backup, Failure> {
        let turn = self.inner.backups.0.clone().try_acquire_owned();
        let turn = turn.map_err(|_| Failure::Overloaded)?;
        self.caught_up().await?;
        let (frozen, applied) = {
            let table = self.inner.shared.table.read();
            (table.freeze(), self.inner.shared.applied())
        };
        let revision = frozen.revision();
        let head = BackupHead {
            cluster: frozen.head().cluster,
            revision,
            last_token: frozen.head().last_token,
            term: applied.map_or(0, |id| id.leader_id.term),
            index: applied.map_or(0, |id| id.index),
            taken_at_ms: runtime::wall_clock_ms(),
            node: self.inner.id,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let (sender, frames) = mpsc::channel(WAITING);
        let giving = Giving { head, frozen, history: self.inner.history.clone(), sender, turn };
        runtime::spawn(async move {
            // Only a panic is lost, and then the stream ends without its end.
            let _ = runtime::blocking(move || giving.run()).await;
        });
        Ok(Backup { frames, revision })
    }
}

/// A backup on the thread that makes it.
struct Giving {
    head: BackupHead,
    frozen: Frozen,
    history: History,
    sender: mpsc::Sender<Result<Vec<u8>, Failure>>,
    turn: OwnedSemaphorePermit,
}

impl Giving {
    fn run(self) {
        let Self { head, frozen, history, sender, turn } = self;
        let mut give = |bytes| match sender.blocking_send(Ok(bytes)) {
            Ok(()) => Ok(()),
            Err(_) => Err(Stopped::Unwanted),
        };
        match write(&head, &frozen, &history, &mut give) {
            Ok(()) | Err(Stopped::Unwanted) => {}
            Err(Stopped::Unable(cause)) => {
                let _ = sender.blocking_send(Err(Failure::Internal(cause)));
            }
        }
        drop(turn);
    }
}

/// Why a backup is not written to its end.
#[derive(Debug)]
pub(super) enum Stopped {
    /// Nobody takes it any more.
    Unwanted,
    /// The node could not go on.
    Unable(String),
}

impl From<StorageFault> for Stopped {
    fn from(fault: StorageFault) -> Self {
        Self::Unable(fault.to_string())
    }
}

/// Writes a backup, some bytes at a time. Blocks.
pub(super) fn write(
    head: &BackupHead,
    frozen: &Frozen,
    history: &History,
    give: &mut impl FnMut(Vec<u8>) -> Result<(), Stopped>,
) -> Result<(), Stopped> {
    let (mut framer, start) = Framer::begin();
    give(start)?;
    give(whole(framer.frame(HEAD, |out| codec::encode_backup_head(head, out)))?)?;
    let mut end = BackupEnd::default();
    let mut cutter = Cutter::new(frozen.rows());
    for chunk in &mut cutter {
        end.state.chunks += 1;
        give(whole(framer.frame(STATE, |out| out.extend_from_slice(&chunk)))?)?;
    }
    end.state =
        Totals { rows: cutter.count, bytes: cutter.bytes, digest: frozen.digest(), ..end.state };
    // What ended up to here is in the file then, and not in memory alone.
    history.flush(head.index)?;
    let mut outgoing = history.everything(frozen.head());
    while !outgoing.is_done() {
        let piece = outgoing.next()?;
        end.pieces += 1;
        end.history_rows += (piece.records.len() + piece.audits.len() + piece.changes.len()) as u64;
        give(whole(framer.frame(HISTORY, |out| codec::encode_backup_piece(&piece, out)))?)?;
    }
    end.sum = framer.sum();
    give(whole(framer.frame(END, |out| codec::encode_backup_end(&end, out)))?)
}

fn whole(frame: Option<Vec<u8>>) -> Result<Vec<u8>, Stopped> {
    frame.ok_or_else(|| Stopped::Unable("a row is too long for a backup".to_owned()))
}
