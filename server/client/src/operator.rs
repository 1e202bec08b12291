//! The calls of operators, against what is not their own.

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
    /// [`Error::Ended`] if another grant holds by now, [`Error::Denied`] for whoever may not.
    pub async fn force_release(
        &self,
        asked: &ForceRelease<'_>,
    ) -> Result<Answer<ForceReleased>, Error> {
        self.post("/v1/lock/force-release", asked).await
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

    /// Replaces all settings of a domain, if its version still is `version`.
    ///
    /// # Errors
    /// [`Error::Problem`] with `precondition_failed` if somebody changed it in between, also if
    /// that was an earlier attempt of this very call whose answer was lost.
    pub async fn set_domain(
        &self,
        domain: &str,
        settings: &SetDomain,
        version: &str,
    ) -> Result<Answer<Domain<'static>>, Error> {
        let target = with_query("/v1/domains", [("domain", domain)]);
        let call = Call::new(Method::PUT, target, Repeat::Freely)
            .json(settings)?
            .header("if-match", &format!("\"{version}\""))?;
        self.run(call).await
    }

    /// Sets the first settings of a domain that has none.
    ///
    /// # Errors
    /// [`Error::Problem`] with `precondition_failed` if it has some by now, also if that was an
    /// earlier attempt of this very call whose answer was lost.
    pub async fn create_domain(
        &self,
        domain: &str,
        settings: &SetDomain,
    ) -> Result<Answer<Domain<'static>>, Error> {
        let target = with_query("/v1/domains", [("domain", domain)]);
        let call = Call::new(Method::PUT, target, Repeat::Freely)
            .json(settings)?
            .header("if-none-match", "*")?;
        self.run(call).await
    }

    /// Drops all settings of a domain, if its version still is `version`.
    ///
    /// # Errors
    /// As of [`Client::set_domain`].
    pub async fn reset_domain(
        &self,
        domain: &str,
        version: &str,
    ) -> Result<Answer<DomainReset<'static>>, Error> {
        let target = with_query("/v1/domains", [("domain", domain)]);
        let call = Call::new(Method::DELETE, target, Repeat::Freely)
            .header("if-match", &format!("\"{version}\""))?;
        self.run(call).await
    }
}
