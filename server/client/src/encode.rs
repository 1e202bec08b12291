//! Text in headers, paths and queries.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::fmt::Write as _;

/// All but the unreserved characters of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const RESERVED_BUT_SLASH: &AsciiSet = &RESERVED.remove(b'/');

/// A resource as it stands in the `Fencing-Resource` header: percent-encoded UTF-8, all but the
/// unreserved characters of RFC 3986 and `/`.
#[must_use]
pub fn fencing_resource(resource: &str) -> String {
    utf8_percent_encode(resource, RESERVED_BUT_SLASH).to_string()
}

/// A path with a query, every value encoded.
pub(crate) fn with_query<'a>(
    path: &str,
    query: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> String {
    let mut target = path.to_owned();
    for (index, (name, value)) in query.into_iter().enumerate() {
        let separator = if index == 0 { '?' } else { '&' };
        // Writing to a string cannot fail.
        let _ = write!(target, "{separator}{name}={}", utf8_percent_encode(value, RESERVED));
    }
    target
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_keeps_slashes_and_a_query_does_not() {
        for (resource, header, query) in [
            ("payments/invoice/42", "payments/invoice/42", "/x?resource=payments%2Finvoice%2F42"),
            ("a b%~-._", "a%20b%25~-._", "/x?resource=a%20b%25~-._"),
            ("é+&=?#", "%C3%A9%2B%26%3D%3F%23", "/x?resource=%C3%A9%2B%26%3D%3F%23"),
            ("../..", "../..", "/x?resource=..%2F.."),
        ] {
            assert_eq!(fencing_resource(resource), header);
            assert_eq!(with_query("/x", [("resource", resource)]), query);
        }
        assert_eq!(with_query("/x", []), "/x");
        assert_eq!(with_query("/x", [("a", "1"), ("b", "2")]), "/x?a=1&b=2");
    }
}
