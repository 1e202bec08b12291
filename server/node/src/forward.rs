//! Requests that only the leader can answer, on their way from the node that they reached.
//!
//! What is carried is the request as its client sent it, with what the node that it reached found
//! out: who asks, and how long ago it came. One hop only: a node that is asked and does not lead
//! answers that nobody does.

use crate::answer::Failure;
use crate::node::Node;
use crate::runtime;
use crate::types::Member;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use openraft::async_runtime::WatchReceiver as _;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A leader that was lost on the way is asked again after this: it may have been silent for a moment
/// only, or have come back.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// A request as it is passed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forwarded {
    /// `GET`, `POST` …
    pub method: String,
    /// Path and query, as the client wrote them.
    pub target: String,
    /// The headers that matter to whoever answers.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The whole body.
    pub body: Bytes,
    /// Who asks, as far as the node that it reached found out.
    pub principal: String,
    /// What that principal may do, as one word.
    pub role: String,
    /// Where the client is.
    pub source: Option<SocketAddr>,
    /// How long ago it reached the first node. Whoever answers counts validity from that receipt,
    /// not from its own.
    pub elapsed: Duration,
    /// How long its client is still prepared to wait.
    pub remaining: Option<Duration>,
}

/// The answer to it, as its client gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForwardedAnswer {
    /// The status of HTTP.
    pub status: u16,
    /// Headers that go with it.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The whole body.
    pub body: Bytes,
}

/// Set once the node serves clients.
pub(crate) type Answers = Arc<OnceLock<Arc<dyn AnswerForwarded>>>;

/// Whoever answers what other nodes pass on. Dropping the future means that the client is gone.
pub trait AnswerForwarded: Send + Sync {
    /// Answers one request.
    fn answer(&self, request: Forwarded) -> BoxFuture<'static, ForwardedAnswer>;

    /// The answer to a request that is not answered, for this reason.
    fn failed(&self, failure: Failure) -> ForwardedAnswer;
}

impl Node {
    /// Whether this node leads, as far as it knows.
    #[must_use]
    pub fn is_leading(&self) -> bool {
        self.check_leading().is_ok()
    }

    /// Passes a request on to the leader and waits for its answer. Dropping the future tells the
    /// leader that the client is gone.
    ///
    /// # Errors
    /// [`Failure::NoLeader`] if nothing was sent; [`Failure::OutcomeUnknown`] if it was and no
    /// answer came.
    pub async fn forward(&self, request: Forwarded) -> Result<ForwardedAnswer, Failure> {
        let (leader, member) = self.leader_elsewhere().ok_or(Failure::NoLeader)?;
        self.inner.forwarder.forward(leader, &member, request).await
    }

    /// Waits until what `before` was asked in vain may be asked again: another node leads, or this
    /// one does and can answer, or after a moment it is `before` that leads, still or again. Says
    /// whether that came about in time.
    pub async fn led_again(&self, before: u64, within: Duration) -> bool {
        let mut metrics = self.inner.raft.server_metrics();
        let mut leading = self.inner.leading.clone();
        let again = async {
            let before_counts_at = runtime::now() + ASK_AGAIN;
            loop {
                let counts = runtime::now() >= before_counts_at;
                let other =
                    |leader: &u64| *leader != self.inner.id && (counts || *leader != before);
                if self.is_leading() || self.leader().as_ref().is_some_and(other) {
                    return true;
                }
                let goes_on = tokio::select! {
                    changed = metrics.changed() => changed.is_ok(),
                    changed = leading.changed() => changed.is_ok(),
                    () = runtime::sleep(ASK_AGAIN) => true,
                };
                if !goes_on {
                    return false;
                }
            }
        };
        runtime::timeout_at(runtime::now() + within, again).await.unwrap_or(false)
    }

    /// Who answers what other nodes pass on to this one. The first call counts.
    pub fn answer_forwarded_with(&self, answers: Arc<dyn AnswerForwarded>) {
        let _ = self.inner.answers.set(answers);
    }

    /// The leader, if it is known and another node.
    pub(crate) fn leader_elsewhere(&self) -> Option<(u64, Member)> {
        let leader = self.leader().filter(|leader| *leader != self.inner.id)?;
        let metrics = self.inner.raft.server_metrics();
        let member = metrics.borrow_watched().membership_config.get_node(&leader).cloned();
        member.map(|member| (leader, member))
    }
}
