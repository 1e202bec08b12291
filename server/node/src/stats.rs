//! The node in numbers, and how far each bound is used up.

use crate::answer::Failure;
use crate::history::History;
use crate::node::Node;
use leasehold_core::view::Counts;
use leasehold_core::{Limits, Token};

/// The node in numbers.
#[derive(Debug, Clone)]
pub struct Stats {
    /// How much there is of everything.
    pub counts: Counts,
    /// Clients with a lease.
    pub clients: usize,
    /// The newest change.
    pub revision: u64,
    /// The newest token.
    pub last_token: Token,
    /// The oldest change that a watcher can still be told of.
    pub oldest_change: Option<u64>,
    /// Every bound.
    pub usage: Vec<Usage>,
    /// The disk has only its reserve left.
    pub storage_full: bool,
    /// After a restore: for how long after its takeover a leader grants nothing, in milliseconds.
    pub hold_ms: u64,
}

/// A bound and how far it is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// The setting that bounds it.
    pub name: &'static str,
    /// How much is used.
    pub used: u64,
    /// How much there may be.
    pub max: u64,
}

impl Node {
    /// What this node knows of itself. Not linearizable: it is asked most when nobody leads.
    ///
    /// # Errors
    /// [`Failure::Internal`] if the history cannot be read.
    pub async fn stats(&self) -> Result<Stats, Failure> {
        let read = |history: &History| Ok((history.oldest_change()?, history.len()?));
        let (oldest_change, records) = self.read_history(read).await?;
        let table = self.inner.shared.table.read();
        let (counts, limits) = (table.counts(), table.limits().clone());
        let (revision, last_token) = (table.revision(), table.last_token());
        let (clients, hold_ms) = (table.clients_total(), table.hold_ms());
        drop(table);
        let mut usage = usage(&counts, &limits, last_token);
        usage.push(Usage { name: "history_max", used: records, max: limits.history_max });
        let (queued, queue_max) = self.inner.batcher.load();
        usage.push(Usage { name: "propose_queue_max", used: queued, max: queue_max });
        let storage_full = self.inner.reserve.refuses();
        Ok(Stats {
            counts,
            clients,
            revision,
            last_token,
            oldest_change,
            usage,
            storage_full,
            hold_ms: self.inner.hub.hold_left_ms().unwrap_or(hold_ms),
        })
    }
}

fn usage(counts: &Counts, limits: &Limits, last_token: Token) -> Vec<Usage> {
    let one = |name, used, max| Usage { name, used, max };
    vec![
        // Who waits has a grant coming, so both count.
        one("grants_max", (counts.grants + counts.tickets) as u64, limits.grants_max),
        one("waiters_max", counts.tickets as u64, limits.tickets_max),
        one("leases_max", counts.leases as u64, limits.leases_max),
        one("metadata_max_bytes", counts.metadata_bytes, limits.metadata_bytes_max),
        one("remembered_max", counts.ended as u64, limits.ended_max),
        one("tokens", last_token.0, Token::LIMIT - 1),
    ]
}
