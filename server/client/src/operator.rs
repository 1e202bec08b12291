//! The calls of operators, against what is not their own.
//!
//! None of them is repeated once it may have been done: a repeat would be refused for what the first
//! attempt did or still does, and would stand in the audit a second time. [`Error::OutcomeUnknown`] says so, and a look at the lock, the domain or the cluster says
//! what came of it.

use crate::answer::Answer;
use crate::call::{Call, Repeat};
use crate::client::Client;
use crate::encode::with_query;
use crate::error::Error;
use crate::pages::Pages;
use crate::wire::{
    AddNode, ChangeNode, Cluster, Domain, DomainReset, ForceRelease, ForceReleased,
    LeadershipTransferred, NodeChanged, SetDomain, TransferLeadership,
};
use hyper::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;

impl Client {
    /// Ends a grant against its holder's will, if it still is the one with this token.
    ///
    /// # Errors
    /// [`Error::Ended`] if another grant holds by now, [`Error::Denied`] for whoever may not;
    /// [`Error::OutcomeUnknown`] if the answer was lost.
    pub async fn force_release(
        &self,
        asked: &ForceRelease<'_>,
    ) -> Result<Answer<ForceReleased>, Error> {
        let target = "/v1/lock/force-release".to_owned();
        self.run(Call::new(Method::POST, target, Repeat::IfNothingWasDone).json(asked)?).await
    }

    /// The nodes, and how they are, as the answering one sees them. Needs no leader.
    ///
    /// # Errors
    /// As of any read.
    pub async fn cluster(&self) -> Result<Answer<Cluster<'static>>, Error> {
        self.get("/v1/cluster", &[]).await
    }

    /// Makes the empty node at this address a learner. One that is a member already stays what it
    /// is.
    ///
    /// # Errors
    /// [`Error::Problem`] with `conflict` says what stands in the way, its `reason` in one word.
    pub async fn add_node(&self, asked: &AddNode<'_>) -> Result<Answer<NodeChanged>, Error> {
        self.change_cluster("add", asked).await
    }

    /// A change of members waits for those that do not answer, so no server is left early for
    /// another one, where it would meet itself.
    async fn change_cluster<T: DeserializeOwned>(
        &self,
        what: &str,
        asked: &impl Serialize,
    ) -> Result<Answer<T>, Error> {
        let target = format!("/v1/cluster/{what}");
        self.run(Call::new(Method::POST, target, Repeat::IfNothingWasDone).json(asked)?).await
    }

    /// Gives a learner that has caught up a vote. A voter stays one.
    ///
    /// # Errors
    /// As of [`Client::add_node`]; with the reason `behind` it may be asked for again.
    pub async fn promote_node(&self, asked: &ChangeNode<'_>) -> Result<Answer<NodeChanged>, Error> {
        self.change_cluster("promote", asked).await
    }

    /// Removes a node, reachable or not.
    ///
    /// # Errors
    /// As of [`Client::add_node`], and with `not_found` if it is no member;
    /// [`Error::OutcomeUnknown`] if the answer was lost.
    pub async fn remove_node(&self, asked: &ChangeNode<'_>) -> Result<Answer<NodeChanged>, Error> {
        self.change_cluster("remove", asked).await
    }

    /// Has another voter lead, or the one that has caught up furthest.
    ///
    /// # Errors
    /// As of [`Client::add_node`], and with `not_found` if it is no member;
    /// [`Error::OutcomeUnknown`] if the answer was lost.
    pub async fn transfer_leadership(
        &self,
        asked: &TransferLeadership<'_>,
    ) -> Result<Answer<LeadershipTransferred>, Error> {
        self.change_cluster("transfer", asked).await
    }

    /// The domains that have settings.
    #[must_use]
    pub fn domains(&self) -> Pages<Domain<'static>> {
        Pages::new(self, "/v1/domains", Vec::new())
    }

    /// The settings of one domain.
    ///
    /// # Errors
    /// As of any read.
    pub async fn domain(&self, domain: &str) -> Result<Answer<Domain<'static>>, Error> {
        self.get("/v1/domains", &[("domain", domain)]).await
    }

    /// Replaces all settings of a domain, if its version still is `version`. The reason stands in
    /// the audit.
    ///
    /// # Errors
    /// [`Error::Problem`] with `precondition_failed` if somebody changed it in between;
    /// [`Error::OutcomeUnknown`] if the answer was lost.
    pub async fn set_domain(
        &self,
        domain: &str,
        settings: &SetDomain,
        version: &str,
        reason: Option<&str>,
    ) -> Result<Answer<Domain<'static>>, Error> {
        let call = change(Method::PUT, domain, reason)
            .json(settings)?
            .header("if-match", &format!("\"{version}\""))?;
        self.run(call).await
    }

    /// Sets the first settings of a domain that has none. The reason stands in the audit.
    ///
    /// # Errors
    /// [`Error::Problem`] with `precondition_failed` if it has some by now;
    /// [`Error::OutcomeUnknown`] if the answer was lost.
    pub async fn create_domain(
        &self,
        domain: &str,
        settings: &SetDomain,
        reason: Option<&str>,
    ) -> Result<Answer<Domain<'static>>, Error> {
        let call =
            change(Method::PUT, domain, reason).json(settings)?.header("if-none-match", "*")?;
        self.run(call).await
    }

    /// Drops all settings of a domain, if its version still is `version`. The reason stands in the
    /// audit.
    ///
    /// # Errors
    /// As of [`Client::set_domain`].
    pub async fn reset_domain(
        &self,
        domain: &str,
        version: &str,
        reason: Option<&str>,
    ) -> Result<Answer<DomainReset<'static>>, Error> {
        let call =
            change(Method::DELETE, domain, reason).header("if-match", &format!("\"{version}\""))?;
        self.run(call).await
    }
}

fn change(method: Method, domain: &str, reason: Option<&str>) -> Call {
    let reason = reason.map(|reason| ("reason", reason));
    let target = with_query("/v1/domains", [("domain", domain)].into_iter().chain(reason));
    Call::new(method, target, Repeat::IfNothingWasDone)
}
