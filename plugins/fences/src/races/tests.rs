//! The races against a store in memory, with and without holes.

use super::lane::Lane;
use super::store::{Answer, Holder, Session};
use super::{Count, Race, Stop, run};
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

    fn check(&self, state: &mut State, token: u64) -> Answer<()> {
        let stale = token < state.highest;
        let used = self.schema == Schema::Strict && token <= state.used;
        if self.schema != Schema::NoFence && (stale || used) {
            return Answer::Refused("stale".to_owned());
        }
        state.highest = state.highest.max(token);
        state.used = token;
        Answer::Done(())
    }
}

impl Session for Memory {
    async fn seal(&mut self, holder: Holder<'_>) -> Result<Answer<()>, Error> {
        let mut state = self.state().await;
        match self.schema {
            Schema::NoFence | Schema::NoSeal => {}
            Schema::SealSinks => state.highest = holder.token,
            _ if holder.token < state.highest => return Ok(Answer::Refused("stale".to_owned())),
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

    async fn abandon(&mut self) -> Result<(), Error> {
        Ok(())
    }

    async fn hold(&mut self, _: Holder<'_>, _: i64, _: bool) -> Result<bool, Error> {
        Ok(false)
    }

    fn number(&self) -> Option<i32> {
        None
    }

    async fn waits(&mut self, _: i32) -> Result<bool, Error> {
        Ok(false)
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
