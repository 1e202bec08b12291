//! One HTTP answer, with the questions that tests ask of it.

use std::time::{Duration, Instant};

use serde_json::Value;

/// An answer as it came off the wire, with the instants that a careful client would count from.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// Header names in lower case, with their values, in the order received.
    pub headers: Vec<(String, String)>,
    /// The body, undecoded.
    pub body: Vec<u8>,
    /// When the first byte of the request was about to be sent.
    pub sent: Instant,
    /// When the last byte of the answer had arrived.
    pub received: Instant,
}

impl Answer {
    /// The value of a header, by its lower-case name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        match serde_json::from_slice(&self.body) {
            Ok(value) => value,
            Err(error) => panic!("the body is not JSON ({error}): {self}"),
        }
    }

    /// The body of an answer that must be a 200.
    #[track_caller]
    pub fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{self}");
        self.json()
    }

    /// The token of an answer that must be a grant.
    #[track_caller]
    pub fn token(&self) -> u64 {
        let grant = self.ok();
        let token = grant["token"].as_u64();
        let token = token.unwrap_or_else(|| panic!("no token in {self}"));
        let header = self.header("fencing-token").map(str::to_owned);
        // A shared grant does not fence, so nothing invites its holder to send the token on.
        let expected = (grant["mode"] != "shared").then(|| token.to_string());
        assert_eq!(header, expected, "Fencing-Token of {self}");
        token
    }

    /// The value of a metric without labels.
    #[track_caller]
    pub fn metric(&self, name: &str) -> u64 {
        let text = String::from_utf8_lossy(&self.body);
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        value.unwrap_or_else(|| panic!("no metric {name} in {self}"))
    }

    /// For how long the receiver of this grant or renewal may act, counted from `sent`.
    #[track_caller]
    pub fn valid_for(&self) -> Duration {
        let ms = self.ok()["valid_for_ms"].as_u64();
        Duration::from_millis(ms.unwrap_or_else(|| panic!("no valid_for_ms in {self}")))
    }

    /// The details of an answer that must be this problem, in the one shape that all errors share.
    #[track_caller]
    pub fn problem(&self, status: u16, code: &str) -> Value {
        let body = self.problem_of_any_kind();
        assert_eq!((self.status, &body["code"]), (status, &Value::from(code)), "{self}");
        body
    }

    /// The details of an answer that must be some problem; what is checked here holds for all.
    #[track_caller]
    pub fn problem_of_any_kind(&self) -> Value {
        let kind = self.header("content-type").unwrap_or_default();
        assert!(kind.starts_with("application/problem+json"), "content type of {self}");
        let body = self.json();
        let text = |field: &str| body[field].as_str().unwrap_or_default().to_owned();
        assert_eq!(text("type"), format!("urn:leasehold:problem:{}", text("code")), "{self}");
        assert_eq!(body["status"].as_u64(), Some(u64::from(self.status)), "{self}");
        for field in ["code", "title", "detail", "trace_id"] {
            assert!(!text(field).is_empty(), "no {field} in {self}");
        }
        // Whoever can wait a number of milliseconds and whoever can only read the header must be
        // told the same.
        let promised = body["retry_after_ms"].as_u64();
        assert_eq!(promised.is_some(), self.header("retry-after").is_some(), "{self}");
        body
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let body = String::from_utf8_lossy(&self.body);
        write!(f, "{} {:?} {}", self.status, self.headers, body)
    }
}
