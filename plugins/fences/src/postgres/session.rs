//! One holder at a database: its statements, in their transactions.

use super::connect::{Database, failure};
use super::statement::Statement;
use crate::error::Error;
use crate::races::store::{Answer, Holder, Session};
use std::sync::Arc;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, SimpleQueryMessage};

/// The isolation level of every transaction of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// The default of PostgreSQL.
    ReadCommitted,
    /// Snapshots.
    RepeatableRead,
    /// Snapshots, and anomalies are found.
    Serializable,
}

impl Isolation {
    /// All three.
    pub const ALL: [Self; 3] = [Self::ReadCommitted, Self::RepeatableRead, Self::Serializable];

    /// As SQL has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadCommitted => "read committed",
            Self::RepeatableRead => "repeatable read",
            Self::Serializable => "serializable",
        }
    }
}

/// Which statements share a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transactions {
    /// Those of the seal, those of the read, and those of the write.
    Parts,
    /// None: each statement is committed by itself.
    Statements,
    /// All of a turn: seal, read and write.
    Whole,
}

/// What a holder does, in SQL.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    pub(crate) seal: Vec<Statement>,
    pub(crate) read: Vec<Statement>,
    pub(crate) write: Vec<Statement>,
    pub(crate) transactions: Transactions,
    /// SQLSTATEs of the user's own that refuse.
    pub(crate) refusals: Vec<String>,
    /// Whether they are the user's: then their names are looked up where the role has it.
    pub(crate) own: bool,
}

impl Script {
    /// Of how many steps a write is: the commit is one of its own, as a holder may be paused between
    /// its last statement and the commit as well.
    pub(crate) fn steps(&self) -> usize {
        self.write.len() + usize::from(self.transactions != Transactions::Statements)
    }
}

#[derive(Debug)]
pub(crate) struct Connection {
    client: Client,
    script: Arc<Script>,
    /// The process of the server that serves it.
    number: i32,
    /// Whether a transaction is open.
    open: bool,
}

impl Connection {
    pub(crate) async fn open(
        database: &Database,
        script: &Arc<Script>,
        isolation: Isolation,
    ) -> Result<Self, Error> {
        let client = database.connect().await?;
        let level = isolation.name();
        let set = format!("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {level}");
        client.batch_execute(&set).await.map_err(|error| failure(&error))?;
        let number = super::connect::value(&client, "SELECT pg_backend_pid()").await?;
        let number = number.and_then(|number| number.parse().ok()).unwrap_or_default();
        if script.own {
            super::connect::as_the_user_has_it(&client).await?;
        }
        Ok(Self { client, script: script.clone(), number, open: false })
    }

    /// Runs one statement; its first column as text comes with it.
    async fn run(
        &self,
        what: &str,
        statement: &Statement,
        filled: &str,
        of_rows: bool,
    ) -> Result<Answer<Option<String>>, Error> {
        match self.client.simple_query(filled).await {
            Ok(messages) => Ok(judge(&messages, of_rows)),
            Err(error) => {
                self.refusal(&error).ok_or_else(|| statement.explain(failure(&error)).during(what))
            }
        }
    }

    /// What the database says instead of doing it, if that is part of the race.
    fn refusal(&self, error: &tokio_postgres::Error) -> Option<Answer<Option<String>>> {
        let code = error.code()?;
        if *code == SqlState::T_R_SERIALIZATION_FAILURE || *code == SqlState::T_R_DEADLOCK_DETECTED
        {
            return Some(Answer::Again);
        }
        let ours = code.code().starts_with("LH");
        let theirs = self.script.refusals.iter().any(|refusal| refusal == code.code());
        (ours || theirs).then(|| Answer::Refused(failure(error).to_string()))
    }

    async fn begin(&mut self) -> Result<(), Error> {
        self.open = true;
        self.client.batch_execute("BEGIN").await.map_err(|error| failure(&error))
    }

    async fn commit(&mut self) -> Result<Answer<()>, Error> {
        self.open = false;
        // A transaction that failed before says so by rolling back, which is no error.
        match self.client.batch_execute("COMMIT").await {
            Ok(()) => Ok(Answer::Done(())),
            Err(error) => {
                let refusal = self.refusal(&error).map(|answer| answer.map(drop));
                refusal.ok_or_else(|| failure(&error).during("COMMIT"))
            }
        }
    }

    /// Runs the statements of a part in their transaction. The last value that came back.
    async fn part(
        &mut self,
        what: &str,
        statements: &[Statement],
        holder: Holder<'_>,
        judged: bool,
    ) -> Result<Answer<Option<String>>, Error> {
        let whole = self.script.transactions == Transactions::Whole;
        let own = self.script.transactions == Transactions::Parts && statements.len() > 1;
        if (own || whole) && !self.open {
            self.begin().await?;
        }
        let mut last = None;
        for statement in statements {
            let of_rows = judged && statement.of_rows();
            match self.run(what, statement, &statement.fill(holder, 0), of_rows).await? {
                Answer::Done(value) => last = value.or(last),
                other => return Ok(other),
            }
        }
        let ended = if own { self.commit().await? } else { Answer::Done(()) };
        Ok(ended.map(|()| last))
    }
}

/// No row where there has to be one is a refusal, and so is a single `false`.
fn judge(messages: &[SimpleQueryMessage], of_rows: bool) -> Answer<Option<String>> {
    let mut first = None;
    let mut rows = 0;
    let mut alone = false;
    for message in messages {
        match message {
            SimpleQueryMessage::Row(row) if first.is_none() => {
                alone = row.len() == 1;
                first = row.try_get(0).ok().flatten().map(str::to_owned);
            }
            SimpleQueryMessage::CommandComplete(number) => rows += number,
            _ => {}
        }
    }
    if of_rows && rows == 0 {
        return Answer::Refused("no row was changed or found".to_owned());
    }
    if of_rows && rows == 1 && alone && first.as_deref() == Some("f") {
        return Answer::Refused("the answer is false".to_owned());
    }
    Answer::Done(first)
}

impl Session for Connection {
    async fn seal(&mut self, holder: Holder<'_>) -> Result<Answer<()>, Error> {
        let script = self.script.clone();
        if script.seal.is_empty() {
            return Ok(Answer::Done(()));
        }
        Ok(self.part("seal", &script.seal, holder, true).await?.map(drop))
    }

    async fn read(&mut self, holder: Holder<'_>) -> Result<Answer<i64>, Error> {
        let script = self.script.clone();
        Ok(match self.part("read", &script.read, holder, false).await? {
            Answer::Done(value) => Answer::Done(whole_number(value.as_deref())?),
            Answer::Refused(why) => Answer::Refused(why),
            Answer::Again => Answer::Again,
        })
    }

    fn steps(&self) -> usize {
        self.script.steps()
    }

    async fn step(
        &mut self,
        number: usize,
        holder: Holder<'_>,
        value: i64,
    ) -> Result<Answer<()>, Error> {
        let script = self.script.clone();
        let Some(statement) = script.write.get(number) else { return self.commit().await };
        if script.transactions == Transactions::Parts && number == 0 {
            self.begin().await?;
        }
        let what = format!("write, statement {}", number + 1);
        let sql = statement.fill(holder, value);
        Ok(self.run(&what, statement, &sql, statement.of_rows()).await?.map(drop))
    }

    async fn abandon(&mut self) -> Result<(), Error> {
        if !std::mem::take(&mut self.open) {
            return Ok(());
        }
        self.client.batch_execute("ROLLBACK").await.map_err(|error| failure(&error))
    }

    async fn hold(&mut self, holder: Holder<'_>, value: i64, wholly: bool) -> Result<bool, Error> {
        let script = self.script.clone();
        let from = if wholly { 0 } else { script.write.len().saturating_sub(1) };
        self.begin().await?;
        for statement in script.write.iter().skip(from) {
            let done = self.client.simple_query(&statement.fill(holder, value)).await;
            let held =
                done.is_ok_and(|told| matches!(judge(&told, statement.of_rows()), Answer::Done(_)));
            if !held {
                self.abandon().await?;
                // The last statement alone may be what the fence refuses.
                return if wholly {
                    Ok(false)
                } else {
                    Box::pin(self.hold(holder, value, true)).await
                };
            }
        }
        Ok(true)
    }

    fn number(&self) -> Option<i32> {
        Some(self.number)
    }

    async fn waits(&mut self, number: i32) -> Result<bool, Error> {
        let sql =
            format!("SELECT EXISTS (SELECT FROM pg_locks WHERE pid = {number} AND NOT granted)");
        Ok(super::connect::value(&self.client, &sql).await?.as_deref() == Some("t"))
    }
}

fn whole_number(value: Option<&str>) -> Result<i64, Error> {
    let value = value.ok_or_else(|| Error::Usage("the read found no row".to_owned()))?;
    value.parse().map_err(|_| {
        Error::Usage(format!("the read answers {value:?}, and has to answer a whole number"))
    })
}
