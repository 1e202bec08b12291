//! The commands that are raced: those of the library, those of the user, and without a fence.

use super::command::Command;
use super::session::Script;
use crate::error::Error;
use crate::races::Race;
use crate::report::Weight;
use crate::tally::judged;
use crate::wanted::Own;

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

/// The user's own.
pub(crate) fn of_the_user(own: &Own) -> Result<Schema, Error> {
    let all = |lines: &[String]| -> Result<Vec<Command>, Error> {
        lines.iter().map(|line| Command::new(line)).collect()
    };
    Ok(Schema {
        name: "own",
        setup: all(&own.setup)?,
        cleanup: all(&own.cleanup)?,
        script: Script {
            seal: all(&own.seal)?,
            read: all(&own.read)?,
            write: all(&own.write)?,
            refusals: own.refusals.clone(),
        },
        races: own.races(),
    })
}
