//! The passes of each resource in this process, and who waits for whom.
//!
//! Time of a newer token, from its arrival to its pass:
//!
//! ```text
//! arrives ── recorded, durable ───── older passes are over ── passes
//!        older ones wait for      older ones are refused,
//!        the record               this one waits
//! ```
//!
//! What must stay true:
//!
//! - A token is let through only while no older one is in flight, and no newer one is recorded.
//! - Every decision is made under one lock, from the row as the storage last confirmed it; what
//!   the storage confirms is published under the same lock, whether or not the call that asked
//!   for it still waits.
//! - A resource without a call, a pass or a change on its way has no lane.

use super::counts::{Counts, Permit, Queue};
use super::options::Options;
use super::refused::{Refused, StorageFault};
use super::row::{Change, No, Row};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

/// When to ask again where nothing says how long older writes still take.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// All lanes of a fence.
#[derive(Debug)]
pub(super) struct Lanes {
    state: Mutex<State>,
    options: Options,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct State {
    lanes: HashMap<Arc<str>, Lane>,
    /// Until then writes may be in flight that this process knows nothing of.
    hold_until: Option<Instant>,
    /// Passes of all lanes.
    passes: u64,
    closed: bool,
}

/// One resource.
#[derive(Debug, Default)]
struct Lane {
    /// Calls, passes and changes that keep the lane.
    seats: usize,
    /// As the storage last confirmed it; nothing before it was read.
    row: Option<Row>,
    /// Passes, by token.
    flying: BTreeMap<u64, usize>,
    /// The tokens of changes that are on their way to the storage.
    asked: Vec<u64>,
    changed: Arc<Notify>,
}

/// What a call wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Aim {
    Seal,
    Many,
    Once,
}

/// A call on its way through its lane.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) token: u64,
    pub(super) aim: Aim,
    /// T_max before this call changed it.
    pub(super) before: Option<Option<u64>>,
    /// The one use of the token is this call's.
    pub(super) used_up: bool,
    permit: Option<Permit>,
}

/// What a call does next.
#[derive(Debug)]
pub(super) enum Next {
    /// It is through. A token that had to wait is marked as cleared, and nobody waits for that.
    Done(Pass, Option<Job>),
    /// It asks the storage.
    Ask(Job, oneshot::Receiver<Told>),
    /// It waits for a change in its lane.
    Wait(Wait),
}

/// What a call waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// The storage, on behalf of another call.
    Storage,
    /// Older passes.
    Older,
    /// The end of the time for which newer tokens are held.
    Hold(Instant),
}

/// What the storage says to a change: the row before it.
pub(super) type Told = Result<Row, Refused>;

impl Call {
    pub(super) const fn new(token: u64, aim: Aim) -> Self {
        Self { token, aim, before: None, used_up: false, permit: None }
    }
}

impl Lanes {
    pub(super) fn new(options: Options, counts: Arc<Counts>) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), options, counts })
    }

    pub(super) const fn options(&self) -> &Options {
        &self.options
    }

    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// A seat in the lane of a resource.
    pub(super) fn seat(self: &Arc<Self>, resource: &str) -> Result<Seat, Refused> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(closed());
        }
        let resource = match state.lanes.get_key_value(resource) {
            Some((resource, _)) => Arc::clone(resource),
            None => Arc::from(resource),
        };
        let lane = state.lanes.entry(Arc::clone(&resource)).or_default();
        lane.seats += 1;
        let changed = Arc::clone(&lane.changed);
        Ok(Seat { lanes: Arc::clone(self), resource, changed })
    }

    /// T_max of a lane, where it is in memory.
    pub(super) fn peek(&self, resource: &str) -> Option<Row> {
        self.state.lock().lanes.get(resource)?.row
    }

    /// From now on for `span`, a token that was not cleared waits.
    #[cfg_attr(not(feature = "redb"), expect(dead_code, reason = "memory is not closed"))]
    pub(super) fn hold(&self, span: Duration) {
        let mut state = self.state.lock();
        // A span beyond the end of time is a mistake, but not one to be let through for.
        let end = Instant::now().checked_add(span.min(Duration::from_secs(1 << 32)));
        state.hold_until = state.hold_until.max(end);
    }

    /// Lets nobody in any more, and answers how many passes are left and whether tokens are held.
    #[cfg_attr(not(feature = "redb"), expect(dead_code, reason = "memory is not closed"))]
    pub(super) fn close(&self) -> (u64, bool) {
        let mut state = self.state.lock();
        state.closed = true;
        for lane in state.lanes.values() {
            lane.changed.notify_waiters();
        }
        (state.passes, state.hold().is_some())
    }

    /// Passes, and lanes.
    pub(super) fn busy(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.passes, state.lanes.len() as u64)
    }

    /// What is left of the hold.
    pub(super) fn held_for(&self) -> Duration {
        let until = self.state.lock().hold();
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }
}

fn closed() -> Refused {
    Refused::Storage(StorageFault::plain("the fence is closed"))
}

impl State {
    /// The end of the hold, if it is still to come.
    fn hold(&self) -> Option<Instant> {
        self.hold_until.filter(|until| *until > Instant::now())
    }
}

/// Keeps a lane.
#[derive(Debug)]
pub(super) struct Seat {
    lanes: Arc<Lanes>,
    resource: Arc<str>,
    changed: Arc<Notify>,
}

impl Seat {
    pub(super) fn changed(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }

    fn with<T>(&self, change: impl FnOnce(&mut Lane) -> T) -> T {
        let mut state = self.lanes.state.lock();
        // A seat keeps its lane, so there always is one.
        change(state.lanes.entry(Arc::clone(&self.resource)).or_default())
    }

    /// For whoever has counted the seat already.
    fn copied(&self) -> Self {
        let (lanes, changed) = (Arc::clone(&self.lanes), Arc::clone(&self.changed));
        Self { lanes, resource: Arc::clone(&self.resource), changed }
    }

    /// Whether the row is in memory.
    pub(super) fn is_loaded(&self) -> bool {
        self.with(|lane| lane.row.is_some())
    }

    /// The storage was read. What is known already is newer: no change is on its way before the
    /// row is known, and the lane has stayed since.
    pub(super) fn loaded(&self, row: Row) {
        self.with(|lane| _ = lane.row.get_or_insert(row));
    }

    /// What a call does next.
    pub(super) fn look(&self, call: &mut Call) -> Result<Next, Refused> {
        let mut state = self.lanes.state.lock();
        if state.closed {
            return Err(closed());
        }
        let hold = state.hold();
        let lane = state.lanes.entry(Arc::clone(&self.resource)).or_default();
        match lane.step(call, hold).map_err(|no| no.refused(&self.resource, call.token))? {
            Step::Wait(wait) => {
                let record = wait == Wait::Storage;
                self.permit(call, if record { Queue::Record } else { Queue::Older })?;
                Ok(Next::Wait(wait))
            }
            Step::Ask(change) => {
                // What will have to wait for older writes is not recorded before it may.
                let older = !change.clear;
                self.permit(call, if older { Queue::Older } else { Queue::Record })?;
                lane.asked.push(change.token);
                lane.seats += 1;
                let (answer, told) = oneshot::channel();
                Ok(Next::Ask(Job { seat: self.copied(), change, answer: Some(answer) }, told))
            }
            Step::Enter { mark } => {
                *lane.flying.entry(call.token).or_default() += 1;
                lane.seats += 1 + usize::from(mark);
                state.passes += 1;
                let change = Change { token: call.token, clear: true, use_up: false };
                let job = mark.then(|| Job { seat: self.copied(), change, answer: None });
                Ok(Next::Done(Pass { seat: self.copied(), token: call.token }, job))
            }
        }
    }

    /// A place in a queue, in exchange for the one in another.
    fn permit(&self, call: &mut Call, queue: Queue) -> Result<(), Refused> {
        if call.permit.as_ref().is_some_and(|permit| permit.queue() == queue) {
            return Ok(());
        }
        let waiting_max = match queue {
            Queue::Older => self.lanes.options.waiting_max,
            Queue::Record => self.lanes.options.recording_max,
        };
        let permit = Counts::permit(&self.lanes.counts, queue, waiting_max);
        call.permit = Some(permit.ok_or(Refused::Full { waiting_max, retry_after: ASK_AGAIN })?);
        Ok(())
    }

    /// A call waited for too long.
    pub(super) fn too_long(&self, call: &Call, wait: Wait) -> Refused {
        let retry_after = match wait {
            Wait::Storage => return slow(),
            Wait::Older => ASK_AGAIN,
            Wait::Hold(until) => until.saturating_duration_since(Instant::now()),
        };
        Refused::OlderInFlight {
            resource: self.resource.to_string(),
            token: call.token,
            retry_after,
        }
    }
}

/// The storage does not answer.
pub(super) fn slow() -> Refused {
    Refused::Storage(StorageFault::plain("the storage of the fence did not answer in time"))
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut state = self.lanes.state.lock();
        if let Some(lane) = state.lanes.get_mut(&self.resource) {
            lane.seats -= 1;
            if lane.seats == 0 {
                state.lanes.remove(&self.resource);
            }
        }
    }
}

enum Step {
    Enter { mark: bool },
    Ask(Change),
    Wait(Wait),
}

impl Lane {
    /// The rule.
    fn step(&mut self, call: &Call, hold: Option<Instant>) -> Result<Step, No> {
        let Call { token, aim, .. } = *call;
        let once = aim == Aim::Once && !call.used_up;
        let row = self.row.unwrap_or_default();
        row.changed(Change { token, clear: false, use_up: once })?;
        if self.asked.iter().any(|asked| *asked > token) {
            // The newer one says whether it is the only one to wait for: were this one let
            // through meanwhile, the newer could be recorded as cleared although it is not.
            return Ok(Step::Wait(Wait::Storage));
        }
        let older = self.flying.range(..token).next().is_some();
        let hold = hold.filter(|_| row.cleared < token);
        let clear = !older && hold.is_none();
        if token > row.token || (once && clear) {
            let shared = self.asked.contains(&token);
            let change = Change { token, clear, use_up: once && clear };
            return Ok(if shared { Step::Wait(Wait::Storage) } else { Step::Ask(change) });
        }
        Ok(match hold {
            _ if older => Step::Wait(Wait::Older),
            Some(until) => Step::Wait(Wait::Hold(until)),
            None => Step::Enter { mark: self.clear(token) },
        })
    }

    /// Whether that was not known.
    fn clear(&mut self, token: u64) -> bool {
        let row = self.row.get_or_insert_default();
        let new = row.cleared < token;
        row.cleared = row.cleared.max(token);
        new
    }

    fn learn(&mut self, row: Row) {
        self.row = Some(self.row.unwrap_or_default().merged(row));
    }
}

/// A change on its way to the storage. It reaches its lane even if the call is gone; one that is
/// dropped without an answer has failed.
#[derive(Debug)]
pub(super) struct Job {
    seat: Seat,
    pub(super) change: Change,
    answer: Option<oneshot::Sender<Told>>,
}

/// What came of a change: the rows before and after it, or the row that stands in its way.
pub(super) type Outcome = Result<Result<(Row, Row), (No, Row)>, StorageFault>;

impl Job {
    pub(super) fn resource(&self) -> &Arc<str> {
        &self.seat.resource
    }

    /// The change is durable, or will never be made.
    pub(super) fn done(mut self, outcome: Outcome) {
        self.settle(outcome);
    }

    fn settle(&mut self, outcome: Outcome) {
        let token = self.change.token;
        let learned = match &outcome {
            Ok(Ok((_, row)) | Err((_, row))) => Some(*row),
            Err(_) => None,
        };
        let answer = self.answer.take();
        self.seat.with(|lane| {
            learned.into_iter().for_each(|row| lane.learn(row));
            if answer.is_some()
                && let Some(at) = lane.asked.iter().position(|asked| *asked == token)
            {
                lane.asked.swap_remove(at);
            }
            lane.changed.notify_waiters();
        });
        let told = match outcome {
            Ok(Ok((before, _))) => Ok(before),
            Ok(Err((no, _))) => Err(no.refused(&self.seat.resource, token)),
            Err(fault) => Err(Refused::Storage(fault)),
        };
        // Nobody may wait for it any more.
        answer.into_iter().for_each(|answer| drop(answer.send(told.clone())));
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if self.answer.is_some() {
            self.settle(Err(StorageFault::plain("the fence was closed meanwhile")));
        }
    }
}

/// Leave to write once: until it is dropped, no newer token is let through.
///
/// Whoever does not know whether the write is over keeps it, in a task of its own if need be,
/// until it surely is.
#[derive(Debug)]
#[must_use = "the write counts as over once this is dropped"]
pub struct Pass {
    seat: Seat,
    token: u64,
}

impl Pass {
    /// What may be written.
    #[must_use]
    pub fn resource(&self) -> &str {
        &self.seat.resource
    }

    /// The token that it is written under.
    #[must_use]
    pub const fn token(&self) -> u64 {
        self.token
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut state = self.seat.lanes.state.lock();
        state.passes -= 1;
        let Some(lane) = state.lanes.get_mut(&self.seat.resource) else { return };
        if let Some(count) = lane.flying.get_mut(&self.token) {
            *count -= 1;
            if *count == 0 {
                lane.flying.remove(&self.token);
                lane.changed.notify_waiters();
            }
        }
    }
}
