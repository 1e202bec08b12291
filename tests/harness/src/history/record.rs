//! What the service has on record of all grants, against what clients saw and against itself.
//!
//! Times of the record are wall-clock times of leaders, which the service keeps from going back: so
//! they are compared with each other, and never with the instants of a client.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Window, Windows};

/// The records by their tokens, and every token that has two.
pub(super) fn by_token(records: &[Value]) -> (BTreeMap<u64, &Value>, Vec<u64>) {
    let (mut known, mut twice) = (BTreeMap::new(), Vec::new());
    for record in records {
        let token = record["token"].as_u64().unwrap_or_default();
        if known.insert(token, record).is_some() {
            twice.push(token);
        }
    }
    (known, twice)
}

pub(super) fn judge(windows: &Windows, records: &[Value]) -> Vec<String> {
    let (records, twice) = by_token(records);
    let mut found: Vec<String> =
        twice.into_iter().map(|token| format!("token {token} is on record twice")).collect();
    for (resource, tokens) in windows {
        for (token, window) in tokens {
            let differs = match records.get(token) {
                Some(record) => differs(resource, window, record),
                None => Some("is not on record".to_owned()),
            };
            let who = &window.client;
            found.extend(differs.map(|what| format!("{resource}: {token} of {who} {what}")));
        }
    }
    found.extend(overlaps(&records));
    found
}

/// What the record of an acknowledged grant must not say.
fn differs(resource: &str, window: &Window, record: &Value) -> Option<String> {
    let mode = if window.exclusive { "exclusive" } else { "shared" };
    let same = record["resource"] == resource
        && record["client_id"] == *window.client
        && record["mode"] == mode;
    let how = record["how"].as_str().unwrap_or("live");
    let sound = match how {
        "released" => window.gave_back,
        "expired" | "live" => !window.released,
        // Only an operator or nobody's claim ends it otherwise, and its client had read it.
        _ => false,
    };
    (!same || !sound).then(|| format!("is on record as {record}"))
}

/// Grants of one resource that the record itself shows out of order, or together.
fn overlaps(records: &BTreeMap<u64, &Value>) -> Vec<String> {
    let mut found = Vec::new();
    let mut earlier: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for record in records.values() {
        let before = earlier.entry(text(record, "resource")).or_default();
        for other in before.iter() {
            let both_shared = other["mode"] == "shared" && record["mode"] == "shared";
            // All are written alike, in UTC, so their order as texts is their order in time.
            let bound = if both_shared { "granted_at" } else { "ended_at" };
            let until = text(other, bound);
            if until.is_empty() || until > text(record, "granted_at") {
                found.push(format!("{record} follows {other}"));
            }
        }
        // Whatever ended before one that lets nobody in beside it has been compared with that.
        if record["mode"] != "shared" {
            before.clear();
        }
        before.push(record);
    }
    found
}

fn text<'a>(record: &'a Value, field: &str) -> &'a str {
    record[field].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use serde_json::json;

    use super::super::History;
    use super::super::tests::grant;
    use super::*;

    fn on_record(token: u64, from_s: u64, to_s: u64, how: &str) -> Value {
        json!({
            "resource": "r", "token": token, "client_id": "a", "mode": "exclusive", "how": how,
            "granted_at": format!("2026-01-01T00:00:{from_s:02}.000Z"),
            "ended_at": format!("2026-01-01T00:00:{to_s:02}.000Z"),
        })
    }

    /// How many breaches there are when `a` read grant 2, released it, and these are on record.
    fn breaches(records: &[Value]) -> usize {
        let history = History::default();
        history.granted("a", &grant("r", 2, Instant::now(), 100));
        history.releasing("r", 2);
        history.released("r", 2);
        history.judge_record(records);
        history.breaches().len()
    }

    #[test]
    fn a_record_of_what_happened_is_sound() {
        let known = [on_record(3, 9, 10, "passed_on"), on_record(2, 5, 9, "released")];
        assert_eq!(breaches(&known), 0);
    }

    #[test]
    fn an_acknowledged_grant_that_is_lost_or_another_one_is_a_breach() {
        assert_eq!(breaches(&[]), 1);
        for (field, other) in [("resource", "s"), ("client_id", "b"), ("mode", "shared")] {
            let mut record = on_record(2, 5, 9, "released");
            record[field] = other.into();
            assert_eq!(breaches(&[record]), 1, "{field}");
        }
    }

    #[test]
    fn an_end_that_its_client_knows_better_is_a_breach() {
        for how in ["expired", "passed_on", "forced"] {
            assert_eq!(breaches(&[on_record(2, 5, 9, how)]), 1, "{how}");
        }
        let history = History::default();
        history.granted("a", &grant("r", 2, Instant::now(), 100));
        history.judge_record(&[on_record(2, 5, 9, "released")]);
        assert_eq!(history.breaches().len(), 1, "nobody gave it back");
    }

    #[test]
    fn grants_that_the_record_shows_together_or_twice_are_breaches() {
        let first = on_record(2, 5, 9, "released");
        assert_eq!(breaches(&[first.clone(), on_record(3, 8, 10, "expired")]), 1);
        assert_eq!(breaches(&[first.clone(), on_record(1, 6, 7, "expired")]), 1);
        assert_eq!(breaches(&[first.clone(), first]), 1);
    }
}
