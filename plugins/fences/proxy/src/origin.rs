//! Where a request goes, by its request line and Host alone, and what cannot be passed on.

use crate::problem::{Code, Problem};
use hyper::header::{EXPECT, HOST, HeaderMap, HeaderValue, TRANSFER_ENCODING, UPGRADE};
use hyper::http::request::Parts;
use hyper::http::uri::PathAndQuery;
use hyper::{Method, Uri, Version};

/// The request line and the host that the upstream gets.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) target: Uri,
    pub(crate) host: HeaderValue,
}

impl Origin {
    /// Reads them, and refuses what two readers could take for two different requests.
    pub(crate) fn of(head: &Parts, upstream: &str) -> Result<Self, Problem> {
        if head.method == Method::CONNECT {
            return Err(Problem::new(Code::NotSupported, "CONNECT: a tunnel cannot be fenced"));
        }
        if head.headers.contains_key(UPGRADE) {
            return Err(Problem::new(
                Code::NotSupported,
                "Upgrade: another protocol cannot be fenced",
            ));
        }
        check_framing(&head.headers)?;
        let expects = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"100-continue");
        if !head.headers.get_all(EXPECT).iter().all(expects) {
            return Err(Problem::new(
                Code::ExpectationFailed,
                "Expect: only 100-continue is known",
            ));
        }
        Ok(Self { target: target(&head.uri)?, host: host(head, upstream)? })
    }
}

/// A body is framed anew, which only works for framing that is understood, and that the upstream
/// cannot find in another spelling: to some servers `_` and `-` are the same.
fn check_framing(headers: &HeaderMap) -> Result<(), Problem> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let coding = codings.next();
    let chunked = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"chunked");
    if !coding.is_none_or(chunked) || codings.next().is_some() {
        let detail = "Transfer-Encoding: only chunked, once, is known";
        return Err(Problem::new(Code::NotSupported, detail));
    }
    for (name, field) in
        [("content_length", "Content_Length"), ("transfer_encoding", "Transfer_Encoding")]
    {
        if headers.contains_key(name) {
            let detail = format!("{field} is read as a length of the body by some servers");
            return Err(Problem::invalid(field, detail));
        }
    }
    Ok(())
}

/// The absolute form becomes the form that servers know.
fn target(uri: &Uri) -> Result<Uri, Problem> {
    if !matches!(uri.scheme_str(), None | Some("http" | "https")) {
        return Err(Problem::new(Code::InvalidRequest, "the request line names another protocol"));
    }
    let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let path = if path.starts_with('?') { format!("/{path}") } else { path.to_owned() };
    path.parse().map_err(|_| Problem::new(Code::InvalidRequest, "the request line names no path"))
}

/// A host in the request line counts before the header (RFC 9112, 3.2.2).
fn host(head: &Parts, upstream: &str) -> Result<HeaderValue, Problem> {
    let wrong = |why: &str| Problem::invalid("Host", why);
    let mut hosts = head.headers.get_all(HOST).iter();
    let named = hosts.next();
    if hosts.next().is_some() {
        return Err(wrong("Host stands there twice"));
    }
    if named.is_none() && head.version >= Version::HTTP_11 {
        return Err(wrong("Host is missing"));
    }
    if let Some(authority) = head.uri.authority() {
        if authority.as_str().contains('@') {
            return Err(wrong("the request line has a credential in its host"));
        }
        return HeaderValue::from_str(authority.as_str()).map_err(|_| wrong("it is no host"));
    }
    match named {
        Some(named) if named.as_bytes().iter().any(|byte| b"/\\@?# ,".contains(byte)) => {
            Err(wrong("it is no host"))
        }
        Some(named) => Ok(named.clone()),
        None => HeaderValue::from_str(upstream).map_err(|_| wrong("the upstream has no name")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    fn of(
        method: &str,
        uri: &str,
        version: Version,
        headers: &[(&str, &str)],
    ) -> Result<(String, String), Code> {
        let mut request = Request::builder().method(method).uri(uri).version(version);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).expect("a request").into_parts();
        let origin = Origin::of(&head, "upstream:80").map_err(|problem| problem.code)?;
        Ok((origin.target.to_string(), origin.host.to_str().expect("text").to_owned()))
    }

    fn plain(uri: &str, headers: &[(&str, &str)]) -> Result<(String, String), Code> {
        of("PUT", uri, Version::HTTP_11, headers)
    }

    fn is(target: &str, host: &str) -> Result<(String, String), Code> {
        Ok((target.to_owned(), host.to_owned()))
    }

    #[test]
    fn the_host_stays_what_the_client_named() {
        assert_eq!(plain("/a?b", &[("host", "store:81")]), is("/a?b", "store:81"));
        assert_eq!(plain("http://real/a", &[("host", "other")]), is("/a", "real"));
        assert_eq!(plain("http://real?q", &[("host", "other")]), is("/?q", "real"));
        assert_eq!(of("GET", "/a", Version::HTTP_10, &[]), is("/a", "upstream:80"));
        assert_eq!(of("OPTIONS", "*", Version::HTTP_11, &[("host", "a")]), is("*", "a"));
    }

    #[test]
    fn what_can_be_taken_for_two_requests_is_refused() {
        let host = ("host", "a");
        for headers in [&[][..], &[host, host], &[("host", "a, b")], &[("host", "a/b")]] {
            assert_eq!(plain("/a", headers), Err(Code::InvalidRequest), "{headers:?}");
        }
        assert_eq!(plain("http://me@real/a", &[host]), Err(Code::InvalidRequest));
        assert_eq!(plain("ftp://real/a", &[host]), Err(Code::InvalidRequest));
    }

    #[test]
    fn what_is_no_request_to_storage_is_refused() {
        let host = ("host", "a");
        assert_eq!(of("CONNECT", "a:80", Version::HTTP_11, &[host]), Err(Code::NotSupported));
        assert_eq!(plain("/a", &[host, ("upgrade", "websocket")]), Err(Code::NotSupported));
        assert_eq!(plain("/a", &[host, ("expect", "200-ok")]), Err(Code::ExpectationFailed));
        assert!(plain("/a", &[host, ("expect", "100-Continue")]).is_ok());
    }

    #[test]
    fn a_body_is_framed_in_one_way() {
        let host = ("host", "a");
        let coded = |value| plain("/a", &[host, ("transfer-encoding", value)]).err();
        assert_eq!((coded("chunked"), coded("Chunked")), (None, None));
        for coding in ["gzip, chunked", "chunked, chunked", "identity", "chunked;a=b", ""] {
            assert_eq!(coded(coding), Some(Code::NotSupported), "{coding:?}");
        }
        let chunked = ("transfer-encoding", "chunked");
        assert_eq!(plain("/a", &[host, chunked, chunked]), Err(Code::NotSupported));
        for name in ["Content_Length", "Transfer_Encoding"] {
            assert_eq!(plain("/a", &[host, (name, "5")]), Err(Code::InvalidRequest), "{name}");
        }
    }
}
