//! For how long a client may believe: pure, with the present instant as an argument.
//!
//! What must stay true:
//!
//! - Nothing is believed longer than the instant at which some request was *sent* + the
//!   `valid_for_ms` of the answer to that very request, however late the answer came.
//! - Lost is final: no later answer and no earlier clock reading brings belief back.
//! - What is draining is never believed in for longer than before.
//! - Belief ends before the first byte of a release leaves.

use crate::clock::BootInstant;
use leasehold_wire::Code;
use std::time::Duration;

/// What a holder may believe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// It holds: the service confirmed it, and the validity is not over.
    Held,
    /// It still holds, but the last renewal was not confirmed, or an operator has asked for its
    /// end. If none is before the validity is over, the lock is lost: time to bring work to an end.
    Uncertain,
    /// It does not hold any more, and never will again.
    Lost,
}

/// Why a grant or lease is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lost {
    /// No renewal was confirmed in time, so somebody else may have it now.
    ValidityOver,
    /// The service says that it has ended.
    Ended {
        /// The service's code for it.
        code: Code,
        /// How it ended: `expired`, `forced`, ...
        how: Option<String>,
    },
    /// This client gave it back, or stopped believing in it on its own.
    Released,
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::ValidityOver => f.write_str("no renewal was confirmed in time"),
            Self::Ended { how: Some(how), .. } => write!(f, "the service ended it: {how}"),
            Self::Ended { code, how: None } => write!(f, "the service ended it: {code}"),
            Self::Released => f.write_str("it was given back"),
        }
    }
}

/// The belief in one grant or lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Validity {
    until: BootInstant,
    confirmed: bool,
    /// No renewal moves the end any more.
    draining: bool,
    lost: Option<Lost>,
}

impl Validity {
    /// Belief that starts with an answer to the request sent at `sent`.
    #[must_use]
    pub const fn new(sent: BootInstant, valid_for: Duration) -> Self {
        let until = sent.saturating_add(valid_for);
        Self { until, confirmed: true, draining: false, lost: None }
    }

    /// The end of belief, unless a renewal moves it.
    #[must_use]
    pub const fn until(&self) -> BootInstant {
        self.until
    }

    /// How much of it is left; zero if it is lost.
    #[must_use]
    pub fn remaining(&self, now: BootInstant) -> Duration {
        if self.lost.is_some() { Duration::ZERO } else { self.until.saturating_since(now) }
    }

    /// What may be believed at `now`.
    #[must_use]
    pub fn state(&self, now: BootInstant) -> State {
        if self.lost.is_some() || now >= self.until {
            State::Lost
        } else if self.confirmed {
            State::Held
        } else {
            State::Uncertain
        }
    }

    /// Why it is lost, if it is.
    #[must_use]
    pub fn lost(&self, now: BootInstant) -> Option<Lost> {
        match &self.lost {
            Some(lost) => Some(lost.clone()),
            None => (now >= self.until).then_some(Lost::ValidityOver),
        }
    }

    /// A renewal that was sent at `sent` was confirmed, and the answer is here at `now`.
    pub fn confirm(&mut self, now: BootInstant, sent: BootInstant, valid_for: Duration) {
        self.settle(now);
        if self.lost.is_none() && !self.draining {
            self.until = self.until.max(sent.saturating_add(valid_for));
            self.confirmed = true;
            // The answer may have been on its way for longer than it is good for.
            self.settle(now);
        }
    }

    /// A renewal was not confirmed.
    pub fn doubt(&mut self, now: BootInstant) {
        self.settle(now);
        self.confirmed = false;
    }

    /// The service says that it is draining: it stands until its end, and what is confirmed from
    /// now on is not meant for it.
    pub fn drain(&mut self, now: BootInstant) {
        self.doubt(now);
        self.draining = true;
    }

    /// Belief ends at once. The first reason stays.
    pub fn end(&mut self, now: BootInstant, why: Lost) {
        self.settle(now);
        self.lost.get_or_insert(why);
    }

    /// Makes a passed deadline final, whatever the clock says later.
    pub fn settle(&mut self, now: BootInstant) {
        if self.lost.is_none() && now >= self.until {
            self.lost = Some(Lost::ValidityOver);
        }
    }
}

#[cfg(test)]
#[path = "validity_tests.rs"]
mod tests;
