//! What one holder does on its own: seal, read, write, and all of them.

use super::count::Count;
use super::store::{Answer, Holder, Session};
use crate::error::Error;
use std::time::Duration;

/// More serialisation failures in a row than this are a store that never lets anybody through.
const AGAIN_MAX: u32 = 1_000;

const VALUE_MAX: u64 = 1 << 53;

/// In which order a new holder begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    SealFirst,
    /// The wrong one, to show what it loses.
    ReadFirst,
}

/// Seal, read, and write one more than was read. Whether the write was accepted.
pub(crate) async fn turn(
    session: &mut impl Session,
    holder: Holder<'_>,
    order: Order,
    count: &mut Count,
) -> Result<bool, Error> {
    for failures in 0..AGAIN_MAX {
        let answer = attempt(session, holder, order).await?;
        if let Some(accepted) = settled(session, answer, failures, count).await? {
            return Ok(count.writes(accepted));
        }
    }
    Err(never())
}

async fn attempt(
    session: &mut impl Session,
    holder: Holder<'_>,
    order: Order,
) -> Result<Answer<()>, Error> {
    if order == Order::SealFirst {
        match session.seal(holder).await? {
            Answer::Done(()) => {}
            other => return Ok(other),
        }
    }
    let value = match session.read(holder).await? {
        Answer::Done(value) => counted(value)?,
        Answer::Refused(why) => return Ok(Answer::Refused(why)),
        Answer::Again => return Ok(Answer::Again),
    };
    dawdle().await;
    if order == Order::ReadFirst {
        match session.seal(holder).await? {
            Answer::Done(()) => {}
            other => return Ok(other),
        }
    }
    steps(session, holder, value + 1, 0).await
}

/// Some holders take their time after they have read: the rounds must not all go the same way.
async fn dawdle() {
    if fastrand::u8(..).is_multiple_of(4) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Seals. Whether that was accepted.
pub(crate) async fn seal(
    session: &mut impl Session,
    holder: Holder<'_>,
    count: &mut Count,
) -> Result<bool, Error> {
    for failures in 0..AGAIN_MAX {
        let answer = session.seal(holder).await?;
        if let Some(accepted) = settled(session, answer, failures, count).await? {
            return Ok(accepted);
        }
    }
    Err(never())
}

/// Reads what is there.
pub(crate) async fn read(
    session: &mut impl Session,
    holder: Holder<'_>,
    count: &mut Count,
) -> Result<i64, Error> {
    for failures in 0..AGAIN_MAX {
        match session.read(holder).await? {
            Answer::Done(value) => return counted(value),
            Answer::Refused(why) => return Err(Error::Refused(format!("read: {why}"))),
            Answer::Again => again(session, failures, count).await?,
        }
    }
    Err(never())
}

/// The value counts writes from 0 on: a far larger number is something else, and cannot be counted.
fn counted(value: i64) -> Result<i64, Error> {
    if value.unsigned_abs() <= VALUE_MAX {
        return Ok(value);
    }
    Err(Error::Usage(format!(
        "the read answers {value}, and has to answer the number of writes since --setup made it as 0"
    )))
}

/// Writes. Whether that was accepted.
pub(crate) async fn write(
    session: &mut impl Session,
    holder: Holder<'_>,
    value: i64,
    count: &mut Count,
) -> Result<bool, Error> {
    finish(session, holder, value, 0, count).await
}

/// Goes on with a write from step `from`, and from the first one if the store wants it again.
/// Whether it was accepted.
pub(crate) async fn finish(
    session: &mut impl Session,
    holder: Holder<'_>,
    value: i64,
    mut from: usize,
    count: &mut Count,
) -> Result<bool, Error> {
    for failures in 0..AGAIN_MAX {
        let answer = steps(session, holder, value, from).await?;
        from = 0;
        if let Some(accepted) = settled(session, answer, failures, count).await? {
            return Ok(count.writes(accepted));
        }
    }
    Err(never())
}

async fn steps(
    session: &mut impl Session,
    holder: Holder<'_>,
    value: i64,
    from: usize,
) -> Result<Answer<()>, Error> {
    for number in from..session.steps() {
        match session.step(number, holder, value).await? {
            Answer::Done(()) => {}
            other => return Ok(other),
        }
    }
    Ok(Answer::Done(()))
}

/// Whether it is accepted, or nothing if it has to be tried again.
async fn settled(
    session: &mut impl Session,
    answer: Answer<()>,
    failures: u32,
    count: &mut Count,
) -> Result<Option<bool>, Error> {
    match answer {
        Answer::Done(()) => Ok(Some(true)),
        Answer::Refused(why) => {
            count.refusal.get_or_insert(why);
            session.abandon().await?;
            Ok(Some(false))
        }
        Answer::Again => again(session, failures, count).await.map(|()| None),
    }
}

/// Waits longer after many failures, so that one of the contenders gets through.
async fn again(session: &mut impl Session, failures: u32, count: &mut Count) -> Result<(), Error> {
    count.retries += 1;
    session.abandon().await?;
    if failures > 3 {
        let most = u64::from(failures.min(100)) * 100;
        tokio::time::sleep(Duration::from_micros(fastrand::u64(0..=most))).await;
    }
    Ok(())
}

fn never() -> Error {
    Error::Refused(format!("{AGAIN_MAX} times in a row the store wanted it once more"))
}
