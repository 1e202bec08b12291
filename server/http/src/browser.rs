//! Keeps web pages of others from using the API through the browser of somebody inside.
//!
//! A browser says where a request comes from. Programs do not, and are not affected. Reads by
//! foreign pages need no check of their own, since nothing here permits them to see the answer;
//! unless a name of theirs points to this node, which the check of the host prevents.

use crate::fault::Fault;
use actix_web::http::Method;
use actix_web::http::header::{self, HeaderMap};
use leasehold_wire::{Code, Problem};
use std::net::IpAddr;

/// Refuses a write that a page of another site made.
pub(crate) fn check_origin(method: &Method, headers: &HeaderMap) -> Result<(), Fault> {
    if *method == Method::GET || *method == Method::HEAD {
        return Ok(());
    }
    if let Some(site) = headers.get("sec-fetch-site")
        && !matches!(site.as_bytes(), b"same-origin" | b"none")
    {
        return Err(forbidden("the request was made by a page of another site"));
    }
    match headers.get(header::ORIGIN) {
        Some(origin) if !is_own(origin.as_bytes(), headers) => {
            Err(forbidden("the origin of the request is another site"))
        }
        _ => Ok(()),
    }
}

/// An origin is a scheme and an authority; ours is the authority that the request names as host.
fn is_own(origin: &[u8], headers: &HeaderMap) -> bool {
    let authority = origin.strip_prefix(b"http://").or_else(|| origin.strip_prefix(b"https://"));
    match (authority, headers.get(header::HOST)) {
        (Some(authority), Some(host)) => authority.eq_ignore_ascii_case(host.as_bytes()),
        _ => false,
    }
}

/// Refuses a request to a host name that is not known to be this node.
///
/// An IP address is always ours: the attack needs a name that its owner can point elsewhere.
pub(crate) fn check_host(headers: &HeaderMap, own: &[String]) -> Result<(), Fault> {
    let Some(host) = headers.get(header::HOST) else { return Ok(()) };
    let name = host.to_str().map(without_port).unwrap_or_default();
    if is_address(name)
        || name.eq_ignore_ascii_case("localhost")
        || own.iter().any(|own| name.eq_ignore_ascii_case(own))
    {
        return Ok(());
    }
    Err(forbidden(
        "the host name is not known to be this node's; without authentication only IP addresses, localhost and configured names are",
    ))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    }
}

fn is_address(name: &str) -> bool {
    let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    bare.parse::<IpAddr>().is_ok()
}

fn forbidden(detail: &'static str) -> Fault {
    Problem::new(403, Code::Forbidden, detail).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::header::{HeaderName, HeaderValue};

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    fn write(pairs: &[(&'static str, &'static str)]) -> bool {
        check_origin(&Method::POST, &headers(pairs)).is_ok()
    }

    #[test]
    fn programs_and_own_pages_write() {
        let host = ("host", "localhost:7070");
        assert!(write(&[host]));
        assert!(write(&[host, ("origin", "http://localhost:7070")]));
        assert!(write(&[host, ("sec-fetch-site", "same-origin")]));
        assert!(write(&[host, ("sec-fetch-site", "none")]));
    }

    #[test]
    fn pages_of_others_do_not() {
        let host = ("host", "localhost:7070");
        for origin in [
            "http://evil.example",
            "http://localhost:7071",
            "null",
            "",
            "http://localhost:7070.evil.example",
        ] {
            assert!(!write(&[host, ("origin", origin)]), "{origin}");
        }
        for site in ["cross-site", "same-site", ""] {
            assert!(!write(&[host, ("sec-fetch-site", site)]), "{site}");
        }
        assert!(!write(&[("origin", "http://localhost:7070")]));
    }

    #[test]
    fn reads_are_left_to_the_browser() {
        let foreign =
            headers(&[("origin", "http://evil.example"), ("sec-fetch-site", "cross-site")]);
        assert!(check_origin(&Method::GET, &foreign).is_ok());
    }

    #[test]
    fn only_known_hosts_are_answered() {
        let own = ["locks.internal".to_owned()];
        let known = |host| check_host(&headers(&[("host", host)]), &own).is_ok();
        for host in [
            "localhost",
            "LOCALHOST:7070",
            "127.0.0.1:7070",
            "10.1.2.3",
            "[::1]:7070",
            "[fe80::1]",
            "locks.internal:80",
        ] {
            assert!(known(host), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:7070",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "",
            "[::1",
        ] {
            assert!(!known(host), "{host}");
        }
        assert!(check_host(&HeaderMap::new(), &own).is_ok());
    }
}
