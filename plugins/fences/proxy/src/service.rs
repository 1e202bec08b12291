//! Whether the service is the one whose word and records this directory goes by.
//!
//! A service that was restored from a backup, or recovered from one node, has forgotten what came
//! after the state that it began with: another proxy may have stood before the upstream, and a
//! newer token may have been here. It is another cluster then, and says so.

use crate::home::Home;
use leasehold_client::Client;

/// The service, as the data directory sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Service {
    /// The one of the last tenure, or the first one; its id, if it was told.
    Same(Option<String>),
    /// It has not been there through all that the directory knows of, or cannot be compared.
    Other {
        /// What it was, for people.
        before: String,
        /// What it is, for people, and its id, if it was told.
        now: Now,
    },
}

/// The present one of two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Now(Option<String>);

impl Service {
    /// Asks which one it is, and compares.
    pub(crate) async fn of(client: &Client, home: &Home) -> Self {
        let told = match client.stats().await {
            Ok(stats) => stats.value.cluster_id.map(|id| id.into_owned()),
            Err(error) => {
                tracing::warn!(%error, "the service does not say which cluster it is");
                None
            }
        };
        Self::compare(told, home)
    }

    /// What cannot be compared is another one, unless nothing depends on it.
    pub(crate) fn compare(told: Option<String>, home: &Home) -> Self {
        let before = match home.cluster() {
            Ok(Some(before)) if told.as_ref() == Some(&before) => return Self::Same(told),
            Ok(Some(before)) => format!("the cluster {before}"),
            Ok(None) if is_unused(home) => return Self::Same(told),
            Ok(None) => "a cluster that is not on record".to_owned(),
            Err(error) => {
                tracing::warn!(%error, "which cluster it was cannot be read");
                "a cluster that cannot be read".to_owned()
            }
        };
        Self::Other { before, now: Now(told) }
    }

    /// Its id, if it was told.
    pub(crate) fn cluster(&self) -> Option<&str> {
        match self {
            Self::Same(cluster) | Self::Other { now: Now(cluster), .. } => cluster.as_deref(),
        }
    }
}

/// Also for one that was opened as new and has been used since.
fn is_unused(home: &Home) -> bool {
    home.is_new() && home.last_tenure().is_ok_and(|token| token == 0)
}

impl std::fmt::Display for Now {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Some(cluster) => write!(f, "the cluster {cluster}"),
            None => write!(f, "one that does not say which"),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use leasehold_client_fake::{Fake, Reply};
    use serde_json::{Value, json};
    use std::fs;

    const ONE: &str = "0123456789abcdef0123456789abcdef";
    const TWO: &str = "fedcba9876543210fedcba9876543210";

    /// What a service of this cluster says of itself.
    pub(crate) fn stats(cluster: &str) -> Value {
        json!({
            "node_id": 1, "cluster_id": cluster, "leader": 1, "version": "0", "uptime_ms": 0,
            "revision": "0", "last_token": 0, "locks": 0, "grants": 0, "waiters": 0, "leases": 0,
            "clients": 0, "watch_streams": 0, "usage": [], "latency": []
        })
    }

    fn told(cluster: &str) -> Option<String> {
        Some(cluster.to_owned())
    }

    #[test]
    fn a_directory_goes_by_the_cluster_of_its_last_tenure() {
        let dir = tempfile::tempdir().expect("a dir");
        let home = Home::open(dir.path(), "me").expect("a home");
        for cluster in [None, told(ONE)] {
            assert_eq!(Service::compare(cluster.clone(), &home), Service::Same(cluster));
        }
        home.set_cluster(ONE).expect("written");
        assert_eq!(Service::compare(told(ONE), &home), Service::Same(told(ONE)));
        for cluster in [None, told(TWO)] {
            let other = Service::compare(cluster.clone(), &home);
            assert!(matches!(&other, Service::Other { before, .. } if before.contains(ONE)));
            assert_eq!(other.cluster(), cluster.as_deref());
        }
        fs::write(dir.path().join("cluster"), b"\xff").expect("written");
        assert!(matches!(Service::compare(told(ONE), &home), Service::Other { .. }));
    }

    #[test]
    fn a_directory_that_was_used_and_names_no_cluster_goes_by_none() {
        let dir = tempfile::tempdir().expect("a dir");
        fs::write(dir.path().join("fence.redb"), "").expect("written");
        let open = || Home::open(dir.path(), "me").expect("a home");
        open().settle_in().expect("written");
        open().set_last_tenure(7).expect("written");
        assert!(matches!(Service::compare(told(ONE), &open()), Service::Other { .. }));
    }

    #[tokio::test]
    async fn the_service_is_asked_which_cluster_it_is() {
        let dir = tempfile::tempdir().expect("a dir");
        let home = Home::open(dir.path(), "me").expect("a home");
        let stats = stats(ONE);
        let service = Fake::start(move |asked| {
            assert_eq!(asked.path(), "/v1/stats");
            Reply::json(200, &stats)
        });
        let service = service.await.expect("a port");
        let client = Client::new(service.url()).expect("a client");
        assert_eq!(Service::of(&client, &home).await, Service::Same(told(ONE)));
    }
}
