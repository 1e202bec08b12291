//! The calls of operators, against what is not their own.
//!
//! None of them is repeated once it may have been done: a repeat would be refused for what the
//! first attempt did, and would stand in the audit a second time. [`Error::OutcomeUnknown`] says
//! so, and a look at the lock or the domain says what came of it.

use crate::answer::Answer;
use crate::call::{Call, Repeat};
use crate::client::Client;
use crate::encode::with_query;
use crate::error::Error;
use crate::pages::Pages;
use crate::wire::{Domain, DomainReset, ForceRelease, ForceReleased, SetDomain};
use hyper::Method;

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
