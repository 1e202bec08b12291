//! Which server is asked.

use crate::error::Error;
use hyper::Uri;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The servers in the order in which they were named, and the one that served last.
#[derive(Debug)]
pub(crate) struct Servers {
    /// Without the slash at the end.
    bases: Vec<String>,
    current: AtomicUsize,
}

/// One turn of the list: which server an attempt went to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn(usize);

impl Servers {
    pub(crate) fn parse(urls: &[String]) -> Result<Self, Error> {
        if urls.is_empty() {
            return Err(Error::invalid("server", "no server is named"));
        }
        let bases = urls.iter().map(|url| base(url)).collect::<Result<_, _>>()?;
        Ok(Self { bases, current: AtomicUsize::new(0) })
    }

    pub(crate) fn count(&self) -> usize {
        self.bases.len()
    }

    pub(crate) fn turn(&self) -> Turn {
        Turn(self.current.load(Ordering::Relaxed))
    }

    pub(crate) fn base(&self, turn: Turn) -> &str {
        &self.bases[turn.0 % self.bases.len()]
    }

    /// The server of this turn did not serve: the next one is asked from now on. Calls that fail
    /// at the same time move on once, not past each other.
    pub(crate) fn move_on(&self, turn: Turn) {
        let next = turn.0.wrapping_add(1);
        let _ = self.current.compare_exchange(turn.0, next, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// A TLS connector would take `https` here; there is none yet.
fn base(url: &str) -> Result<String, Error> {
    let refused = |why: &str| Err(Error::invalid("server", format!("`{url}` {why}")));
    let Ok(uri) = url.parse::<Uri>() else { return refused("is not a URL") };
    match (uri.scheme_str(), uri.authority()) {
        (Some("http"), Some(authority)) if !authority.as_str().contains('@') => {}
        (Some("http"), Some(_)) => return refused("has a credential in it: set `credential`"),
        (Some("https"), _) => return refused("asks for TLS, which this client does not speak"),
        _ => return refused("is not a URL like http://127.0.0.1:7070"),
    }
    if uri.query().is_some() {
        return refused("has a query, which the address of a server does not have");
    }
    Ok(url.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(urls: &[&str]) -> Result<Servers, Error> {
        Servers::parse(&urls.iter().map(|url| (*url).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn calls_that_fail_together_move_on_once() {
        let servers = servers(&["http://a", "http://b/", "http://c/p/"]).expect("legal URLs");
        let (first, second) = (servers.turn(), servers.turn());
        servers.move_on(first);
        servers.move_on(second);
        assert_eq!(servers.base(servers.turn()), "http://b");
        servers.move_on(servers.turn());
        assert_eq!(servers.base(servers.turn()), "http://c/p");
        servers.move_on(servers.turn());
        assert_eq!(servers.base(servers.turn()), "http://a");
    }

    #[test]
    fn what_is_no_server_is_refused_with_a_reason() {
        for (url, why) in [
            ("", "not a URL"),
            ("127.0.0.1:7070", "not a URL like"),
            ("ftp://a", "not a URL like"),
            ("https://a", "TLS"),
            ("http://user:secret@a", "credential"),
            ("http://a/?b", "query"),
            ("http://", "not a URL"),
        ] {
            let error = servers(&[url]).expect_err(url);
            assert!(matches!(error, Error::Invalid(_)), "{url}");
            assert!(error.to_string().contains(why), "{url}: {error}");
        }
        assert!(servers(&[]).is_err());
    }
}
