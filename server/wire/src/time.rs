//! Wall-clock times as text: RFC 3339, UTC, milliseconds.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;

/// Milliseconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

const DAY_MS: u64 = 86_400_000;
/// The last millisecond of the year 9999, the latest time that RFC 3339 can write.
const LATEST_MS: u64 = 253_402_300_799_999;
const MONTHS: [u64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

/// Days from 0001-01-01 to the first day of `year`.
fn days_before(year: u64) -> u64 {
    let past = year - 1;
    past * 365 + past / 4 - past / 100 + past / 400
}

fn month_days(year: u64) -> [u64; 12] {
    let mut days = MONTHS;
    days[1] += u64::from(is_leap(year));
    days
}

/// Year, month and day of the month, from days since 1970-01-01.
fn date(days: u64) -> (u64, usize, u64) {
    let days = days + days_before(1970);
    // Too early by at most one year in either direction, which the loop sets right.
    let mut year = days * 400 / 146_097 + 1;
    while days_before(year + 1) <= days {
        year += 1;
    }
    while days_before(year) > days {
        year -= 1;
    }
    let mut day = days - days_before(year);
    let mut month = 0;
    let lengths = month_days(year);
    while day >= lengths[month] {
        day -= lengths[month];
        month += 1;
    }
    (year, month + 1, day + 1)
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.0.min(LATEST_MS);
        let (year, month, day) = date(at / DAY_MS);
        let ms = at % DAY_MS;
        let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z",
            ms % 1_000
        )
    }
}

impl Time {
    /// Reads what [`fmt::Display`] writes, and nothing else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let shape = b"0000-00-00T00:00:00.000Z";
        let fits = bytes.len() == shape.len()
            && bytes.iter().zip(shape).all(|(b, s)| b == s || (*s == b'0' && b.is_ascii_digit()));
        if !fits {
            return None;
        }
        let number = |from: usize, to: usize| text[from..to].parse::<u64>().ok();
        let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
        let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
        let lengths = month_days(year.max(1));
        let length = *lengths.get(usize::try_from(month).ok()?.checked_sub(1)?)?;
        let real =
            year >= 1970 && (1..=length).contains(&day) && hour < 24 && minute < 60 && second < 60;
        if !real {
            return None;
        }
        let months: u64 = lengths.iter().take(usize::try_from(month).ok()? - 1).sum();
        let days = days_before(year) - days_before(1970) + months + day - 1;
        let ms = hour * 3_600_000 + minute * 60_000 + second * 1_000 + number(20, 23)?;
        Some(Self(days * DAY_MS + ms))
    }
}

impl Time {
    /// Reads RFC 3339 as people write it: with any number of fractional digits or none, and with
    /// any offset. What is finer than a millisecond is cut off.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let (date_and_time, offset_ms) = split_offset(text)?;
        let (whole, fraction) = date_and_time.split_once('.').unwrap_or((date_and_time, "0"));
        if fraction.is_empty() || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let ms: String = fraction.chars().chain("00".chars()).take(3).collect();
        let (date, time) = whole.split_at_checked(10)?;
        let time = time.strip_prefix(['T', 't', ' '])?;
        let local = Self::parse(&format!("{date}T{time}.{ms}Z"))?;
        let utc = i64::try_from(local.0).ok()?.checked_sub(offset_ms)?;
        u64::try_from(utc).ok().map(Self)
    }
}

/// What stands before the offset, and the offset in milliseconds.
fn split_offset(text: &str) -> Option<(&str, i64)> {
    if let Some(rest) = text.strip_suffix(['Z', 'z']) {
        return Some((rest, 0));
    }
    let (rest, offset) = text.split_at_checked(text.len().checked_sub(6)?)?;
    let sign = match offset.as_bytes()[0] {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, minutes) = offset[1..].split_once(':')?;
    let digits = |text: &str| {
        let plain = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| text.parse::<i64>().ok()).flatten()
    };
    let (hours, minutes) = (digits(hours)?, digits(minutes)?);
    (hours < 24 && minutes < 60).then_some((rest, sign * (hours * 60 + minutes) * 60_000))
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, sink: S) -> Result<S::Ok, S::Error> {
        sink.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let text = Cow::<'_, str>::deserialize(source)?;
        Self::parse(&text)
            .ok_or_else(|| de::Error::custom("expected RFC 3339 in UTC with milliseconds"))
    }
}

impl JsonSchema for Time {
    fn schema_name() -> Cow<'static, str> {
        "Time".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date-time" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_instants_are_written_and_read() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (LATEST_MS, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(Time(ms).to_string(), text);
            assert_eq!(Time::parse(text), Some(Time(ms)));
        }
    }

    #[test]
    fn every_day_of_four_centuries_follows_the_one_before() {
        let mut before = Time(0).to_string();
        for day in 1..=146_097_u64 {
            let text = Time(day * DAY_MS).to_string();
            assert!(text > before, "{text} after {before}");
            assert_eq!(Time::parse(&text), Some(Time(day * DAY_MS)));
            before = text;
        }
    }

    #[test]
    fn what_people_write_is_read() {
        let noon = Time::parse("2026-05-04T12:00:00.000Z");
        for text in [
            "2026-05-04T12:00:00Z",
            "2026-05-04t12:00:00z",
            "2026-05-04 12:00:00.0Z",
            "2026-05-04T12:00:00.000999999Z",
            "2026-05-04T14:30:00+02:30",
            "2026-05-03T23:00:00-13:00",
        ] {
            assert_eq!(Time::read(text), noon, "{text}");
        }
        assert_eq!(Time::read("2026-05-04T12:00:00.12Z"), noon.map(|noon| Time(noon.0 + 120)));
        for text in [
            "",
            "Z",
            "2026-05-04T12:00:00",
            "2026-05-04T12:00:00.Z",
            "2026-05-04T12:00:00,5Z",
            "2026-05-04T12:00Z",
            "2026-05-04T12:00:00+0200",
            "2026-05-04T12:00:00+24:00",
            "2026-05-04T12:00:00é2:00",
            "1970-01-01T00:00:00+00:01",
            "2026-13-04T12:00:00Z",
            "1746360000",
        ] {
            assert_eq!(Time::read(text), None, "{text}");
        }
    }

    #[test]
    fn other_texts_are_no_times() {
        for text in [
            "",
            "2024-02-30T00:00:00.000Z",
            "2024-13-01T00:00:00.000Z",
            "2024-01-01T24:00:00.000Z",
            "2024-01-01 00:00:00.000Z",
            "2024-01-01T00:00:00Z",
            "2024-00-01T00:00:00.000Z",
        ] {
            assert_eq!(Time::parse(text), None, "{text}");
        }
    }
}
