//! Stale and current holders race through a schema. Independent of the store.
//!
//! | file | holds |
//! | --- | --- |
//! | `store` | what a race needs of a store |
//! | `turn` | what one holder does: seal, read, write |
//! | `lane` | one resource, and a round of each race on it |
//! | `widths` | tokens around the numbers at which storage goes wrong |
//! | `count` | what came of it |
//! | `advice` | what a count tells about the schema |
//!
//! What must stay true:
//!
//! - The value of a resource counts its accepted writes: an accepted write that is missing got
//!   through the fence or was overwritten by one that did.
//! - A race stops between two rounds when it is told to, so that its balance is whole.
//! - Which write is stale follows from the order in which seals were answered, never from a clock.

pub(crate) mod advice;
pub(crate) mod count;
pub(crate) mod lane;
pub(crate) mod store;
mod turn;
pub(crate) mod widths;

use crate::error::Error;
use crate::stop::Stop;
use count::Count;
use futures_util::future::join_all;
use lane::Lane;
use std::sync::atomic::{AtomicU64, Ordering};
use store::Session;

/// The kinds of races.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Race {
    /// A paused holder writes after a newer one sealed.
    Paused,
    /// A holder is paused between two steps of its write, while a newer one takes its turn.
    Stopped,
    /// A stale write is already sent when the newer holder seals.
    OnTheWire,
    /// Three holders seal, read and write at once.
    Updates,
    /// Two seals at once, and the lower one once more.
    Seals,
    /// Tokens of every width, from one digit to the largest.
    Widths,
    /// A holder writes three times with its token.
    Equal,
    /// One token writes three times where it may once.
    Once,
    /// The wrong order, read before seal: shows that the race can lose something.
    ReadFirst,
}

impl Race {
    /// All of them, in the order in which they run: what a later one shows is read in the light of
    /// the earlier ones.
    pub const ALL: [Self; 9] = [
        Self::Equal,
        Self::Once,
        Self::Paused,
        Self::Seals,
        Self::Widths,
        Self::Stopped,
        Self::OnTheWire,
        Self::Updates,
        Self::ReadFirst,
    ];

    /// Its name on the command line and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Paused => "paused-holder",
            Self::Stopped => "paused-in-write",
            Self::OnTheWire => "on-the-wire",
            Self::Updates => "updates",
            Self::Seals => "two-seals",
            Self::Widths => "token-widths",
            Self::Equal => "equal-token",
            Self::Once => "once",
            Self::ReadFirst => "read-before-seal",
        }
    }
}

/// Runs `rounds` of a race, side by side on all lanes. What came of those that were finished, and
/// what went wrong.
pub(crate) async fn run<S: Session>(
    lanes: &mut [Lane<S>],
    race: Race,
    rounds: u64,
    stop: &Stop,
) -> (Count, Result<(), Error>) {
    let begun = AtomicU64::new(0);
    let broken = Stop::default();
    let laps = lanes.iter_mut().map(|lane| laps(lane, race, rounds, &begun, [stop, &broken]));
    let mut total = Count::default();
    let mut outcome = Ok(());
    for (count, ended) in join_all(laps).await {
        total += count;
        outcome = outcome.and(ended);
    }
    (total, outcome)
}

/// More rounds than this a control runs only for as long as it has not lost enough.
const CONTROL_ROUNDS: u64 = 10_000;
/// As many lost writes as show that a race is sharp.
const ENOUGH: u64 = 100;

/// The same for a race that has to lose something. It runs as often as those that are judged, so
/// that their figures can be compared, as long as that takes no more rounds than show anything.
pub(crate) async fn control<S: Session>(
    lanes: &mut [Lane<S>],
    race: Race,
    rounds: u64,
    stop: &Stop,
) -> (Count, Result<(), Error>) {
    let mut total = Count::default();
    let mut outcome = Ok(());
    while outcome.is_ok() && !stop.asked() && total.rounds < rounds {
        if total.rounds >= CONTROL_ROUNDS && total.through >= ENOUGH {
            break;
        }
        let next = CONTROL_ROUNDS.min(rounds - total.rounds);
        let (count, ended) = run(lanes, race, next, stop).await;
        total += count;
        outcome = ended;
    }
    (total, outcome)
}

async fn laps<S: Session>(
    lane: &mut Lane<S>,
    race: Race,
    rounds: u64,
    begun: &AtomicU64,
    [stop, broken]: [&Stop; 2],
) -> (Count, Result<(), Error>) {
    let mut total = Count::default();
    while !stop.asked() && !broken.asked() {
        let number = begun.fetch_add(1, Ordering::Relaxed);
        if number >= rounds {
            break;
        }
        let round = tokio::select! {
            round = lane.round(race, number) => round,
            // A store that hangs must not hang the test; what is under way is given up.
            () = stop.given_up() => break,
        };
        match round {
            Ok(count) => total += count,
            Err(error) => {
                broken.ask(error.code(), "another lane failed");
                return (total, Err(error));
            }
        }
    }
    (total, Ok(()))
}

#[cfg(test)]
mod tests;
