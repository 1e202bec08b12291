//! A fence over any storage of rows.

use super::counts::Counts;
use super::line::{Aim, Call, Job, Lanes, Next, Pass, Seat, Wait, slow};
use super::options::{Options, Stats};
use super::refused::{Refused, StorageFault};
use super::row::{self, Row};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::futures::Notified;
use tokio::time::{Instant, timeout, timeout_at};

/// How long a call waits for the storage. A disk that needs longer is not one to write to.
const STORAGE_PATIENCE: Duration = Duration::from_secs(30);

/// Where rows are kept.
pub(super) trait Store: Send + Sync + 'static {
    /// Reads the row of a resource, as it is durable.
    fn load(&self, resource: &str) -> impl Future<Output = Result<Row, StorageFault>> + Send;

    /// Why nobody may be let through any more, if that is so.
    fn failed(&self) -> Option<StorageFault> {
        None
    }

    /// Makes a change durable, in the order of the calls, and says so with [`Job::done`].
    fn submit(&self, job: Job);
}

#[derive(Debug)]
pub(super) struct Engine<S> {
    pub(super) lanes: Arc<Lanes>,
    pub(super) store: S,
}

impl<S: Store> Engine<S> {
    pub(super) fn new(options: Options, counts: Arc<Counts>, store: S) -> Self {
        Self { lanes: Lanes::new(options, counts), store }
    }

    pub(super) async fn admit(
        &self,
        resource: &str,
        token: u64,
        aim: Aim,
    ) -> Result<Pass, Refused> {
        let outcome = self.run(resource, token, aim).await.map(|(pass, _)| pass);
        let counts = self.lanes.counts();
        outcome.inspect(|_| counts.passed()).inspect_err(|refused| counts.refused(refused))
    }

    pub(super) async fn seal(&self, resource: &str, token: u64) -> Result<Option<u64>, Refused> {
        let outcome = self.run(resource, token, Aim::Seal).await.map(|(_, before)| before);
        let counts = self.lanes.counts();
        outcome.inspect(|_| counts.sealed()).inspect_err(|refused| counts.refused(refused))
    }

    pub(super) async fn highest(&self, resource: &str) -> Result<Option<u64>, Refused> {
        row::check_resource(resource)?;
        let row = match self.lanes.peek(resource) {
            Some(row) => row,
            None => self.store.load(resource).await.map_err(Refused::Storage)?,
        };
        Ok(row.highest())
    }

    pub(super) fn stats(&self) -> Stats {
        let (in_flight, resources_busy) = self.lanes.busy();
        let options = self.lanes.options();
        Stats {
            in_flight,
            resources_busy,
            held_for: self.lanes.held_for(),
            waiting_max: options.waiting_max as u64,
            recording_max: options.recording_max as u64,
            resources_max: options.resources_max,
            ..self.lanes.counts().stats()
        }
    }

    /// Takes a call through its lane. Answers T_max as it was, beside the pass.
    async fn run(
        &self,
        resource: &str,
        token: u64,
        aim: Aim,
    ) -> Result<(Pass, Option<u64>), Refused> {
        row::check(resource, token)?;
        let seat = self.lanes.seat(resource)?;
        if !seat.is_loaded() {
            seat.loaded(self.store.load(resource).await.map_err(Refused::Storage)?);
        }
        let mut call = Call::new(token, aim);
        let notify = seat.changed();
        // Counted from the first wait on, so that a slow disk costs no patience with others.
        let mut since = None;
        loop {
            // Made before the look, so that no change in between is missed.
            let changed = std::pin::pin!(notify.notified());
            if let Some(fault) = self.store.failed() {
                return Err(Refused::Storage(fault));
            }
            match seat.look(&mut call)? {
                Next::Done(pass, mark) => {
                    mark.into_iter().for_each(|job| self.store.submit(job));
                    return Ok((pass, call.before.unwrap_or(Some(token))));
                }
                Next::Ask(job, told) => {
                    let change = job.change;
                    self.store.submit(job);
                    let told = timeout(STORAGE_PATIENCE, told).await.map_err(|_| slow())?;
                    let before = told.map_err(|_| slow())??;
                    call.before.get_or_insert(before.highest());
                    call.used_up |= change.use_up;
                }
                Next::Wait(wait) => {
                    let since = *since.get_or_insert_with(Instant::now);
                    self.wait(&seat, &call, wait, since, changed).await?;
                }
            }
        }
    }

    /// Waits until there is something new to look at.
    async fn wait(
        &self,
        seat: &Seat,
        call: &Call,
        wait: Wait,
        since: Instant,
        changed: Pin<&mut Notified<'_>>,
    ) -> Result<(), Refused> {
        let wait_max = self.lanes.options().wait_max;
        let patience =
            if wait == Wait::Storage { wait_max.max(STORAGE_PATIENCE) } else { wait_max };
        // Without such an instant the caller waits for ever, and that is what was asked for.
        let deadline = since.checked_add(patience);
        let hold = if let Wait::Hold(until) = wait { Some(until) } else { None };
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Err(seat.too_long(call, wait));
        }
        match deadline.into_iter().chain(hold).min() {
            // Whether it is over is seen at the next look.
            Some(due) => drop(timeout_at(due, changed).await),
            None => changed.await,
        }
        Ok(())
    }
}
