//! The commands that are raced: those of the library, those of the user, and without a fence.

use super::command::Command;
use super::session::Script;
use crate::error::Error;
use crate::races::Race;
use crate::report::Weight;
use crate::tally::judged;

/// The user's own commands. Parameters: `:resource`, `:token`, `:value`.
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
    /// Each token may write once.
    pub once: bool,
    /// Codes of errors, or whole answers, that mean a refusal, beside those of the library.
    pub refusals: Vec<String>,
}

/// Commands, and what is raced through them.
#[derive(Debug, Clone)]
pub(crate) struct Schema {
    pub(crate) name: &'static str,
    pub(crate) setup: Vec<Command>,
    pub(crate) cleanup: Vec<Command>,
    pub(crate) script: Script,
    pub(crate) races: Vec<(Race, Weight)>,
}

const SEAL: &str = "FCALL leasehold_seal 1 fence:{:resource} :token";
const SET: &str = "SET {:resource}/number 0";
const GET: &str = "GET {:resource}/number";
const CLEANUP: &str = "DEL fence:{:resource} {:resource}/number {:resource}/fields";

/// The calls of the library; the last schema has no fence.
pub(crate) fn of_the_library() -> Result<Vec<Schema>, Error> {
    let value = |name, write: &str, once| built(name, [SET, SEAL, GET, write], once);
    let mut none = value("none", "SET {:resource}/number :value", false)?;
    none.script.seal.clear();
    none.races = vec![(Race::Paused, Weight::Control), (Race::Updates, Weight::Control)];
    Ok(vec![
        value(
            "set",
            "FCALL leasehold_set 2 fence:{:resource} {:resource}/number :token :value",
            false,
        )?,
        built(
            "hset",
            [
                "HSET {:resource}/fields value 0",
                SEAL,
                "HGET {:resource}/fields value",
                "FCALL leasehold_hset 2 fence:{:resource} {:resource}/fields :token value :value",
            ],
            false,
        )?,
        value(
            "call",
            "FCALL leasehold_call 2 fence:{:resource} {:resource}/number :token SETEX 3600 :value",
            false,
        )?,
        value(
            "once",
            "FCALL leasehold_set 2 fence:{:resource} {:resource}/number once :token :value",
            true,
        )?,
        none,
    ])
}

fn built(name: &'static str, lines: [&str; 4], once: bool) -> Result<Schema, Error> {
    let [setup, seal, read, write] = lines;
    let one = |line| Ok(vec![Command::new(line)?]);
    Ok(Schema {
        name,
        setup: one(setup)?,
        cleanup: one(CLEANUP)?,
        script: Script {
            seal: one(seal)?,
            read: one(read)?,
            write: one(write)?,
            refusals: Vec::new(),
        },
        races: judged(once),
    })
}

impl Own {
    pub(crate) fn schema(&self) -> Result<Schema, Error> {
        let all = |lines: &[String]| -> Result<Vec<Command>, Error> {
            lines.iter().map(|line| Command::new(line)).collect()
        };
        let has_seal = !self.seal.is_empty();
        let needs_seal = |race: Race| matches!(race, Race::Seals | Race::ReadFirst);
        let races = judged(self.once).into_iter();
        Ok(Schema {
            name: "own",
            setup: all(&self.setup)?,
            cleanup: all(&self.cleanup)?,
            script: Script {
                seal: all(&self.seal)?,
                read: all(&self.read)?,
                write: all(&self.write)?,
                refusals: self.refusals.clone(),
            },
            races: races.filter(|(race, _)| has_seal || !needs_seal(*race)).collect(),
        })
    }
}
