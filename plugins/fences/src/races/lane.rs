//! One resource with the sessions that compete for it: the rounds of each race.

use super::Race;
use super::count::Count;
use super::store::{Answer, Holder, Session};
use super::turn::{Order, finish, read, seal, turn, write};
use super::widths::Walk;
use crate::error::Error;
use std::pin::{Pin, pin};
use std::time::Duration;

/// How often it is asked whether somebody waits for a lock.
const ASK_EVERY: Duration = Duration::from_micros(300);

/// A resource of the test's own. Nobody else writes it, so the value counts the accepted writes.
#[derive(Debug)]
pub(crate) struct Lane<S> {
    pub(crate) resource: String,
    /// The highest token that was given out.
    pub(crate) token: u64,
    pub(crate) older: S,
    pub(crate) newer: S,
    pub(crate) third: S,
    /// Takes no part: looks who waits.
    pub(crate) watcher: S,
    /// The resource for tokens of every width, if this is the lane that has one.
    pub(crate) walk: Walk,
}

impl<S: Session> Lane<S> {
    /// One round of `race`, the `number`th.
    pub(crate) async fn round(&mut self, race: Race, number: u64) -> Result<Count, Error> {
        let mut count = Count { rounds: 1, ..Count::default() };
        match race {
            Race::Paused => self.paused(number, &mut count).await?,
            Race::Stopped => self.stopped(number, &mut count).await?,
            Race::OnTheWire => self.on_the_wire(number, &mut count).await?,
            Race::Updates => self.updates(Order::SealFirst, &mut count).await?,
            Race::ReadFirst => self.updates(Order::ReadFirst, &mut count).await?,
            Race::Seals => self.seals(&mut count).await?,
            Race::Widths => self.widths(number, &mut count).await?,
            Race::Equal => self.equal(&mut count).await?,
            Race::Once => self.once(&mut count).await?,
        }
        Ok(count)
    }

    fn next(&mut self) -> u64 {
        self.token += 1;
        self.token
    }

    /// The older holder has read and is paused. The newer one seals, reads, and writes before or
    /// after the older one wakes up and writes.
    async fn paused(&mut self, number: u64, count: &mut Count) -> Result<(), Error> {
        let (t, u) = (self.next(), self.next());
        let (old, new) = (holder(&self.resource, t), holder(&self.resource, u));
        own(seal(&mut self.older, old, count).await?, count);
        let before = read(&mut self.older, old, count).await?;
        own(seal(&mut self.newer, new, count).await?, count);
        let seen = read(&mut self.newer, new, count).await?;
        let mut accepted = 0;
        let newer_first = number.is_multiple_of(2);
        if newer_first {
            accepted += own(write(&mut self.newer, new, seen + 1, count).await?, count);
        }
        let stale = write(&mut self.older, old, before + 1, count).await?;
        if !newer_first {
            accepted += own(write(&mut self.newer, new, seen + 1, count).await?, count);
        }
        let after = read(&mut self.newer, new, count).await?;
        count.balance(accepted, before, after);
        count.through = u64::from(stale).max(count.through);
        count.unchecked = u64::from(stale && newer_first && accepted > 0);
        Ok(())
    }

    /// The older holder stops between two steps of its write, while the newer one takes its turn.
    async fn stopped(&mut self, number: u64, count: &mut Count) -> Result<(), Error> {
        let (t, u) = (self.next(), self.next());
        let (old, new) = (holder(&self.resource, t), holder(&self.resource, u));
        own(seal(&mut self.older, old, count).await?, count);
        let before = read(&mut self.older, old, count).await?;
        let between = self.older.steps().saturating_sub(1).max(1) as u64;
        let stop_at = usize::try_from(number % between).unwrap_or(0) + 1;
        let Some(begun) = begin(&mut self.older, old, before + 1, stop_at, count).await? else {
            return Ok(());
        };
        let mut newer_count = Count::default();
        let number = self.newer.number();
        let (stale, newer) = {
            let mut newer = pin!(turn(&mut self.newer, new, Order::SealFirst, &mut newer_count));
            let early = until_it_waits(newer.as_mut(), &mut self.watcher, number).await?;
            let rest = finish(&mut self.older, old, before + 1, begun, count);
            match early {
                Some(newer) => (rest.await?, newer?),
                None => {
                    let (stale, newer) = futures_util::future::join(rest, newer).await;
                    (stale?, newer?)
                }
            }
        };
        *count += newer_count;
        let accepted = u64::from(stale) + own(newer, count);
        let after = read(&mut self.newer, new, count).await?;
        count.balance(accepted, before, after);
        Ok(())
    }

    /// The older holder's write is sent, and waits for a lock that somebody has, where the store
    /// has locks. Then the newer one takes its turn.
    async fn on_the_wire(&mut self, number: u64, count: &mut Count) -> Result<(), Error> {
        let (t, u) = (self.next(), self.next());
        let (old, new) = (holder(&self.resource, t), holder(&self.resource, u));
        own(seal(&mut self.older, old, count).await?, count);
        let before = read(&mut self.older, old, count).await?;
        let wholly = !number.is_multiple_of(2);
        let held = self.third.hold(old, before, wholly).await?;
        let mut newer_count = Count::default();
        let (stale, newer) = {
            let numbers = (self.older.number(), self.newer.number());
            let mut stale = pin!(write(&mut self.older, old, before + 1, count));
            let mut newer = pin!(turn(&mut self.newer, new, Order::SealFirst, &mut newer_count));
            if held {
                let first = until_it_waits(stale.as_mut(), &mut self.watcher, numbers.0).await?;
                let second = until_it_waits(newer.as_mut(), &mut self.watcher, numbers.1).await?;
                self.third.abandon().await?;
                settle(first, stale, second, newer).await?
            } else {
                let (stale, newer) = futures_util::future::join(stale, newer).await;
                (stale?, newer?)
            }
        };
        *count += newer_count;
        let accepted = u64::from(stale) + own(newer, count);
        let after = read(&mut self.newer, new, count).await?;
        count.balance(accepted, before, after);
        Ok(())
    }

    /// Three holders at once, each with a token of its own.
    async fn updates(&mut self, order: Order, count: &mut Count) -> Result<(), Error> {
        let (t, u, v) = (self.next(), self.next(), self.next());
        let before = read(&mut self.watcher, holder(&self.resource, t), count).await?;
        let (mut counts, resource) = ([(); 3].map(|()| Count::default()), &self.resource);
        let [one, two, three] = &mut counts;
        let (one, two, three) = futures_util::future::join3(
            turn(&mut self.older, holder(resource, t), order, one),
            turn(&mut self.newer, holder(resource, u), order, two),
            turn(&mut self.third, holder(resource, v), order, three),
        )
        .await;
        let accepted = u64::from(one?) + u64::from(two?) + own(three?, count);
        for one in counts {
            *count += one;
        }
        let after = read(&mut self.watcher, holder(&self.resource, v), count).await?;
        count.balance(accepted, before, after);
        Ok(())
    }

    /// Two seals at once, the lower one once more after the higher, and then the lower one's write.
    async fn seals(&mut self, count: &mut Count) -> Result<(), Error> {
        let (t, u) = (self.next(), self.next());
        let (old, new) = (holder(&self.resource, t), holder(&self.resource, u));
        let before = read(&mut self.watcher, old, count).await?;
        let mut older_count = Count::default();
        let (_, newer) = futures_util::future::join(
            seal(&mut self.older, old, &mut older_count),
            seal(&mut self.newer, new, count),
        )
        .await;
        *count += older_count;
        own(newer?, count);
        // It may be refused or do nothing: what counts is that the token does not sink.
        seal(&mut self.older, old, count).await?;
        let stale = write(&mut self.older, old, before + 1, count).await?;
        let seen = read(&mut self.newer, new, count).await?;
        let accepted = own(write(&mut self.newer, new, seen + 1, count).await?, count);
        let after = read(&mut self.watcher, new, count).await?;
        count.balance(accepted, seen, after);
        count.through = u64::from(stale).max(count.through);
        Ok(())
    }

    /// The holder writes three times.
    async fn equal(&mut self, count: &mut Count) -> Result<(), Error> {
        let token = self.next();
        let new = holder(&self.resource, token);
        own(seal(&mut self.newer, new, count).await?, count);
        let before = read(&mut self.newer, new, count).await?;
        let mut accepted = 0;
        for _ in 0..3 {
            let seen = read(&mut self.newer, new, count).await?;
            accepted += own(write(&mut self.newer, new, seen + 1, count).await?, count);
        }
        let after = read(&mut self.newer, new, count).await?;
        count.balance(accepted, before, after);
        Ok(())
    }

    /// Three writes with one token at once, where each token passes once.
    async fn once(&mut self, count: &mut Count) -> Result<(), Error> {
        let token = self.next();
        let new = holder(&self.resource, token);
        own(seal(&mut self.newer, new, count).await?, count);
        let before = read(&mut self.newer, new, count).await?;
        let mut counts = [(); 3].map(|()| Count::default());
        let [one, two, three] = &mut counts;
        let (one, two, three) = futures_util::future::join3(
            write(&mut self.older, new, before + 1, one),
            write(&mut self.newer, new, before + 1, two),
            write(&mut self.third, new, before + 1, three),
        )
        .await;
        let accepted = u64::from(one?) + u64::from(two?) + u64::from(three?);
        for one in counts {
            *count += one;
        }
        count.through += accepted.saturating_sub(1);
        own(accepted > 0, count);
        Ok(())
    }
}

pub(super) fn holder(resource: &str, token: u64) -> Holder<'_> {
    Holder { resource, token }
}

/// For a step of the holder itself: refusing it is a fault. How many writes were accepted.
pub(super) fn own(accepted: bool, count: &mut Count) -> u64 {
    count.denied += u64::from(!accepted);
    u64::from(accepted)
}

/// Takes a write as far as step `until`. Where it goes on; nothing if it ended before.
async fn begin(
    session: &mut impl Session,
    holder: Holder<'_>,
    value: i64,
    until: usize,
    count: &mut Count,
) -> Result<Option<usize>, Error> {
    for number in 0..until.min(session.steps()) {
        match session.step(number, holder, value).await? {
            Answer::Done(()) => {}
            Answer::Refused(_) => {
                session.abandon().await?;
                count.writes(false);
                own(false, count);
                return Ok(None);
            }
            Answer::Again => {
                session.abandon().await?;
                count.retries += 1;
                return Ok(Some(0));
            }
        }
    }
    Ok(Some(until))
}

/// Drives `doing` until it is done, or its session waits for a lock. Its result if it is done.
async fn until_it_waits<F: Future>(
    mut doing: Pin<&mut F>,
    watcher: &mut impl Session,
    number: Option<i32>,
) -> Result<Option<F::Output>, Error> {
    let Some(number) = number else { return Ok(Some(doing.await)) };
    loop {
        tokio::select! {
            biased;
            done = doing.as_mut() => return Ok(Some(done)),
            waits = watcher.waits(number) => if waits? { return Ok(None) },
        }
        tokio::select! {
            biased;
            done = doing.as_mut() => return Ok(Some(done)),
            () = tokio::time::sleep(ASK_EVERY) => {}
        }
    }
}

/// The results of both, each of which may be there already.
async fn settle<A, B>(
    first: Option<Result<bool, Error>>,
    stale: Pin<&mut A>,
    second: Option<Result<bool, Error>>,
    newer: Pin<&mut B>,
) -> Result<(bool, bool), Error>
where
    A: Future<Output = Result<bool, Error>>,
    B: Future<Output = Result<bool, Error>>,
{
    let stale = async {
        match first {
            Some(done) => done,
            None => stale.await,
        }
    };
    let newer = async {
        match second {
            Some(done) => done,
            None => newer.await,
        }
    };
    let (stale, newer) = futures_util::future::join(stale, newer).await;
    Ok((stale?, newer?))
}
