//! The clock that validity is counted on.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// An instant on `CLOCK_BOOTTIME`: time since the machine started, suspends included.
///
/// [`std::time::Instant`] stands still while the machine sleeps, and a holder that counts on it
/// wakes up believing in a lock that somebody else has had for hours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootInstant(Duration);

impl BootInstant {
    /// The present instant.
    #[must_use]
    pub fn now() -> Self {
        let time = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
        let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
        Self(Duration::new(seconds, nanos))
    }

    /// The instant that lies this far after the start of the machine; for tests and tables.
    #[must_use]
    pub const fn from_start(since: Duration) -> Self {
        Self(since)
    }

    /// How far after the start of the machine it lies.
    #[must_use]
    pub const fn since_start(self) -> Duration {
        self.0
    }

    /// How long it is from `earlier` to here; zero if `earlier` is later.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// This much later; the end of time where there is no such instant.
    #[must_use]
    pub const fn saturating_add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span))
    }

    /// This much earlier; the start of the machine where there is no such instant.
    #[must_use]
    pub const fn saturating_sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(span))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_forward_and_never_wraps() {
        let first = BootInstant::now();
        assert!(BootInstant::now() >= first);
        assert!(first.since_start() > Duration::ZERO);
        let end = first.saturating_add(Duration::MAX);
        assert_eq!(end, BootInstant::from_start(Duration::MAX));
        assert_eq!(first.saturating_since(end), Duration::ZERO);
        assert_eq!(first.saturating_sub(Duration::MAX), BootInstant::from_start(Duration::ZERO));
    }
}
