//! What to test, and how, whatever the store.

use crate::postgres::Isolation;
use crate::races::Race;
use crate::report::Weight;
use crate::tally::judged;

/// What to test, and how.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Rounds of each race.
    pub rounds: u64,
    /// Resources that are raced side by side; each needs four connections.
    pub lanes: usize,
    /// The races; all if there are none.
    pub races: Vec<Race>,
    /// The parts of what is installed; all if there are none.
    pub parts: Vec<String>,
    /// The isolation levels. For PostgreSQL alone.
    pub isolations: Vec<Isolation>,
    /// The user's statements, instead of those of what is installed.
    pub own: Option<Own>,
    /// Names of resources, instead of the test's own.
    pub resources: Vec<String>,
    /// Whether those may be resources that somebody has.
    pub overwrite: bool,
    /// The lowest token that is used.
    pub token_from: u64,
}

/// The user's own statements, SQL or commands. Parameters: `:resource`, `:token`, `:value`.
#[derive(Debug, Clone, Default)]
pub struct Own {
    /// Makes the value of a resource, 0.
    pub setup: Vec<String>,
    /// Removes it again.
    pub cleanup: Vec<String>,
    /// Records a token. May be empty: then there is no seal.
    pub seal: Vec<String>,
    /// Answers the value.
    pub read: Vec<String>,
    /// Writes the value.
    pub write: Vec<String>,
    /// Each statement commits by itself. For PostgreSQL alone.
    pub autocommit: bool,
    /// Each token may write once.
    pub once: bool,
    /// What means a refusal beside the words of Leasehold: SQLSTATEs; in Redis codes of errors, or
    /// whole answers.
    pub refusals: Vec<String>,
}

impl Wanted {
    /// The resources that are raced, with the token before the first one that is used.
    pub(crate) fn raced(&self, prefix: &str) -> Vec<(String, u64)> {
        let names: Vec<String> = if self.resources.is_empty() {
            (1..=self.lanes.max(1)).map(|lane| format!("{prefix}/{lane}")).collect()
        } else {
            self.resources.clone()
        };
        names.into_iter().map(|name| (name, self.token_before())).collect()
    }

    pub(crate) fn token_before(&self) -> u64 {
        self.token_from.saturating_sub(1)
    }

    pub(crate) fn has_part(&self, name: &str) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|part| part == name)
    }
}

impl Own {
    /// What can be raced through them.
    pub(crate) fn races(&self) -> Vec<(Race, Weight)> {
        let needs_seal = |race| matches!(race, Race::Seals | Race::ReadFirst);
        let mut races = judged(self.once);
        races.retain(|(race, _)| !self.seal.is_empty() || !needs_seal(*race));
        races
    }
}
