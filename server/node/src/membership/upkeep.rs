//! What changes without an operator: addresses of members that moved, and the own membership.
//!
//! A removed node gets no more entries, often not even the one that removes it. So each node asks
//! the others now and then how they are, and is told with it which members they know: one that was a
//! member, and is missing there by an entry newer than its own, has been removed. One that never was
//! a member waits: whoever took it in was lost before anybody else had agreed.

use super::Members;
use super::moved::moved;
use crate::codec::Report;
use crate::config::Timing;
use crate::node::Node;
use crate::place::Removed;
use crate::reserve::Reserve;
use crate::runtime;
use crate::status::{Answered, RaftState};
use openraft::ChangeMembers;
use openraft::async_runtime::WatchReceiver as _;
use openraft::raft::Precondition;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How often members ask each other how they are.
const ASK_AGAIN: Duration = Duration::from_secs(2);
/// The same while the disk of a voter may soon be full: who leads has to know before it grants more.
const ASK_SOON: Duration = Duration::from_millis(200);
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
    /// A leader has been heard that does not know this node.
    is_stranger: bool,
    /// Voters whose disk is short, and those where it may soon be, as they said last: one that does
    /// not answer has no more space for that.
    short: BTreeSet<u64>,
    near: BTreeSet<u64>,
    /// Those whose timing is another, as was said already.
    other_timing: BTreeMap<u64, Timing>,
}

impl Upkeep {
    pub(crate) fn new(node: Node) -> Self {
        Self {
            node,
            was_member: false,
            asked: Vec::new(),
            is_stranger: false,
            short: BTreeSet::new(),
            near: BTreeSet::new(),
            other_timing: BTreeMap::new(),
        }
    }

    /// Runs until the node stops.
    pub(crate) async fn run(mut self) {
        let mut raft = self.node.inner.raft.server_metrics();
        let mut ask_at = runtime::now();
        while !self.node.inner.hub.is_stopped() {
            self.look();
            if runtime::now() >= ask_at {
                ask_at = runtime::now() + self.ask().await;
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
        // Whether or not somebody probes.
        self.node.note_leader();
        let is_member = self.node.note_membership();
        // A leader that is removed first sees to it that another one is there.
        if self.was_member && !is_member && !inner.raft.is_leader() {
            self.removed(None);
        }
        self.was_member |= is_member;
    }

    /// What the others say, and after how long they are to be asked again.
    async fn ask(&mut self) -> Duration {
        let round = self.node.inner.survey.round().await;
        let own = self.node.own();
        for (id, answered) in round.iter() {
            if let Ok((report, _)) = &answered.told {
                if own.is_removed_by(report) {
                    self.removed(Some(*id));
                }
                self.compare_timing(*id, report);
            }
        }
        let again = self.compare_space(&round);
        self.tell_stranger(&round);
        self.count(&round);
        if self.node.is_leading() {
            self.update_addresses().await;
        }
        again
    }

    /// A write that a quorum has no space for stops those who take it for good.
    fn compare_space(&mut self, round: &BTreeMap<u64, Answered>) -> Duration {
        let voters: BTreeMap<u64, &Answered> =
            round.iter().filter(|(_, one)| one.voter).map(|(id, one)| (*id, one)).collect();
        for known in [&mut self.short, &mut self.near] {
            known.retain(|id| voters.contains_key(id));
        }
        let mut with_space = 0;
        for (id, one) in &voters {
            let Ok((report, _)) = &one.told else { continue };
            let status = &report.status;
            note(&mut self.short, *id, status.storage_full);
            note(
                &mut self.near,
                *id,
                Reserve::is_near(status.disk_free_bytes, status.reserve_bytes),
            );
            with_space += usize::from(!status.storage_full);
        }
        let inner = &self.node.inner;
        let is_voter = inner.raft.voter_ids().any(|id| id == inner.id);
        let is_short = inner.reserve.is_needed();
        with_space += usize::from(is_voter && !is_short);
        let short = self.short.len() + usize::from(is_voter && is_short);
        inner.reserve.compare(with_space, short, inner.raft.voter_ids().count());
        if self.near.is_empty() { ASK_AGAIN } else { ASK_SOON }
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

    /// Says it once when whoever leads does not know this node.
    fn tell_stranger(&mut self, round: &BTreeMap<u64, Answered>) {
        let to = self.node.stranger_to(round);
        if let Some(id) = to.filter(|_| !self.is_stranger) {
            tracing::warn!("waiting for {}", stranger(id));
        }
        self.is_stranger = to.is_some();
    }

    /// Elections go wrong where one node is patient for less long than another is silent.
    fn compare_timing(&mut self, id: u64, report: &Report) {
        let own = self.node.inner.timing;
        let Some(theirs) = report.status.timing.filter(|theirs| *theirs != own) else {
            self.other_timing.remove(&id);
            return;
        };
        if self.other_timing.insert(id, theirs) != Some(theirs) {
            tracing::warn!(
                node = id,
                ?theirs,
                ?own,
                "another raft_profile: it has to be the same on each node of a cluster"
            );
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
        let mut told = self.node.inner.identity.told();
        told.insert(self.node.inner.id, self.node.inner.identity.member());
        let moved = moved(&base.nodes, told);
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
}

fn note(set: &mut BTreeSet<u64>, id: u64, holds: bool) {
    if holds {
        set.insert(id);
    } else {
        set.remove(&id);
    }
}

impl Node {
    /// Whether this node is a member by what is committed. If it is, that is kept for good.
    pub(crate) fn note_membership(&self) -> bool {
        let life = self.inner.identity.member().incarnation;
        let is_member = Members::of(&self.inner.shared.membership()).has(self.inner.id, life);
        if is_member {
            self.inner.identity.note_membership();
        }
        is_member
    }

    pub(super) fn own(&self) -> Own {
        let server = self.inner.raft.server_metrics().borrow_watched().clone();
        Own {
            id: self.inner.id,
            life: self.inner.identity.member().incarnation,
            was_member: self.inner.identity.was_member(),
            term: server.vote.leader_id.term,
            known: Members::of(&server.membership_config),
        }
    }

    /// The leader in whose eyes this node is no member, if it never was one.
    pub(crate) fn stranger_to(&self, round: &BTreeMap<u64, Answered>) -> Option<u64> {
        let own = self.own();
        let told = round.iter().filter_map(|(id, one)| Some((id, &one.told.as_ref().ok()?.0)));
        let mut leaders = told.filter(|(_, report)| own.is_stranger_to(report));
        leaders.next().map(|(id, _)| *id)
    }
}

/// What such a node waits for.
pub(crate) fn stranger(leader: u64) -> String {
    format!(
        "its cluster: node {leader}, which leads, does not count it among the members. If it was \
         being added, that was never decided: empty its data directory and add it again"
    )
}

/// What a node knows of its own membership.
pub(super) struct Own {
    id: u64,
    life: u128,
    /// It has seen itself among the members, by an entry that was committed.
    was_member: bool,
    /// The newest one that it knows.
    term: u64,
    /// The newest members in its log.
    known: Members,
}

impl Own {
    /// Whether a member knows for certain that this node is none any more.
    ///
    /// A node that is behind may not find itself in its log, and neither may those that follow;
    /// whoever leads in its term or a later one does. Otherwise only an entry counts that is newer
    /// than one with this node in it. What is not committed is no entry to go by: the one that
    /// added this node may have been lost with its leader.
    pub(super) fn is_removed_by(&self, report: &Report) -> bool {
        let newer = self.known.has(self.id, self.life) && report.members.at > self.known.at;
        self.was_member && self.is_missing_in(report) && (newer || self.is_led_by(report))
    }

    /// Whether a leader does not know this node, which never was a member as far as it knows.
    fn is_stranger_to(&self, report: &Report) -> bool {
        !self.was_member && self.is_missing_in(report) && self.is_led_by(report)
    }

    fn is_missing_in(&self, report: &Report) -> bool {
        report.members.at.is_some() && !report.members.has(self.id, self.life)
    }

    fn is_led_by(&self, report: &Report) -> bool {
        report.status.state == RaftState::Leader && report.status.term >= self.term
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
        Own { id: 4, life: LIFE, was_member: true, term: 9, known }
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
    fn a_member_that_is_behind_believes_no_follower_and_no_leader_of_the_past() {
        let own = own(members(1, &[1, 2, 3]));
        let without = || members(10, &[1, 2, 3]);
        assert!(!own.is_removed_by(&report(RaftState::Follower, 9, without())));
        assert!(!own.is_removed_by(&report(RaftState::Leader, 8, without())));
        assert!(own.is_removed_by(&report(RaftState::Leader, 9, without())));
    }

    #[test]
    fn a_node_whose_adding_was_never_decided_is_a_stranger_and_was_not_removed() {
        let added = Own { was_member: false, ..own(members(20, &[1, 2, 3, 4])) };
        let waits = Own { was_member: false, ..own(members(1, &[1, 2, 3])) };
        for never in [added, waits] {
            let leads = report(RaftState::Leader, 10, members(30, &[1, 2, 3]));
            assert!(never.is_stranger_to(&leads) && !never.is_removed_by(&leads));
            let follows = report(RaftState::Follower, 10, members(30, &[1, 2, 3]));
            assert!(!never.is_stranger_to(&follows) && !never.is_removed_by(&follows));
            let knows = report(RaftState::Leader, 10, members(30, &[1, 2, 3, 4]));
            assert!(!never.is_stranger_to(&knows));
        }
    }

    #[test]
    fn another_life_of_the_node_is_not_the_node() {
        let mut replaced = members(30, &[1, 2, 3, 4]);
        replaced.lives.insert(4, LIFE + 1);
        let own = own(members(20, &[1, 2, 3, 4]));
        assert!(own.is_removed_by(&report(RaftState::Follower, 9, replaced)));
    }
}
