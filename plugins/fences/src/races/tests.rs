//! The races against a store in memory, with and without holes.

use super::lane::Lane;
use super::store::{Answer, Holder, Session};
use super::widths::Walk;
use super::{Count, Race, Stop, control, run};
use crate::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Schema {
    Sound,
    NoFence,
    NoSeal,
    /// Looks at the token first and writes then.
    TwoSteps,
    /// Records whatever was sealed last.
    SealSinks,
    /// Refuses the second write of a holder.
    Strict,
    /// Compares tokens as text.
    Text,
    /// Keeps tokens as a real does.
    Real,
    /// Has no room for tokens of more than 31 bits.
    Integer,
}

#[derive(Debug, Default)]
struct State {
    highest: u64,
    used: u64,
    value: i64,
}

#[derive(Debug, Clone)]
struct Memory {
    schema: Schema,
    state: Arc<Mutex<State>>,
}

impl Memory {
    /// Others come in between before anything happens, as on a network.
    async fn state(&self) -> MutexGuard<'_, State> {
        for _ in 0..fastrand::u8(0..4) {
            tokio::task::yield_now().await;
        }
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_below(&self, token: u64, highest: u64) -> bool {
        match self.schema {
            Schema::Text => token.to_string() < highest.to_string(),
            Schema::Real => (token as f32) < highest as f32,
            _ => token < highest,
        }
    }

    fn has_room(&self, token: u64) -> Result<(), Error> {
        if self.schema == Schema::Integer && token > i32::MAX as u64 {
            return Err(Error::Refused("out of range".to_owned()));
        }
        Ok(())
    }

    fn check(&self, state: &mut State, token: u64) -> Answer<()> {
        let stale = self.is_below(token, state.highest);
        let used = self.schema == Schema::Strict && token <= state.used;
        if self.schema != Schema::NoFence && (stale || used) {
            return Answer::Refused("stale".to_owned());
        }
        state.highest = token;
        state.used = token;
        Answer::Done(())
    }
}

impl Session for Memory {
    async fn seal(&mut self, holder: Holder<'_>) -> Result<Answer<()>, Error> {
        let mut state = self.state().await;
        self.has_room(holder.token)?;
        match self.schema {
            Schema::NoFence | Schema::NoSeal => {}
            Schema::SealSinks => state.highest = holder.token,
            _ if self.is_below(holder.token, state.highest) => {
                return Ok(Answer::Refused("stale".to_owned()));
            }
            _ => state.highest = holder.token,
        }
        Ok(Answer::Done(()))
    }

    async fn read(&mut self, _: Holder<'_>) -> Result<Answer<i64>, Error> {
        Ok(Answer::Done(self.state().await.value))
    }

    fn steps(&self) -> usize {
        if self.schema == Schema::TwoSteps { 2 } else { 1 }
    }

    async fn step(
        &mut self,
        number: usize,
        holder: Holder<'_>,
        value: i64,
    ) -> Result<Answer<()>, Error> {
        let mut state = self.state().await;
        self.has_room(holder.token)?;
        if number == 0 {
            match self.check(&mut state, holder.token) {
                Answer::Done(()) => {}
                refused => return Ok(refused),
            }
        }
        if number + 1 == self.steps() {
            state.value = value;
        }
        Ok(Answer::Done(()))
    }
}

fn lanes(schema: Schema) -> [Lane<Memory>; 2] {
    ["a", "b"].map(|resource| {
        let one = Memory { schema, state: Arc::default() };
        Lane {
            resource: resource.to_owned(),
            token: 0,
            older: one.clone(),
            newer: one.clone(),
            third: one.clone(),
            watcher: one,
            walk: Walk::new(format!("{resource}/widths"), 0),
        }
    })
}

async fn count(schema: Schema, race: Race) -> Count {
    let (count, outcome) = run(&mut lanes(schema), race, 400, &Stop::default()).await;
    outcome.expect("the store does not fail");
    assert_eq!(count.rounds, 400, "{schema:?} {race:?}");
    count
}

const JUDGED: [Race; 6] =
    [Race::Paused, Race::Stopped, Race::OnTheWire, Race::Updates, Race::Seals, Race::Equal];

#[tokio::test]
async fn nothing_gets_through_a_sound_schema_and_its_holders_do() {
    for race in JUDGED {
        let count = count(Schema::Sound, race).await;
        assert_eq!((count.through, count.denied), (0, 0), "{race:?}: {count:?}");
    }
    let paused = count(Schema::Sound, Race::Paused).await;
    assert_eq!((paused.writes, paused.refused), (800, 400));
    let once = count(Schema::Strict, Race::Once).await;
    assert_eq!((once.writes, once.refused, once.through), (1_200, 800, 0));
}

#[tokio::test]
async fn every_hole_shows_in_the_race_that_is_made_for_it() {
    for (schema, race) in [
        (Schema::NoFence, Race::Paused),
        (Schema::NoFence, Race::Updates),
        (Schema::NoSeal, Race::Paused),
        (Schema::NoSeal, Race::Updates),
        (Schema::TwoSteps, Race::Stopped),
        (Schema::TwoSteps, Race::OnTheWire),
        (Schema::SealSinks, Race::Seals),
        (Schema::Sound, Race::Once),
        (Schema::Sound, Race::ReadFirst),
    ] {
        let count = count(schema, race).await;
        assert!(count.through > 0, "{schema:?} {race:?}: {count:?}");
    }
}

#[tokio::test]
async fn a_holder_that_is_refused_is_counted() {
    let count = count(Schema::Strict, Race::Equal).await;
    assert_eq!((count.writes, count.denied), (1_200, 800));
    assert_eq!(count.refusal.as_deref(), Some("stale"));
}

#[tokio::test]
async fn it_stops_when_it_is_told_to() {
    let stop = Stop::default();
    stop.ask("interrupted", "by hand");
    let (count, outcome) = run(&mut lanes(Schema::Sound), Race::Paused, 400, &stop).await;
    assert_eq!((count.rounds, outcome), (0, Ok(())));
}

async fn across_widths(schema: Schema) -> Count {
    let mut lanes = lanes(schema);
    let rounds = lanes[0].walk.rounds();
    let (count, outcome) = run(&mut lanes[..1], Race::Widths, rounds, &Stop::default()).await;
    outcome.expect("what the store refuses is counted");
    assert_eq!(count.rounds, rounds, "{schema:?}");
    count
}

#[tokio::test]
async fn tokens_of_every_width_are_crossed() {
    let sound = across_widths(Schema::Sound).await;
    assert_eq!((sound.wrong, sound.through, sound.denied), (0, 0, 0), "{sound:?}");
    assert_eq!((sound.writes, sound.refused), (2 * sound.rounds, sound.rounds));
    for (schema, crossing) in [
        (Schema::Text, (9, 10)),
        (Schema::Real, (1 << 24, (1 << 24) + 1)),
        (Schema::Integer, ((1 << 31) - 1, 1 << 31)),
        (Schema::NoFence, (9, 10)),
    ] {
        let count = across_widths(schema).await;
        assert_eq!(count.crossing, Some(crossing), "{schema:?}: {count:?}");
        assert!(count.through > 0, "{schema:?}: {count:?}");
        assert_eq!(count.through == count.rounds, schema == Schema::NoFence, "{count:?}");
        let refuses = schema == Schema::Text || schema == Schema::Integer;
        assert_eq!(count.denied > 0, refuses, "{schema:?}: {count:?}");
    }
    let full = across_widths(Schema::Integer).await;
    assert_eq!(full.refusal.as_deref(), Some("out of range"));
}

#[tokio::test]
async fn a_control_runs_as_often_as_asked_until_it_has_lost_enough() {
    let rounds_of = async |schema, rounds| {
        let (count, outcome) =
            control(&mut lanes(schema), Race::Paused, rounds, &Stop::default()).await;
        outcome.expect("the store does not fail");
        (count.rounds, count.through > 0)
    };
    assert_eq!(rounds_of(Schema::NoFence, 10_000).await, (10_000, true));
    assert_eq!(rounds_of(Schema::NoFence, 25_000).await, (10_000, true));
    assert_eq!(rounds_of(Schema::Sound, 25_000).await, (25_000, false));
}
