//! `GET /v1/watch`: what happened, in order, as server-sent events.
//!
//! Each event of the stream has the revision as its `id:`, its kind as `event:`, and an [`Event`]
//! as `data:`. Where the service does not keep what lies between two revisions any more, the
//! kind is [`Gap::EVENT`] and the data a [`Gap`].

use crate::mode::Mode;
use crate::schema;
use crate::time::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// One change. Which of the optional fields are there follows from `event`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Event<'a> {
    /// Its number in the order of all changes. Opaque: give it back as `from`.
    pub revision: Cow<'a, str>,
    /// What kind of change it is.
    pub event: EventKind,
    /// When it happened, by the wall clock of the leader of that time.
    pub happened_at: Time,
    /// The resource that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<Cow<'a, str>>,
    /// The domain whose settings changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<Cow<'a, str>>,
    /// The label of the client that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<Cow<'a, str>>,
    /// The token of the grant that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::token")]
    pub token: Option<u64>,
    /// Exclusive or shared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// The priority of the place in line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// The time to live of the lease, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// When the grant that ended was granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted_at: Option<Time>,
    /// Why the line was left, or how the lease ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub how: Option<Cow<'a, str>>,
    /// Who did it, where an operator did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Cow<'a, str>>,
    /// What was done, where an operator did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<Cow<'a, str>>,
    /// Why an operator did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Cow<'a, str>>,
    /// What came of what an operator did: `done`, or why nothing was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Cow<'a, str>>,
}

impl<'a> Event<'a> {
    /// A change without any of the optional fields.
    #[must_use]
    pub fn new(revision: u64, event: EventKind, happened_at: Time) -> Self {
        Self {
            revision: revision.to_string().into(),
            event,
            happened_at,
            resource: None,
            domain: None,
            client_id: None,
            token: None,
            mode: None,
            priority: None,
            ttl_ms: None,
            granted_at: None,
            how: None,
            by: None,
            action: None,
            reason: None,
            result: None,
        }
    }
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $variant:ident = $word:literal;)+) => {
        /// The kinds of changes. A reader skips those that it does not know.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        pub enum EventKind {
            $($(#[$doc])* #[serde(rename = $word)] $variant,)+
            /// One of a newer service.
            #[serde(other, rename = "other")]
            Other,
        }

        impl EventKind {
            /// All that this version sends.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The kind as it stands in the stream.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ Self::Other => "other" }
            }
        }
    };
}

kinds! {
    /// A lease for many grants was opened.
    LeaseOpened = "lease_opened";
    /// The TTL of a lease changed.
    LeaseChanged = "lease_changed";
    /// A lease with very much on it ends in several steps, and this was one of them.
    LeaseEnding = "lease_ending";
    /// A lease for many grants ended.
    LeaseEnded = "lease_ended";
    /// Somebody stands in line.
    Queued = "queued";
    /// Somebody left the line without a grant.
    Left = "left";
    /// A lock was granted.
    Granted = "granted";
    /// Its holder gave it back.
    Released = "released";
    /// Its deadline passed.
    Expired = "expired";
    /// An operator ended it.
    Forced = "forced";
    /// Its lease was ended by an operator.
    Revoked = "revoked";
    /// Nobody claimed it within the window.
    PassedOn = "passed_on";
    /// A restore or recovery ended it.
    Restored = "restored";
    /// An operator asked for its end: it is not renewed any more.
    Draining = "draining";
    /// An operator did something, or tried to; the audit has more of it.
    Audited = "audited";
    /// The limits of the service changed.
    LimitsChanged = "limits_changed";
    /// The settings of a domain changed.
    DomainChanged = "domain_changed";
    /// The oldest records of the history were dropped.
    HistoryTrimmed = "history_trimmed";
}

/// Changes that cannot be told any more. Whoever reads this has to read the present state anew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Gap<'a> {
    /// The revision after which changes are missing.
    pub from: Cow<'a, str>,
    /// The last revision that is missing; the stream goes on after it.
    pub to: Cow<'a, str>,
}

impl Gap<'_> {
    /// The kind of a gap in the stream.
    pub const EVENT: &'static str = "gap";
}
