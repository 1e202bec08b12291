//! The calls that change nothing: on any server, as often as it takes.

use crate::answer::Answer;
use crate::client::Client;
use crate::error::Error;
use crate::filters::{GrantsFilter, LeasesFilter, LocksFilter};
use crate::pages::Pages;
use crate::watch::{Watch, WatchFilter};
use crate::wire::{
    Attention, AuditRecord, ClientSummary, Config, FenceCheck, FenceChecked, GrantRecord, Health,
    HexId, Lease, Lock, LockSummary, Stats, Why,
};

impl Client {
    /// One lock with its holders and its line.
    ///
    /// # Errors
    /// As of any read: [`Error::Unavailable`], [`Error::Invalid`], [`Error::Denied`].
    pub async fn lock(&self, resource: &str) -> Result<Answer<Lock<'static>>, Error> {
        self.get("/v1/lock", &[("resource", resource)]).await
    }

    /// The locks that are held or waited for, by name.
    #[must_use]
    pub fn locks(&self, filter: LocksFilter) -> Pages<LockSummary<'static>> {
        Pages::new(self, "/v1/locks", filter.query())
    }

    /// Where a client stands with a resource, and what is in its way.
    ///
    /// # Errors
    /// As of any read.
    pub async fn why(
        &self,
        resource: &str,
        client_id: &str,
    ) -> Result<Answer<Why<'static>>, Error> {
        self.get("/v1/lock/why", &[("resource", resource), ("client_id", client_id)]).await
    }

    /// Where a request stands, and what is in its way.
    ///
    /// # Errors
    /// As of any read.
    pub async fn why_request(
        &self,
        resource: &str,
        request_id: &str,
    ) -> Result<Answer<Why<'static>>, Error> {
        self.get("/v1/lock/why", &[("resource", resource), ("request_id", request_id)]).await
    }

    /// The history: every grant that is live or remembered, newest first.
    #[must_use]
    pub fn grants(&self, filter: GrantsFilter) -> Pages<GrantRecord<'static>> {
        Pages::new(self, "/v1/grants", filter.query())
    }

    /// Who has anything.
    #[must_use]
    pub fn clients(&self) -> Pages<ClientSummary<'static>> {
        Pages::new(self, "/v1/clients", Vec::new())
    }

    /// The leases that are open.
    #[must_use]
    pub fn leases(&self, filter: LeasesFilter) -> Pages<Lease<'static>> {
        Pages::new(self, "/v1/leases", filter.query())
    }

    /// One lease, with its grants and with its earliest and latest end.
    ///
    /// # Errors
    /// As of any read; [`Error::Ended`] if it has ended.
    pub async fn lease_status(&self, lease: HexId) -> Result<Answer<Lease<'static>>, Error> {
        self.get(&format!("/v1/leases/{lease}"), &[]).await
    }

    /// The service in numbers.
    ///
    /// # Errors
    /// As of any read.
    pub async fn stats(&self) -> Result<Answer<Stats<'static>>, Error> {
        self.get("/v1/stats", &[]).await
    }

    /// What needs somebody now.
    ///
    /// # Errors
    /// As of any read.
    pub async fn attention(&self) -> Result<Answer<Attention<'static>>, Error> {
        self.get("/v1/attention", &[]).await
    }

    /// The settings in force on the answering node.
    ///
    /// # Errors
    /// As of any read.
    pub async fn config(&self) -> Result<Answer<Config<'static>>, Error> {
        self.get("/v1/config", &[]).await
    }

    /// Who did what to what is not their own.
    #[must_use]
    pub fn audit(&self) -> Pages<AuditRecord<'static>> {
        Pages::new(self, "/v1/audit", Vec::new())
    }

    /// Whether the server can serve, as it says itself.
    ///
    /// # Errors
    /// As of any read: [`Error::Unavailable`] with the reason if it cannot.
    pub async fn health(&self) -> Result<Answer<Health>, Error> {
        self.get("/readyz", &[]).await
    }

    /// Whether a token is the one of a live exclusive grant. For storage that cannot keep the
    /// highest token itself; weaker than a comparison inside the write.
    ///
    /// # Errors
    /// As of any read.
    pub async fn fence_check(
        &self,
        resource: &str,
        token: u64,
    ) -> Result<Answer<FenceChecked>, Error> {
        let body = FenceCheck { resource: resource.into(), token };
        self.post("/v1/fence/check", &body).await
    }

    /// Everything that happens from now on, or after the revision `from`, in order and once. See
    /// [`Watch`].
    #[must_use]
    pub fn watch(&self, filter: WatchFilter, from: Option<String>) -> Watch {
        Watch::new(self, filter, from)
    }
}
