//! The handle, and what all its calls share.

use crate::builder::{Builder, SPAN_MAX, Times};
use crate::error::Error;
use crate::leader::Search;
use crate::servers::Servers;
use crate::transport::Transport;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A client of one Leasehold service. Cheap to clone; clones share connections.
///
/// Calls must be made within a tokio runtime, and guards live on the one that they were made on.
///
/// ```
/// # use leasehold_client::Client;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = leasehold_client_fake::Service::start().await?;
/// # let url = server.url();
/// let client = Client::builder().server(url).client_id("reporter").build()?;
/// let guard = client.acquire("reports/daily").await?;
///
/// let lock = client.lock("reports/daily").await?;
/// assert_eq!(lock.holders[0].client_id, "reporter");
/// assert_eq!(lock.holders[0].token, guard.token());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    pub(crate) inner: Arc<Inner>,
    pub(crate) budget: Duration,
}

pub(crate) struct Inner {
    pub(crate) servers: Servers,
    pub(crate) transport: Transport,
    pub(crate) client_id: String,
    pub(crate) times: Times,
    pub(crate) search: Search,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("client_id", &self.inner.client_id)
            .field("servers", &self.inner.servers)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// A client of one server, with a label of its own.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the URL makes no sense.
    pub fn new(url: impl Into<String>) -> Result<Self, Error> {
        Self::builder().server(url).build()
    }

    /// A client with settings.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn new_with(
        servers: Servers,
        transport: Transport,
        client_id: String,
        times: Times,
    ) -> Self {
        let search = Search::default();
        let inner = Inner { servers, transport, client_id, times, search };
        Self { inner: Arc::new(inner), budget: times.budget }
    }

    /// The same client, whose calls may take this long with all their repeats.
    #[must_use]
    pub fn with_budget(&self, budget: Duration) -> Self {
        Self { inner: Arc::clone(&self.inner), budget: budget.min(SPAN_MAX) }
    }

    /// The label under which the service knows this client.
    #[must_use]
    pub fn client_id(&self) -> &str {
        &self.inner.client_id
    }
}
