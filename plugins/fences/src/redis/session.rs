//! One holder at a Redis: its commands, each atomic by itself.

use super::command::Command;
use super::connect::{failure, text, told};
use crate::error::Error;
use crate::races::store::{Answer, Holder, Session};
use ::redis::aio::MultiplexedConnection;
use ::redis::{RedisError, Value};
use std::sync::Arc;

/// The words of the library.
const REFUSALS: [&str; 5] =
    ["STALETOKEN", "TOKENUSED", "TOKENREQUIRED", "INVALIDREQUEST", "SHAREDTOKEN"];

/// What a holder does, in commands.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    pub(crate) seal: Vec<Command>,
    pub(crate) read: Vec<Command>,
    pub(crate) write: Vec<Command>,
    /// Codes of errors, or answers, that mean a refusal to the user.
    pub(crate) refusals: Vec<String>,
}

pub(crate) struct Connection {
    pub(crate) connection: MultiplexedConnection,
    pub(crate) script: Arc<Script>,
}

impl Connection {
    /// Runs one command. `judged` where an answer of nothing means a refusal.
    async fn run(
        &mut self,
        what: &str,
        command: &Command,
        holder: Holder<'_>,
        value: i64,
        judged: bool,
    ) -> Result<Answer<Value>, Error> {
        let command = command.fill(holder, value);
        match command.query_async::<Value>(&mut self.connection).await {
            Ok(answer) => Ok(self.judge(answer, judged)),
            Err(error) if self.refuses(error.code()) => Ok(Answer::Refused(told(&error))),
            Err(error) => Err(failure(&error).during(what)),
        }
    }

    fn refuses(&self, code: Option<&str>) -> bool {
        code.is_some_and(|code| {
            REFUSALS.contains(&code) || self.script.refusals.iter().any(|word| word == code)
        })
    }

    fn judge(&self, answer: Value, judged: bool) -> Answer<Value> {
        let says = text(&answer);
        let theirs = says.is_some_and(|says| self.script.refusals.contains(&says));
        let nothing = matches!(answer, Value::Nil | Value::Boolean(false));
        if judged && (nothing || theirs) {
            return Answer::Refused("the answer is none".to_owned());
        }
        // The answers of a transaction.
        if let Value::Array(answers) = &answer {
            for one in answers {
                if let Value::ServerError(error) = one
                    && self.refuses(Some(error.code()))
                {
                    return Answer::Refused(told(&RedisError::from(error.clone())));
                }
            }
        }
        Answer::Done(answer)
    }
}

impl Session for Connection {
    async fn seal(&mut self, holder: Holder<'_>) -> Result<Answer<()>, Error> {
        let script = self.script.clone();
        for command in &script.seal {
            // The seal of the library answers nothing when there was no token before.
            match self.run("seal", command, holder, 0, false).await? {
                Answer::Done(_) => {}
                Answer::Refused(why) => return Ok(Answer::Refused(why)),
                Answer::Again => return Ok(Answer::Again),
            }
        }
        Ok(Answer::Done(()))
    }

    async fn read(&mut self, holder: Holder<'_>) -> Result<Answer<i64>, Error> {
        let script = self.script.clone();
        let mut last = None;
        for command in &script.read {
            match self.run("read", command, holder, 0, false).await? {
                Answer::Done(value) => last = text(&value).or(last),
                Answer::Refused(why) => return Ok(Answer::Refused(why)),
                Answer::Again => return Ok(Answer::Again),
            }
        }
        let last = last.ok_or_else(|| Error::Usage("the read found nothing".to_owned()))?;
        last.parse().map(Answer::Done).map_err(|_| {
            Error::Usage(format!("the read answers {last:?}, and has to answer a whole number"))
        })
    }

    fn steps(&self) -> usize {
        self.script.write.len()
    }

    async fn step(
        &mut self,
        number: usize,
        holder: Holder<'_>,
        value: i64,
    ) -> Result<Answer<()>, Error> {
        let script = self.script.clone();
        let Some(command) = script.write.get(number) else { return Ok(Answer::Done(())) };
        let what = format!("write, command {}", number + 1);
        Ok(self.run(&what, command, holder, value, true).await?.map(drop))
    }
}
