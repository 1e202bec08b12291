//! What changes without an operator: addresses of members that moved, and the own membership.
//!
//! A removed node gets no more entries, often not even the one that removes it. So each node asks
//! the others now and then how they are, and is told with it which members they know: one that is
//! missing there, by an entry newer than its own, has been removed.

use super::Members;
use crate::codec::Report;
use crate::node::Node;
use crate::place::Removed;
use crate::runtime;
use crate::status::{Answered, RaftState};
use crate::types::Member;
use openraft::ChangeMembers;
use openraft::async_runtime::WatchReceiver as _;
use openraft::raft::Precondition;
use std::collections::BTreeMap;
use std::time::Duration;

/// How often members ask each other how they are.
const ASK_AGAIN: Duration = Duration::from_secs(2);
/// A change that takes longer is not waited for.
const CHANGED_WITHIN: Duration = Duration::from_secs(5);
/// How often the own state is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// The task, and what it remembers.
pub(crate) struct Upkeep {
    node: Node,
    was_member: bool,
    /// The other members when they were last asked.
    asked: Vec<u64>,
}

impl Upkeep {
    pub(crate) fn new(node: Node) -> Self {
        Self { node, was_member: false, asked: Vec::new() }
    }

    /// Runs until the node stops.
    pub(crate) async fn run(mut self) {
        let mut raft = self.node.inner.raft.server_metrics();
        let mut ask_at = runtime::now();
        while !self.node.inner.hub.is_stopped() {
            self.look();
            if runtime::now() >= ask_at {
                self.ask().await;
                ask_at = runtime::now() + ASK_AGAIN;
            }
            tokio::select! {
                changed = raft.changed() => if changed.is_err() { return },
                () = runtime::sleep(LOOK_AGAIN) => {}
            }
        }
    }

    /// What this node's own log says.
    fn look(&mut self) {
        let inner = &self.node.inner;
        let server = inner.raft.server_metrics().borrow_watched().clone();
        let voters = server.membership_config.voter_ids().count();
        let members = server.membership_config.nodes().count();
        inner.metrics.members(voters, members - voters, server.state.into());
        let ours = inner.identity.member().incarnation;
        let is_member = Members::of(&inner.shared.membership()).has(inner.id, ours);
        // A leader that is removed first sees to it that another one is there.
        if self.was_member && !is_member && !inner.raft.is_leader() {
            self.removed(None);
        }
        self.was_member |= is_member;
    }

    /// What the others say.
    async fn ask(&mut self) {
        let round = self.node.inner.survey.round().await;
        let own = self.own();
        for (id, answered) in round.iter() {
            if let Ok((report, _)) = &answered.told
                && own.is_removed_by(report)
            {
                self.removed(Some(*id));
            }
        }
        self.count(&round);
        if self.node.is_leading() {
            self.update_addresses().await;
        }
    }

    fn count(&mut self, round: &BTreeMap<u64, Answered>) {
        let metrics = &self.node.inner.metrics;
        let answers: Vec<(u64, bool)> =
            round.iter().map(|(id, answered)| (*id, answered.told.is_ok())).collect();
        metrics.answered(&answers);
        let gone = self.asked.iter().filter(|id| !round.contains_key(id));
        gone.for_each(|id| metrics.forget_member(*id));
        self.asked = round.keys().copied().collect();
    }

    fn own(&self) -> Own {
        let inner = &self.node.inner;
        let server = inner.raft.server_metrics().borrow_watched().clone();
        Own {
            id: inner.id,
            life: inner.identity.member().incarnation,
            term: server.vote.leader_id.term,
            known: Members::of(&server.membership_config),
        }
    }

    fn removed(&self, by: Option<u64>) {
        let removed = Removed { id: self.node.inner.id, by };
        if !self.node.inner.place.is_removed() {
            tracing::warn!("{removed}");
        }
        self.node.inner.place.remove(removed);
    }

    /// Enters where members are now, if that is not where they were.
    async fn update_addresses(&self) {
        let Ok(base) = self.node.base() else { return };
        let moved = self.moved(&base.nodes);
        if moved.is_empty() {
            return;
        }
        let what = format!("updating the addresses of {:?}", moved.keys().collect::<Vec<_>>());
        let Ok(_turn) = self.node.inner.changes.begin(what.clone()) else { return };
        let last_membership_log_id = *base.stored.log_id();
        let unchanged = Precondition::LastMembershipLogId { last_membership_log_id };
        let change = ChangeMembers::SetNodes(moved);
        let raft = &self.node.inner.raft;
        let changing = raft.change_membership_if(change, true, [unchanged]);
        match runtime::timeout_at(runtime::now() + CHANGED_WITHIN, changing).await {
            Some(Ok(_)) => tracing::info!(change = what, "members changed"),
            // What is not done by then is seen by the next look at the members.
            Some(Err(cause)) => tracing::debug!(%cause, change = what, "members not changed"),
            None => tracing::debug!(change = what, "members not changed yet"),
        }
    }

    /// Members, this node included, that are elsewhere than `nodes` says.
    fn moved(&self, nodes: &BTreeMap<u64, Member>) -> BTreeMap<u64, Member> {
        let inner = &self.node.inner;
        let mut told = inner.identity.told();
        told.insert(inner.id, inner.identity.member());
        told.retain(|id, now| {
            let taken = nodes.iter().any(|(other, one)| other != id && one.peer == now.peer);
            // Outgoing connections work without a listener, so even a leader may have lost its.
            let unknown = |known: &Member| now.peer.is_empty() && !known.peer.is_empty();
            let is_new = |known: &Member| {
                known.incarnation == now.incarnation && known != now && !unknown(known)
            };
            !taken && nodes.get(id).is_some_and(is_new)
        });
        told
    }
}

/// What a node knows of its own membership.
struct Own {
    id: u64,
    life: u128,
    /// The newest one that it knows.
    term: u64,
    /// The newest members in its log.
    known: Members,
}

impl Own {
    /// Whether a member knows for certain that this node is none any more.
    ///
    /// A node that is just catching up does not find itself in its log yet, and neither may those
    /// that follow; whoever leads in its term or a later one does. Otherwise only an entry counts
    /// that is newer than one with this node in it.
    fn is_removed_by(&self, report: &Report) -> bool {
        let theirs = &report.members;
        if theirs.at.is_none() || theirs.has(self.id, self.life) {
            return false;
        }
        let leads = report.status.state == RaftState::Leader && report.status.term >= self.term;
        leads || (self.known.has(self.id, self.life) && theirs.at > self.known.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::samples;

    const LIFE: u128 = 4 << 100;

    fn members(index: u64, ids: &[u64]) -> Members {
        let lives = ids.iter().map(|id| (*id, u128::from(*id) << 100)).collect();
        Members { at: Some(samples::log_id(9, index)), lives }
    }

    /// Node 4, with these members in its log.
    fn own(known: Members) -> Own {
        Own { id: 4, life: LIFE, term: 9, known }
    }

    fn report(state: RaftState, term: u64, members: Members) -> Report {
        let mut report = samples::report();
        (report.status.state, report.status.term, report.members) = (state, term, members);
        report
    }

    #[test]
    fn a_newer_entry_without_the_node_removes_it_and_an_older_one_does_not() {
        let own = own(members(20, &[1, 2, 3, 4]));
        let follower = |members| report(RaftState::Follower, 9, members);
        assert!(own.is_removed_by(&follower(members(30, &[1, 2, 3]))));
        assert!(!own.is_removed_by(&follower(members(10, &[1, 2, 3]))), "it lags behind");
        assert!(!own.is_removed_by(&follower(members(30, &[1, 2, 4]))));
        assert!(!own.is_removed_by(&follower(Members::default())), "a change is on its way");
    }

    #[test]
    fn a_learner_that_catches_up_believes_no_follower_and_no_leader_of_the_past() {
        let own = own(members(1, &[1, 2, 3]));
        let without = || members(10, &[1, 2, 3]);
        assert!(!own.is_removed_by(&report(RaftState::Follower, 9, without())));
        assert!(!own.is_removed_by(&report(RaftState::Leader, 8, without())));
        assert!(own.is_removed_by(&report(RaftState::Leader, 9, without())));
    }

    #[test]
    fn another_life_of_the_node_is_not_the_node() {
        let mut replaced = members(30, &[1, 2, 3, 4]);
        replaced.lives.insert(4, LIFE + 1);
        let own = own(members(20, &[1, 2, 3, 4]));
        assert!(own.is_removed_by(&report(RaftState::Follower, 9, replaced)));
    }
}
