//! `/livez`, `/readyz`, `/healthz`.

use serde::{Deserialize, Serialize};

/// The node does what was asked about; otherwise there is a problem instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Always `ok`.
    pub status: HealthStatus,
}

/// The one word of a healthy node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HealthStatus {
    /// It is.
    Ok,
}
