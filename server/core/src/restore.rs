//! What becomes of a state that was brought back: from a backup, or from one survivor of many.
//!
//! Nobody knows what was granted after such a state was seen last. So nothing of it goes on:
//!
//! - **Tokens** go on above a floor that the operator answers for. Nothing below it is given out.
//! - **Leases** end, and with them grants and places in line.
//! - **Revisions** jump, before anything else changes: the numbers after the old one have meant
//!   other changes, which watchers may have seen.
//! - **The cluster** has another name, so nothing of the old one is taken for something of it.
//! - **A hold** keeps the locks for as long as somebody may still believe to have one.
//!
//! A pure function of the state and [`Restore`], so that every tool which restores does the same.

use crate::command::{EndedHow, LeftHow};
use crate::ids::{ClusterId, LeaseId, Token};
use crate::machine::{LockTable, Step};
use crate::outcome::{Event, Outcome, Refusal};
use std::fmt;

/// Above every number that was given out after the state was seen last, as far as nobody knows
/// better: at a million a second these last for twelve days.
const JUMP: u64 = 1 << 40;
/// And for each millisecond since then as many more as no service gives out: so the same state,
/// brought back twice by a clock that goes forward, never gives the same number twice.
const JUMP_A_MS: u64 = 1_000;
/// The most that comes of that, after nine years: a clock that is wrong must not use up all.
const JUMP_BY_AGE_MAX: u64 = 1 << 48;
/// No revision reaches this.
const REVISION_LIMIT: u64 = 1 << 62;
/// The longest hold, a year: no TTL comes near, and a clock can count it.
const HOLD_MS_MAX: u64 = 366 * 24 * 3_600_000;
/// Grants, tickets and leases that one step ends.
const PIECE: usize = 4_096;

/// How a state is brought back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restore {
    /// The name of the cluster that begins with it.
    pub cluster: ClusterId,
    /// Every token from here on is above this one.
    pub token_floor: u64,
    /// The wall clock, in milliseconds.
    pub now_ms: u64,
    /// For how long nothing is granted, in milliseconds, a year at most; `None`: for the longest
    /// TTL of a lease that was open.
    pub hold_ms: Option<u64>,
}

/// Why a state cannot be brought back like this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreError {
    /// The floor is below what was given out.
    FloorTooLow {
        /// The floor that was asked for.
        floor: u64,
        /// The newest token that the state gave out.
        counter: u64,
    },
    /// No token reaches 2^53.
    FloorTooHigh {
        /// The floor that was asked for.
        floor: u64,
    },
    /// A floor that counts the age of the state has none.
    ClockBehind {
        /// By how much the wall clock is behind the state, in milliseconds.
        by_ms: u64,
    },
    /// Nobody has said for how long nothing is granted, and no open lease tells.
    NothingOpen,
    /// The revisions are used up.
    NoRevision,
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FloorTooLow { floor, counter } => write!(
                f,
                "the token floor {floor} is below {counter}, the newest token that is on record: \
                 tokens would be issued twice"
            ),
            Self::FloorTooHigh { floor } => {
                write!(f, "the token floor {floor} is not below 2^53, where tokens end")
            }
            Self::ClockBehind { by_ms } => write!(
                f,
                "the clock of this machine is {by_ms} ms behind this state, and an automatic token \
                 floor counts its age: set the clock, or say a floor above every token that was ever \
                 seen"
            ),
            Self::NothingOpen => write!(
                f,
                "no lease is open in this state, so it does not tell how long somebody may still \
                 believe in a lock that was granted after it: say how long nothing is to be granted, \
                 the longest TTL that clients ask for, or that nobody has to be waited for"
            ),
            Self::NoRevision => write!(f, "there are no revisions left"),
        }
    }
}

impl std::error::Error for RestoreError {}

impl LockTable {
    /// A floor above whatever was given out after this state was seen last, at any rate that a
    /// service of this kind reaches.
    ///
    /// # Errors
    /// [`RestoreError::ClockBehind`] if the wall clock is behind the state: how old it is decides.
    pub fn auto_token_floor(&self, now_ms: u64) -> Result<u64, RestoreError> {
        if now_ms < self.state.head.at_ms {
            return Err(RestoreError::ClockBehind { by_ms: self.state.head.at_ms - now_ms });
        }
        Ok(self.state.head.last_token.saturating_add(self.jump(now_ms)))
    }

    fn jump(&self, now_ms: u64) -> u64 {
        let age_ms = now_ms.saturating_sub(self.state.head.at_ms);
        JUMP + age_ms.saturating_mul(JUMP_A_MS).min(JUMP_BY_AGE_MAX)
    }

    /// The longest TTL under which a lease that is open may have been promised anything, in
    /// milliseconds.
    #[must_use]
    pub fn longest_ttl_ms(&self) -> u64 {
        self.state.leases.iter().map(|(_, lease)| lease.longest_ttl_ms).max().unwrap_or(0)
    }

    /// For how long after its takeover a leader grants nothing, in milliseconds.
    #[must_use]
    pub fn hold_ms(&self) -> u64 {
        self.state.head.hold_ms
    }

    /// Begins the life of a state that was brought back. It is one only after what this answers
    /// has come to its end.
    ///
    /// # Errors
    /// [`RestoreError`] if tokens could be issued twice or run out at once; nothing has changed.
    pub fn restore(&mut self, restore: &Restore) -> Result<Restoring<'_>, RestoreError> {
        let Restore { cluster, token_floor, now_ms, hold_ms } = *restore;
        let counter = self.state.head.last_token;
        if token_floor < counter {
            return Err(RestoreError::FloorTooLow { floor: token_floor, counter });
        }
        if token_floor >= Token::LIMIT {
            return Err(RestoreError::FloorTooHigh { floor: token_floor });
        }
        // An earlier restore may not have been waited for to its end.
        let longest_ms = self.longest_ttl_ms().max(self.state.head.hold_ms);
        if hold_ms.is_none() && longest_ms == 0 {
            return Err(RestoreError::NothingOpen);
        }
        let revision = self.state.head.revision.checked_add(self.jump(now_ms));
        let revision = revision.filter(|revision| *revision < REVISION_LIMIT);
        let head = &mut self.state.head;
        head.revision = revision.ok_or(RestoreError::NoRevision)?;
        head.cluster = Some(cluster);
        head.last_token = token_floor;
        head.at_ms = head.at_ms.max(now_ms);
        head.hold_ms = hold_ms.unwrap_or(longest_ms).min(HOLD_MS_MAX);
        Ok(Restoring { table: self })
    }
}

/// The ends of what a state held, some thousands at a time, each with its events.
#[derive(Debug)]
pub struct Restoring<'a> {
    table: &'a mut LockTable,
}

impl Iterator for Restoring<'_> {
    type Item = Vec<Event>;

    fn next(&mut self) -> Option<Vec<Event>> {
        let mut events = Vec::new();
        Step::new(&mut self.table.state, 0, &mut events).end_some();
        (!events.is_empty() || self.table.state.leases.len() > 0).then_some(events)
    }
}

impl Step<'_> {
    /// Tickets first, all of them: no end of a grant may let one of them in.
    fn end_some(&mut self) {
        let tickets = self.state.tickets.iter().map(|(_, ticket)| ticket.clone());
        let tickets: Vec<_> = tickets.take(PIECE).collect();
        if tickets.is_empty() {
            return self.end_some_leases();
        }
        for ticket in tickets {
            self.end_ticket(&ticket, LeftHow::LeaseEnded);
            self.drop_idle(&ticket.resource);
        }
    }

    fn end_some_leases(&mut self) {
        let leases = self.state.leases.iter().take(PIECE);
        let leases: Vec<(LeaseId, EndedHow)> =
            leases.map(|(id, lease)| (*id, lease.ending().unwrap_or(EndedHow::Restored))).collect();
        let (mut budget, mut touched) = (PIECE, Vec::new());
        for (id, how) in leases {
            if budget == 0 {
                break;
            }
            self.end_within(id, how, &mut budget, &mut touched);
        }
        touched.iter().for_each(|resource| self.drop_idle(resource));
    }

    /// The leader's clock says that nobody can believe any more in what was before the restore.
    pub(crate) fn end_hold(&mut self) -> Outcome {
        match std::mem::take(&mut self.state.head.hold_ms) {
            0 => Outcome::Refused(Refusal::Void),
            _ => Outcome::Done { more: false },
        }
    }
}
