//! Who says that an upstream was left in order.
//!
//! The end of a proxy's lock does not say it: anybody who may release that lock ends it in the same
//! way. So a proxy that stops with nothing in flight takes a second lock for a moment, whose grant
//! names its tenure, and only then gives back the first.

use leasehold_client::wire::GrantRecord;
use leasehold_client::{Client, Error};
use std::collections::BTreeSet;
use std::time::Duration;

/// Before the name of the upstream in that of the second lock.
const PREFIX: &str = "fence-proxy-clean/";
/// The metadata that names a tenure by its token.
const TOKEN: &str = "token";
/// How long the service may take for each word of a stop: one without a service comes to its end.
pub(crate) const WITHIN: Duration = Duration::from_secs(5);

/// The lock that vouches for the tenures of an upstream of this name.
pub(crate) fn lock_of(upstream: &str) -> String {
    format!("{PREFIX}{upstream}")
}

/// Says for all to read that of the tenure with this token nothing is in flight any more. What is
/// said stands whatever happens to the lock afterwards. It is shared, so that one that was left
/// behind is in nobody's way; `ttl` is one that the service is known to grant.
pub(crate) async fn vouch(
    client: &Client,
    lock: &str,
    ttl: Duration,
    token: u64,
) -> Result<(), Error> {
    let client = client.with_budget(WITHIN);
    let asked = client.acquire(lock).shared().ttl(ttl).metadata(TOKEN, token.to_string());
    let grant = asked.grant().await?.value;
    if let Err(error) = client.release(lock, grant.token).await {
        tracing::debug!(%error, lock, "it ends by itself");
    }
    Ok(())
}

/// The tenures that such grants name.
pub(crate) fn vouched_for(grants: &[GrantRecord<'_>]) -> BTreeSet<u64> {
    let pairs = grants.iter().flat_map(|grant| &grant.metadata).flat_map(|metadata| &metadata.0);
    let tokens = pairs.filter(|(name, _)| name == TOKEN);
    tokens.filter_map(|(_, token)| token.parse().ok()).collect()
}
