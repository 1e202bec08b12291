//! Rounds: work that is done once for everybody who asked before it began, and for nobody who came
//! after. However many ask meanwhile, nobody waits for more than two.

use crate::answer::Failure;
use crate::runtime;
use std::future::Future;
use tokio::sync::{mpsc, oneshot};

/// Requests that may wait for a round.
const WAITING_MAX: usize = 65_536;

/// Work whose answer is the same for all who asked before it began.
pub(crate) trait Round<Q>: Send + 'static {
    type Answer: Clone + Send + 'static;

    /// Does it; `newest` is the question of who came last.
    fn make(&mut self, newest: Q) -> impl Future<Output = Self::Answer> + Send;
}

type Asked<Q, A> = (Q, oneshot::Sender<A>);

/// The way to the task that makes the rounds.
#[derive(Debug, Clone)]
pub(crate) struct Rounds<Q, A> {
    asks: mpsc::Sender<Asked<Q, A>>,
}

impl<Q: Send + 'static, A: Clone + Send + 'static> Rounds<Q, A> {
    /// Starts the task; it ends with the last of these.
    pub(crate) fn start(round: impl Round<Q, Answer = A>) -> Self {
        let (asks, waiting) = mpsc::channel(WAITING_MAX);
        runtime::spawn(make(round, waiting));
        Self { asks }
    }

    /// The answer of a round that began after this call.
    pub(crate) async fn ask(&self, question: Q) -> Result<A, Failure> {
        let (ask, answer) = oneshot::channel();
        self.asks.try_send((question, ask)).map_err(|_| Failure::Overloaded)?;
        answer.await.map_err(|_| Failure::ShuttingDown)
    }
}

async fn make<Q, A: Clone>(
    mut round: impl Round<Q, Answer = A>,
    mut waiting: mpsc::Receiver<Asked<Q, A>>,
) {
    while let Some((mut newest, first)) = waiting.recv().await {
        let mut served = vec![first];
        while let Ok((question, next)) = waiting.try_recv() {
            newest = question;
            served.push(next);
        }
        let answer = round.make(newest).await;
        for ask in served {
            let _ = ask.send(answer.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each round takes until it is let go, and answers what it was asked.
    struct Held {
        begun: mpsc::UnboundedSender<oneshot::Sender<()>>,
    }

    impl Round<u64> for Held {
        type Answer = u64;

        async fn make(&mut self, newest: u64) -> u64 {
            let (go_on, held) = oneshot::channel();
            self.begun.send(go_on).expect("the test looks");
            held.await.expect("the test lets it go");
            newest
        }
    }

    #[tokio::test]
    async fn all_who_came_during_a_round_are_served_by_the_next_one() {
        let (begun, mut rounds_begun) = mpsc::unbounded_channel();
        let rounds = Rounds::start(Held { begun });
        let ask = |question| {
            let rounds = rounds.clone();
            tokio::spawn(async move { rounds.ask(question).await })
        };
        let first = ask(0);
        let held = rounds_begun.recv().await.expect("a round begins");
        let later: Vec<_> = (1..=12).map(ask).collect();
        while rounds.asks.capacity() > WAITING_MAX - 12 {
            tokio::task::yield_now().await;
        }
        held.send(()).expect("it is held");
        assert!(matches!(first.await, Ok(Ok(0))));
        rounds_begun.recv().await.expect("another begins").send(()).expect("it is held");
        for asked in later {
            assert!(matches!(asked.await, Ok(Ok(12))));
        }
        assert!(rounds_begun.try_recv().is_err(), "one for all of them");
    }
}
