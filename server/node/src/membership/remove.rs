//! A node stops being a member.

use super::MembershipError;
use crate::node::Node;

impl Node {
    /// Removes a learner or a voter, reachable or not; the leader as well, which then hands over.
    /// The node says so and stops, once it hears of it.
    ///
    /// There is no way to insist where a quorum would be out of reach: the removal could not be
    /// committed, and nothing after it.
    ///
    /// # Errors
    /// [`MembershipError`] says what stands in the way. Nothing has changed then, save with
    /// [`MembershipError::OutcomeUnknown`].
    pub async fn remove(&self, id: u64) -> Result<(), MembershipError> {
        let node = self.clone();
        let removing = async move { node.remove_member(id).await };
        self.change(format!("removing node {id}"), removing).await
    }

    async fn remove_member(self, id: u64) -> Result<(), MembershipError> {
        let base = self.base()?;
        base.member(id)?;
        let mut voters = base.voters.clone();
        if voters.remove(&id) {
            if voters.is_empty() {
                return Err(MembershipError::LastVoter { id });
            }
            self.check_quorum(&voters).await?;
        }
        let mut nodes = base.nodes.clone();
        nodes.remove(&id);
        self.replace(&base, voters, nodes).await
    }
}
