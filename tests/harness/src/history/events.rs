//! What a watcher was told of some resources from the beginning on, against what clients saw,
//! against the record, and against itself.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Windows;
use super::record::by_token;

/// Kinds that end a grant; each is called as the record calls it.
const ENDS: [&str; 6] = ["released", "expired", "forced", "revoked", "passed_on", "restored"];

pub(super) fn judge(windows: &Windows, events: &[Value], records: &[Value]) -> Vec<String> {
    let mut told = Story::default();
    events.iter().for_each(|event| told.go_on(event));
    told.end();
    let Story { mut found, ends, .. } = told;
    let acknowledged = windows.values().flat_map(BTreeMap::keys);
    let missing = acknowledged.filter(|token| !ends.contains_key(token));
    found.extend(missing.map(|token| format!("nobody told of the grant {token}")));
    let (records, _) = by_token(records);
    for (token, how) in ends {
        let known = records.get(&token).map_or(&Value::Null, |record| &record["how"]);
        if *known != how {
            found.push(format!("{token} ended as {how} to the watcher, and as {known} on record"));
        }
    }
    found
}

/// What follows from the events so far.
#[derive(Default)]
struct Story {
    found: Vec<String>,
    revision: u64,
    resources: BTreeMap<String, Resource>,
    /// Requests that stand in line, by resource and client.
    waiting: BTreeMap<(String, String), u64>,
    /// How each grant ended.
    ends: BTreeMap<u64, String>,
}

#[derive(Default)]
struct Resource {
    newest: u64,
    /// Tokens that hold it, and whether each lets nobody in beside it.
    holders: BTreeMap<u64, bool>,
}

impl Story {
    fn go_on(&mut self, event: &Value) {
        let text = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
        let revision = text("revision").parse().unwrap_or_default();
        if revision <= self.revision {
            self.found.push(format!("after revision {} came {event}", self.revision));
        }
        self.revision = revision;
        let place = (text("resource"), text("client_id"));
        match &*text("event") {
            "queued" => *self.waiting.entry(place).or_default() += 1,
            "left" => self.leave(&place),
            "granted" => {
                self.grant(event, &place.0);
                self.leave(&place);
            }
            end if ENDS.contains(&end) => self.finish(event, &place.0, end),
            _ => {}
        }
    }

    fn grant(&mut self, event: &Value, resource: &str) {
        let token = event["token"].as_u64().unwrap_or_default();
        let exclusive = event["mode"] != "shared";
        let known = self.resources.entry(resource.to_owned()).or_default();
        if known.holders.values().any(|other| exclusive || *other) {
            let holders: Vec<_> = known.holders.keys().collect();
            self.found.push(format!("{holders:?} still held when there came {event}"));
        }
        if token <= known.newest {
            self.found.push(format!("after token {} came {event}", known.newest));
        }
        known.newest = known.newest.max(token);
        known.holders.insert(token, exclusive);
    }

    fn finish(&mut self, event: &Value, resource: &str, how: &str) {
        let token = event["token"].as_u64().unwrap_or_default();
        let known = self.resources.entry(resource.to_owned()).or_default();
        if known.holders.remove(&token).is_none() {
            self.found.push(format!("it did not hold when there came {event}"));
        }
        self.ends.insert(token, how.to_owned());
    }

    /// Of those who never stood in line there is nothing to take back.
    fn leave(&mut self, place: &(String, String)) {
        if let Some(standing) = self.waiting.get_mut(place) {
            *standing = standing.saturating_sub(1);
        }
    }

    fn end(&mut self) {
        for (resource, known) in &self.resources {
            for token in known.holders.keys() {
                self.found.push(format!("{resource}: nobody told of the end of {token}"));
            }
        }
        for ((resource, client), standing) in &self.waiting {
            if *standing > 0 {
                self.found.push(format!("{resource}: {client} still stands in line"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use serde_json::json;

    use super::super::History;
    use super::super::tests::grant;
    use super::*;

    fn event(revision: u64, kind: &str, token: u64) -> Value {
        json!({
            "revision": revision.to_string(), "event": kind, "resource": "r", "client_id": "a",
            "token": token, "mode": "exclusive",
        })
    }

    /// How many breaches there are when grant 2 was read and released, and these were told.
    fn breaches(events: &[Value]) -> usize {
        let history = History::default();
        history.granted("a", &grant("r", 2, Instant::now(), 100));
        history.releasing("r", 2);
        history.released("r", 2);
        let records =
            [json!({"token": 2, "how": "released"}), json!({"token": 3, "how": "expired"})];
        history.judge_events(events, &records);
        history.breaches().len()
    }

    #[test]
    fn what_happened_told_in_order_is_sound() {
        let events = [
            event(1, "queued", 0),
            event(2, "granted", 2),
            event(4, "released", 2),
            event(5, "granted", 3),
            event(6, "queued", 0),
            event(7, "left", 0),
            event(8, "expired", 3),
        ];
        assert_eq!(breaches(&events), 0);
    }

    #[test]
    fn an_event_that_is_missing_is_a_breach() {
        assert_eq!(breaches(&[]), 1, "the grant");
        assert_eq!(breaches(&[event(1, "granted", 2)]), 2, "the end, and so the grant as a whole");
        assert_eq!(breaches(&[event(1, "released", 2)]), 1, "the beginning");
    }

    #[test]
    fn an_event_told_twice_or_out_of_order_is_a_breach() {
        let (granted, released) = (event(1, "granted", 2), event(2, "released", 2));
        let twice = [granted.clone(), released.clone(), released.clone()];
        assert_eq!(breaches(&twice), 2, "by its revision and by its sense");
        let late = [event(1, "granted", 3), event(2, "expired", 3), event(3, "granted", 2)];
        let late: Vec<Value> = late.into_iter().chain([event(4, "released", 2)]).collect();
        assert_eq!(breaches(&late), 1);
    }

    #[test]
    fn two_holders_at_once_are_a_breach() {
        let events = [
            event(1, "granted", 2),
            event(2, "granted", 3),
            event(3, "released", 2),
            event(4, "expired", 3),
        ];
        assert_eq!(breaches(&events), 1);
    }

    #[test]
    fn who_stands_in_line_for_ever_is_a_breach() {
        let events = [event(1, "granted", 2), event(2, "queued", 0), event(3, "released", 2)];
        assert_eq!(breaches(&events), 1);
    }

    #[test]
    fn an_end_that_the_record_tells_otherwise_is_a_breach() {
        assert_eq!(breaches(&[event(1, "granted", 2), event(2, "expired", 2)]), 1);
    }
}
