//! A timer on the clock that runs through a suspend, for a loop that polls descriptors.

use leasehold_client::BootInstant;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

/// A descriptor that becomes readable at an instant.
#[derive(Debug)]
pub(crate) struct Alarm(OwnedFd);

impl Alarm {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Self(timerfd_create(TimerfdClockId::Boottime, flags)?))
    }

    /// Readable from `due` on, and no more for what was set before.
    pub(crate) fn set(&self, due: Option<BootInstant>) -> io::Result<()> {
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let it_value = due.map_or(never, timespec);
        let due = Itimerspec { it_interval: never, it_value };
        timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &due)?;
        Ok(())
    }

    /// Succeeds once after it was due; `WouldBlock` otherwise.
    pub(crate) fn ring(&self) -> io::Result<()> {
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
