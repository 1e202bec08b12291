//! A node becomes a learner: it gets the log, and has no vote.

use super::{MEMBERS_MAX, MembershipError};
use crate::answer::Call;
use crate::codec::{About, Standing, Unwelcome};
use crate::node::Node;
use crate::peers::{Line, LineError, member_of};
use crate::runtime;
use leasehold_core::command::{Action, ClusterChange, Stage};
use std::time::Duration;

/// A node that is to be added has so long to say who it is.
const MET_WITHIN: Duration = Duration::from_secs(3);

/// Deeds of operators that are read at once.
const AUDIT_PAGE: usize = 1_000;

impl Node {
    /// Makes the node at `peer_addr` a learner. It has to be there, empty, and of that id; one
    /// that is a learner or voter already stays what it is.
    ///
    /// # Errors
    /// [`MembershipError`] says what stands in the way. Nothing has changed then, save with
    /// [`MembershipError::OutcomeUnknown`].
    pub async fn add_learner(&self, id: u64, peer_addr: &str) -> Result<(), MembershipError> {
        let (node, address) = (self.clone(), peer_addr.to_owned());
        let adding = async move { node.add(id, address).await };
        self.change(format!("adding node {id}"), adding).await
    }

    async fn add(self, id: u64, address: String) -> Result<(), MembershipError> {
        let base = self.base()?;
        let (about, standing) = self.met(id, &address).await?;
        if let Some(known) = base.nodes.get(&id) {
            let same = known.incarnation == about.incarnation;
            let address = known.peer.clone();
            return if same { Ok(()) } else { Err(MembershipError::IdTaken { id, address }) };
        }
        if self.was_removed(id).await? {
            return Err(MembershipError::IdRetired { id });
        }
        if !standing.empty {
            return Err(MembershipError::NotEmpty { address, id });
        }
        if about.peer != address {
            self.check_advertised(id, &about).await?;
        }
        let taken = |at: &str| base.nodes.iter().find(|(_, member)| member.peer == at);
        if let Some((by, member)) = taken(&about.peer) {
            let (address, by) = (member.peer.clone(), *by);
            return Err(MembershipError::AddressTaken { address, by });
        }
        if base.nodes.len() >= MEMBERS_MAX {
            return Err(MembershipError::TooMany { max: MEMBERS_MAX });
        }
        let mut nodes = base.nodes.clone();
        nodes.insert(id, member_of(&about));
        self.replace(&base, base.voters.clone(), nodes).await
    }

    /// Whether the record of what operators did has a removal of that id, for as far as it goes
    /// back. One that was refused is none.
    async fn was_removed(&self, id: u64) -> Result<bool, MembershipError> {
        let (mut before, mut refused) = (None, 0);
        loop {
            let page = self.audit(Call::now(), before, AUDIT_PAGE).await;
            let page = page.map_err(|_| MembershipError::NotLeading { leader: self.leader() })?;
            for deed in &page.value.items {
                match deed.record.order.action {
                    Action::ChangeCluster { change: ClusterChange::Remove { node }, stage }
                        if node == id =>
                    {
                        match stage {
                            Stage::Refused => refused += 1,
                            Stage::Begun if refused > 0 => refused -= 1,
                            Stage::Begun => return Ok(true),
                        }
                    }
                    _ => {}
                }
            }
            before = match (page.value.next, page.value.items.last()) {
                (Some(_), Some(last)) => Some(last.revision),
                _ => return Ok(false),
            };
        }
    }

    async fn met(&self, id: u64, address: &str) -> Result<(About, Standing), MembershipError> {
        let us = self.inner.identity.clone();
        let mut line = Line::unmet(us, id, address.to_owned());
        let met = runtime::timeout_at(runtime::now() + MET_WITHIN, line.greet()).await;
        let silent = || LineError::Silent { address: address.to_owned(), within: MET_WITHIN };
        met.unwrap_or_else(|| Err(silent())).map_err(|cause| not_met(id, address, &cause))
    }

    /// Where it says that peers reach it, the same node has to answer.
    async fn check_advertised(&self, id: u64, about: &About) -> Result<(), MembershipError> {
        let advertises = |cause: String| {
            let advertised = about.peer.clone();
            MembershipError::Advertises { id, advertised, cause }
        };
        match self.met(id, &about.peer).await {
            Ok((other, _)) if other.incarnation == about.incarnation => Ok(()),
            Ok(_) => Err(advertises("another node does".to_owned())),
            Err(cause) => Err(advertises(cause.to_string())),
        }
    }
}

fn not_met(id: u64, address: &str, cause: &LineError) -> MembershipError {
    let address = address.to_owned();
    match cause {
        LineError::Unwelcome { why: Unwelcome::OtherNode(found), .. } => {
            MembershipError::OtherNode { address, id, found: *found }
        }
        LineError::Unwelcome { why: Unwelcome::OtherCluster, .. } => {
            MembershipError::NotEmpty { address, id }
        }
        LineError::Unwelcome { why, .. } => {
            MembershipError::Unwelcome { address, id, cause: why.to_string() }
        }
        cause => MembershipError::Unreachable { address, cause: cause.with_causes() },
    }
}
