//! One or many holders.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a lock is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// One holder, whose token fences.
    #[default]
    Exclusive,
    /// Many holders and no exclusive one.
    Shared,
}

impl Mode {
    pub(crate) const WORDS: &'static [&'static str] = &["exclusive", "shared"];

    pub(crate) fn is_exclusive(&self) -> bool {
        *self == Self::Exclusive
    }
}
