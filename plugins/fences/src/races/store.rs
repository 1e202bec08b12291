//! What the races need of a store: a few sessions, and what a holder does in each.

use crate::error::Error;

/// Who acts: the holder of `resource` with `token`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Holder<'a> {
    pub(crate) resource: &'a str,
    pub(crate) token: u64,
}

/// What a store answers to one step.
#[derive(Debug)]
pub(crate) enum Answer<T> {
    Done(T),
    /// Refused, in the words of the store.
    Refused(String),
    /// Nothing happened, and the store wants the transaction once more.
    Again,
}

impl<T> Answer<T> {
    /// The same with another value.
    pub(crate) fn map<U>(self, into: impl FnOnce(T) -> U) -> Answer<U> {
        match self {
            Self::Done(value) => Answer::Done(into(value)),
            Self::Refused(why) => Answer::Refused(why),
            Self::Again => Answer::Again,
        }
    }
}

/// One connection, as a holder has it. What has a body is that of a store in which nobody waits for
/// anybody, and every step is final.
pub(crate) trait Session {
    /// Records the token. `Done` where the schema has no seal.
    async fn seal(&mut self, holder: Holder<'_>) -> Result<Answer<()>, Error>;

    /// What is there: a whole number.
    async fn read(&mut self, holder: Holder<'_>) -> Result<Answer<i64>, Error>;

    /// Of how many steps a write is. At least one.
    fn steps(&self) -> usize;

    /// One step of a write; the last one makes it final. After anything but `Done` the write has
    /// to be given up.
    async fn step(
        &mut self,
        number: usize,
        holder: Holder<'_>,
        value: i64,
    ) -> Result<Answer<()>, Error>;

    /// Gives up what has begun and is not final. Fine where nothing has.
    async fn abandon(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Holds the lock that a write needs until `abandon`, without writing; `wholly` with all steps
    /// of a write, otherwise with its last alone where that is possible. Whether it is held.
    async fn hold(&mut self, _: Holder<'_>, _: i64, _wholly: bool) -> Result<bool, Error> {
        Ok(false)
    }

    /// The number by which another session can ask whether this one waits. None in a store in
    /// which nobody waits for anybody.
    fn number(&self) -> Option<i32> {
        None
    }

    /// Whether the session with this number waits for a lock right now.
    async fn waits(&mut self, _number: i32) -> Result<bool, Error> {
        Ok(false)
    }
}
