//! What a Redis has that weakens a fence, without racing anything.

use super::connect::text;
use super::library::VERSION;
use crate::error::Error;
use crate::report::{Finding, Severity};
use ::redis::aio::MultiplexedConnection;
use ::redis::{Value, cmd};

/// What can be seen with the rights of this connection.
pub(super) async fn of(
    connection: &mut MultiplexedConnection,
    version: Option<i64>,
) -> Result<Vec<Finding>, Error> {
    let mut found = Vec::new();
    if version.is_some_and(|version| version < VERSION) {
        let detail = format!(
            "version {} of the library is installed, {VERSION} is current",
            version.unwrap_or_default()
        );
        let advice = "run `leasehold fence install`";
        found.push(Finding::new(Severity::Warning, "kit_old", detail, advice));
    }
    let Some(policy) = setting(connection, "maxmemory-policy").await else {
        found.push(Finding::new(
            Severity::Note,
            "settings_hidden",
            "this user may not read the settings, so eviction and persistence were not looked at",
            "run `leasehold fence status` with a user who may CONFIG GET",
        ));
        return Ok(found);
    };
    let limit = setting(connection, "maxmemory").await.unwrap_or_default();
    found.extend(of_eviction(&policy, &limit));
    let appended = setting(connection, "appendonly").await.unwrap_or_default();
    let synced = setting(connection, "appendfsync").await.unwrap_or_default();
    found.extend(of_persistence(&appended, &synced));
    found.extend(of_replicas(connection).await);
    Ok(found)
}

fn of_eviction(policy: &str, limit: &str) -> Option<Finding> {
    if policy == "noeviction" {
        return None;
    }
    // Keys of fences have no time to live.
    let volatile = policy.starts_with("volatile-");
    let severity = if volatile || limit == "0" { Severity::Note } else { Severity::Hole };
    let detail = format!("maxmemory-policy is {policy}, maxmemory is {limit} bytes");
    let advice = "set maxmemory-policy noeviction: a fence that is evicted has forgotten its \
                  highest token";
    (!volatile).then(|| Finding::new(severity, "eviction", detail, advice))
}

fn of_persistence(appended: &str, synced: &str) -> Option<Finding> {
    if appended == "yes" && synced == "always" {
        return None;
    }
    let detail = format!("appendonly is {appended}, appendfsync is {synced}");
    let advice = "set appendonly yes and appendfsync always, or a crash loses the highest tokens \
                  of its last moments";
    Some(Finding::new(Severity::Warning, "not_durable", detail, advice))
}

async fn of_replicas(connection: &mut MultiplexedConnection) -> Option<Finding> {
    let mut ask = cmd("INFO");
    ask.arg("replication");
    let told = text(&ask.query_async::<Value>(connection).await.ok()?)?;
    let replicas = told.lines().find_map(|line| line.strip_prefix("connected_slaves:"))?.trim();
    (replicas != "0").then(|| {
        let detail =
            format!("there are {replicas} replicas, and Redis replicates after it answers");
        let advice = "after a failover the new primary may not know the highest tokens: WAIT after \
                      a seal narrows that, and nothing in Redis closes it";
        Finding::new(Severity::Warning, "async_replica", detail, advice)
    })
}

/// Nothing if this user may not see it.
async fn setting(connection: &mut MultiplexedConnection, name: &str) -> Option<String> {
    let mut ask = cmd("CONFIG");
    ask.arg("GET").arg(name);
    match ask.query_async::<Value>(connection).await.ok()? {
        Value::Array(pair) => text(pair.get(1)?),
        Value::Map(pairs) => text(&pairs.first()?.1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_loses_a_fence_is_found() {
        assert_eq!(of_eviction("noeviction", "100"), None);
        assert_eq!(of_eviction("volatile-lru", "100"), None);
        let found = |limit| of_eviction("allkeys-lru", limit).map(|finding| finding.severity);
        assert_eq!(found("100"), Some(Severity::Hole));
        assert_eq!(found("0"), Some(Severity::Note));
        assert_eq!(of_persistence("yes", "always"), None);
        for (appended, synced) in [("no", "always"), ("yes", "everysec")] {
            assert!(of_persistence(appended, synced).is_some());
        }
    }
}
