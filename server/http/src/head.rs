//! The head of a request, as far as handlers read it.
//!
//! Its parts are shared with what was received and not copied, but it owns them: a handler knows
//! neither the connection nor the thread that its request came by, so that a request which
//! another node passed on is the same thing to it.

use actix_web::HttpRequest;
use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::http::{Method, Uri, Version};

/// What a request says before its body.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    pub(crate) method: Method,
    pub(crate) version: Version,
    pub(crate) uri: Uri,
    /// What stands in the place of `{id}` in the route's path.
    pub(crate) id: Option<String>,
    /// Those of [`KEPT`] that the client sent.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
}

pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
pub(crate) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
pub(crate) const TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");

/// The headers that handlers, or whoever answers for them, read.
static KEPT: [HeaderName; 5] =
    [IDEMPOTENCY_KEY, LAST_EVENT_ID, TRACE_PARENT, header::IF_MATCH, header::IF_NONE_MATCH];

impl Head {
    /// The head of a request that was matched with its route.
    pub(crate) fn of(http: &HttpRequest) -> Self {
        let kept = http.headers().iter().filter(|(name, _)| KEPT.contains(name));
        Self {
            method: http.method().clone(),
            version: http.version(),
            uri: http.uri().clone(),
            id: http.match_info().get("id").map(str::to_owned),
            headers: kept.map(|(name, value)| (name.clone(), value.clone())).collect(),
        }
    }

    pub(crate) fn query_string(&self) -> &str {
        self.uri.query().unwrap_or_default()
    }

    /// The first value of a header, which has to be one of [`KEPT`].
    pub(crate) fn header(&self, name: HeaderName) -> Option<&HeaderValue> {
        self.all(name).next()
    }

    /// All values of a header, which has to be one of [`KEPT`].
    pub(crate) fn all(&self, name: HeaderName) -> impl Iterator<Item = &HeaderValue> {
        debug_assert!(KEPT.contains(&name), "{name} is not kept");
        self.headers.iter().filter(move |(kept, _)| *kept == name).map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::test::TestRequest;

    #[test]
    fn what_handlers_read_is_kept_in_the_order_of_its_coming() {
        let http = TestRequest::with_uri("/v1/locks?limit=1&cursor=n%2F")
            .append_header(("Idempotency-Key", "a"))
            .append_header(("Accept", "*/*"))
            .append_header(("idempotency-key", "b"))
            .append_header((header::IF_MATCH, "*"))
            .to_http_request();
        let head = Head::of(&http);
        let keys: Vec<_> = head.all(IDEMPOTENCY_KEY).collect();
        assert_eq!(keys, ["a", "b"]);
        assert_eq!(head.header(header::IF_MATCH).expect("it is there"), "*");
        assert_eq!(head.header(LAST_EVENT_ID), None);
        assert_eq!(head.headers.len(), 3);
        assert_eq!((head.query_string(), &head.id), ("limit=1&cursor=n%2F", &None));
    }
}
