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
/// It ends by itself if it is not given back.
const TTL: Duration = Duration::from_secs(1);
/// Longer than that, so that one that was left behind is in nobody's way.
const WAIT: Duration = Duration::from_secs(2);
/// How long the service may take for it: a stop without a service comes to its end.
const WITHIN: Duration = Duration::from_secs(5);

/// The lock that vouches for the tenures of an upstream of this name.
pub(crate) fn lock_of(upstream: &str) -> String {
    format!("{PREFIX}{upstream}")
}

/// Says for all to read that of the tenure with this token nothing is in flight any more. What is
/// said stands whatever happens to the lock afterwards.
pub(crate) async fn vouch(client: &Client, lock: &str, token: u64) -> Result<(), Error> {
    let client = client.with_budget(WITHIN);
    let asked = client.acquire(lock).ttl(TTL).wait(WAIT).metadata(TOKEN, token.to_string());
    let grant = asked.grant().await?.value;
    if let Err(error) = client.release(lock, grant.token).await {
        tracing::debug!(%error, lock, "it ends by itself");
    }
    Ok(())
}

/// The tenures that such grants name.
pub(crate) fn vouched_for(grants: &[&GrantRecord<'_>]) -> BTreeSet<u64> {
    let pairs = grants.iter().flat_map(|grant| &grant.metadata).flat_map(|metadata| &metadata.0);
    let tokens = pairs.filter(|(name, _)| name == TOKEN);
    tokens.filter_map(|(_, token)| token.parse().ok()).collect()
}
