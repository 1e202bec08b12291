//! Running the races of one schema and writing down what comes of them, whatever the store.

use crate::error::Error;
use crate::races::advice::{self, Tried, Words};
use crate::races::lane::Lane;
use crate::races::store::Session;
use crate::races::{self, Race};
use crate::report::{Report, Row, Weight};
use crate::stop::Stop;

/// A control has shown what it has to after far fewer rounds than it takes to trust a fence.
const CONTROL_ROUNDS_MAX: u64 = 2_000;

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
        let wanted = course.wanted.is_empty() || course.wanted.contains(&race);
        if !wanted || stop.asked() {
            continue;
        }
        if race == Race::Stopped && lanes.first().is_some_and(|lane| lane.older.steps() < 2) {
            continue;
        }
        let rounds = match weight {
            Weight::Judged => course.rounds,
            Weight::Control => course.rounds.min(CONTROL_ROUNDS_MAX),
        };
        let (count, outcome) = races::run(lanes, race, rounds, stop).await;
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
