//! What a request shows: `Fencing-Resource`, `Fencing-Token`, `Fencing-Mode`.

use crate::problem::{Code, Problem};
use hyper::HeaderMap;
use hyper::header::HeaderValue;
use percent_encoding::percent_decode;

pub(crate) const RESOURCE: &str = "fencing-resource";
pub(crate) const TOKEN: &str = "fencing-token";
pub(crate) const MODE: &str = "fencing-mode";

/// As many bytes as a resource may have.
const RESOURCE_BYTES_MAX: usize = 512;
/// What every JSON parser can still read exactly.
const TOKEN_MAX: u64 = (1 << 53) - 1;

/// The resource that is written to, and the token of the writer's grant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Shown {
    pub(crate) resource: String,
    pub(crate) token: u64,
}

/// What the headers say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Headers {
    /// Neither resource nor token.
    Nothing,
    /// Both, of an exclusive grant.
    Exclusive(Shown),
    /// A shared grant, which is for reading.
    Shared,
}

impl Headers {
    /// Reads them. Half of what is needed, or one of them twice, is refused: whoever sends that
    /// believes to be fenced.
    pub(crate) fn read(headers: &HeaderMap) -> Result<Self, Problem> {
        let mode = only(headers, MODE, "Fencing-Mode")?;
        let resource = only(headers, RESOURCE, "Fencing-Resource")?;
        let token = only(headers, TOKEN, "Fencing-Token")?;
        match mode.map(HeaderValue::as_bytes) {
            None | Some(b"exclusive") => {}
            Some(b"shared") => return Ok(Self::Shared),
            Some(_) => {
                return Err(Problem::invalid("Fencing-Mode", "it is exclusive or shared"));
            }
        }
        match (resource, token) {
            (None, None) => Ok(Self::Nothing),
            (Some(resource), Some(token)) => {
                let (resource, token) = (read_resource(resource)?, read_token(token)?);
                Ok(Self::Exclusive(Shown { resource, token }))
            }
            (Some(_), None) => Err(required("Fencing-Token")),
            (None, Some(_)) => Err(required("Fencing-Resource")),
        }
    }
}

/// A write without it is refused.
pub(crate) fn required(field: &'static str) -> Problem {
    let detail = format!(
        "{field} is missing: a write here names the resource and the token of the grant it is made \
         under, such as `Fencing-Resource: invoice/42` and `Fencing-Token: 34`"
    );
    Problem { field: Some(field), ..Problem::new(Code::TokenRequired, detail) }
}

fn only<'a>(
    headers: &'a HeaderMap,
    name: &str,
    field: &'static str,
) -> Result<Option<&'a HeaderValue>, Problem> {
    let mut all = headers.get_all(name).iter();
    let first = all.next();
    match all.next() {
        None => Ok(first),
        Some(_) => Err(Problem::invalid(field, format!("{field} stands there twice"))),
    }
}

fn read_resource(value: &HeaderValue) -> Result<String, Problem> {
    let refused = |why: &str| Err(Problem::invalid("Fencing-Resource", why));
    let encoded = value.as_bytes();
    if !encoded.iter().all(u8::is_ascii_graphic) {
        return refused("Fencing-Resource is not percent-encoded");
    }
    if !encodings_are_whole(encoded) {
        return refused("Fencing-Resource has a % that encodes nothing");
    }
    let Ok(resource) = percent_decode(encoded).decode_utf8() else {
        return refused("Fencing-Resource is not UTF-8");
    };
    if resource.is_empty() || resource.len() > RESOURCE_BYTES_MAX {
        return refused("Fencing-Resource has 1 to 512 bytes");
    }
    if resource.chars().any(char::is_control) {
        return refused("Fencing-Resource has a control character");
    }
    Ok(resource.into_owned())
}

fn encodings_are_whole(encoded: &[u8]) -> bool {
    encoded.iter().enumerate().filter(|(_, byte)| **byte == b'%').all(|(at, _)| {
        let digits = encoded.get(at + 1..at + 3);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    })
}

/// Digits and nothing else: `+34`, `034` and ` 34` are other spellings that storage behind us
/// might read as other numbers.
fn read_token(value: &HeaderValue) -> Result<u64, Problem> {
    let text = value.to_str().unwrap_or_default();
    let plain = !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(token @ 1..=TOKEN_MAX) if plain => Ok(token),
        _ => {
            let detail = format!("Fencing-Token is a whole number from 1 to {TOKEN_MAX}");
            Err(Problem::invalid("Fencing-Token", detail))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&'static str, &str)]) -> Result<Headers, Code> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).expect("a value"));
        }
        Headers::read(&headers).map_err(|problem| problem.code)
    }

    #[test]
    fn the_resource_is_decoded_once() {
        for (header, resource) in [
            ("payments/invoice/42", "payments/invoice/42"),
            ("a%20b%25~", "a b%~"),
            ("%C3%A9", "é"),
            ("%2525", "%25"),
            ("a+b", "a+b"),
        ] {
            let shown = Shown { resource: resource.to_owned(), token: 34 };
            assert_eq!(
                read(&[(RESOURCE, header), (TOKEN, "34")]),
                Ok(Headers::Exclusive(shown)),
                "{header}"
            );
        }
    }

    #[test]
    fn half_of_it_is_not_enough_and_too_much_is_refused() {
        assert_eq!(read(&[]), Ok(Headers::Nothing));
        assert_eq!(read(&[(RESOURCE, "a")]), Err(Code::TokenRequired));
        assert_eq!(read(&[(TOKEN, "1")]), Err(Code::TokenRequired));
        for twice in [RESOURCE, TOKEN, MODE] {
            let all = [(RESOURCE, "1"), (TOKEN, "1"), (MODE, "exclusive"), (twice, "1")];
            assert_eq!(read(&all), Err(Code::InvalidRequest), "{twice}");
        }
    }

    #[test]
    fn a_shared_grant_is_told_apart() {
        let both = [(RESOURCE, "a"), (TOKEN, "1")];
        let with = |mode| read(&[both[0], both[1], (MODE, mode)]);
        assert_eq!(with("shared"), Ok(Headers::Shared));
        assert!(matches!(with("exclusive"), Ok(Headers::Exclusive(_))));
        assert_eq!(with("Shared"), Err(Code::InvalidRequest));
    }

    #[test]
    fn a_token_has_one_spelling() {
        for token in [
            "",
            "0",
            "-1",
            "+1",
            "01",
            "1.0",
            "1e3",
            "0x1",
            "34abc",
            "3 4",
            "9007199254740992",
            "99999999999999999999",
            "34,35",
        ] {
            assert_eq!(
                read(&[(RESOURCE, "a"), (TOKEN, token)]),
                Err(Code::InvalidRequest),
                "{token}"
            );
        }
        assert!(read(&[(RESOURCE, "a"), (TOKEN, "9007199254740991")]).is_ok());
    }

    #[test]
    fn a_resource_is_what_the_service_would_take() {
        let long = "a".repeat(513);
        for resource in ["", "a b", "é", "%", "%2", "%zz", "%ff", "%00", "a%0Ab", "%C2%85", &long]
        {
            assert_eq!(
                read(&[(RESOURCE, resource), (TOKEN, "1")]),
                Err(Code::InvalidRequest),
                "{resource}"
            );
        }
        assert!(read(&[(RESOURCE, &long[1..]), (TOKEN, "1")]).is_ok());
    }
}
