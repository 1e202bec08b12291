//! Which commands the log may hold while members run different releases.
//!
//! Every command has a version ([`Command::version`]), and every node knows commands up to one. The
//! *level* is part of the replicated state: the log holds no command above it. The leader raises it
//! once all members, learners among them, have answered in one round that they know more. A member
//! that does not answer may come back as the older release that it was, so it holds the level.
//!
//! A level never falls, as the log keeps what it was raised for. So a node that knows less than the
//! level cannot be part of the cluster. It finds out in one of four places, changes nothing, and
//! stops: when it opens its files (`open`), when it and a peer tell each other who they are
//! (`peers::identity`, `peers::line`), and when an entry or a snapshot comes (`codec::peer`).
//!
//! The entry that raises the level is of the version that it raises to, so an older node refuses
//! that one already. A member that is added while it is on its way is not in the round; if it is
//! older, it stops like any other.
//!
//! Source: etcd's cluster version, Kafka's metadata.version.

use crate::answer::Failure;
use crate::batcher::Batcher;
use crate::hub::cell::ReplyTo;
use crate::node::Node;
use crate::peers::{Identity, Line};
use crate::propose::Class;
use crate::runtime;
use crate::state::Shared;
use crate::types::{CommittedLeader, Member, StoredMembership};
use futures_util::future::join_all;
use leasehold_core::Command;
use openraft::async_runtime::WatchReceiver as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};

/// How often the members are asked while the leader knows more than the level.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// How long a member has for its answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// A node that is too old for its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the log of this cluster may hold commands of version {needs}, and this binary knows them up \
     to version {knows}: start a newer release on this node. Its data is as it was"
)]
pub struct Outdated {
    /// The version that the cluster may use.
    pub needs: u16,
    /// The highest one that this binary knows.
    pub knows: u16,
}

impl Node {
    /// Returns when this node is found to be too old for its cluster. It must stop, and starts
    /// again with a newer release.
    pub async fn outdated(&self) -> Outdated {
        let mut outdated = self.inner.identity.outdated();
        let found = outdated.wait_for(Option::is_some).await.ok().and_then(|found| *found);
        match found {
            Some(found) => found,
            None => std::future::pending().await,
        }
    }

    /// Proposes a command of a version, on the way that every command goes; it changes nothing
    /// once that version is in force. For tests of upgrades, which have no other command of a
    /// version that no release has.
    ///
    /// # Errors
    /// [`Failure::AboveLevel`] where the version is not in force.
    #[doc(hidden)]
    pub async fn propose_version(&self, version: u16) -> Result<(), Failure> {
        self.check_open()?;
        let command = Command::RaiseLevel { to: version };
        self.ask(Class::Background, command, None).await.map(drop)
    }
}

/// What a leader needs to raise the level.
pub(crate) struct Raising {
    pub(crate) raft: crate::Raft,
    pub(crate) shared: Arc<Shared>,
    pub(crate) batcher: Arc<Batcher>,
    pub(crate) identity: Arc<Identity>,
    pub(crate) leading: watch::Receiver<Option<CommittedLeader>>,
}

/// What one round found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Round {
    /// All members know commands up to this version, which is above the level.
    Raise(u16),
    /// These know no more than the level, or do not answer.
    Held { old: Vec<u64>, silent: Vec<u64> },
}

impl Raising {
    /// Ends when the level is all that this node knows, or somebody else leads.
    pub(crate) async fn run(mut self, leader: CommittedLeader) {
        let mut told = None;
        while *self.leading.borrow() == Some(leader) && self.level() < self.identity.knows() {
            match self.round().await {
                Some(Round::Raise(to)) => self.raise(to).await,
                held => {
                    if held != told {
                        tell(held.as_ref(), self.level());
                    }
                    told = held;
                }
            }
            let _ = runtime::timeout_at(runtime::now() + ASK_AGAIN, self.leading.changed()).await;
        }
    }

    fn level(&self) -> u16 {
        self.shared.table.read().level()
    }

    fn members(&self) -> Arc<StoredMembership> {
        self.raft.server_metrics().borrow_watched().membership_config.clone()
    }

    /// Asks all members. Nothing, if they are others than when it began.
    pub(crate) async fn round(&self) -> Option<Round> {
        let members = self.members();
        let nodes: Vec<_> = members.membership().nodes().collect();
        let asked = join_all(nodes.iter().map(|(id, member)| self.ask(**id, member))).await;
        let answers = nodes.iter().map(|(id, _)| **id).zip(asked);
        (self.members() == members).then(|| judge(answers, self.level()))
    }

    async fn ask(&self, id: u64, member: &Member) -> Option<u16> {
        if member.incarnation == self.identity.member().incarnation {
            return Some(self.identity.knows());
        }
        let mut line = Line::new(self.identity.clone(), id, member);
        let answer = runtime::timeout_at(runtime::now() + ANSWER_WITHIN, line.greet()).await;
        answer.and_then(Result::ok).map(|(about, _)| about.commands)
    }

    async fn raise(&self, to: u16) {
        let (reply, answer) = oneshot::channel();
        if self.batcher.push_raise(to, ReplyTo::Once(reply)).is_err() {
            return;
        }
        self.batcher.kick();
        let _ = answer.await;
        if self.level() == to {
            tracing::info!(level = to, "all members know commands of this version: it is in force");
        }
    }
}

fn judge(answers: impl Iterator<Item = (u64, Option<u16>)>, level: u16) -> Round {
    let (mut old, mut silent, mut lowest) = (Vec::new(), Vec::new(), u16::MAX);
    for (id, knows) in answers {
        match knows {
            None => silent.push(id),
            Some(knows) if knows <= level => old.push(id),
            Some(knows) => lowest = lowest.min(knows),
        }
    }
    match old.is_empty() && silent.is_empty() {
        true => Round::Raise(lowest),
        false => Round::Held { old, silent },
    }
}

fn tell(held: Option<&Round>, level: u16) {
    if let Some(Round::Held { old, silent }) = held {
        tracing::info!(
            level,
            to_upgrade = ?old,
            not_answering = ?silent,
            "commands of a newer version wait for these members"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_is_what_the_oldest_member_knows_and_a_silent_one_holds_it() {
        let judge = |answers: &[(u64, Option<u16>)]| judge(answers.iter().copied(), 2);
        assert_eq!(judge(&[(1, Some(5)), (2, Some(3)), (3, Some(4))]), Round::Raise(3));
        let held = |old: &[u64], silent: &[u64]| Round::Held {
            old: old.to_vec(),
            silent: silent.to_vec(),
        };
        assert_eq!(judge(&[(1, Some(5)), (2, Some(2)), (3, Some(1))]), held(&[2, 3], &[]));
        assert_eq!(judge(&[(1, Some(5)), (2, None), (3, Some(5))]), held(&[], &[2]));
        assert_eq!(judge(&[(1, Some(3))]), Round::Raise(3));
    }
}
