//! Following changes: from any revision that is still kept, in order, each of them once; or an
//! explicit gap.
//!
//! After etcd's watch, which resumes from a revision, and Kubernetes' list-then-watch. Unlike
//! them it says itself what is missing, and goes on.

use crate::answer::{Call, Failure};
use crate::change::Change;
use crate::history::Next;
use crate::node::Node;
use crate::runtime;
use leasehold_core::ResourceName;
use tokio::sync::watch;

/// Changes that are looked at in one go.
const STEP: usize = 512;

/// Which changes are followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchFilter {
    /// All of them.
    All,
    /// Those of one resource.
    Resource(ResourceName),
    /// Those of resources whose names start with this.
    Prefix(String),
    /// Those of one domain, its settings included.
    Domain(String),
}

impl WatchFilter {
    fn takes(&self, change: &Change) -> bool {
        match self {
            Self::All => true,
            Self::Resource(resource) => change.resource() == Some(resource),
            Self::Prefix(prefix) => {
                change.resource().is_some_and(|name| name.as_str().starts_with(prefix))
            }
            Self::Domain(domain) => change.domain() == Some(domain),
        }
    }
}

/// One who follows.
#[derive(Debug)]
pub struct Watch {
    node: Node,
    filter: WatchFilter,
    /// Everything up to this change was told or did not pass the filter.
    at: u64,
    /// A gap that is to be told first.
    gap: Option<(u64, u64)>,
    news: watch::Receiver<u64>,
}

/// What is told next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Watched {
    /// At least one change that passes the filter.
    Changes(Vec<Change>),
    /// Changes after `from`, up to and with `to`, are not kept any more.
    Gap {
        /// Where the watcher was.
        from: u64,
        /// Where it is now.
        to: u64,
    },
}

impl Node {
    /// Begins to follow after the change `from`, or after the newest one.
    ///
    /// # Errors
    /// [`Failure::NoLeader`] if it could not be confirmed what the newest one is.
    pub async fn watch(
        &self,
        _call: Call,
        filter: WatchFilter,
        from: Option<u64>,
    ) -> Result<Watch, Failure> {
        // Before the look at the state, so that no change falls between the two.
        let news = self.inner.history.follow();
        self.caught_up().await?;
        let newest = self.inner.shared.table.read().revision();
        let from = from.unwrap_or(newest);
        // What has not happened yet was seen in another cluster, or in one that was restored.
        let gap = (from > newest).then_some((from, newest));
        Ok(Watch { node: self.clone(), filter, at: from.min(newest), gap, news })
    }
}

impl Watch {
    /// A place to go on from without missing anything: everything up to this change was told or
    /// did not pass the filter.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.gap.map_or(self.at, |(from, _)| from)
    }

    /// The change after which the next ones are told.
    #[must_use]
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Waits for the next thing to tell. May be dropped at any time without losing anything.
    ///
    /// # Errors
    /// [`Failure::Internal`] if the history cannot be read; [`Failure::NoLeader`] if this node has
    /// been out of touch for so long that whoever follows is better served elsewhere.
    pub async fn next(&mut self) -> Result<Watched, Failure> {
        if let Some((from, to)) = self.gap.take() {
            return Ok(Watched::Gap { from, to });
        }
        loop {
            self.news.borrow_and_update();
            match self.step().await? {
                Next::Gap { to } => {
                    let from = std::mem::replace(&mut self.at, to);
                    return Ok(Watched::Gap { from, to });
                }
                Next::Changes(changes) => {
                    let Some(last) = changes.last().map(|change| change.revision) else {
                        self.more().await?;
                        continue;
                    };
                    self.at = last;
                    let mut told = changes;
                    told.retain(|change| self.filter.takes(change));
                    if !told.is_empty() {
                        return Ok(Watched::Changes(told));
                    }
                    // One who looks for a needle must not keep others from the thread.
                    runtime::yield_now().await;
                }
            }
        }
    }

    /// Waits until something new has happened.
    async fn more(&mut self) -> Result<(), Failure> {
        tokio::select! {
            biased;
            changed = self.news.changed() => changed.map_err(|_| Failure::ShuttingDown),
            () = self.node.cut_off() => Err(Failure::NoLeader),
        }
    }

    async fn step(&self) -> Result<Next, Failure> {
        let newest = self.node.inner.shared.table.read().revision();
        if newest <= self.at {
            return Ok(Next::Changes(Vec::new()));
        }
        if let Some(changes) = self.node.inner.history.recent(self.at, STEP) {
            return Ok(Next::Changes(changes));
        }
        let at = self.at;
        self.node.read_history(move |history| history.changes(at, newest, STEP)).await
    }
}
