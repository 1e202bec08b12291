//! Whether a caller accepts JSON.

use crate::fault::Fault;
use actix_web::http::header::{self, HeaderMap};
use leasehold_wire::{Code, Problem};

/// What a route answers with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gives {
    Json,
    /// Server-sent events.
    Events,
    /// A file.
    File,
}

impl Gives {
    fn ranges(self) -> &'static [&'static str] {
        match self {
            Self::Json => &["*/*", "application/*", "application/json", "application/problem+json"],
            // Whoever asks for JSON only has its problems in mind, and a stream is text all the same.
            Self::Events => {
                &["*/*", "text/*", "text/event-stream", "application/*", "application/json"]
            }
            Self::File => &["*/*", "application/*", "application/octet-stream", "application/json"],
        }
    }

    fn refusal(self) -> (&'static str, &'static str) {
        match self {
            Self::Json => ("the answer is JSON", "application/json, application/problem+json"),
            Self::Events => ("the answer is a stream of events", "text/event-stream"),
            Self::File => ("the answer is a file", "application/octet-stream"),
        }
    }
}

/// Refuses a caller that accepts none of the types that the route answers with.
pub(crate) fn check(headers: &HeaderMap, gives: Gives) -> Result<(), Fault> {
    let mut values = headers.get_all(header::ACCEPT).peekable();
    if values.peek().is_none()
        || values.any(|value| value.to_str().is_ok_and(|accept| takes(accept, gives)))
    {
        return Ok(());
    }
    let (detail, expected) = gives.refusal();
    let mut problem = Problem::new(406, Code::NotAcceptable, detail);
    problem.expected = Some(expected.into());
    Err(problem.into())
}

fn takes(accept: &str, gives: Gives) -> bool {
    let fits = |range: &str| fits(range, gives);
    accept == "*/*" || accept.trim().is_empty() || accept.split(',').any(fits)
}

fn fits(range: &str, gives: Gives) -> bool {
    let mut parts = range.split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default();
    let fits = gives.ranges().iter().any(|range| essence.eq_ignore_ascii_case(range));
    fits && !parts.any(is_never)
}

/// A weight of zero: this type is not acceptable.
fn is_never(parameter: &str) -> bool {
    let Some((name, weight)) = parameter.split_once('=') else { return false };
    name.trim().eq_ignore_ascii_case("q") && weight.trim().bytes().all(|b| matches!(b, b'0' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::header::HeaderValue;

    fn status(value: &'static str) -> u16 {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static(value));
        check(&headers, Gives::Json).map_or_else(|fault| fault.problem.status, |()| 200)
    }

    #[test]
    fn json_in_any_form_is_accepted() {
        assert!(check(&HeaderMap::new(), Gives::Json).is_ok());
        for value in [
            "*/*",
            "",
            "application/json",
            "text/html, application/*;q=0.8",
            "Application/JSON;q=0.1",
            "text/html,*/*;q=0.001",
        ] {
            assert_eq!(status(value), 200, "{value}");
        }
    }

    #[test]
    fn a_stream_is_for_those_who_take_one() {
        for (value, good) in [("text/event-stream", true), ("text/html", false), ("*/*", true)] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, HeaderValue::from_static(value));
            assert_eq!(check(&headers, Gives::Events).is_ok(), good, "{value}");
        }
    }

    #[test]
    fn anything_else_alone_is_not() {
        for value in ["text/html", "application/xml, text/*", "application/json;q=0", "*/*;q=0.000"]
        {
            assert_eq!(status(value), 406, "{value}");
        }
    }
}
