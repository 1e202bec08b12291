//! What clients saw, written down while they saw it, and judged afterwards.
//!
//! The judge knows only the promises made to clients. It uses each client's own instants: a client
//! may act from the moment it read its grant until its validity, counted from the moment it *sent*
//! the request, is over, or until it sends the release.
//!
//! - here: what is written down, and which answers are a defined end of a request;
//! - `windows`: the rules between the holders of one resource;
//! - `record`: the same against the grants that the service has on record;
//! - `events`: the same against what a watcher was told.

mod events;
mod record;
mod windows;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::Answer;

/// A promise that a history breaks, as a sentence.
#[derive(Debug, PartialEq, Eq)]
pub struct Breach(pub String);

/// One grant, as its client saw it.
#[derive(Debug, Clone)]
struct Window {
    client: String,
    asked: Instant,
    from: Instant,
    /// The client acts until then.
    until: Instant,
    /// The service promised not to end it before, whatever the client does.
    promised: Instant,
    exclusive: bool,
    /// Its client sent a release.
    gave_back: bool,
    /// Its client read that the release took effect.
    released: bool,
}

type Windows = BTreeMap<String, BTreeMap<u64, Window>>;

/// The calls of many clients. Shared by reference between their threads.
#[derive(Debug, Default)]
pub struct History {
    windows: Mutex<Windows>,
    /// Requests without an answer that ends them: client and request id, and when it first asked.
    open: Mutex<BTreeMap<(String, String), Instant>>,
    breaches: Mutex<Vec<Breach>>,
}

impl History {
    /// A client is about to send this acquire for the first time.
    pub fn asking(&self, client: &str, request: &str) {
        lock(&self.open).insert((client.to_owned(), request.to_owned()), Instant::now());
    }

    /// A client read the answer that ends its acquire. Gives the token of a grant.
    #[track_caller]
    pub fn answered(&self, client: &str, request: &str, answer: &Answer) -> Option<u64> {
        let asked = lock(&self.open).remove(&(client.to_owned(), request.to_owned()));
        let Some(asked) = asked else {
            self.report(format!("{client}/{request} was answered without being open: {answer}"));
            return None;
        };
        if answer.status == 200 {
            return Some(self.granted_since(asked, client, answer));
        }
        let code = answer.json()["code"].as_str().unwrap_or_default().to_owned();
        let defined = matches!(
            (answer.status, &*code),
            (409, "held" | "wait_timeout") | (410, "grant_ended" | "lease_ended") | (429, "shed")
        );
        if !defined {
            self.report(format!("{client}/{request} ended in no defined way: {answer}"));
        }
        None
    }

    /// A client read this grant. A repeat of it may only confirm what is known.
    #[track_caller]
    pub fn granted(&self, client: &str, answer: &Answer) -> u64 {
        self.granted_since(answer.sent, client, answer)
    }

    #[track_caller]
    fn granted_since(&self, asked: Instant, client: &str, answer: &Answer) -> u64 {
        let grant = answer.ok();
        let token = answer.token();
        let resource = grant["resource"].as_str().unwrap_or_default().to_owned();
        let until = answer.sent + answer.valid_for();
        let window = Window {
            client: client.to_owned(),
            asked,
            from: answer.received,
            until,
            promised: until,
            exclusive: grant["mode"] != "shared",
            gave_back: false,
            released: false,
        };
        let mut windows = lock(&self.windows);
        let known = windows.entry(resource.clone()).or_default().entry(token);
        known
            .and_modify(|known| {
                if known.client == client {
                    known.until = known.until.max(window.until);
                    known.promised = known.promised.max(window.promised);
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
        self.change(resource, token, |window| {
            window.until = window.until.max(until);
            window.promised = window.promised.max(until);
        });
    }

    /// A client is about to send a release: from now on it does not act.
    pub fn releasing(&self, resource: &str, token: u64) {
        let now = Instant::now();
        self.change(resource, token, |window| {
            window.until = window.until.min(now);
            window.gave_back = true;
        });
    }

    /// A client read that its release took effect.
    pub fn released(&self, resource: &str, token: u64) {
        self.change(resource, token, |window| window.released = true);
    }

    /// A client read that its grant had ended without its doing.
    pub fn ended(&self, resource: &str, token: u64, answer: &Answer) {
        let mut early = None;
        self.change(resource, token, |window| {
            early = window.promised.checked_duration_since(answer.received);
        });
        if let Some(early) = early.filter(|early| !early.is_zero()) {
            self.report(format!("{resource}: {token} ended {early:?} too early: {answer}"));
        }
    }

    /// Something else than an answer broke a promise.
    pub fn broken(&self, text: impl Into<String>) {
        self.report(text.into());
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

    /// Looks for what these records of the service, in any order, say against this history and
    /// against themselves. The breaches are told with the others.
    pub fn judge_record(&self, records: &[Value]) {
        let found = record::judge(&lock(&self.windows), records);
        found.into_iter().for_each(|text| self.report(text));
    }

    /// The same for what a watcher was told from the beginning on, until everything had ended.
    pub fn judge_events(&self, events: &[Value], records: &[Value]) {
        let found = events::judge(&lock(&self.windows), events, records);
        found.into_iter().for_each(|text| self.report(text));
    }

    /// How many grants were recorded.
    pub fn grants(&self) -> usize {
        lock(&self.windows).values().map(BTreeMap::len).sum()
    }

    /// All resources of which something was granted.
    pub fn resources(&self) -> Vec<String> {
        lock(&self.windows).keys().cloned().collect()
    }

    /// All breaches of the promises, none in a sound history.
    pub fn breaches(&self) -> Vec<Breach> {
        let windows = lock(&self.windows);
        let mut owners: BTreeMap<u64, &str> = BTreeMap::new();
        for (resource, tokens) in windows.iter() {
            for &token in tokens.keys() {
                if let Some(other) = owners.insert(token, resource) {
                    self.report(format!("token {token} was issued for {other} and for {resource}"));
                }
            }
            for text in windows::judge(resource, tokens) {
                self.report(text);
            }
        }
        for (client, request) in lock(&self.open).keys() {
            self.report(format!("{client}/{request} never ended"));
        }
        std::mem::take(&mut lock(&self.breaches))
    }

    fn select(&self, wanted: impl Fn(&Window, Instant) -> bool) -> Vec<(String, u64, String)> {
        let now = Instant::now();
        let windows = lock(&self.windows);
        let all = windows.iter().flat_map(|(resource, tokens)| {
            tokens.iter().map(move |(&token, window)| (resource, token, window))
        });
        all.filter(|(_, _, window)| wanted(window, now))
            .map(|(resource, token, window)| (resource.clone(), token, window.client.clone()))
            .collect()
    }

    fn change(&self, resource: &str, token: u64, change: impl FnOnce(&mut Window)) {
        let mut windows = lock(&self.windows);
        let window = windows.get_mut(resource).and_then(|tokens| tokens.get_mut(&token));
        match window {
            Some(window) => change(window),
            None => self.report(format!("{resource}: token {token} was used but never granted")),
        }
    }

    fn report(&self, text: String) {
        lock(&self.breaches).push(Breach(text));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no test thread panicked")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A grant that was asked for at `at` and read a millisecond later.
    pub(super) fn grant(resource: &str, token: u64, at: Instant, valid_ms: u64) -> Answer {
        let body = json!({
            "resource": resource, "token": token, "mode": "exclusive", "valid_for_ms": valid_ms,
        });
        let mut answer = told(200, at, &body);
        answer.headers.push(("fencing-token".to_owned(), token.to_string()));
        answer
    }

    fn told(status: u16, at: Instant, body: &Value) -> Answer {
        Answer {
            status,
            headers: Vec::new(),
            body: body.to_string().into_bytes(),
            sent: at,
            received: at + Duration::from_millis(1),
        }
    }

    #[test]
    fn a_request_that_was_never_answered_is_a_breach() {
        let history = History::default();
        history.asking("a", "1");
        history.asking("a", "2");
        let refused = told(409, Instant::now(), &json!({"code": "wait_timeout"}));
        assert_eq!(history.answered("a", "1", &refused), None);
        assert_eq!(history.breaches(), [Breach("a/2 never ended".to_owned())]);
    }

    #[test]
    fn an_end_that_is_not_defined_is_a_breach() {
        let history = History::default();
        history.asking("a", "1");
        history.answered("a", "1", &told(500, Instant::now(), &json!({"code": "internal"})));
        history.answered("a", "1", &told(409, Instant::now(), &json!({"code": "held"})));
        assert_eq!(history.breaches().len(), 2, "an error, and an answer to nothing");
    }

    #[test]
    fn a_grant_that_ended_before_its_validity_was_over_is_a_breach() {
        let start = Instant::now();
        let history = History::default();
        let ended = |at_ms| {
            let at = start + Duration::from_millis(at_ms);
            told(410, at, &json!({"code": "grant_ended", "how": "expired"}))
        };
        history.granted("a", &grant("r", 1, start, 100));
        history.ended("r", 1, &ended(100));
        assert_eq!(history.breaches(), []);
        history.renewed("r", 1, &grant("r", 1, start + Duration::from_millis(50), 100));
        // That the client itself stopped earlier changes nothing about what was promised to it.
        history.releasing("r", 1);
        history.ended("r", 1, &ended(100));
        assert_eq!(history.breaches().len(), 1);
    }

    #[test]
    fn a_token_that_was_never_granted_cannot_be_released() {
        let history = History::default();
        history.released("r", 9);
        assert_eq!(history.breaches().len(), 1);
    }
}
