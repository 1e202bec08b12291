//! The test: makes what it needs, races, and tidies up whatever happened.

use super::connect::{Database, as_the_system_has_it, as_the_user_has_it, failure, rows, value};
use super::findings;
use super::schemas::{Schema, of_the_kit, of_the_user, row};
use super::session::{Connection, Isolation};
use super::statement::Statement;
use super::{kit, strange};
use crate::error::Error;
use crate::races::advice::Words;
use crate::races::lane::Lane;
use crate::races::store::Holder;
use crate::races::widths::Walk;
use crate::report::{Finding, Report, Severity, Stopped};
use crate::stop::Stop;
use crate::tally::{self, Course, Tell};
use crate::wanted::Wanted;
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

/// "lh fence" in ASCII: one test at a time in a database, as its resources have fixed names.
const LOCK: i64 = 0x6c68_2066_656e_6365;
const LOCK_PATIENCE: &str = "5s";
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

struct Test<'a> {
    database: Database,
    wanted: &'a Wanted,
    admin: Client,
    /// Where the tables of the test are.
    place: String,
    schemas: Vec<Schema>,
    /// With the highest token that was used; the last one is for tokens of every width if it `walks`.
    resources: Vec<(String, u64)>,
    walks: bool,
    /// What the fence of the kit had seen of each before the test.
    seen: Vec<Option<u64>>,
    /// Whether a setup of the user's has made anything.
    made: bool,
}

/// Races stale and current holders through the kit, or through the user's statements.
///
/// # Errors
/// When there is nothing to test, a resource that was named is in use, or it cannot begin. Whatever goes wrong later is in the report.
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
    let refusal = match kit::stranger(&test.admin).await? {
        Some(owner) => Some(not_ours(&owner)),
        None => strange::refusal(&test.admin).await?,
    };
    let version = match refusal {
        Some(refusal) if version.is_some() && wanted.own.is_none() => return Err(refusal),
        // Statements of one's own need it not to be called.
        Some(_) => None,
        None => version,
    };
    if version.is_none() && wanted.own.is_none() {
        return Err(Error::Refused(
            "the kit is not installed here: run `leasehold fence install`, or test statements of \
             your own with --read and --write"
                .to_owned(),
        ));
    }
    let courses: Vec<_> = test.wanted_schemas().map(|schema| test.course(schema, None)).collect();
    let parts: Vec<&str> = test.schemas.iter().map(|schema| schema.name).collect();
    tally::check(&courses, &parts)?;
    if version.is_some() {
        test.go_on_above().await?;
    }
    let highest = test.resources.iter().map(|(_, token)| *token).max().unwrap_or_default();
    let times = test.wanted_schemas().count() * wanted.isolations.len();
    tally::fits(highest, wanted.rounds, times)?;
    test.spare_what_is_used().await?;
    let mut report = Report::new(kit::store(&test.admin).await?, version);
    // Tables of others in trigger mode are no part of what is tested.
    for mut finding in findings::of(&test.admin, version, &[]).await? {
        if wanted.own.is_some() {
            // It may be about a part that these statements do not use: the races tell.
            finding.severity = finding.severity.min(Severity::Warning);
        }
        report.find(finding);
    }
    let outcome = tokio::select! {
        outcome = test.run(&mut report, stop, tell) => outcome,
        () = stop.overdue() => Ok(()),
    };
    report.stopped = outcome.as_ref().err().map(Stopped::from).or_else(|| stop.why());
    report.left = test.tidy(version).await;
    if version.is_some()
        && let Some(finding) = test.rows_stay().await
    {
        report.find(finding);
    }
    Ok(report.conclude())
}

fn not_ours(owner: &str) -> Error {
    Error::Refused(format!(
        "the kit belongs to {owner}, who is no superuser, and its calls would run with the rights of \
         this session, which is one: test as {owner} or with the role of the application"
    ))
}

/// The session of a test that has just ended may be on its way out, and still have the lock.
async fn take_turn(admin: &Client) -> Result<(), Error> {
    let lock = format!(
        "BEGIN; SET LOCAL lock_timeout = '{LOCK_PATIENCE}'; SELECT pg_advisory_lock({LOCK}); COMMIT"
    );
    admin.batch_execute(&lock).await.map_err(|error| match error.code() {
        Some(&SqlState::LOCK_NOT_AVAILABLE) => {
            Error::Refused("another fence test runs in this database".to_owned())
        }
        _ => failure(&error),
    })
}

impl<'a> Test<'a> {
    async fn new(database: &Database, wanted: &'a Wanted) -> Result<Self, Error> {
        let place = format!("{PREFIX}{:08x}", fastrand::u32(..));
        let database = database.named(&place);
        let admin = database.connect().await?;
        take_turn(&admin).await?;
        // Not with resources that somebody has: no token would be left for them. The columns of the
        // kit are what they are, and its rows stay.
        let walks = wanted.resources.is_empty() && wanted.own.is_some();
        let mut resources = wanted.raced(RESOURCE);
        resources.extend(walks.then(|| (format!("{RESOURCE}/widths"), wanted.token_before())));
        let seen = vec![None; resources.len()];
        let schemas = match &wanted.own {
            Some(own) => vec![of_the_user(own)],
            None => of_the_kit(&format!("{place}.tried"), &format!("{place}.protected")),
        };
        Ok(Self { database, wanted, admin, place, schemas, resources, walks, seen, made: false })
    }

    fn walk(&self) -> Walk {
        let last = self.resources.last().filter(|_| self.walks);
        last.map(|(name, token)| Walk::new(name.clone(), *token)).unwrap_or_default()
    }

    fn wanted_schemas(&self) -> impl Iterator<Item = &Schema> {
        self.schemas.iter().filter(|schema| self.wanted.has_part(schema.name))
    }

    fn course<'c>(&'c self, schema: &'c Schema, isolation: Option<Isolation>) -> Course<'c> {
        Course {
            schema: schema.name,
            isolation: isolation.map(Isolation::name),
            races: &schema.races,
            wanted: &self.wanted.races,
            rounds: self.wanted.rounds,
            has_seal: !schema.script.seal.is_empty(),
            words: &WORDS,
            steps: schema.script.steps(),
            widths: self.walk().rounds(),
        }
    }

    async fn run(&mut self, report: &mut Report, stop: &Stop, tell: Tell<'_>) -> Result<(), Error> {
        if self.wanted.own.is_none() {
            self.prepare().await?;
        }
        let schemas: Vec<Schema> = self.wanted_schemas().cloned().collect();
        for schema in &schemas {
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
        self.seen = self.highest().await?;
        if let (true, Some(seen), Some((name, _))) =
            (self.walks, self.seen.last_mut(), self.resources.last_mut())
            && seen.take().is_some()
        {
            // Worn out by an earlier test.
            *name = format!("{RESOURCE}/widths/{:08x}", fastrand::u32(..));
        }
        for ((_, token), seen) in self.resources.iter_mut().zip(&self.seen) {
            *token = seen.unwrap_or(0).max(*token);
        }
        Ok(())
    }

    /// What the fence of the kit has seen of each resource.
    async fn highest(&self) -> Result<Vec<Option<u64>>, Error> {
        let ask = Statement::new("SELECT leasehold.highest_token(:resource::text)");
        let mut seen = Vec::new();
        for (resource, _) in &self.resources {
            let sql = ask.fill(Holder { resource, token: 0 }, 0);
            seen.push(value(&self.admin, &sql).await?.and_then(|highest| highest.parse().ok()));
        }
        Ok(seen)
    }

    /// A resource that was named may be somebody's: its value would be overwritten, and whoever
    /// holds its lock would be refused from then on.
    async fn spare_what_is_used(&self) -> Result<(), Error> {
        if self.wanted.resources.is_empty() || self.wanted.overwrite {
            return Ok(());
        }
        for ((resource, token), seen) in self.resources.iter().zip(&self.seen) {
            let why = match seen {
                Some(seen) => format!("the fence has seen its token {seen}"),
                None if self.finds_a_value(resource, *token).await? => {
                    "--read finds a value of it".to_owned()
                }
                None => continue,
            };
            return Err(tally::in_use(resource, &why));
        }
        Ok(())
    }

    /// What is wrong with the read shows in the races.
    async fn finds_a_value(&self, resource: &str, token: u64) -> Result<bool, Error> {
        let Some(own) = &self.wanted.own else { return Ok(false) };
        as_the_user_has_it(&self.admin).await?;
        let mut finds = false;
        for statement in of_the_user(own).script.read {
            let sql = statement.fill(Holder { resource, token: token.max(1) }, 0);
            finds |= value(&self.admin, &sql).await.is_ok_and(|found| found.is_some());
        }
        as_the_system_has_it(&self.admin).await?;
        Ok(finds)
    }

    /// The tables of the test's own.
    async fn prepare(&self) -> Result<(), Error> {
        let (table, trigger_table) =
            (format!("{}.tried", self.place), format!("{}.protected", self.place));
        let made = self.execute(&format!("CREATE SCHEMA {}", self.place)).await;
        made.map_err(|error| {
            error.during(
                "the test makes a schema of its own, for which its role needs CREATE on the \
                 database (GRANT CREATE ON DATABASE name TO role); or give it statements on a \
                 table of yours",
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
        let protect = format!(
            "SELECT leasehold.protect('{trigger_table}'::regclass, 'resource'::name, false)"
        );
        self.execute(&protect).await
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
        self.set_up(schema).await?;
        let mut lanes = self.lanes(schema, isolation).await?;
        let course = self.course(schema, Some(isolation));
        let outcome = tally::run(course, &mut lanes, report, stop, tell).await;
        for ((_, token), lane) in self.resources.iter_mut().zip(&lanes) {
            *token = lane.token;
        }
        if let (true, Some((_, token)), Some(lane)) =
            (self.walks, self.resources.last_mut(), lanes.first())
        {
            *token = lane.walk.token;
        }
        outcome?;
        // The next isolation level sets up anew.
        self.clean(schema).await
    }

    async fn set_up(&mut self, schema: &Schema) -> Result<(), Error> {
        for at in 0..self.resources.len() {
            let done = self.execute_for(at, &schema.setup).await;
            self.made |= done.is_ok() || (self.each_commits() && schema.setup.len() > 1);
            done.map_err(|error| self.of_an_earlier_test(error).during("setup"))?;
        }
        Ok(())
    }

    fn of_an_earlier_test(&self, error: Error) -> Error {
        match error {
            Error::Refused(why) if why.starts_with("23505") => Error::Refused(format!(
                "{why}; an earlier test may have left rows of {}: --cleanup removes them before \
                 and after a test",
                self.names()
            )),
            other => other,
        }
    }

    async fn clean(&mut self, schema: &Schema) -> Result<(), Error> {
        for at in 0..self.resources.len() {
            let done = self.execute_for(at, &schema.cleanup).await;
            done.map_err(|error| error.during("cleanup"))?;
        }
        Ok(())
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
        let mut walk = self.walk();
        for (resource, token) in self.resources.iter().take(self.raced()) {
            lanes.push(Lane {
                resource: resource.clone(),
                token: *token,
                older: open(&script).await?,
                newer: open(&script).await?,
                third: open(&script).await?,
                watcher: open(&apart).await?,
                walk: std::mem::take(&mut walk),
            });
        }
        Ok(lanes)
    }

    /// Of how many resources each has a lane.
    fn raced(&self) -> usize {
        self.resources.len() - usize::from(self.walks)
    }

    fn each_commits(&self) -> bool {
        self.wanted.own.as_ref().is_some_and(|own| own.autocommit)
    }

    /// Runs statements for one resource, in one transaction unless each is to commit by itself.
    /// They have a token of their own, as tables in trigger mode ask for one.
    async fn execute_for(&mut self, at: usize, statements: &[Statement]) -> Result<(), Error> {
        if self.wanted.own.is_none() {
            return self.execute_in_turn(at, statements).await;
        }
        as_the_user_has_it(&self.admin).await?;
        let done = self.execute_in_turn(at, statements).await;
        // What went wrong with them is the one to tell.
        done.and(as_the_system_has_it(&self.admin).await)
    }

    async fn execute_in_turn(&mut self, at: usize, statements: &[Statement]) -> Result<(), Error> {
        let Some((resource, token)) = self.resources.get_mut(at) else { return Ok(()) };
        *token += 1;
        let holder = Holder { resource, token: *token };
        let filled: Vec<_> =
            statements.iter().map(|statement| (statement, statement.fill(holder, 0))).collect();
        let together = filled.len() > 1 && !self.each_commits();
        if together {
            self.execute("BEGIN").await?;
        }
        for (statement, sql) in &filled {
            if let Err(error) = self.execute(sql).await {
                if together {
                    // Whatever comes of it, the first error is the one to tell.
                    let _ = self.execute("ROLLBACK").await;
                }
                return Err(statement.explain(error));
            }
        }
        if together { self.execute("COMMIT").await } else { Ok(()) }
    }

    async fn execute(&self, sql: &str) -> Result<(), Error> {
        self.admin.batch_execute(sql).await.map_err(|error| failure(&error))
    }

    /// Removes what the test made. What is still there, if the database lets it not or is gone.
    async fn tidy(&mut self, version: Option<i64>) -> Vec<String> {
        let mut last = None;
        for attempt in 0..TIDY_TRIES {
            if attempt > 0 {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            match tokio::time::timeout(TIDY_TIME, self.try_to_tidy(version)).await {
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

    async fn try_to_tidy(&mut self, version: Option<i64>) -> Result<Vec<String>, Error> {
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
        let mut left = Vec::new();
        if let Some(own) = &self.wanted.own
            && (self.made || own.setup.is_empty())
        {
            if version.is_some() {
                // Races that were given up have not told how far they had come.
                let highest = self.highest().await?;
                for ((_, token), seen) in self.resources.iter_mut().zip(highest) {
                    *token = seen.unwrap_or(0).max(*token);
                }
            }
            self.clean(&of_the_user(own)).await?;
            if own.cleanup.is_empty() && self.made {
                left.push(format!("what --setup made for {}: give --cleanup", self.names()));
            }
        }
        // Those of tests that were killed as well: only one test runs at a time.
        let like =
            format!("SELECT nspname FROM pg_namespace WHERE nspname ~ '^{PREFIX}[0-9a-f]{{8}}$'");
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

    /// What the fence of the kit has seen of this test.
    async fn rows_stay(&self) -> Option<Finding> {
        let highest = self.highest().await.ok()?;
        let risen = highest.iter().zip(&self.seen).filter(|(now, before)| now > before).count();
        let advice = if self.wanted.resources.is_empty() {
            "a fence never forgets a token; the next test uses the same rows, and one of its own \
             for tokens of every width if it tests your statements"
                .to_owned()
        } else {
            let most = highest.iter().flatten().max().copied().unwrap_or_default();
            format!("a fence never forgets a token: who writes these needs one of {most} or above")
        };
        let detail = format!("leasehold.fence keeps the tokens of this test in {risen} rows");
        (risen > 0).then(|| Finding::new(Severity::Note, "fence_rows_stay", detail, advice))
    }
}
