//! What a connection and the request on it know of each other.
//!
//! The HTTP layer watches neither how long the heads of all requests take, nor how much a
//! client sends on while its request is being served. Both ends of this link together do.

use std::cell::Cell;
use std::time::Instant;

/// Shared by a connection and its requests, which live on the same thread.
#[derive(Debug)]
pub(crate) struct Link {
    stage: Cell<Stage>,
    /// Bytes that came since the last answer.
    unanswered: Cell<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing of the next request is there.
    Idle,
    /// Its head is arriving.
    Head { since: Instant },
    /// Its body is arriving.
    Body { chunked: bool },
    /// It was answered before the end of its body, which only the body itself can tell.
    Rest { since: Instant },
    /// It is there as a whole, with this many bytes of body, and has no answer yet.
    Serving { body: usize },
}

/// What a client may send, beyond the request that is being served, before its answer.
const AHEAD_MAX: usize = 64 << 10;

impl Link {
    /// A connection is new: whoever opens one is about to say something.
    pub(crate) fn new() -> Self {
        let stage = Stage::Head { since: Instant::now() };
        Self { stage: Cell::new(stage), unanswered: Cell::new(0) }
    }

    /// Bytes arrived. False if they are too many: a client that sends on and on without waiting
    /// for its answers would keep the worker busy with its buffer.
    pub(crate) fn received(&self, bytes: usize) -> bool {
        let unanswered = self.unanswered.get() + bytes;
        self.unanswered.set(unanswered);
        match self.stage.get() {
            Stage::Idle => self.stage.set(Stage::Head { since: Instant::now() }),
            Stage::Serving { body } => return unanswered <= AHEAD_MAX + body,
            Stage::Head { .. } | Stage::Body { .. } | Stage::Rest { .. } => {}
        }
        true
    }

    /// Since when a head has been arriving that is not complete.
    pub(crate) fn head_since(&self) -> Option<Instant> {
        match self.stage.get() {
            Stage::Head { since } => Some(since),
            _ => None,
        }
    }

    /// Since when the rest of an answered request has been arriving. The HTTP layer waits for it
    /// without a limit.
    pub(crate) fn rest_since(&self) -> Option<Instant> {
        match self.stage.get() {
            Stage::Rest { since } => Some(since),
            _ => None,
        }
    }

    /// The head is complete.
    pub(crate) fn entered(&self, chunked: bool) {
        self.stage.set(Stage::Body { chunked });
    }

    /// The body is complete too.
    pub(crate) fn serving(&self, body: usize) {
        self.stage.set(Stage::Serving { body });
    }

    /// The answer is known. Told by the request and not by the write of its answer, before which
    /// the next request may have begun.
    pub(crate) fn answered(&self) {
        let next = match self.stage.get() {
            Stage::Body { chunked: true } => Stage::Rest { since: Instant::now() },
            _ => Stage::Idle,
        };
        self.stage.set(next);
        self.unanswered.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_timed_from_its_first_byte_until_it_is_complete() {
        let link = Link::new();
        assert!(link.head_since().is_some(), "a new connection is timed from its start");
        link.answered();
        assert_eq!(link.head_since(), None);
        assert!(link.received(1));
        let since = link.head_since().expect("a head has begun");
        assert!(link.received(1));
        assert_eq!(link.head_since(), Some(since));
        link.entered(false);
        assert!(link.received(9));
        assert_eq!(link.head_since(), None);
        link.answered();
        assert_eq!(link.head_since(), None);
    }

    #[test]
    fn the_rest_of_a_chunked_body_is_timed_after_the_answer() {
        let link = Link::new();
        link.entered(true);
        assert_eq!(link.rest_since(), None);
        link.answered();
        assert!(link.rest_since().is_some());
        link.entered(true);
        link.serving(10);
        link.answered();
        assert_eq!(link.rest_since(), None, "all of it was there");
        link.entered(false);
        link.answered();
        assert_eq!(link.rest_since(), None, "there is none");
    }

    #[test]
    fn only_a_little_may_be_sent_ahead_of_an_answer() {
        let link = Link::new();
        assert!(link.received(100 + 200_000));
        link.entered(true);
        link.serving(200_000);
        assert!(link.received(AHEAD_MAX - 100));
        assert!(!link.received(1));
        link.answered();
        assert!(link.received(1));
    }
}
