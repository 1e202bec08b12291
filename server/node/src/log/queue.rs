//! What waits to be written, in the order in which openraft asked for it.

use crate::fatal::StorageFault;
use crate::types::{Entry, IoFlushed, LogId, Vote};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io;
use std::time::Instant;
use tokio::sync::oneshot;

pub(super) enum Op {
    Append {
        entries: Vec<Entry>,
        done: IoFlushed,
    },
    Vote {
        vote: Vote,
        done: oneshot::Sender<io::Result<()>>,
    },
    /// In line with the appends, so that what it names was written before it.
    Committed(LogId),
    /// The node is a member of its cluster.
    Member,
    TruncateAfter(Option<LogId>),
    Purge(LogId),
}

impl Op {
    /// Whether the writer is woken for it.
    pub(super) fn is_urgent(&self) -> bool {
        !matches!(self, Self::Committed(_))
    }

    /// Tells whoever waits that this will never be durable.
    pub(super) fn fail(self, fault: &StorageFault) {
        match self {
            Self::Append { done, .. } => done.io_completed(Err(fault.to_io())),
            Self::Vote { done, .. } => drop(done.send(Err(fault.to_io()))),
            Self::Committed(_) | Self::Member | Self::TruncateAfter(_) | Self::Purge(_) => {}
        }
    }
}

pub(super) struct Queued {
    pub(super) op: Op,
    pub(super) since: Instant,
}

#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    ready: Condvar,
}

#[derive(Default)]
struct State {
    ops: VecDeque<Queued>,
    urgent: usize,
    closed: bool,
    fault: Option<StorageFault>,
}

/// Why the writer was woken.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Woken {
    Work,
    /// Write what is there, and end.
    Closed,
}

impl Queue {
    pub(super) fn push(&self, op: Op) -> Result<(), StorageFault> {
        let mut state = self.state.lock();
        if let Some(fault) = &state.fault {
            return Err(fault.clone());
        }
        if state.closed {
            return Err(StorageFault::new(super::FILE, "write", "the log is closed"));
        }
        let urgent = op.is_urgent();
        let since = crate::runtime::now();
        match (&op, state.ops.back_mut()) {
            (Op::Committed(_), Some(last)) if !last.op.is_urgent() => last.op = op,
            _ => state.ops.push_back(Queued { op, since }),
        }
        state.urgent += usize::from(urgent);
        drop(state);
        if urgent {
            self.ready.notify_one();
        }
        Ok(())
    }

    /// Moves all that waits to `into`. Sleeps until there is something, unless `busy`: then the
    /// writer has work of its own left.
    pub(super) fn take(&self, into: &mut VecDeque<Queued>, busy: bool) -> Woken {
        let mut state = self.state.lock();
        while state.urgent == 0 && !state.closed && !busy && into.is_empty() {
            self.ready.wait(&mut state);
        }
        state.urgent = 0;
        into.append(&mut state.ops);
        if state.closed { Woken::Closed } else { Woken::Work }
    }

    pub(super) fn len(&self) -> usize {
        // A committed id waits for company and is no work by itself.
        self.state.lock().ops.iter().filter(|queued| queued.op.is_urgent()).count()
    }

    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.ready.notify_one();
    }

    pub(super) fn fault(&self) -> Option<StorageFault> {
        self.state.lock().fault.clone()
    }

    /// Nothing is taken in any more; answers what had waited.
    pub(super) fn fail(&self, fault: &StorageFault) -> VecDeque<Queued> {
        let mut state = self.state.lock();
        state.fault = Some(fault.clone());
        std::mem::take(&mut state.ops)
    }
}
