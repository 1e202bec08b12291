//! The thread that makes changes durable. All that wait become one transaction and one sync.
//!
//! No timer collects a batch: while one sync runs, the next batch gathers by itself.

use super::storage::Storage;
use super::tables::{Changed, Tables};
use crate::fence::counts::Counts;
use crate::fence::line::Job;
use crate::fence::refused::StorageFault;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use tokio::sync::oneshot;

/// The most changes in one transaction, so that the first of them is not kept for long.
const BATCH_MAX: usize = 4096;

const WRITING: &str = "the fence could not write its file";

/// What the writer is told.
pub(super) enum Message {
    Change(Job),
    /// The end, with the mark that it was a clean one, if it was.
    Close {
        clean: bool,
        closed: oneshot::Sender<Result<(), StorageFault>>,
    },
}

pub(super) struct Writer {
    pub(super) storage: Arc<Storage>,
    pub(super) counts: Arc<Counts>,
    pub(super) resources_max: u64,
}

impl Writer {
    /// Counts what is there already.
    pub(super) fn look(&self) {
        // Whoever changes something counts anew, so that a failure here is told then.
        let nothing = |tables: &mut Tables<'_>| Ok(((), Effect::none(tables)?));
        drop(self.transact(nothing));
    }

    pub(super) fn run(self, messages: &Receiver<Message>) {
        while let Ok(first) = messages.recv() {
            let mut jobs = Vec::new();
            let mut close = None;
            for message in std::iter::once(first).chain(messages.try_iter()).take(BATCH_MAX) {
                match message {
                    Message::Change(job) => jobs.push(job),
                    Message::Close { clean, closed } => close = Some((clean, closed)),
                }
            }
            self.write(jobs);
            if let Some((clean, closed)) = close {
                let outcome = self.mark(clean);
                self.storage.close();
                // Nobody may wait for it any more.
                drop(closed.send(outcome));
                return;
            }
        }
        self.storage.close();
    }

    fn write(&self, jobs: Vec<Job>) {
        if jobs.is_empty() {
            return;
        }
        match self.transact(|tables| self.apply(tables, &jobs)) {
            Ok(outcomes) => {
                jobs.into_iter().zip(outcomes).for_each(|(job, outcome)| job.done(Ok(outcome)));
            }
            Err(fault) => {
                tracing::error!(%fault, "the fence admits no new token");
                jobs.into_iter().for_each(|job| job.done(Err(fault.clone())));
            }
        }
    }

    fn apply(
        &self,
        tables: &mut Tables<'_>,
        jobs: &[Job],
    ) -> Result<(Vec<Changed>, Effect), ::redb::Error> {
        let apply = |job: &Job| tables.apply(job.resource(), job.change);
        let outcomes = jobs.iter().map(apply).collect::<Result<Vec<_>, _>>()?;
        let raises = outcomes.iter().filter(|outcome| outcome.is_ok()).count() as u64;
        let folded = tables.fold(self.resources_max)?;
        Ok((outcomes, Effect { raises, folded, ..Effect::none(tables)? }))
    }

    fn mark(&self, clean: bool) -> Result<(), StorageFault> {
        self.transact(|tables| {
            tables.mark(clean)?;
            Ok(((), Effect { raises: 1, ..Effect::none(tables)? }))
        })
    }

    /// Runs one transaction. After a failure the database is given up: redb does not use a file
    /// that failed before until it is opened anew.
    fn transact<T>(
        &self,
        work: impl FnOnce(&mut Tables<'_>) -> Result<(T, Effect), ::redb::Error>,
    ) -> Result<T, StorageFault> {
        let db = self.storage.database()?;
        let run = || -> Result<(T, Effect), ::redb::Error> {
            let txn = db.begin_write()?;
            let (done, effect) = work(&mut Tables::open(&txn)?)?;
            if effect.raises > 0 {
                // Durable before anybody is told of it.
                txn.commit()?;
            }
            Ok((done, effect))
        };
        let (done, effect) = run().map_err(|cause| {
            self.storage.give_up();
            StorageFault::new(WRITING, cause)
        })?;
        if effect.raises > 0 {
            self.counts.committed(effect.raises, effect.folded);
        }
        self.counts.holds(effect.resources, effect.floor);
        Ok(done)
    }
}

/// What a transaction did.
struct Effect {
    raises: u64,
    folded: u64,
    resources: u64,
    floor: u64,
}

impl Effect {
    fn none(tables: &Tables<'_>) -> Result<Self, ::redb::Error> {
        let (resources, floor) = tables.holds()?;
        Ok(Self { raises: 0, folded: 0, resources, floor })
    }
}
