//! Sleeping until an instant on the clock that runs through a suspend.

use crate::alarm::Alarm;
use crate::clock::BootInstant;
use std::io;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// How long to sleep at once where the machine has no timer left.
const STEP_MAX: Duration = Duration::from_millis(100);

/// Resolves at `instant` or soon after, never before.
///
/// Not `tokio::time::sleep_until`: that counts on `CLOCK_MONOTONIC`, which stands still while the
/// machine sleeps, so it would wake its task hours late after a suspend. A timer descriptor on
/// `CLOCK_BOOTTIME` is due the moment the machine wakes up.
pub(crate) async fn sleep_until(instant: BootInstant) {
    while BootInstant::now() < instant {
        if wait(instant).await.is_err() {
            // No descriptor left. Short steps read the right clock often enough.
            let left = instant.saturating_since(BootInstant::now());
            tokio::time::sleep(left.min(STEP_MAX)).await;
        }
    }
}

#[allow(deprecated, reason = "sound here: what is registered owns its descriptor")]
async fn wait(instant: BootInstant) -> io::Result<()> {
    let alarm = Alarm::new()?;
    alarm.set(Some(instant))?;
    AsyncFd::with_interest(alarm, Interest::READABLE)?.readable().await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_wakes_after_its_instant_and_not_before() {
        for ahead_ms in [0, 1, 20] {
            let instant = BootInstant::now().saturating_add(Duration::from_millis(ahead_ms));
            sleep_until(instant).await;
            assert!(BootInstant::now() >= instant);
        }
    }

    #[tokio::test]
    async fn the_past_is_over_at_once() {
        sleep_until(BootInstant::from_start(Duration::ZERO)).await;
    }

    #[tokio::test]
    async fn the_end_of_time_never_comes() {
        let never = BootInstant::from_start(Duration::MAX);
        tokio::select! {
            () = sleep_until(never) => panic!("it came"),
            () = sleep_until(BootInstant::now().saturating_add(Duration::from_millis(5))) => {}
        }
    }
}
