//! What lists and the history are narrowed down to.

use crate::wire::Time;

type Query = Vec<(&'static str, String)>;

/// Which locks [`crate::Client::locks`] lists.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LocksFilter {
    /// Names that start with this.
    pub prefix: Option<String>,
    /// Names in this domain.
    pub domain: Option<String>,
    /// Held by this client.
    pub client_id: Option<String>,
    /// `held`, or `contended`: held and waited for.
    pub state: Option<String>,
    /// Items a page, 1 to 1,000.
    pub limit: Option<usize>,
    /// What the answering node knows is good enough.
    pub stale: bool,
}

/// Which grants [`crate::Client::grants`] lists.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GrantsFilter {
    /// Of this resource.
    pub resource: Option<String>,
    /// With this token.
    pub token: Option<u64>,
    /// Of this client.
    pub client_id: Option<String>,
    /// Valid at this time.
    pub at: Option<Time>,
    /// Items a page, 1 to 1,000.
    pub limit: Option<usize>,
}

/// Which leases [`crate::Client::leases`] lists.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeasesFilter {
    /// Of this client.
    pub client_id: Option<String>,
    /// Items a page, 1 to 1,000.
    pub limit: Option<usize>,
    /// What the answering node knows is good enough.
    pub stale: bool,
}

impl LocksFilter {
    pub(crate) fn query(self) -> Query {
        let mut query = given([
            ("prefix", self.prefix),
            ("domain", self.domain),
            ("client_id", self.client_id),
            ("state", self.state),
            ("limit", self.limit.map(|limit| limit.to_string())),
        ]);
        query.extend(stale(self.stale));
        query
    }
}

impl GrantsFilter {
    pub(crate) fn query(self) -> Query {
        given([
            ("resource", self.resource),
            ("token", self.token.map(|token| token.to_string())),
            ("client_id", self.client_id),
            ("at", self.at.map(|at| at.to_string())),
            ("limit", self.limit.map(|limit| limit.to_string())),
        ])
    }
}

impl LeasesFilter {
    pub(crate) fn query(self) -> Query {
        let limit = self.limit.map(|limit| limit.to_string());
        let mut query = given([("client_id", self.client_id), ("limit", limit)]);
        query.extend(stale(self.stale));
        query
    }
}

fn given<const N: usize>(pairs: [(&'static str, Option<String>); N]) -> Query {
    pairs.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

fn stale(stale: bool) -> Option<(&'static str, String)> {
    stale.then(|| ("consistency", "stale".to_owned()))
}
