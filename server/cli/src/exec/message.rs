//! What `exec` and its guardian say to each other.

use leasehold_client::BootInstant;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// When the job has to be ended, unless a later schedule comes first. Nanoseconds on the clock
/// that runs through a suspend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Schedule {
    /// From here on it is asked to end.
    term_ns: u64,
    /// From here on it is made to.
    kill_ns: u64,
}

impl Schedule {
    /// For a validity that ends at `until`: the request to end comes `margin` before, and half of
    /// the margin later the end. The other half is for the kill to take effect, however late this
    /// process is woken up for it.
    pub(crate) fn new(until: BootInstant, margin: Duration) -> Self {
        let term = until.saturating_sub(margin);
        let kill = until.saturating_sub(margin / 2);
        Self { term_ns: nanos(term), kill_ns: nanos(kill) }
    }

    pub(crate) fn term(self) -> BootInstant {
        instant(self.term_ns)
    }

    pub(crate) fn kill(self) -> BootInstant {
        instant(self.kill_ns)
    }
}

fn nanos(instant: BootInstant) -> u64 {
    u64::try_from(instant.since_start().as_nanos()).unwrap_or(u64::MAX)
}

fn instant(nanos: u64) -> BootInstant {
    BootInstant::from_start(Duration::from_nanos(nanos))
}

/// From `exec` to its guardian, and in the first case further on to the starter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Start the job with the three descriptors that come along.
    Start {
        /// When it has to be ended; it is not begun later than the first of the two.
        schedule: Schedule,
        /// Whether its group gets the terminal.
        terminal: bool,
        /// The process number of the guardian, without which the job must not begin.
        guardian: i32,
    },
    /// The lock was renewed.
    Until(Schedule),
    /// All is over; nobody is left to guard.
    Farewell,
}

/// From the guardian to `exec`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The job's process group; its first process has the same number.
    Group(i32),
    /// The last schedule has arrived.
    Heard,
    /// The job's first process was stopped, as by SIGSTOP or Ctrl-Z.
    Stopped,
    /// It goes on.
    Continued,
    /// The guardian asked the group to end.
    Asked,
    /// The guardian killed the group.
    Killed,
    /// The job's first process has ended.
    Ended {
        /// As shells tell it: 128 and the number of the signal, if one ended it.
        code: u8,
        /// When the guardian saw it.
        at_ns: u64,
    },
}

impl Report {
    pub(crate) fn ended(code: u8) -> Self {
        Self::Ended { code, at_ns: nanos(BootInstant::now()) }
    }

    /// The instant in [`Report::Ended`].
    pub(crate) fn at(at_ns: u64) -> BootInstant {
        instant(at_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_ends_before_the_validity_does() {
        let until = BootInstant::from_start(Duration::from_secs(100));
        let schedule = Schedule::new(until, Duration::from_secs(2));
        assert_eq!(schedule.term(), BootInstant::from_start(Duration::from_secs(98)));
        assert_eq!(schedule.kill(), BootInstant::from_start(Duration::from_secs(99)));
        let early = Schedule::new(BootInstant::from_start(Duration::ZERO), Duration::from_secs(2));
        assert_eq!(early.term(), BootInstant::from_start(Duration::ZERO));
    }
}
