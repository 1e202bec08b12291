//! Whether a caller accepts JSON.

use crate::fault::Fault;
use actix_web::http::header::{self, HeaderMap};
use leasehold_wire::{Code, Problem};

/// Refuses a caller that accepts none of the types that the API answers with.
pub(crate) fn check(headers: &HeaderMap) -> Result<(), Fault> {
    let mut values = headers.get_all(header::ACCEPT).peekable();
    if values.peek().is_none() || values.any(|value| value.to_str().is_ok_and(takes_json)) {
        return Ok(());
    }
    let mut problem = Problem::new(406, Code::NotAcceptable, "the answer is JSON");
    problem.expected = Some("application/json, application/problem+json".into());
    Err(problem.into())
}

fn takes_json(accept: &str) -> bool {
    accept == "*/*" || accept.trim().is_empty() || accept.split(',').any(is_json)
}

fn is_json(range: &str) -> bool {
    let mut parts = range.split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default();
    let fits = ["*/*", "application/*", "application/json", "application/problem+json"]
        .iter()
        .any(|json| essence.eq_ignore_ascii_case(json));
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
        check(&headers).map_or_else(|fault| fault.problem.status, |()| 200)
    }

    #[test]
    fn json_in_any_form_is_accepted() {
        assert!(check(&HeaderMap::new()).is_ok());
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
    fn anything_else_alone_is_not() {
        for value in ["text/html", "application/xml, text/*", "application/json;q=0", "*/*;q=0.000"]
        {
            assert_eq!(status(value), 406, "{value}");
        }
    }
}
