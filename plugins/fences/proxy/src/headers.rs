//! Headers on their way through: what belongs to one hop stays there, and what says who is who is
//! said by the proxy.

use crate::problem::Problem;
use crate::shown::{MODE, RESOURCE, Shown, TOKEN};
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, VIA,
};
use leasehold_client::fencing_resource;
use std::net::IpAddr;

/// Of one connection, whatever its Connection header says (RFC 9110, 7.6.1, and what was in use
/// before it). Framing is made anew by whoever writes the message.
const HOP_BY_HOP: [&str; 10] = [
    "connection",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Say who the client is, or what it really wants: behind a proxy these are the proxy's to say.
const FORGEABLE: [&str; 8] = [
    "forwarded",
    "x-real-ip",
    "x-original-url",
    "x-rewrite-url",
    "x-http-method",
    "x-http-method-override",
    "x-method",
    "x-method-override",
];
const FORGEABLE_PREFIXES: [&str; 3] = ["x-forwarded-", "fencing-", "leasehold-"];

/// Without one of these a write is another write: a part becomes the whole, a condition falls, a
/// `MOVE` overwrites what it was not to.
const MEANT: [&str; 9] = [
    "authorization",
    "cookie",
    "depth",
    "destination",
    "host",
    "if",
    "lock-token",
    "overwrite",
    "range",
];
const MEANT_PREFIXES: [&str; 3] = ["content-", "if-", "fencing-"];

/// What the proxy knows of the other side.
#[derive(Debug)]
pub(crate) struct Seen<'a> {
    pub(crate) client: IpAddr,
    pub(crate) host: &'a HeaderValue,
    /// What the fence has let through.
    pub(crate) shown: Option<&'a Shown>,
}

/// Refuses a write whose `Connection` would take off what makes it the write that it is.
pub(crate) fn check_connection(headers: &HeaderMap) -> Result<(), Problem> {
    let meant = |name: &str| {
        MEANT.contains(&name) || MEANT_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    };
    let named = named_in_connection(headers).into_iter().find(|name| meant(name));
    named.map_or(Ok(()), |name| {
        let detail = format!("Connection names {name}, which is for the storage behind the proxy");
        Err(Problem::invalid("Connection", detail))
    })
}

/// Makes the headers of a request those that the upstream gets.
pub(crate) fn to_upstream(headers: &mut HeaderMap, seen: &Seen<'_>) {
    strip(headers);
    for name in [EXPECT, CONTENT_LENGTH, HOST] {
        headers.remove(name);
    }
    headers.insert(HOST, seen.host.clone());
    headers.append(VIA, HeaderValue::from_static("1.1 leasehold-fence-proxy"));
    let client = seen.client.to_string();
    say(headers, "x-forwarded-for", &client);
    say(headers, "x-real-ip", &client);
    headers.insert("x-forwarded-host", seen.host.clone());
    headers.insert("x-forwarded-proto", HeaderValue::from_static("http"));
    say(headers, "forwarded", &forwarded(seen));
    if let Some(shown) = seen.shown {
        say(headers, RESOURCE, &fencing_resource(&shown.resource));
        say(headers, TOKEN, &shown.token.to_string());
        headers.insert(MODE, HeaderValue::from_static("exclusive"));
    }
}

/// Makes the headers of an answer those that the client gets. `length` is whether its
/// Content-Length says something that the body itself does not.
pub(crate) fn to_client(headers: &mut HeaderMap, length: bool) {
    strip(headers);
    let told = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    let once = headers.get_all(CONTENT_LENGTH).iter().count() == 1;
    headers.remove(CONTENT_LENGTH);
    if let Some(told) = told.filter(|_: &u64| length && once) {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(told));
    }
    headers.append(VIA, HeaderValue::from_static("1.1 leasehold-fence-proxy"));
}

fn strip(headers: &mut HeaderMap) {
    let named = named_in_connection(headers);
    let doomed = |name: &HeaderName| {
        let name = with_dashes(name.as_str());
        HOP_BY_HOP.contains(&&*name)
            || FORGEABLE.contains(&&*name)
            || FORGEABLE_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
            || named.contains(&name)
    };
    let doomed: Vec<HeaderName> = headers.keys().filter(|name| doomed(name)).cloned().collect();
    for name in doomed {
        headers.remove(name);
    }
}

/// To some servers `_` and `-` are the same.
fn with_dashes(name: &str) -> String {
    name.replace('_', "-")
}

/// Names that are no header names name nothing.
fn named_in_connection(headers: &HeaderMap) -> Vec<String> {
    let lists = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let names = lists.flat_map(|list| list.split(','));
    let names = names.map(|name| with_dashes(&name.trim().to_ascii_lowercase()));
    names.filter(|name| !name.is_empty()).collect()
}

fn say(headers: &mut HeaderMap, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// RFC 7239. A host with a quote in it would end the text early.
fn forwarded(seen: &Seen<'_>) -> String {
    let client = match seen.client {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("\"[{address}]\""),
    };
    let host = seen.host.to_str().unwrap_or_default();
    if host.contains(['"', '\\']) {
        return format!("for={client};proto=http");
    }
    format!("for={client};host=\"{host}\";proto=http")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        let mut map = HeaderMap::new();
        for (name, value) in pairs.iter().map(pair) {
            map.append(name, value);
        }
        map
    }

    fn sent(pairs: &[(&'static str, &'static str)], shown: Option<&Shown>) -> HeaderMap {
        let mut headers = map(pairs);
        let host = HeaderValue::from_static("store.example:80");
        let client = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
        to_upstream(&mut headers, &Seen { client, host: &host, shown });
        headers
    }

    #[test]
    fn what_belongs_to_one_hop_stays_there() {
        let headers = sent(
            &[
                ("connection", "close, X-Secret"),
                ("connection", "x-other, host,"),
                ("x-secret", "1"),
                ("x-other", "1"),
                ("keep-alive", "timeout=5"),
                ("te", "trailers"),
                ("trailer", "x-sum"),
                ("transfer-encoding", "chunked"),
                ("content-length", "5"),
                ("upgrade", "h2c"),
                ("proxy-authorization", "secret"),
                ("expect", "100-continue"),
                ("x-mine", "kept"),
            ],
            None,
        );
        let mut names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        let own = ["forwarded", "host", "via", "x-forwarded-for", "x-forwarded-host"];
        let more = ["x-forwarded-proto", "x-mine", "x-real-ip"];
        assert_eq!(names, [&own[..], &more[..]].concat());
        assert_eq!(headers[HOST], "store.example:80");
    }

    #[test]
    fn nobody_can_say_that_he_is_somebody_else() {
        let headers = sent(
            &[
                ("forwarded", "for=10.0.0.1"),
                ("x-forwarded-for", "10.0.0.1"),
                ("x_forwarded_for", "10.0.0.1"),
                ("x-forwarded-prefix", "/admin"),
                ("x-real-ip", "10.0.0.1"),
                ("x-original-url", "/admin"),
                ("x-http-method-override", "DELETE"),
                ("x_http_method_override", "DELETE"),
                ("x-http-method", "DELETE"),
                ("x-method", "DELETE"),
                ("x_method_override", "DELETE"),
                ("proxy_authorization", "secret"),
                ("fencing-token", "99"),
                ("fencing_token", "99"),
                ("leasehold-leader", "me"),
                ("host", "elsewhere"),
            ],
            None,
        );
        assert!(headers.values().all(|value| !value.as_bytes().starts_with(b"10.")));
        assert_eq!(headers["x-forwarded-for"], "192.0.2.7");
        assert_eq!(headers["forwarded"], "for=192.0.2.7;host=\"store.example:80\";proto=http");
        for gone in [
            TOKEN,
            "fencing_token",
            "x-original-url",
            "x-http-method-override",
            "x_http_method_override",
            "x-http-method",
            "x-method",
            "x_method_override",
            "proxy_authorization",
            "leasehold-leader",
            "x-forwarded-prefix",
        ] {
            assert!(!headers.contains_key(gone), "{gone}");
        }
    }

    #[test]
    fn a_write_keeps_what_makes_it_the_write_that_it_is() {
        let of = |named| check_connection(&map(&[("connection", "close"), ("connection", named)]));
        for plain in ["keep-alive", "X-Mine, TE", "", "contents", "ranges"] {
            assert_eq!(of(plain), Ok(()), "{plain}");
        }
        for meant in [
            "Content-Range",
            "x, content_range",
            "If-Match",
            "if",
            "Range",
            "HOST",
            "authorization",
            "Fencing-Token",
            "Destination",
            "Overwrite",
        ] {
            let problem = of(meant).expect_err(meant);
            assert_eq!(
                (problem.code.as_str(), problem.field),
                ("invalid_request", Some("Connection"))
            );
        }
    }

    #[test]
    fn what_the_fence_let_through_is_told_in_one_spelling() {
        let shown = Shown { resource: "a b".to_owned(), token: 34 };
        let headers = sent(&[(TOKEN, "99"), (RESOURCE, "%61%20b")], Some(&shown));
        assert_eq!(
            (&headers[TOKEN], &headers[RESOURCE]),
            (&"34".parse().expect("a value"), &"a%20b".parse().expect("a value"))
        );
    }

    #[test]
    fn an_answer_cannot_speak_for_the_fence() {
        let mut headers = map(&[
            ("fencing-token", "34"),
            ("leasehold-revision", "1"),
            ("connection", "x-hop"),
            ("x-hop", "1"),
            ("content-length", "5"),
            ("etag", "kept"),
        ]);
        let mut of_head = headers.clone();
        to_client(&mut headers, false);
        let mut names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["etag", "via"]);
        to_client(&mut of_head, true);
        assert_eq!(of_head[CONTENT_LENGTH], "5");
    }
}
