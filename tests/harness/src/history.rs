//! What clients saw, written down while they saw it, and judged afterwards.
//!
//! The judge knows only the promises made to clients. It uses each client's own instants: a client
//! may act from the moment it read its grant until its validity, counted from the moment it *sent*
//! the request, is over, or until it sends the release.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::Answer;

/// A promise that a history breaks, as a sentence.
#[derive(Debug, PartialEq, Eq)]
pub struct Breach(pub String);

#[derive(Debug, Clone)]
struct Window {
    client: String,
    asked: Instant,
    from: Instant,
    until: Instant,
    exclusive: bool,
    released: bool,
}

/// The calls of many clients. Shared by reference between their threads.
#[derive(Debug, Default)]
pub struct History {
    windows: Mutex<BTreeMap<String, BTreeMap<u64, Window>>>,
    breaches: Mutex<Vec<Breach>>,
}

impl History {
    /// A client read this grant. A repeat of it may only confirm what is known.
    #[track_caller]
    pub fn granted(&self, client: &str, answer: &Answer) -> u64 {
        let grant = answer.ok();
        let token = answer.token();
        let resource = grant["resource"].as_str().unwrap_or_default().to_owned();
        let window = Window {
            client: client.to_owned(),
            asked: answer.sent,
            from: answer.received,
            until: answer.sent + answer.valid_for(),
            exclusive: grant["mode"] != "shared",
            released: false,
        };
        let mut windows = self.windows.lock().expect("no test thread panicked");
        let known = windows.entry(resource.clone()).or_default().entry(token);
        known
            .and_modify(|known| {
                if known.client == client {
                    known.until = known.until.max(window.until);
                } else {
                    let text =
                        format!("{resource}: token {token} went to {} and {client}", known.client);
                    self.report(text);
                }
            })
            .or_insert(window);
        token
    }

    /// A client read that its renewal took effect.
    #[track_caller]
    pub fn renewed(&self, resource: &str, token: u64, answer: &Answer) {
        let until = answer.sent + answer.valid_for();
        self.change(resource, token, |window| window.until = window.until.max(until));
    }

    /// A client is about to send a release: from now on it does not act.
    pub fn releasing(&self, resource: &str, token: u64) {
        let now = Instant::now();
        self.change(resource, token, |window| window.until = window.until.min(now));
    }

    /// A client read that its release took effect.
    pub fn released(&self, resource: &str, token: u64) {
        self.change(resource, token, |window| window.released = true);
    }

    /// Every token and whether it must still be held at `now`: acknowledged, no release sent, and
    /// valid for at least `margin` longer.
    pub fn must_hold(&self, margin: Duration) -> Vec<(String, u64, String)> {
        self.select(|window, now| !window.released && window.until > now + margin)
    }

    /// Every token whose release was acknowledged.
    pub fn must_be_released(&self) -> Vec<(String, u64, String)> {
        self.select(|window, _| window.released)
    }

    /// How many grants were recorded.
    pub fn grants(&self) -> usize {
        self.windows.lock().expect("no test thread panicked").values().map(BTreeMap::len).sum()
    }

    /// All breaches of the promises, none in a sound history.
    pub fn breaches(&self) -> Vec<Breach> {
        let windows = self.windows.lock().expect("no test thread panicked");
        let mut owners: BTreeMap<u64, &str> = BTreeMap::new();
        for (resource, tokens) in windows.iter() {
            for &token in tokens.keys() {
                if let Some(other) = owners.insert(token, resource) {
                    self.report(format!("token {token} was issued for {other} and for {resource}"));
                }
            }
            self.judge(resource, tokens);
        }
        std::mem::take(&mut self.breaches.lock().expect("no test thread panicked"))
    }

    /// In token order, each window must be over before a later conflicting one begins. That says two
    /// things at once: no two hold together, and tokens rise in the order in which clients held.
    fn judge(&self, resource: &str, tokens: &BTreeMap<u64, Window>) {
        let mut exclusive_end: Option<(u64, Instant)> = None;
        let mut any_end: Option<(u64, Instant)> = None;
        let mut asked_after: Option<(u64, Instant)> = None;
        for (&token, window) in tokens {
            let bound = if window.exclusive { any_end } else { exclusive_end };
            if let Some((earlier, end)) = bound
                && end > window.from
                && window.until > window.from
            {
                let overlap = end.min(window.until) - window.from;
                self.report(format!("{resource}: {earlier} and {token} overlap by {overlap:?}"));
            }
            // A grant asked for after another one was read is the later one, so its token is higher.
            if let Some((earlier, asked)) = asked_after
                && asked > window.from
            {
                self.report(format!("{resource}: {earlier} was asked for after {token} was read"));
            }
            let later = |end: Option<(u64, Instant)>, at| match end {
                Some((_, known)) if known >= at => end,
                _ => Some((token, at)),
            };
            if window.until > window.from {
                any_end = later(any_end, window.until);
                if window.exclusive {
                    exclusive_end = later(exclusive_end, window.until);
                }
            }
            asked_after = later(asked_after, window.asked);
        }
    }

    fn select(&self, wanted: impl Fn(&Window, Instant) -> bool) -> Vec<(String, u64, String)> {
        let now = Instant::now();
        let windows = self.windows.lock().expect("no test thread panicked");
        let all = windows.iter().flat_map(|(resource, tokens)| {
            tokens.iter().map(move |(&token, window)| (resource, token, window))
        });
        all.filter(|(_, _, window)| wanted(window, now))
            .map(|(resource, token, window)| (resource.clone(), token, window.client.clone()))
            .collect()
    }

    fn change(&self, resource: &str, token: u64, change: impl FnOnce(&mut Window)) {
        let mut windows = self.windows.lock().expect("no test thread panicked");
        let window = windows.get_mut(resource).and_then(|tokens| tokens.get_mut(&token));
        match window {
            Some(window) => change(window),
            None => self.report(format!("{resource}: token {token} was used but never granted")),
        }
    }

    fn report(&self, text: String) {
        self.breaches.lock().expect("no test thread panicked").push(Breach(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(resource: &str, token: u64, at: Instant, valid_ms: u64) -> Answer {
        let body = serde_json::json!({
            "resource": resource, "token": token, "mode": "exclusive", "valid_for_ms": valid_ms,
        });
        Answer {
            status: 200,
            headers: vec![("fencing-token".to_owned(), token.to_string())],
            body: body.to_string().into_bytes(),
            sent: at,
            received: at + Duration::from_millis(1),
        }
    }

    #[test]
    fn a_history_in_which_each_holder_ends_before_the_next_is_sound() {
        let start = Instant::now();
        let history = History::default();
        history.granted("a", &grant("r", 1, start, 100));
        history.granted("b", &grant("r", 2, start + Duration::from_millis(100), 100));
        history.granted("c", &grant("s", 3, start, 100));
        assert_eq!(history.breaches(), []);
    }

    #[test]
    fn two_holders_at_once_are_a_breach() {
        let start = Instant::now();
        let history = History::default();
        history.granted("a", &grant("r", 1, start, 100));
        history.granted("b", &grant("r", 2, start + Duration::from_millis(50), 100));
        assert_eq!(history.breaches().len(), 1);
    }

    #[test]
    fn a_token_issued_twice_is_a_breach() {
        let start = Instant::now();
        let history = History::default();
        history.granted("a", &grant("r", 1, start, 10));
        history.granted("b", &grant("r", 1, start + Duration::from_millis(50), 10));
        history.granted("c", &grant("s", 1, start, 10));
        assert_eq!(history.breaches().len(), 2);
    }

    #[test]
    fn a_token_lower_than_one_read_before_it_was_asked_for_is_a_breach() {
        let start = Instant::now();
        let history = History::default();
        history.granted("a", &grant("r", 2, start, 10));
        history.granted("b", &grant("r", 1, start + Duration::from_millis(50), 10));
        // Out of order in tokens, and for the same reason overlapping in token order.
        assert!(!history.breaches().is_empty());
    }
}
