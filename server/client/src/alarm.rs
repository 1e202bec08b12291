//! A descriptor for instants on the clock that runs through a suspend.

use crate::clock::BootInstant;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

/// A descriptor that becomes readable at an instant, on `CLOCK_BOOTTIME`: at once when the machine
/// wakes up, if the instant passed while it slept. For loops that poll descriptors, with or
/// without a runtime.
#[derive(Debug)]
pub struct Alarm(OwnedFd);

impl Alarm {
    /// One that is not set. Reading it never blocks, and a program that is executed does not
    /// inherit it.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Self(timerfd_create(TimerfdClockId::Boottime, flags)?))
    }

    /// Readable from `due` on, at once if that has passed, and no more for what was set before.
    ///
    /// # Errors
    /// As of the kernel; none is known.
    pub fn set(&self, due: Option<BootInstant>) -> io::Result<()> {
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let it_value = due.map_or(never, timespec);
        let due = Itimerspec { it_interval: never, it_value };
        timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &due)?;
        Ok(())
    }

    /// Succeeds once after it was due.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] otherwise.
    pub fn ring(&self) -> io::Result<()> {
        rustix::io::read(&self.0, &mut [0; 8])?;
        Ok(())
    }
}

/// Zero would disarm the timer instead of firing at once.
fn timespec(instant: BootInstant) -> Timespec {
    let since = instant.since_start().max(Duration::from_nanos(1));
    Timespec {
        tv_sec: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: since.subsec_nanos().into(),
    }
}

impl AsRawFd for Alarm {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rings_once_for_what_it_is_set_to_and_never_for_what_it_was() {
        let alarm = Alarm::new().expect("a descriptor");
        let would_block = |rung: io::Result<()>| {
            rung.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        };
        assert!(would_block(alarm.ring()));
        // The start of the machine is long over, and is no request to disarm it.
        alarm.set(Some(BootInstant::from_start(Duration::ZERO))).expect("set");
        alarm.ring().expect("due at once");
        assert!(would_block(alarm.ring()));
        alarm.set(Some(BootInstant::from_start(Duration::ZERO))).expect("set");
        alarm.set(Some(BootInstant::from_start(Duration::MAX))).expect("set");
        assert!(would_block(alarm.ring()));
        alarm.set(Some(BootInstant::from_start(Duration::ZERO))).expect("set");
        alarm.set(None).expect("set");
        assert!(would_block(alarm.ring()));
    }
}
