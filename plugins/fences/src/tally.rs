//! Running the races of one schema and writing down what comes of them, whatever the store.

use crate::error::Error;
use crate::races::advice::{self, Tried, Words};
use crate::races::count::Count;
use crate::races::lane::Lane;
use crate::races::store::Session;
use crate::races::{self, Race};
use crate::report::{Report, Row, Weight};
use crate::stop::Stop;

/// Whom to tell of a race that is over.
pub type Tell<'a> = &'a dyn Fn(&Row);

/// What is raced.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Course<'a> {
    pub(crate) schema: &'a str,
    pub(crate) isolation: Option<&'static str>,
    pub(crate) races: &'a [(Race, Weight)],
    /// Those that are wanted; all if there are none.
    pub(crate) wanted: &'a [Race],
    pub(crate) rounds: u64,
    pub(crate) has_seal: bool,
    pub(crate) words: &'a Words,
    /// Of how many steps a write is.
    pub(crate) steps: usize,
    /// How many rounds the walk through the widths of tokens has; none without a resource for it.
    pub(crate) widths: u64,
}

impl<'a> Course<'a> {
    /// Whether this course runs anything of what is wanted.
    pub(crate) fn runs_any(&self) -> bool {
        self.races.iter().any(|&(race, _)| self.is_wanted(race))
    }

    /// What is read before it is sealed runs along with every race that is judged: without a race
    /// that loses something nothing is shown.
    fn runs(&self, race: Race, weight: Weight) -> bool {
        let judged =
            |&(race, weight): &(Race, Weight)| weight == Weight::Judged && self.is_wanted(race);
        let along = weight == Weight::Control && race == Race::ReadFirst;
        self.is_wanted(race) || (along && self.races.iter().any(judged))
    }

    fn is_wanted(&self, race: Race) -> bool {
        (self.wanted.is_empty() || self.wanted.contains(&race)) && self.is_possible(race)
    }

    fn possible(self) -> impl Iterator<Item = Race> + 'a {
        self.races.iter().map(|(race, _)| *race).filter(move |race| self.is_possible(*race))
    }

    fn is_possible(&self, race: Race) -> bool {
        match race {
            Race::Stopped => self.steps > 1,
            Race::Widths => self.widths > 0,
            _ => true,
        }
    }
}

/// What is raced through statements with a fence; `once` where each token may write once.
pub(crate) fn judged(once: bool) -> Vec<(Race, Weight)> {
    Race::ALL
        .into_iter()
        .filter(|race| *race != if once { Race::Equal } else { Race::Once })
        .map(|race| match race {
            Race::ReadFirst => (race, Weight::Control),
            _ => (race, Weight::Judged),
        })
        .collect()
}

/// That nothing of what is wanted runs is told before anything is made.
pub(crate) fn check(courses: &[Course<'_>], parts: &[&str]) -> Result<(), Error> {
    if courses.is_empty() {
        return Err(Error::Usage(format!("no such part here; there are {}", parts.join(", "))));
    }
    if courses.iter().any(Course::runs_any) {
        return Ok(());
    }
    let races: Vec<&str> =
        courses.iter().flat_map(|course| course.possible()).map(Race::name).collect();
    Err(Error::Usage(format!(
        "none of these races can run through {}: it has {}",
        courses.iter().map(|course| course.schema).collect::<Vec<_>>().join(", "),
        races.join(", "),
    )))
}

/// The largest token there is.
const TOKEN_MAX: u64 = (1 << 53) - 1;
/// No round of any race uses more.
const TOKENS_PER_ROUND: u64 = 3;

/// That the tokens above `highest` are enough for `times` runs of the races.
pub(crate) fn fits(highest: u64, rounds: u64, times: usize) -> Result<(), Error> {
    let runs = u64::try_from(times).unwrap_or(u64::MAX).saturating_mul(Race::ALL.len() as u64 + 1);
    let used = rounds.saturating_add(1).saturating_mul(TOKENS_PER_ROUND).saturating_mul(runs);
    if highest.saturating_add(used) <= TOKEN_MAX {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "the test may use {used} tokens above {highest}, and the largest one is {TOKEN_MAX}: lower \
         --token-from or --rounds"
    )))
}

/// Why a resource that was named is not raced.
pub(crate) fn in_use(resource: &str, why: &str) -> Error {
    Error::Usage(format!(
        "{resource} is in use: {why}. A test overwrites its value, and from then on refuses whoever \
         holds its lock; say --overwrite if that may be"
    ))
}

/// Runs the races of a course, each after the other. Stops at the first that fails.
pub(crate) async fn run<S: Session>(
    course: Course<'_>,
    lanes: &mut [Lane<S>],
    report: &mut Report,
    stop: &Stop,
    tell: Tell<'_>,
) -> Result<(), Error> {
    let (mut compares, mut sinks) = (false, false);
    for &(race, weight) in course.races {
        if !course.runs(race, weight) || stop.asked() {
            continue;
        }
        let (count, outcome) = match weight {
            Weight::Judged if race == Race::Widths => walk(lanes, stop).await,
            Weight::Judged => races::run(lanes, race, course.rounds, stop).await,
            Weight::Control => races::control(lanes, race, course.rounds, stop).await,
        };
        compares |= race == Race::Paused && count.through == 0 && count.refused > 0;
        sinks |= race == Race::Seals && count.through > 0 && compares;
        let tried = Tried {
            schema: course.schema,
            isolation: course.isolation,
            race,
            weight,
            has_seal: course.has_seal,
            compares,
            sinks,
        };
        for finding in advice::of(tried, &count, course.words) {
            report.find(finding);
        }
        let row = Row::new(course.schema, course.isolation, race, weight, &count);
        tell(&row);
        report.races.push(row);
        outcome?;
    }
    Ok(())
}

/// The one lane that has a resource for it, once through all widths.
async fn walk<S: Session>(lanes: &mut [Lane<S>], stop: &Stop) -> (Count, Result<(), Error>) {
    let lanes = lanes.split_at_mut(lanes.len().min(1)).0;
    let rounds = lanes.iter().map(|lane| lane.walk.rounds()).sum();
    races::run(lanes, Race::Widths, rounds, stop).await
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: Words = Words { guard: "", one_step: "", seal: "" };
    const RACES: [(Race, Weight); 5] = [
        (Race::Equal, Weight::Judged),
        (Race::Widths, Weight::Judged),
        (Race::Stopped, Weight::Judged),
        (Race::Updates, Weight::Judged),
        (Race::ReadFirst, Weight::Control),
    ];

    fn course(wanted: &[Race]) -> Course<'_> {
        Course {
            schema: "set",
            isolation: None,
            races: &RACES,
            wanted,
            rounds: 1,
            has_seal: true,
            words: &WORDS,
            steps: 1,
            widths: 0,
        }
    }

    fn run_of(wanted: &[Race]) -> Vec<Race> {
        let course = course(wanted);
        let runs = RACES.iter().filter(|(race, weight)| course.runs(*race, *weight));
        runs.map(|(race, _)| *race).collect()
    }

    #[test]
    fn a_race_that_is_judged_brings_the_one_that_has_to_lose() {
        assert_eq!(run_of(&[Race::Updates]), [Race::Updates, Race::ReadFirst]);
        assert_eq!(run_of(&[]), [Race::Equal, Race::Updates, Race::ReadFirst]);
        assert_eq!(run_of(&[Race::ReadFirst]), [Race::ReadFirst]);
        assert_eq!(run_of(&[Race::Stopped]), [], "a write of one step does not stop in between");
        assert_eq!(run_of(&[Race::Widths]), [], "there is no resource to wear out");
    }

    #[test]
    fn a_test_that_would_run_out_of_tokens_does_not_begin() {
        assert_eq!(fits(0, 10_000_000, 21), Ok(()));
        assert!(fits(TOKEN_MAX - 100, 10, 1).is_err());
        assert!(fits(1, u64::MAX, usize::MAX).is_err());
    }

    #[test]
    fn nothing_to_run_is_wrong_use_and_says_what_there_is() {
        assert_eq!(check(&[course(&[Race::Updates])], &["set"]), Ok(()));
        let told = |courses: &[Course<'_>]| match check(courses, &["set", "call"]) {
            Err(Error::Usage(why)) => why,
            other => panic!("{other:?}"),
        };
        assert!(told(&[]).contains("set, call"));
        let told = told(&[course(&[Race::Once])]);
        assert!(told.contains("updates") && told.contains("through set"), "{told}");
    }
}
