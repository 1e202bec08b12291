//! Why somebody waits for a resource, or would.

use crate::answer::{AtRevision, Call, Failure, Holder, WaiterStatus};
use crate::node::Node;
use crate::read::waiter;
use leasehold_core::ResourceName;
use leasehold_core::standing::{Standing, Whom};

/// Where somebody stands with a resource, with what only the leader's clock knows.
#[derive(Debug, Clone)]
pub struct WhyStatus {
    /// The resource.
    pub resource: ResourceName,
    /// Who was asked about.
    pub whom: Whom,
    /// Where it stands.
    pub standing: Standing,
    /// Its place in line.
    pub waiter: Option<WaiterStatus>,
    /// Those before it that the standing names.
    pub ahead: Vec<WaiterStatus>,
    /// The holders that the standing names.
    pub holders: Vec<Holder>,
}

impl Node {
    /// Where somebody stands with a resource, and what is in its way.
    ///
    /// # Errors
    /// [`Failure::NoLeader`] if the answer could not be confirmed.
    pub async fn why(
        &self,
        _call: Call,
        resource: ResourceName,
        whom: Whom,
    ) -> Result<AtRevision<WhyStatus>, Failure> {
        self.fresh(false).await?;
        let table = self.inner.shared.table.read();
        let standing = table.standing(&resource, &whom);
        let revision = table.revision();
        drop(table);
        let now_ms = self.wall_clock_ms();
        let place = standing.ahead_total + 1;
        let ahead = standing.ahead.iter().enumerate();
        let value = WhyStatus {
            waiter: standing.ticket.as_ref().map(|ticket| waiter(place, ticket, now_ms)),
            ahead: ahead.map(|(at, ticket)| waiter(at + 1, ticket, now_ms)).collect(),
            holders: standing.holders.iter().map(|grant| self.holder(grant)).collect(),
            resource,
            whom,
            standing,
        };
        Ok(AtRevision { value, revision })
    }
}
