//! Why a fence lets a write not through.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A write, or a seal, that was not let through. Nothing of it has happened, save that T_max may
/// have risen to its token.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Refused {
    /// A newer token was seen: whoever writes with this one has lost the lock.
    Stale {
        /// What is written.
        resource: String,
        /// The token of the write.
        token: u64,
        /// T_max.
        highest: u64,
    },
    /// The token has written once already, and [`Usage::Once`](super::Usage::Once) was asked for.
    Used {
        /// What is written.
        resource: String,
        /// The token of the write.
        token: u64,
        /// T_max: the same token, as a lower one would be stale.
        highest: u64,
    },
    /// The resource or the token cannot be one.
    Invalid {
        /// What is wrong with which of them.
        detail: String,
    },
    /// The write of an older token is in flight, or may be, and did not end within
    /// [`Options::wait_max`](super::Options::wait_max). The token is recorded.
    OlderInFlight {
        /// What is written.
        resource: String,
        /// The token of the write.
        token: u64,
        /// When to ask again.
        retry_after: Duration,
    },
    /// More calls wait than [`Options::waiting_max`](super::Options::waiting_max) or
    /// [`Options::recording_max`](super::Options::recording_max) permits.
    Full {
        /// The bound that is reached.
        waiting_max: usize,
        /// When to ask again.
        retry_after: Duration,
    },
    /// T_max could not be read, or not be made durable.
    Storage(StorageFault),
}

/// What the storage under a fence says.
#[derive(Debug, Clone)]
pub struct StorageFault {
    doing: &'static str,
    cause: Option<Arc<dyn Error + Send + Sync>>,
}

impl Refused {
    /// For programs: one word that stays the same in every release, and in every store.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Stale { .. } => "stale_token",
            Self::Used { .. } => "token_used",
            Self::Invalid { .. } => "invalid_request",
            Self::OlderInFlight { .. } => "older_in_flight",
            Self::Full { .. } => "fence_full",
            Self::Storage(_) => "fence_storage_failed",
        }
    }

    /// The refusal as a JSON object: `code`, and where they are known `resource`, `token`,
    /// `highest_token`, `retry_after_ms`, `detail`.
    #[must_use]
    pub fn json(&self) -> String {
        let mut document = Document { code: self.code(), ..Document::default() };
        match self {
            Self::Stale { resource, token, highest } | Self::Used { resource, token, highest } => {
                (document.resource, document.token) = (Some(resource.as_str()), Some(*token));
                document.highest_token = Some(*highest);
            }
            Self::OlderInFlight { resource, token, .. } => {
                (document.resource, document.token) = (Some(resource.as_str()), Some(*token));
            }
            Self::Full { .. } | Self::Invalid { .. } | Self::Storage(_) => {
                document.detail = Some(self.to_string());
            }
        }
        document.retry_after_ms = self.retry_after().map(millis);
        // Texts and numbers cannot fail to become JSON.
        serde_json::to_string(&document).unwrap_or_default()
    }

    /// When to ask again, where that can help.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::OlderInFlight { retry_after, .. } | Self::Full { retry_after, .. } => {
                Some(*retry_after)
            }
            _ => None,
        }
    }
}

/// In the order in which every store has it.
#[derive(Default, serde::Serialize)]
struct Document<'a> {
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    highest_token: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale { resource, token, highest } => {
                write!(f, "token {token} is stale: {resource} has seen token {highest}")
            }
            Self::Used { resource, token, .. } => {
                write!(f, "token {token} has written to {resource} already")
            }
            Self::Invalid { detail } => f.write_str(detail),
            Self::OlderInFlight { resource, token, .. } => {
                write!(
                    f,
                    "token {token} waits for older writes to {resource} that are, or may be, in flight"
                )
            }
            Self::Full { waiting_max, .. } => {
                write!(f, "{waiting_max} writes wait already, and that is the limit")
            }
            Self::Storage(fault) => fault.fmt(f),
        }
    }
}

impl Error for Refused {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Storage(fault) => fault.source(),
            _ => None,
        }
    }
}

impl StorageFault {
    #[cfg_attr(not(feature = "redb"), expect(dead_code, reason = "memory does not fail"))]
    pub(super) fn new(doing: &'static str, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { doing, cause: Some(Arc::from(cause.into())) }
    }

    pub(super) const fn plain(doing: &'static str) -> Self {
        Self { doing, cause: None }
    }
}

/// With its cause: whoever answers a client with it has no chain of causes to show.
impl fmt::Display for StorageFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Some(cause) => write!(f, "{}: {cause}", self.doing),
            None => f.write_str(self.doing),
        }
    }
}

impl Error for StorageFault {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        // The cause itself is part of the text already.
        self.cause.as_deref().and_then(Error::source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_both_tokens_in_one_line_of_json() {
        let stale = Refused::Stale { resource: "invoice/\"42\"".into(), token: 33, highest: 34 };
        let expected =
            r#"{"code":"stale_token","resource":"invoice/\"42\"","token":33,"highest_token":34}"#;
        assert_eq!(stale.json(), expected, "in the order of the other stores");
        assert!(stale.to_string().contains("33") && stale.to_string().contains("34"));
    }

    #[test]
    fn a_storage_fault_is_told_with_its_cause() {
        let fault =
            StorageFault { doing: "could not sync", cause: Some(Arc::from(Box::from("no space"))) };
        let refused = Refused::Storage(fault);
        assert_eq!(refused.to_string(), "could not sync: no space");
        assert!(refused.json().contains("fence_storage_failed"));
        assert_eq!(refused.retry_after(), None);
    }
}
