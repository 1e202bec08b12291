//! `/livez`, `/readyz`, `/healthz`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The node does what was asked about; otherwise there is a problem instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    /// Always `ok`.
    pub status: HealthStatus,
}

/// The one word of a healthy node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HealthStatus {
    /// It is.
    Ok,
}
