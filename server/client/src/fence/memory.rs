//! A fence that lives as long as the process.

use super::counts::Counts;
use super::engine::{Engine, Store};
use super::line::{Aim, Job, Pass};
use super::options::{Options, Stats};
use super::refused::{Refused, StorageFault};
use super::row::Row;
use super::{Fence, Usage};
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// A fence for storage that forgets as well when the process ends: a cache, a map, a test.
///
/// Storage that outlives the process needs a T_max that does so too:
/// [`RedbFence`](super::RedbFence).
///
/// ```
/// use leasehold_client::fence::{Fence, MemoryFence, Refused, Usage};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Refused> {
/// let fence = MemoryFence::new();
///
/// // The holder of token 33 reads and thinks for too long. Token 34 is granted and seals first.
/// fence.seal("invoice/42", 33).await?;
/// assert_eq!(fence.seal("invoice/42", 34).await?, Some(33));
///
/// // So the late write is refused, although 34 has not written yet.
/// let late = fence.admit("invoice/42", 33, Usage::Many).await;
/// assert!(matches!(late, Err(Refused::Stale { token: 33, highest: 34, .. })));
///
/// let pass = fence.admit("invoice/42", 34, Usage::Many).await?;
/// // ... the write ...
/// drop(pass);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct MemoryFence(Arc<Engine<Memory>>);

#[derive(Debug)]
struct Memory {
    rows: Mutex<Rows>,
    counts: Arc<Counts>,
    resources_max: u64,
}

#[derive(Debug, Default)]
struct Rows {
    rows: HashMap<Arc<str>, Row>,
    /// The lowest tokens first: those are folded.
    by_token: BTreeSet<(u64, Arc<str>)>,
    floor: u64,
}

impl MemoryFence {
    /// A fence that has seen nothing, with the default bounds.
    #[must_use]
    pub fn new() -> Self {
        Self::with_options(Options::default())
    }

    /// A fence that has seen nothing.
    #[must_use]
    pub fn with_options(options: Options) -> Self {
        let counts = Arc::new(Counts::default());
        let resources_max = options.resources_max.max(1);
        let memory = Memory { rows: Mutex::default(), counts: Arc::clone(&counts), resources_max };
        Self(Arc::new(Engine::new(options, counts, memory)))
    }

    /// What it has counted.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.0.stats()
    }
}

impl Default for MemoryFence {
    fn default() -> Self {
        Self::new()
    }
}

impl Fence for MemoryFence {
    async fn seal(&self, resource: &str, token: u64) -> Result<Option<u64>, Refused> {
        self.0.seal(resource, token).await
    }

    async fn admit(&self, resource: &str, token: u64, usage: Usage) -> Result<Pass, Refused> {
        self.0.admit(resource, token, Aim::from(usage)).await
    }

    async fn highest(&self, resource: &str) -> Result<Option<u64>, Refused> {
        self.0.highest(resource).await
    }
}

impl Rows {
    fn read(&self, resource: &str) -> Row {
        self.rows.get(resource).copied().unwrap_or(Row::at_floor(self.floor))
    }

    fn write(&mut self, resource: Arc<str>, row: Row) {
        if let Some(old) = self.rows.insert(Arc::clone(&resource), row) {
            self.by_token.remove(&(old.token, Arc::clone(&resource)));
        }
        self.by_token.insert((row.token, resource));
    }

    fn fold(&mut self, resources_max: u64) -> u64 {
        let mut folded = 0;
        while self.rows.len() as u64 > resources_max
            && let Some((token, resource)) = self.by_token.pop_first()
        {
            self.rows.remove(&resource);
            self.floor = self.floor.max(token);
            folded += 1;
        }
        folded
    }
}

impl Store for Memory {
    async fn load(&self, resource: &str) -> Result<Row, StorageFault> {
        Ok(self.rows.lock().read(resource))
    }

    fn submit(&self, job: Job) {
        let outcome = {
            let mut rows = self.rows.lock();
            let before = rows.read(job.resource());
            match before.changed(job.change) {
                Err(no) => Err((no, before)),
                Ok(after) => {
                    rows.write(Arc::clone(job.resource()), after);
                    let folded = rows.fold(self.resources_max);
                    self.counts.committed(1, folded);
                    self.counts.holds(rows.rows.len() as u64, rows.floor);
                    Ok((before, after))
                }
            }
        };
        job.done(Ok(outcome));
    }
}
