//! The bounds of a fence, and what it counts.

use std::time::Duration;

/// The bounds of a fence.
///
/// ```
/// use leasehold_client::fence::Options;
/// use std::time::Duration;
///
/// let options = Options::new().wait_max(Duration::from_secs(5)).resources_max(10_000);
/// assert_eq!(options.waiting_max, 16_384);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// The longest wait for older writes in flight. Default 30 s.
    pub wait_max: Duration,
    /// The most calls that may wait for older writes at one time. Default 16,384.
    pub waiting_max: usize,
    /// The most calls that may wait for the disk at one time. Default 16,384.
    pub recording_max: usize,
    /// The most resources whose T_max is kept apart. Beyond, those with the lowest tokens share
    /// one floor. Default 1,000,000.
    pub resources_max: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            wait_max: Duration::from_secs(30),
            waiting_max: 16_384,
            recording_max: 16_384,
            resources_max: 1_000_000,
        }
    }
}

impl Options {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the longest wait for older writes in flight; zero to refuse at once.
    #[must_use]
    pub const fn wait_max(mut self, wait_max: Duration) -> Self {
        self.wait_max = wait_max;
        self
    }

    /// Sets how many calls may wait for older writes at one time. With 0 a newer token passes only
    /// where no older write is in flight.
    #[must_use]
    pub const fn waiting_max(mut self, waiting_max: usize) -> Self {
        self.waiting_max = waiting_max;
        self
    }

    /// Sets how many calls may wait for the disk at one time. With 0 only writes with a known token
    /// pass.
    #[must_use]
    pub const fn recording_max(mut self, recording_max: usize) -> Self {
        self.recording_max = recording_max;
        self
    }

    /// Sets for how many resources T_max is kept apart; at least 1.
    #[must_use]
    pub const fn resources_max(mut self, resources_max: u64) -> Self {
        self.resources_max = if resources_max == 0 { 1 } else { resources_max };
        self
    }
}

/// What a fence has counted since it was made, and what it holds at this moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Passes that are not dropped yet.
    pub in_flight: u64,
    /// Resources with a pass or a call; every other resource takes no memory beside its T_max.
    pub resources_busy: u64,
    /// For how much longer every newer token waits, because of what may be in flight that this fence
    /// has not let through.
    pub held_for: Duration,
    /// Calls that wait for older writes at this moment.
    pub waiting: u64,
    /// The bound of it.
    pub waiting_max: u64,
    /// Calls that wait for the disk at this moment.
    pub recording: u64,
    /// The bound of it.
    pub recording_max: u64,
    /// Resources whose T_max is kept apart.
    pub resources: u64,
    /// The bound of it.
    pub resources_max: u64,
    /// The T_max of every resource that has none of its own; 0 if nothing was folded.
    pub floor: u64,
    /// Writes that were let through.
    pub passes: u64,
    /// Seals that were recorded.
    pub seals: u64,
    /// Refused: a newer token was seen.
    pub stale: u64,
    /// Refused: the token was used before.
    pub used: u64,
    /// Refused: older writes did not end in time.
    pub timed_out: u64,
    /// Refused: too many calls waited.
    pub full: u64,
    /// Refused: the storage failed.
    pub failed: u64,
    /// Changes of T_max or of its use that are durable.
    pub raises: u64,
    /// Transactions in which they became so: the fewer for the same number of raises, the more of
    /// them shared a sync.
    pub commits: u64,
    /// Resources that were folded into the floor.
    pub folded: u64,
}
