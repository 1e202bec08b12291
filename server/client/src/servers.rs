//! Which server is asked: the one that served last, or the one that leads where that is known.
//!
//! Only servers that the caller named are ever asked. What the service says about its leader makes
//! a choice among them and adds none to them: a credential goes nowhere else.

use crate::error::Error;
use hyper::Uri;
use parking_lot::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// A server that left a request without an answer is asked again this late, unless none is left.
const SILENT_FOR: Duration = Duration::from_secs(30);
/// A server that could not serve is not preferred again before.
const UNABLE_FOR: Duration = Duration::from_secs(2);

/// The servers in the order in which they were named, with what is known of each.
#[derive(Debug)]
pub(crate) struct Servers {
    /// Without the slash at the end.
    bases: Vec<String>,
    known: Mutex<Known>,
    /// One asks whether a server is still there, for all who wait on it.
    asking: Vec<tokio::sync::Mutex<()>>,
}

#[derive(Debug)]
struct Known {
    /// How often another server was chosen.
    turns: u64,
    current: usize,
    marks: Vec<Mark>,
}

/// What is known of one server.
#[derive(Debug, Clone, Copy, Default)]
struct Mark {
    failed: Option<(Instant, Fault)>,
    heard: Option<Instant>,
    /// The id of its node, once it was asked for it.
    node: Option<u64>,
}

/// How a server failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It said so, or the connection did.
    Unable,
    /// It said nothing for as long as it was given.
    Silent,
}

/// One turn of the list: which server an attempt went to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn {
    number: u64,
    server: usize,
}

/// What naming the leader led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hint {
    /// It is asked from now on, or there is a reason not to.
    Settled,
    /// Nobody knows yet which of the servers it is.
    Unknown,
}

impl Servers {
    pub(crate) fn parse(urls: &[String]) -> Result<Self, Error> {
        if urls.is_empty() {
            return Err(Error::invalid("server", "no server is named"));
        }
        let bases = urls.iter().map(|url| base(url)).collect::<Result<Vec<_>, _>>()?;
        let marks = vec![Mark::default(); bases.len()];
        let asking = bases.iter().map(|_| tokio::sync::Mutex::default()).collect();
        let known = Mutex::new(Known { turns: 0, current: 0, marks });
        Ok(Self { bases, known, asking })
    }

    pub(crate) fn count(&self) -> usize {
        self.bases.len()
    }

    pub(crate) fn turn(&self) -> Turn {
        let known = self.known.lock();
        Turn { number: known.turns, server: known.current }
    }

    pub(crate) fn base(&self, turn: Turn) -> &str {
        &self.bases[turn.server]
    }

    /// The server of this turn did not serve: another one is asked from now on. Calls that fail at
    /// the same time move on once, not past each other.
    pub(crate) fn move_on(&self, turn: Turn, fault: Fault) {
        let mut known = self.known.lock();
        known.marks[turn.server].failed = Some((Instant::now(), fault));
        if known.turns == turn.number {
            let next = known.after(turn.server);
            known.choose(next);
        }
    }

    /// The server of this turn said something.
    pub(crate) fn heard(&self, turn: Turn) {
        self.known.lock().marks[turn.server].heard = Some(Instant::now());
    }

    /// The server of this turn served.
    pub(crate) fn served(&self, turn: Turn) {
        let mark = &mut self.known.lock().marks[turn.server];
        mark.failed = None;
        mark.heard = Some(Instant::now());
    }

    /// When the server of this turn was last heard of.
    pub(crate) fn last_heard(&self, turn: Turn) -> Option<Instant> {
        self.known.lock().marks[turn.server].heard
    }

    /// Whether the server of this turn was found silent after `since`.
    pub(crate) fn is_silent_since(&self, turn: Turn, since: Instant) -> bool {
        let failed = self.known.lock().marks[turn.server].failed;
        matches!(failed, Some((at, Fault::Silent)) if at >= since)
    }

    /// Waits for the turn to ask the server of this turn whether it is there.
    pub(crate) async fn asking(&self, turn: Turn) -> tokio::sync::MutexGuard<'_, ()> {
        self.asking[turn.server].lock().await
    }

    /// The server of this turn passed a request on to the node `leader`. Whoever leads is asked
    /// without a detour from now on, if it is one of the servers and has not just failed.
    pub(crate) fn passed_on(&self, turn: Turn, leader: u64) -> Hint {
        if self.count() == 1 {
            return Hint::Settled;
        }
        let mut known = self.known.lock();
        if known.marks[turn.server].node == Some(leader) {
            // It does not pass on to itself, so the ids are of nodes that are not there any more.
            known.marks.iter_mut().for_each(|mark| mark.node = None);
        }
        match known.marks.iter().position(|mark| mark.node == Some(leader)) {
            Some(server) => known.prefer(server),
            None => return Hint::Unknown,
        }
        Hint::Settled
    }

    /// What the servers say which nodes they are; nothing for those that said nothing.
    pub(crate) fn learn(&self, nodes: &[Option<u64>], leader: u64) {
        let mut known = self.known.lock();
        for (mark, node) in known.marks.iter_mut().zip(nodes) {
            mark.node = node.or(mark.node);
        }
        if let Some(server) = known.marks.iter().position(|mark| mark.node == Some(leader)) {
            known.prefer(server);
        }
    }

    /// All of them.
    pub(crate) fn bases(&self) -> &[String] {
        &self.bases
    }
}

impl Known {
    /// The server to try when this one failed: none that was silent a moment ago if there is
    /// another one, then whichever failed longest ago or never.
    fn after(&self, server: usize) -> usize {
        let count = self.marks.len();
        let ring = (1..=count).map(|step| (server + step) % count);
        let key = |at: &usize| {
            let mark = &self.marks[*at];
            let failed = mark.failed.map(|(failed, _)| failed);
            (mark.is_within(Fault::Silent, SILENT_FOR), failed)
        };
        ring.min_by_key(key).unwrap_or(server)
    }

    fn prefer(&mut self, server: usize) {
        let mark = &self.marks[server];
        let failed =
            mark.is_within(Fault::Silent, SILENT_FOR) || mark.is_within(Fault::Unable, UNABLE_FOR);
        if !failed {
            self.choose(server);
        }
    }

    fn choose(&mut self, server: usize) {
        if self.current != server {
            self.current = server;
            self.turns += 1;
        }
    }
}

impl Mark {
    fn is_within(&self, wanted: Fault, span: Duration) -> bool {
        self.failed.is_some_and(|(at, fault)| fault == wanted && at.elapsed() < span)
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

    fn three() -> Servers {
        servers(&["http://a", "http://b/", "http://c/p/"]).expect("legal URLs")
    }

    fn asked(servers: &Servers) -> &str {
        servers.base(servers.turn())
    }

    fn fails(servers: &Servers, fault: Fault) {
        servers.move_on(servers.turn(), fault);
    }

    #[test]
    fn calls_that_fail_together_move_on_once() {
        let servers = three();
        let (first, second) = (servers.turn(), servers.turn());
        servers.move_on(first, Fault::Unable);
        servers.move_on(second, Fault::Unable);
        assert_eq!(asked(&servers), "http://b");
        fails(&servers, Fault::Unable);
        assert_eq!(asked(&servers), "http://c/p");
        fails(&servers, Fault::Unable);
        assert_eq!(asked(&servers), "http://a");
    }

    #[test]
    fn a_server_that_is_silent_is_left_alone_while_there_are_others() {
        let servers = three();
        fails(&servers, Fault::Silent);
        for expected in ["http://b", "http://c/p", "http://b", "http://c/p"] {
            assert_eq!(asked(&servers), expected);
            fails(&servers, Fault::Unable);
        }
        fails(&servers, Fault::Silent);
        fails(&servers, Fault::Silent);
        assert_eq!(asked(&servers), "http://a", "the one that was silent longest ago");
    }

    #[test]
    fn one_server_stays_the_one_that_is_asked() {
        let servers = servers(&["http://a"]).expect("a legal URL");
        fails(&servers, Fault::Silent);
        assert_eq!(asked(&servers), "http://a");
        assert_eq!(servers.passed_on(servers.turn(), 7), Hint::Settled);
    }

    #[test]
    fn the_leader_is_asked_once_it_is_known_which_server_it_is() {
        let servers = three();
        assert_eq!(servers.passed_on(servers.turn(), 3), Hint::Unknown);
        servers.learn(&[Some(1), None, Some(3)], 3);
        assert_eq!(asked(&servers), "http://c/p");
        assert_eq!(servers.passed_on(servers.turn(), 1), Hint::Settled);
        assert_eq!(asked(&servers), "http://a");
        // Node 2 may be the one that said nothing, or none of these.
        assert_eq!(servers.passed_on(servers.turn(), 2), Hint::Unknown);
        assert_eq!(asked(&servers), "http://a");
    }

    #[test]
    fn a_leader_that_just_failed_is_not_asked_before_those_that_serve() {
        for fault in [Fault::Silent, Fault::Unable] {
            let servers = three();
            servers.learn(&[Some(1), Some(2), Some(3)], 1);
            let first = servers.turn();
            servers.move_on(first, fault);
            servers.passed_on(servers.turn(), 1);
            assert_eq!(asked(&servers), "http://b");
            servers.served(first);
            servers.passed_on(servers.turn(), 1);
            assert_eq!(asked(&servers), "http://a");
        }
    }

    #[test]
    fn ids_that_contradict_what_happens_are_forgotten() {
        let servers = three();
        servers.learn(&[Some(1), Some(2), Some(3)], 1);
        assert_eq!(servers.passed_on(servers.turn(), 1), Hint::Unknown);
        assert_eq!(servers.passed_on(servers.turn(), 2), Hint::Unknown);
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
