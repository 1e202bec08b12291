//! The test: makes what it needs, races, and tidies up whatever happened.

use super::connect::{Database, failure, rows, value};
use super::findings;
use super::kit;
use super::schemas::{Own, Schema, of_the_kit, row};
use super::session::{Connection, Isolation};
use super::statement::Statement;
use crate::error::Error;
use crate::races::Race;
use crate::races::advice::Words;
use crate::races::lane::Lane;
use crate::races::store::Holder;
use crate::report::{Finding, Report, Severity, Stopped};
use crate::stop::Stop;
use crate::tally::{self, Course, Tell};
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::Client;

/// "lh fence" in ASCII: one test at a time in a database, as its resources have fixed names.
const LOCK: i64 = 0x6c68_2066_656e_6365;
const PREFIX: &str = "leasehold_fence_test_";
const RESOURCE: &str = "leasehold-fence-test";
const TIDY_TRIES: u32 = 3;
/// A store that hangs must not hang what tidies up.
const TIDY_TIME: Duration = Duration::from_secs(8);

const WORDS: Words = Words {
    guard: "call SELECT leasehold.guard(resource, token) as the first statement of the transaction \
            that writes, or add `AND last_token <= :token` to the UPDATE and set last_token in it",
    one_step: "put guard and write into one transaction, guard first and as a statement of its \
               own; a SELECT that compares the token locks nothing, and a subquery on another \
               table is not looked at again after a wait",
    seal: "make SELECT leasehold.seal(resource, token) the first act of a new holder, before it \
           reads; a seal of your own has to refuse a lower token: `WHERE last_token <= :token`",
};

/// What to test, and how.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Rounds of each race.
    pub rounds: u64,
    /// Resources that are raced side by side; each needs four connections.
    pub lanes: usize,
    /// The races; all if there are none.
    pub races: Vec<Race>,
    /// The parts of the kit; all if there are none.
    pub schemas: Vec<String>,
    /// The isolation levels.
    pub isolations: Vec<Isolation>,
    /// The user's statements, instead of the kit's.
    pub own: Option<Own>,
    /// Names of resources, instead of the test's own.
    pub resources: Vec<String>,
    /// The lowest token that is used.
    pub token_from: u64,
}

struct Test<'a> {
    database: Database,
    wanted: &'a Wanted,
    admin: Client,
    /// Where the tables of the test are.
    place: String,
    /// With the highest token that was used.
    resources: Vec<(String, u64)>,
}

/// Races stale and current holders through the kit, or through the user's statements.
///
/// # Errors
/// When there is nothing to test or it cannot begin. Whatever goes wrong later is in the report.
pub async fn test(
    database: &Database,
    wanted: &Wanted,
    stop: &Stop,
    tell: Tell<'_>,
) -> Result<Report, Error> {
    let mut test = Test::new(database, wanted).await?;
    let version = match kit::version(&test.admin).await {
        // Statements of one's own need no kit, and no right to use it.
        Err(Error::Refused(_)) if wanted.own.is_some() => None,
        told => told?,
    };
    if version.is_none() && wanted.own.is_none() {
        return Err(Error::Refused(
            "the kit is not installed here: run `leasehold fence install`, or test statements of \
             your own with --read and --write"
                .to_owned(),
        ));
    }
    let mut report = Report::new(kit::store(&test.admin).await?, version);
    for finding in findings::of(&test.admin, version).await? {
        report.find(finding);
    }
    let outcome = tokio::select! {
        outcome = test.run(version, &mut report, stop, tell) => outcome,
        () = stop.overdue() => Ok(()),
    };
    report.stopped = outcome.as_ref().err().map(Stopped::from).or_else(|| stop.why());
    report.left = test.tidy().await;
    if version.is_some() && wanted.resources.is_empty() {
        report.find(test.rows_stay());
    }
    Ok(report.conclude())
}

impl<'a> Test<'a> {
    async fn new(database: &Database, wanted: &'a Wanted) -> Result<Self, Error> {
        let place = format!("{PREFIX}{:08x}", fastrand::u32(..));
        let database = database.named(&place);
        let admin = database.connect().await?;
        let lock = format!("SELECT pg_try_advisory_lock({LOCK})");
        if value(&admin, &lock).await?.as_deref() != Some("t") {
            return Err(Error::Refused("another fence test runs in this database".to_owned()));
        }
        let names: Vec<String> = if wanted.resources.is_empty() {
            (1..=wanted.lanes.max(1)).map(|lane| format!("{RESOURCE}/{lane}")).collect()
        } else {
            wanted.resources.clone()
        };
        let before = wanted.token_from.saturating_sub(1);
        let resources = names.into_iter().map(|name| (name, before)).collect();
        Ok(Self { database, wanted, admin, place, resources })
    }

    async fn run(
        &mut self,
        version: Option<i64>,
        report: &mut Report,
        stop: &Stop,
        tell: Tell<'_>,
    ) -> Result<(), Error> {
        if version.is_some() {
            self.go_on_above().await?;
        }
        let schemas = match &self.wanted.own {
            Some(own) => vec![own.schema()],
            None => self.prepare().await?,
        };
        let named = &self.wanted.schemas;
        for schema in schemas
            .iter()
            .filter(|one| named.is_empty() || named.iter().any(|name| name == one.name))
        {
            for isolation in &self.wanted.isolations {
                if !stop.asked() {
                    self.race(schema, *isolation, report, stop, tell).await?;
                }
            }
        }
        Ok(())
    }

    /// The fence of an earlier test still has its tokens.
    async fn go_on_above(&mut self) -> Result<(), Error> {
        let ask = Statement::new("SELECT leasehold.highest_token(:resource)");
        for (resource, token) in &mut self.resources {
            let sql = ask.fill(Holder { resource, token: 0 }, 0);
            let highest = value(&self.admin, &sql).await?.and_then(|highest| highest.parse().ok());
            *token = highest.unwrap_or(0).max(*token);
        }
        Ok(())
    }

    /// The tables of the test's own, and the schemas on them.
    async fn prepare(&self) -> Result<Vec<Schema>, Error> {
        let (table, trigger_table) =
            (format!("{}.tried", self.place), format!("{}.protected", self.place));
        let made = self.execute(&format!("CREATE SCHEMA {}", self.place)).await;
        made.map_err(|error| {
            error.during(
                "the test makes a schema of its own, for which its role needs CREATE on the \
                 database; or give it statements on a table of yours",
            )
        })?;
        for table in [&table, &trigger_table] {
            self.execute(&format!(
                "CREATE TABLE {table} \
                 (resource text PRIMARY KEY, value bigint NOT NULL, last_token bigint NOT NULL)"
            ))
            .await?;
        }
        for (resource, _) in &self.resources {
            let row = row(&trigger_table);
            self.execute(&row.fill(Holder { resource, token: 0 }, 0)).await?;
        }
        self.execute(&format!("SELECT leasehold.protect('{trigger_table}', 'resource')")).await?;
        Ok(of_the_kit(&table, &trigger_table))
    }

    async fn race(
        &mut self,
        schema: &Schema,
        isolation: Isolation,
        report: &mut Report,
        stop: &Stop,
        tell: Tell<'_>,
    ) -> Result<(), Error> {
        if self.wanted.resources.is_empty() {
            // A test that was killed may have left rows with the same names.
            self.clean(schema).await?;
        }
        self.for_each_resource(&schema.setup).await.map_err(|error| error.during("setup"))?;
        let mut lanes = self.lanes(schema, isolation).await?;
        let course = Course {
            schema: schema.name,
            isolation: Some(isolation.name()),
            races: &schema.races,
            wanted: &self.wanted.races,
            rounds: self.wanted.rounds,
            has_seal: !schema.script.seal.is_empty(),
            words: &WORDS,
        };
        let outcome = tally::run(course, &mut lanes, report, stop, tell).await;
        for ((_, token), lane) in self.resources.iter_mut().zip(&lanes) {
            *token = lane.token;
        }
        outcome?;
        // The next isolation level sets up anew.
        self.clean(schema).await
    }

    async fn clean(&self, schema: &Schema) -> Result<(), Error> {
        self.for_each_resource(&schema.cleanup).await.map_err(|error| error.during("cleanup"))
    }

    async fn lanes(
        &self,
        schema: &Schema,
        isolation: Isolation,
    ) -> Result<Vec<Lane<Connection>>, Error> {
        let script = Arc::new(schema.script.clone());
        let mut apart = schema.script.clone();
        if apart.transactions == super::Transactions::Whole {
            apart.transactions = super::Transactions::Parts;
        }
        let apart = Arc::new(apart);
        let open = |script| Connection::open(&self.database, script, isolation);
        let mut lanes = Vec::new();
        for (resource, token) in &self.resources {
            lanes.push(Lane {
                resource: resource.clone(),
                token: *token,
                older: open(&script).await?,
                newer: open(&script).await?,
                third: open(&script).await?,
                watcher: open(&apart).await?,
            });
        }
        Ok(lanes)
    }

    async fn for_each_resource(&self, statements: &[Statement]) -> Result<(), Error> {
        for (resource, token) in &self.resources {
            for statement in statements {
                self.execute(&statement.fill(Holder { resource, token: *token }, 0)).await?;
            }
        }
        Ok(())
    }

    async fn execute(&self, sql: &str) -> Result<(), Error> {
        self.admin.batch_execute(sql).await.map_err(|error| failure(&error))
    }

    /// Removes what the test made. What is still there, if the database lets it not or is gone.
    async fn tidy(&mut self) -> Vec<String> {
        let mut last = None;
        for attempt in 0..TIDY_TRIES {
            if attempt > 0 {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            match tokio::time::timeout(TIDY_TIME, self.try_to_tidy()).await {
                Ok(Ok(left)) => return left,
                Ok(Err(error)) => last = Some(error),
                Err(_) => last = Some(Error::Unreachable("no answer".to_owned())),
            }
        }
        let why = last.map(|error| error.to_string()).unwrap_or_default();
        vec![match &self.wanted.own {
            None => format!("perhaps the schema {} ({why})", self.place),
            Some(_) => format!("what --setup made for {} ({why})", self.names()),
        }]
    }

    async fn try_to_tidy(&mut self) -> Result<Vec<String>, Error> {
        if self.admin.is_closed() {
            self.admin = self.database.connect().await?;
        }
        // A holder whose round was given up may still wait for a lock, or have one.
        self.execute(&format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE application_name = '{}' AND pid <> pg_backend_pid()",
            self.place
        ))
        .await?;
        if let Some(own) = &self.wanted.own {
            self.for_each_resource(&own.schema().cleanup)
                .await
                .map_err(|error| error.during("cleanup"))?;
        }
        // Those of tests that were killed as well: only one test runs at a time.
        let like =
            format!("SELECT nspname FROM pg_namespace WHERE nspname ~ '^{PREFIX}[0-9a-f]{{8}}$'");
        let mut left = Vec::new();
        for place in rows(&self.admin, &like).await?.into_iter().flatten().flatten() {
            if let Err(error) = self.execute(&format!("DROP SCHEMA {place} CASCADE")).await {
                if matches!(error, Error::Unreachable(_)) || place == self.place {
                    return Err(error);
                }
                left.push(format!("the schema {place} of an earlier test ({error})"));
            }
        }
        Ok(left)
    }

    fn names(&self) -> String {
        let names: Vec<&str> = self.resources.iter().map(|(name, _)| name.as_str()).collect();
        names.join(", ")
    }

    fn rows_stay(&self) -> Finding {
        Finding::new(
            Severity::Note,
            "fence_rows_stay",
            format!("leasehold.fence keeps {} rows of this test", self.resources.len()),
            "a fence never forgets a token; the next test uses the same rows",
        )
    }
}
