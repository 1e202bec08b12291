//! Every number that the rules compare with. Replicated: a node's own settings only seed it.

use crate::ids::Revision;

/// Bounds and windows of the whole service.
///
/// Durations in milliseconds, counts in items, sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The shortest TTL of a new lease.
    pub ttl_min_ms: u64,
    /// The longest TTL of a new lease.
    pub ttl_max_ms: u64,
    /// Tickets in line for one resource, unless its domain says otherwise.
    pub queue_max: u32,
    /// Tickets of one client.
    pub client_tickets_max: u32,
    /// Tickets in all.
    pub tickets_max: u64,
    /// Grants in all.
    pub grants_max: u64,
    /// Leases in all.
    pub leases_max: u64,
    /// Grants and tickets on one lease.
    pub lease_items_max: u32,
    /// Bytes of metadata in all.
    pub metadata_bytes_max: u64,
    /// Ended requests remembered for one client.
    pub client_ended_max: u32,
    /// Ended requests and leases remembered in all.
    pub ended_max: u64,
    /// Grants and tickets that one step may end.
    pub piece_max: u32,
    /// Edges that one search for a deadlock may look at.
    pub walk_max: u32,
    /// A waiter overtaken this often rises one step of priority.
    pub overtaken_max: u32,
    /// How long a detached ticket keeps its place.
    pub claim_window_ms: u64,
    /// How long an ended request is remembered.
    pub remember_ms: u64,
    /// History records kept.
    pub history_max: u64,
    /// How long history records are kept.
    pub history_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            ttl_min_ms: 500,
            ttl_max_ms: 24 * 3_600_000,
            queue_max: 256,
            client_tickets_max: 10_000,
            tickets_max: 200_000,
            grants_max: 2_000_000,
            leases_max: 2_500_000,
            lease_items_max: 10_000,
            metadata_bytes_max: 256 << 20,
            client_ended_max: 64,
            ended_max: 1_000_000,
            // Small enough that live traffic does not feel a step, large enough that 10,000
            // grants are gone in 40 of them.
            piece_max: 256,
            walk_max: 10_000,
            overtaken_max: 64,
            claim_window_ms: 2_000,
            remember_ms: 600_000,
            history_max: 1_000_000,
            history_ms: 90 * 24 * 3_600_000,
        }
    }
}

/// How many domains may have settings of their own.
pub const DOMAINS_MAX: usize = 4_096;

/// What one domain has set for itself, and by which change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DomainSettings {
    /// Its limits.
    pub limits: DomainLimits,
    /// The number of the change that set them: a version to compare with.
    pub version: Revision,
}

/// What one domain may set for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DomainLimits {
    /// Tickets in line for one of its resources.
    pub queue_max: Option<u32>,
}
