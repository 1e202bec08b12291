//! The upstream: one origin, named by a URL.

use hyper::Uri;
use std::fmt;
use url::{Host, Url};

/// Where everything is passed on to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    uri: Uri,
    host: String,
    port: u16,
    tls: bool,
}

impl Target {
    /// Reads `http://HOST[:PORT]` or `https://HOST[:PORT]`.
    ///
    /// # Errors
    /// Says what would be right. A path is refused: it would have to be put in front of every
    /// `Destination` and taken off every `Location`, and each of them is a way around a pattern.
    pub fn parse(url: &str) -> Result<Self, String> {
        let refused = |why: &str| Err(format!("`{url}` {why}"));
        let Ok(uri) = url.parse::<Uri>() else { return refused("is not a URL") };
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return refused("is not a URL like http://127.0.0.1:8080"),
        };
        let Some(authority) = uri.authority() else { return refused("names no host") };
        if authority.as_str().contains('@') {
            return refused("has a credential in it, which the proxy does not send");
        }
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return refused("has a path: name the server alone, paths are passed on as they are");
        }
        let Some(host) = host(url) else { return refused("names no host") };
        let port = match authority.port() {
            Some(port) => port.as_u16(),
            None if authority.as_str().ends_with(':') || authority.host() != authority.as_str() => {
                return refused("has a port that is none");
            }
            None if tls => 443,
            None => 80,
        };
        if port == 0 {
            return refused("has a port that is none");
        }
        // The connector gets what the lock is named after, so that both mean the same server.
        let scheme = if tls { "https" } else { "http" };
        let Ok(uri) = format!("{scheme}://{host}:{port}/").parse() else {
            return refused("names no host");
        };
        Ok(Self { uri, host, port, tls })
    }

    /// For the connector.
    #[must_use]
    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    /// What a request names as its host when the client named none.
    #[must_use]
    pub fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Whether it is spoken to over TLS.
    #[must_use]
    pub fn tls(&self) -> bool {
        self.tls
    }
}

/// The host as everybody writes it: numbers that stand for an address become that address, as the
/// resolver reads them, and an IPv4 address in IPv6 clothes becomes itself.
fn host(url: &str) -> Option<String> {
    let host = match Url::parse(url).ok()?.host()?.to_owned() {
        Host::Domain(name) => name.trim_end_matches('.').to_ascii_lowercase(),
        Host::Ipv4(address) => address.to_string(),
        Host::Ipv6(address) => match address.to_ipv4_mapped() {
            Some(address) => address.to_string(),
            None => format!("[{address}]"),
        },
    };
    Some(host).filter(|host| !host.is_empty())
}

/// Normalised, with the port: the same upstream is the same text, however it was written.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_upstream_has_one_name() {
        for (url, name) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("http://Store.Example", "http://store.example:80"),
            ("http://store.example:80/", "http://store.example:80"),
            ("http://store.example.", "http://store.example:80"),
            ("HTTPS://store.example", "https://store.example:443"),
            ("http://[::1]:8080/", "http://[::1]:8080"),
            ("http://[0:0::0001]:8080", "http://[::1]:8080"),
            ("http://127.1:8080", "http://127.0.0.1:8080"),
            ("http://127.0.0.1.:8080", "http://127.0.0.1:8080"),
            ("http://0x7f000001:8080", "http://127.0.0.1:8080"),
            ("http://0X7F.1:8080", "http://127.0.0.1:8080"),
            ("http://2130706433:8080", "http://127.0.0.1:8080"),
            ("http://0177.0.0.01:8080", "http://127.0.0.1:8080"),
            ("http://[::ffff:127.0.0.1]:8080", "http://127.0.0.1:8080"),
            ("http://[::FFFF:7f00:1]:8080", "http://127.0.0.1:8080"),
            ("http://store_1:80", "http://store_1:80"),
        ] {
            let target = Target::parse(url).expect(url);
            assert_eq!(target.to_string(), name, "{url}");
            assert_eq!(target.uri().to_string(), format!("{name}/"), "{url}");
        }
    }

    #[test]
    fn what_is_no_origin_is_refused() {
        for url in [
            "",
            "store",
            "store:8080",
            "ftp://store",
            "http://",
            "http://user:secret@store",
            "http://store/base",
            "http://store/?q",
            "http://store:",
            "http://store:0",
            "http://1.2.3.4.5",
            "http://256.256.256.256",
            "http://.",
            "http://store:99999",
            "/path",
        ] {
            assert!(Target::parse(url).is_err(), "{url}");
        }
    }
}
