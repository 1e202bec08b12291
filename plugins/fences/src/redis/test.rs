//! The test: makes what it needs, races, and tidies up whatever happened.

use super::command::Command;
use super::connect::{Server, failure, text};
use super::schemas::{Schema, of_the_library, of_the_user};
use super::session::Connection;
use super::{findings, library};
use crate::error::Error;
use crate::races::advice::Words;
use crate::races::lane::Lane;
use crate::races::store::Holder;
use crate::races::widths::Walk;
use crate::report::{Finding, Report, Severity, Stopped};
use crate::stop::Stop;
use crate::tally::{self, Course, Tell};
use crate::wanted::{Own, Wanted};
use ::redis::aio::MultiplexedConnection;
use ::redis::{Value, cmd};
use std::sync::Arc;
use std::time::Duration;

const TIDY_TRIES: u32 = 3;
/// A store that hangs must not hang what tidies up.
const TIDY_TIME: Duration = Duration::from_secs(8);

const WORDS: Words = Words {
    guard: "write with FCALL leasehold_set, leasehold_hset, leasehold_del or leasehold_call, which \
            compare the token",
    one_step: "compare and write in one function or script: between two commands anybody can come",
    seal: "make FCALL leasehold_seal 1 FENCE TOKEN the first act of a new holder, before it reads; \
           a seal of your own has to refuse a lower token",
};

struct Test<'a> {
    server: &'a Server,
    wanted: &'a Wanted,
    admin: MultiplexedConnection,
    schemas: Vec<Schema>,
    /// With the highest token that was used; those behind the lanes' are for tokens of every width,
    /// one for each of the schemas.
    resources: Vec<(String, u64)>,
    /// Of how many resources each has a lane.
    raced: usize,
    /// Whether a setup has made anything.
    made: bool,
}

/// Races stale and current holders through the library, or through the user's commands.
///
/// # Errors
/// When there is nothing to test or it cannot begin. Whatever goes wrong later is in the report.
pub async fn test(
    server: &Server,
    wanted: &Wanted,
    stop: &Stop,
    tell: Tell<'_>,
) -> Result<Report, Error> {
    let mut test = Test::new(server, wanted).await?;
    let version = library::version(&mut test.admin).await?;
    if version.is_none() && wanted.own.is_none() {
        return Err(Error::Refused(
            "the library is not installed here: run `leasehold fence install`, or test commands \
             of your own with --read and --write"
                .to_owned(),
        ));
    }
    let courses: Vec<_> = test.wanted_schemas().map(|schema| test.course(schema)).collect();
    let parts: Vec<&str> = test.schemas.iter().map(|schema| schema.name).collect();
    tally::check(&courses, &parts)?;
    tally::fits(wanted.token_from, wanted.rounds, test.wanted_schemas().count())?;
    test.spare_what_is_used(version).await?;
    let mut report = Report::new(library::store(&mut test.admin).await?, version);
    for finding in findings::of(&mut test.admin, version).await? {
        report.find(finding);
    }
    let outcome = tokio::select! {
        outcome = test.run(&mut report, stop, tell) => outcome,
        () = stop.overdue() => Ok(()),
    };
    report.stopped = outcome.as_ref().err().map(Stopped::from).or_else(|| stop.why());
    report.left = test.tidy().await;
    if let Some(finding) = test.keys_stay().await {
        report.find(finding);
    }
    Ok(report.conclude())
}

/// The name of the resource for tokens of every width.
fn width_of(run: &str, schema: &Schema) -> String {
    format!("{run}/widths/{}", schema.name)
}

impl<'a> Test<'a> {
    async fn new(server: &'a Server, wanted: &'a Wanted) -> Result<Self, Error> {
        let schemas = match &wanted.own {
            Some(own) => vec![of_the_user(own)?],
            None => of_the_library()?,
        };
        let run = format!("leasehold-fence-test/{:08x}", fastrand::u32(..));
        let mut resources = wanted.raced(&run);
        let raced = resources.len();
        if wanted.resources.is_empty() {
            // Never with resources that somebody has: no token would be left for them.
            let walks = schemas.iter().map(|schema| width_of(&run, schema));
            resources.extend(walks.map(|name| (name, wanted.token_before())));
        }
        let admin = server.connect().await?;
        Ok(Self { server, wanted, admin, schemas, resources, raced, made: false })
    }

    /// The resource for tokens of every width. Each schema wears out one of its own.
    fn walk(&self, schema: &Schema) -> Walk {
        let own = width_of("", schema);
        let mut behind = self.resources.iter().skip(self.raced);
        let found = behind.find(|(name, _)| name.ends_with(&own));
        found.map(|(name, token)| Walk::new(name.clone(), *token)).unwrap_or_default()
    }

    fn wanted_schemas(&self) -> impl Iterator<Item = &Schema> {
        self.schemas.iter().filter(|schema| self.wanted.has_part(schema.name))
    }

    fn course<'c>(&'c self, schema: &'c Schema) -> Course<'c> {
        Course {
            schema: schema.name,
            isolation: None,
            races: &schema.races,
            wanted: &self.wanted.races,
            rounds: self.wanted.rounds,
            has_seal: !schema.script.seal.is_empty(),
            words: &WORDS,
            steps: schema.script.write.len(),
            widths: self.walk(schema).rounds(),
        }
    }

    /// A resource that was named may be somebody's: its value would be overwritten, and whoever
    /// holds its lock would be refused from then on.
    async fn spare_what_is_used(&mut self, version: Option<i64>) -> Result<(), Error> {
        if self.wanted.resources.is_empty() || self.wanted.overwrite {
            return Ok(());
        }
        let seen = Command::new("FCALL leasehold_highest 1 fence:{:resource}")?;
        let reads = self.schemas.first().map(|schema| schema.script.read.clone());
        for (resource, token) in &self.resources {
            let holder = Holder { resource, token: *token };
            let mut asked: Vec<_> =
                reads.iter().flatten().map(|read| (read, "there is a value of it")).collect();
            if version.is_some() {
                asked.push((&seen, "its fence has seen a token"));
            }
            for (command, why) in asked {
                // What is wrong with the read shows in the races.
                let told = command.fill(holder, 0).query_async::<Value>(&mut self.admin).await;
                if told.is_ok_and(|told| text(&told).is_some()) {
                    return Err(tally::in_use(resource, why));
                }
            }
        }
        Ok(())
    }

    async fn run(&mut self, report: &mut Report, stop: &Stop, tell: Tell<'_>) -> Result<(), Error> {
        let schemas: Vec<Schema> = self.wanted_schemas().cloned().collect();
        for schema in schemas {
            if !stop.asked() {
                self.race(&schema, report, stop, tell).await?;
            }
        }
        Ok(())
    }

    async fn race(
        &mut self,
        schema: &Schema,
        report: &mut Report,
        stop: &Stop,
        tell: Tell<'_>,
    ) -> Result<(), Error> {
        let set_up = self.for_each_resource(&schema.setup).await;
        set_up.map_err(|error| self.with_rights(error).during("setup"))?;
        self.made = true;
        let script = Arc::new(schema.script.clone());
        let mut lanes = Vec::new();
        let mut walk = self.walk(schema);
        for (resource, token) in self.resources.iter().take(self.raced) {
            let open = async || {
                let connection = self.server.connect().await?;
                Ok::<_, Error>(Connection { connection, script: script.clone() })
            };
            lanes.push(Lane {
                resource: resource.clone(),
                token: *token,
                older: open().await?,
                newer: open().await?,
                third: open().await?,
                watcher: open().await?,
                walk: std::mem::take(&mut walk),
            });
        }
        let course = self.course(schema);
        let outcome = tally::run(course, &mut lanes, report, stop, tell).await;
        for ((_, token), lane) in self.resources.iter_mut().zip(&lanes) {
            *token = lane.token;
        }
        outcome.map_err(|error| self.with_rights(error))
    }

    /// What a user needs for the test is more than what an application does.
    fn with_rights(&self, error: Error) -> Error {
        match error {
            Error::Refused(why) if why.contains("NOPERM") && self.wanted.own.is_none() => {
                Error::Refused(format!(
                    "{why}; a test has keys of its own, for which this user needs the selector \
                     (+fcall +hmget +hset +hget +exists +persist +get +set +setex +del \
                     ~fence:{{leasehold-fence-test/* ~{{leasehold-fence-test/*)"
                ))
            }
            other => other,
        }
    }

    /// The fences that are still there after the cleanup of the user.
    async fn keys_stay(&mut self) -> Option<Finding> {
        self.wanted.own.as_ref()?;
        let mut there = Vec::new();
        for (resource, _) in &self.resources {
            let fence = format!("fence:{{{resource}}}");
            let mut ask = cmd("EXISTS");
            ask.arg(&fence);
            if ask.query_async::<i64>(&mut self.admin).await.ok()? > 0 {
                there.push(fence);
            }
        }
        let detail = format!("the fences of this test stay: {}", there.join(", "));
        let advice = "add DEL fence:{:resource} to --cleanup: nobody holds a lock on resources of \
                      the test's own";
        (!there.is_empty()).then(|| Finding::new(Severity::Note, "fence_keys_stay", detail, advice))
    }

    async fn for_each_resource(&mut self, commands: &[Command]) -> Result<(), Error> {
        for (resource, token) in &self.resources {
            for command in commands {
                let command = command.fill(Holder { resource, token: *token }, 0);
                let done: Result<Value, _> = command.query_async(&mut self.admin).await;
                done.map_err(|error| failure(&error))?;
            }
        }
        Ok(())
    }

    /// Removes what the test made. What is still there, if the server lets it not or is gone.
    async fn tidy(&mut self) -> Vec<String> {
        let mut last = None;
        for attempt in 0..TIDY_TRIES {
            match tokio::time::timeout(TIDY_TIME, self.try_to_tidy(attempt)).await {
                Ok(Ok(())) => return self.without_cleanup(),
                Ok(Err(error)) => last = Some(error),
                Err(_) => last = Some(Error::Unreachable("no answer".to_owned())),
            }
        }
        let why = last.map(|error| error.to_string()).unwrap_or_default();
        let names: Vec<&str> = self.resources.iter().map(|(name, _)| name.as_str()).collect();
        vec![format!("perhaps the keys of {} ({why})", names.join(", "))]
    }

    fn without_cleanup(&self) -> Vec<String> {
        let without = |own: &Own| own.cleanup.is_empty() && !own.setup.is_empty() && self.made;
        if !self.wanted.own.as_ref().is_some_and(without) {
            return Vec::new();
        }
        let names: Vec<&str> = self.resources.iter().map(|(name, _)| name.as_str()).collect();
        vec![format!("what --setup made for {}: give --cleanup", names.join(", "))]
    }

    async fn try_to_tidy(&mut self, attempt: u32) -> Result<(), Error> {
        if attempt > 0 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            self.admin = self.server.connect().await?;
        }
        // All of the library have the same.
        let cleanup = self.schemas.first().map(|schema| schema.cleanup.clone());
        self.for_each_resource(&cleanup.unwrap_or_default()).await
    }
}
