//! One request on its way through a handler.

use crate::app::App;
use crate::caller::Caller;
use crate::from_wire::Rules;
use crate::head::Head;
use crate::query::Query;
use actix_web::http::header::HeaderMap;
use bytes::Bytes;
use leasehold_node::{Call, Node};
use leasehold_wire::Invalid;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a handler is given.
#[derive(Clone)]
pub(crate) struct Ask {
    pub(crate) app: Arc<App>,
    pub(crate) head: Head,
    /// The whole body; empty where the route reads none.
    pub(crate) body: Bytes,
    pub(crate) caller: Caller,
    pub(crate) call: Call,
}

impl Ask {
    pub(crate) fn node(&self) -> &Node {
        &self.app.node
    }

    /// What this request's values are checked against.
    pub(crate) fn rules(&self) -> Rules<'_> {
        Rules { caller: &self.caller, limits: self.node().limits(), ids: self.node() }
    }

    /// The query, in which only `known` parameters may stand.
    pub(crate) fn query(&self, known: &'static [&'static str]) -> Result<Query, Invalid> {
        Query::parse(self.head.query_string(), known)
    }

    /// What stands in the place of `{id}` in the path.
    pub(crate) fn id(&self) -> &str {
        self.head.id.as_deref().unwrap_or_default()
    }
}

pub(crate) const TIMEOUT: &str = "Leasehold-Timeout-Ms";
/// Nobody waits longer for anything: the longest wait of a request is a minute.
pub(crate) const TIMEOUT_MS_MAX: u64 = 86_400_000;

/// When the request came, and until when its sender still wants an answer.
pub(crate) fn call(headers: &HeaderMap, received: Instant) -> Result<Call, Invalid> {
    let Some(value) = headers.get("leasehold-timeout-ms") else {
        return Ok(Call { received, deadline: None });
    };
    let digits = value.as_bytes();
    let number = (digits.len() <= 20 && digits.iter().all(u8::is_ascii_digit))
        .then(|| value.to_str().ok()?.parse::<u64>().ok())
        .flatten();
    match number {
        Some(ms @ 1..=TIMEOUT_MS_MAX) => {
            Ok(Call { received, deadline: Some(received + Duration::from_millis(ms)) })
        }
        _ => Err(Invalid::field(TIMEOUT, "is not a number of milliseconds", "1 to 86400000")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::header::{HeaderName, HeaderValue};

    fn headers(value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let name = HeaderName::from_static("leasehold-timeout-ms");
        headers.insert(name, HeaderValue::from_str(value).expect("a legal header"));
        headers
    }

    #[test]
    fn the_deadline_counts_from_the_receipt() {
        let received = Instant::now();
        let read = call(&headers("1500"), received).expect("a number");
        assert_eq!(read.deadline, Some(received + Duration::from_millis(1_500)));
        assert_eq!(call(&HeaderMap::new(), received).expect("absent").deadline, None);
    }

    #[test]
    fn anything_but_a_number_of_milliseconds_is_named() {
        for value in ["", "0", "-1", "+1", "1.5", "1e3", "86400001", "18446744073709551616", "1s"] {
            let invalid = call(&headers(value), Instant::now()).expect_err(value);
            assert_eq!(invalid.field.as_deref(), Some(TIMEOUT));
        }
    }
}
