//! What a test of a store found, for people and for programs.

use crate::error::Error;
use crate::races::Race;
use crate::races::count::Count;
use serde::Serialize;

/// What a row of the report says about the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Weight {
    /// Anything that gets through here is a hole.
    Judged,
    /// Without a fence, or in the wrong order: something has to get through, or the race was too
    /// tame to show a hole.
    Control,
}

/// One race through one schema.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Whose statements: a part of the kit, `own`, or `none` for a schema without a fence.
    pub schema: String,
    /// The isolation level, where the store has such.
    pub isolation: Option<&'static str>,
    /// The name of the race.
    pub race: &'static str,
    /// What it says about the store.
    pub weight: Weight,
    /// Rounds that were finished.
    pub rounds: u64,
    /// Writes that were tried in them.
    pub writes: u64,
    /// Those that were refused.
    pub refused: u64,
    /// Transactions that the store wanted once more.
    pub retries: u64,
    /// Stale writes that were accepted, and accepted writes that are gone.
    pub got_through: u64,
    /// Writes of the current holder that were refused.
    pub denied: u64,
}

impl Row {
    pub(crate) fn new(
        schema: &str,
        isolation: Option<&'static str>,
        race: Race,
        weight: Weight,
        count: &Count,
    ) -> Self {
        Self {
            schema: schema.to_owned(),
            isolation,
            race: race.name(),
            weight,
            rounds: count.rounds,
            writes: count.writes,
            refused: count.refused,
            retries: count.retries,
            got_through: count.through,
            denied: count.denied,
        }
    }
}

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Good to know.
    Note,
    /// The fence holds as long as something else does.
    Warning,
    /// Stale writes get through, or current ones do not.
    Hole,
}

impl Severity {
    /// The word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Hole => "hole",
        }
    }
}

/// Something that the test found, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// A word that stays the same.
    pub code: &'static str,
    /// What is so.
    pub detail: String,
    /// What to do.
    pub advice: String,
}

impl Finding {
    pub(crate) fn new(
        severity: Severity,
        code: &'static str,
        detail: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { severity, code, detail: detail.into(), advice: advice.into() }
    }
}

/// How a test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Nothing got through, in races that showed that they can lose something.
    Fenced,
    /// Something got through, or the current holder was refused.
    NotFenced,
    /// Nothing got through, and nothing did where something had to, or no such race was run; or
    /// there was no other.
    Unproven,
    /// It was stopped, or the store went away, before anything got through.
    Unfinished,
}

/// Why a test ended before it was over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Stopped {
    /// `interrupted`, `time_limit`, or the code of an [`Error`].
    pub code: &'static str,
    /// What happened, for people.
    pub detail: String,
}

impl From<&Error> for Stopped {
    fn from(error: &Error) -> Self {
        Self { code: error.code(), detail: error.to_string() }
    }
}

/// All that a test found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The store and its version.
    pub store: String,
    /// The version of what Leasehold installed in it.
    pub kit: Option<i64>,
    /// What came of the races.
    pub races: Vec<Row>,
    /// What was found, the worst first.
    pub findings: Vec<Finding>,
    /// What of the test's own is still in the store.
    pub left: Vec<String>,
    /// Why it ended early.
    pub stopped: Option<Stopped>,
    /// What it comes to.
    pub verdict: Verdict,
}

impl Report {
    pub(crate) fn new(store: String, kit: Option<i64>) -> Self {
        Self {
            store,
            kit,
            races: Vec::new(),
            findings: Vec::new(),
            left: Vec::new(),
            stopped: None,
            verdict: Verdict::Unfinished,
        }
    }

    /// Adds a finding once.
    pub(crate) fn find(&mut self, finding: Finding) {
        if !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }

    /// Sorts the findings and comes to a verdict.
    pub(crate) fn conclude(mut self) -> Self {
        self.findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        self.verdict = self.judge();
        self
    }

    fn judge(&self) -> Verdict {
        let hole = self.findings.iter().any(|finding| finding.severity == Severity::Hole);
        let judged = || self.races.iter().filter(|row| row.weight == Weight::Judged);
        if hole || judged().any(|row| row.got_through > 0 || row.denied > 0) {
            return Verdict::NotFenced;
        }
        if self.stopped.is_some() || self.races.is_empty() {
            return Verdict::Unfinished;
        }
        if judged().next().is_none() {
            return Verdict::Unproven;
        }
        let mut controls = self.races.iter().filter(|row| row.weight == Weight::Control);
        if controls.any(|row| row.got_through > 0) { Verdict::Fenced } else { Verdict::Unproven }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(weight: Weight, got_through: u64, denied: u64) -> Row {
        let count = Count { rounds: 1, through: got_through, denied, ..Count::default() };
        Row::new("guard", None, Race::Paused, weight, &count)
    }

    fn verdict(rows: &[Row], stopped: Option<&str>) -> Verdict {
        let mut report = Report::new("a store".to_owned(), None);
        report.races = rows.to_vec();
        report.stopped = stopped.map(|why| Stopped { code: "interrupted", detail: why.to_owned() });
        report.conclude().verdict
    }

    #[test]
    fn nothing_is_proven_by_races_that_cannot_lose() {
        let fenced = row(Weight::Judged, 0, 0);
        assert_eq!(verdict(&[fenced.clone(), row(Weight::Control, 3, 0)], None), Verdict::Fenced);
        assert_eq!(verdict(&[fenced.clone(), row(Weight::Control, 0, 0)], None), Verdict::Unproven);
        assert_eq!(verdict(&[fenced], None), Verdict::Unproven);
        assert_eq!(verdict(&[row(Weight::Control, 3, 0)], None), Verdict::Unproven);
        assert_eq!(verdict(&[], None), Verdict::Unfinished);
    }

    #[test]
    fn what_got_through_counts_however_the_test_ended() {
        let hole = row(Weight::Judged, 1, 0);
        assert_eq!(verdict(std::slice::from_ref(&hole), Some("stopped")), Verdict::NotFenced);
        assert_eq!(verdict(&[row(Weight::Judged, 0, 1)], None), Verdict::NotFenced);
        let sound = [row(Weight::Judged, 0, 0), row(Weight::Control, 1, 0)];
        assert_eq!(verdict(&sound, Some("stopped")), Verdict::Unfinished);
    }
}
