//! How long to pause before a repeat: exponential, with full jitter.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(2);

/// The upper end of the pause after so many failures in a row.
fn ceiling(failures: u32) -> Duration {
    FIRST.saturating_mul(1 << failures.min(16)).min(LONGEST)
}

/// A random pause, so that clients that failed together do not come back together. What the
/// service asks for comes first and is never cut short.
pub(crate) fn pause(failures: u32, retry_after: Option<Duration>) -> Duration {
    let jitter = ceiling(failures).mul_f64(fastrand::f64());
    retry_after.unwrap_or_default().saturating_add(jitter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_spread_from_zero() {
        assert_eq!(ceiling(0), FIRST);
        assert_eq!(ceiling(3), FIRST * 8);
        assert_eq!(ceiling(u32::MAX), LONGEST);
        let pauses: Vec<_> = (0..200).map(|_| pause(3, None)).collect();
        assert!(pauses.iter().all(|pause| *pause <= ceiling(3)));
        assert!(pauses.iter().any(|pause| *pause < ceiling(3) / 4));
        assert!(pauses.iter().any(|pause| *pause > ceiling(3) / 2));
    }

    #[test]
    fn what_the_service_asks_for_is_honoured() {
        let asked = Duration::from_secs(7);
        for failures in 0..5 {
            let pause = pause(failures, Some(asked));
            assert!(pause >= asked && pause <= asked + LONGEST);
        }
    }
}
