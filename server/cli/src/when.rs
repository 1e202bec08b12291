//! Times for people: how long ago, and when.

use crate::duration::human;
use leasehold_wire::Time;
use std::time::SystemTime;

/// The present time of this machine.
pub(crate) fn now() -> Time {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Time(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// How long ago it was. Clocks differ a little: what lies ahead by seconds is now.
pub(crate) fn ago(time: Time) -> String {
    let now = now().0;
    match now.checked_sub(time.0) {
        Some(past) => format!("{} ago", human(past)),
        None if time.0 - now < 5_000 => "now".to_owned(),
        None => format!("in {}", human(time.0 - now)),
    }
}

/// Both: `12s ago (2026-01-31T00:00:00.000Z)`.
pub(crate) fn both(time: Time) -> String {
    format!("{} ({time})", ago(time))
}

/// A duration of the service.
pub(crate) fn left(ms: Option<u64>) -> String {
    ms.map(human).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_from_now() {
        let now = now();
        assert!(ago(Time(now.0 - 3_600_000)).starts_with("1h"));
        assert!(ago(Time(now.0 + 3_700_000)).starts_with("in 1h"));
        assert_eq!(ago(Time(now.0 + 3_000)), "now");
        assert!(both(Time(0)).ends_with("(1970-01-01T00:00:00.000Z)"));
    }
}
