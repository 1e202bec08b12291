//! Durations and shares as people write them: `500ms`, `10s`, `5m`, `2h`, `20%`.

use std::time::Duration;

const UNITS: &[(&str, u64)] =
    &[("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Reads a duration. A plain number is refused: whether it means seconds or milliseconds is a
/// guess that costs somebody a lock.
///
/// # Errors
/// Says what is wrong and what would be right, for people.
pub fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    if unit.is_empty() && !number.is_empty() {
        return Err(format!("{text} of what? write {text}s for seconds or {text}ms"));
    }
    let unit = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, ms)| *ms);
    let (Some(unit), Ok(number)) = (unit, number.parse::<u64>()) else {
        return Err("write a whole number and a unit: 500ms, 10s, 5m, 2h, 1d".to_owned());
    };
    let ms = number.checked_mul(unit).ok_or("it is too long")?;
    Ok(Duration::from_millis(ms))
}

/// A share of something, in whole percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share(u32);

impl Share {
    /// This share of `whole`.
    #[must_use]
    pub fn of(self, whole: Duration) -> Duration {
        whole * self.0 / 100
    }
}

/// Reads a share between 5 and 50 percent.
///
/// # Errors
/// Says what would be right, for people.
pub fn share(text: &str) -> Result<Share, String> {
    let percent = text.strip_suffix('%').and_then(|number| number.parse::<u32>().ok());
    match percent {
        Some(percent @ 5..=50) => Ok(Share(percent)),
        _ => Err("write a whole number of percent from 5% to 50%, like 20%".to_owned()),
    }
}

/// A duration for people: two units at most, so that it stays short.
#[must_use]
pub fn human(ms: u64) -> String {
    let (s, m, h, d) = (ms / 1_000, ms / 60_000, ms / 3_600_000, ms / 86_400_000);
    let two = |large: u64, unit: &str, small: u64, small_unit: &str| {
        if small == 0 {
            format!("{large}{unit}")
        } else {
            format!("{large}{unit}{small}{small_unit}")
        }
    };
    match ms {
        0..1_000 => format!("{ms}ms"),
        1_000..10_000 if !ms.is_multiple_of(1_000) => format!("{s}.{}s", ms % 1_000 / 100),
        1_000..60_000 => format!("{s}s"),
        60_000..3_600_000 => two(m, "m", s % 60, "s"),
        3_600_000..86_400_000 => two(h, "h", m % 60, "m"),
        _ => two(d, "d", h % 24, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_their_unit() {
        for (text, ms) in
            [("500ms", 500), ("0s", 0), ("10s", 10_000), ("5m", 300_000), ("2h", 7_200_000)]
        {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        assert_eq!(duration("1d"), Ok(Duration::from_secs(86_400)));
    }

    #[test]
    fn anything_else_is_refused_with_a_hint() {
        let hint = duration("10").expect_err("no unit");
        assert!(hint.contains("10s") && hint.contains("10ms"), "{hint}");
        for text in ["", "s", "-1s", "1.5s", "10 s", "10S", "1h30m", "9999999999999999999s"] {
            assert!(duration(text).is_err(), "{text}");
        }
        assert!(duration("999999999999999999h").expect_err("too long").contains("too long"));
    }

    #[test]
    fn shares_leave_room_on_both_sides() {
        let ten = Duration::from_secs(10);
        assert_eq!(share("20%").map(|share| share.of(ten)), Ok(Duration::from_secs(2)));
        assert_eq!(share("50%").map(|share| share.of(ten)), Ok(Duration::from_secs(5)));
        for text in ["20", "%", "4%", "51%", "0.5%", "-5%"] {
            assert!(share(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_told_in_two_units_at_most() {
        for (ms, text) in [
            (0, "0ms"),
            (999, "999ms"),
            (1_000, "1s"),
            (1_290, "1.2s"),
            (59_999, "59s"),
            (60_000, "1m"),
            (61_000, "1m1s"),
            (3_599_999, "59m59s"),
            (7_200_000, "2h"),
            (90_000_000, "1d1h"),
        ] {
            assert_eq!(human(ms), text);
        }
    }
}
