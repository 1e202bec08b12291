//! What the proxy itself answers: RFC 9457, in the same shape as the service, with codes of its own.

use bytes::Bytes;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use serde::Serialize;
use std::time::Duration;

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal, $status:literal, $title:literal;)+) => {
        /// What programs switch on.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code {
            $($(#[doc = $doc])+ $name),+
        }

        impl Code {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// As it stands in an answer.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text),+
                }
            }

            /// The status of an answer with it.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self {
                    $(Self::$name => $status),+
                }
            }

            const fn title(self) -> &'static str {
                match self {
                    $(Self::$name => $title),+
                }
            }
        }
    };
}

codes! {
    /// The token is lower than one that was shown for this resource.
    StaleToken = "stale_token", 412, "A newer holder has been here";
    /// Each token passes once, and this one has.
    TokenUsed = "token_used", 412, "The token was used already";
    /// The service knows no exclusive grant of this resource with this token, or not whether it is
    /// the newest.
    UnknownToken = "unknown_token", 412, "No exclusive grant with this token is known";
    /// A write on a protected path without resource and token.
    TokenRequired = "token_required", 428, "A fencing token is required";
    /// A request that cannot be understood, or could be understood in two ways.
    InvalidRequest = "invalid_request", 400, "The request is not valid";
    /// A path that the upstream may read as another one.
    AmbiguousPath = "ambiguous_path", 400, "The path can be read in two ways";
    /// The token of a shared grant, which fences nothing.
    SharedToken = "shared_token", 403, "A shared grant does not fence";
    /// The path belongs to another resource.
    WrongResource = "wrong_resource", 403, "The path belongs to another resource";
    /// The client was silent in the middle of its request.
    RequestTimeout = "request_timeout", 408, "The request did not arrive in time";
    /// An `Expect` that is none of ours.
    ExpectationFailed = "expectation_failed", 417, "The expectation cannot be met";
    /// CONNECT, Upgrade: nothing that could be fenced.
    NotSupported = "not_supported", 501, "The proxy does not do this";
    /// An older write was still in flight when the wait was over.
    OlderInFlight = "older_in_flight", 503, "An older write is in flight";
    /// Too many wait already.
    Overloaded = "overloaded", 503, "Too many requests at once";
    /// The proxy does not hold its own lock at the moment.
    NotReady = "not_ready", 503, "The proxy may not write at the moment";
    /// The service could not be asked about the token.
    CheckUnavailable = "check_unavailable", 503, "The token could not be checked";
    /// The highest token could not be made durable.
    StorageFailed = "storage_failed", 503, "The token could not be recorded";
    /// No usable answer of the upstream.
    UpstreamFailed = "upstream_failed", 502, "The upstream failed";
    /// The upstream did not answer in time.
    UpstreamTimeout = "upstream_timeout", 504, "The upstream did not answer in time";
}

/// What went wrong with one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What programs switch on.
    pub code: Code,
    /// What happened this time, for people.
    pub detail: String,
    /// The resource that was named.
    pub resource: Option<String>,
    /// The token that was shown.
    pub token: Option<u64>,
    /// The highest token that is known for the resource.
    pub highest_token: Option<u64>,
    /// The header that is wrong.
    pub field: Option<&'static str>,
    /// When to try again.
    pub retry_after: Option<Duration>,
}

impl Problem {
    /// A problem without any of the optional fields.
    #[must_use]
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
            resource: None,
            token: None,
            highest_token: None,
            field: None,
            retry_after: None,
        }
    }

    /// A header that is wrong, and what would be right.
    #[must_use]
    pub fn invalid(field: &'static str, detail: impl Into<String>) -> Self {
        Self { field: Some(field), ..Self::new(Code::InvalidRequest, detail) }
    }

    /// A token that was overtaken.
    #[must_use]
    pub fn stale(resource: &str, token: u64, highest: u64) -> Self {
        let detail =
            format!("token {token} is stale for {resource}: token {highest} has been here already");
        let highest_token = Some(highest);
        Self { highest_token, ..Self::about(Code::StaleToken, resource, token, detail) }
    }

    /// A token that is older than the one that all resources share which have none of their own.
    #[must_use]
    pub fn below_floor(resource: &str, token: u64, floor: u64) -> Self {
        let detail = format!(
            "token {token} is older than {floor}, the floor of all resources without a highest \
             token of their own here: whether a newer holder of {resource} has been here is not \
             known any more"
        );
        let highest_token = Some(floor);
        Self { highest_token, ..Self::about(Code::StaleToken, resource, token, detail) }
    }

    /// A newer token while none passes, whatever the resource.
    #[must_use]
    pub fn on_hold(resource: &str, token: u64, left: Duration) -> Self {
        let detail = format!(
            "every newer token waits for another {} s: the upstream was not left in order, or the \
             service does not know how, as after a restore, so writes to {resource} with an older \
             one may be in flight that are not known here",
            whole_seconds(left)
        );
        Self::about(Code::OlderInFlight, resource, token, detail)
    }

    /// A problem with what was shown.
    #[must_use]
    pub fn about(code: Code, resource: &str, token: u64, detail: impl Into<String>) -> Self {
        Self { resource: Some(resource.to_owned()), token: Some(token), ..Self::new(code, detail) }
    }

    /// The same, with the advice to come again.
    #[must_use]
    pub fn retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// The answer. `trace_id` finds the request in logs.
    #[must_use]
    pub fn answer(&self, trace_id: &str) -> Response<Bytes> {
        let mut body = serde_json::to_vec(&Shape::of(self, trace_id)).unwrap_or_default();
        // So that in a terminal the next line begins as one.
        body.push(b'\n');
        let mut answer = Response::new(Bytes::from(body));
        *answer.status_mut() =
            StatusCode::from_u16(self.code.status()).unwrap_or(StatusCode::BAD_GATEWAY);
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(after) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(whole_seconds(after)));
        }
        answer
    }
}

/// The header knows only whole seconds, and too early is of no use.
fn whole_seconds(after: Duration) -> u64 {
    after.as_secs() + u64::from(after.subsec_nanos() > 0)
}

#[derive(Serialize)]
struct Shape<'a> {
    r#type: String,
    title: &'static str,
    status: u16,
    code: &'static str,
    detail: &'a str,
    trace_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    highest_token: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

impl<'a> Shape<'a> {
    fn of(problem: &'a Problem, trace_id: &'a str) -> Self {
        let code = problem.code;
        let ms = |after: Duration| u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        Self {
            r#type: format!("urn:leasehold:problem:{}", code.as_str()),
            title: code.title(),
            status: code.status(),
            code: code.as_str(),
            detail: &problem.detail,
            trace_id,
            resource: problem.resource.as_deref(),
            token: problem.token,
            highest_token: problem.highest_token,
            field: problem.field,
            retry_after_ms: problem.retry_after.map(ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_stale_token_names_both() {
        let answer = Problem::stale("invoice/42", 33, 34).answer("abc");
        assert_eq!(answer.status(), 412);
        let body: Value = serde_json::from_slice(answer.body()).expect("it is JSON");
        assert_eq!(
            (&body["code"], &body["resource"], &body["token"], &body["highest_token"]),
            (&json!("stale_token"), &json!("invoice/42"), &json!(33), &json!(34)),
        );
        assert_eq!(body["type"], "urn:leasehold:problem:stale_token");
        assert_eq!(body["trace_id"], "abc");
        assert!(answer.body().ends_with(b"}\n"), "a line of its own in a terminal");
    }

    #[test]
    fn the_header_rounds_up_what_the_body_says_exactly() {
        let problem = Problem::new(Code::NotReady, "wait").retry_after(Duration::from_millis(1200));
        let answer = problem.answer("abc");
        assert_eq!(answer.headers()[RETRY_AFTER], "2");
        let body: Value = serde_json::from_slice(answer.body()).expect("it is JSON");
        assert_eq!(body["retry_after_ms"], 1200);
        assert!(body.get("token").is_none(), "{body}");
    }

    #[test]
    fn every_code_has_a_status_of_an_error_and_its_own_name() {
        let mut seen = std::collections::HashSet::new();
        for code in Code::ALL {
            assert!((400..600).contains(&code.status()), "{code:?}");
            assert!(seen.insert(code.as_str()), "{code:?}");
        }
    }
}
