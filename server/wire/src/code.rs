//! Every code that an error can have. Stable: programs switch on it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $code:literal, $title:literal;)+) => {
        /// What went wrong, for programs.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        pub enum Code {
            $($(#[$doc])* #[serde(rename = $code)] $variant,)+
        }

        impl Code {
            /// All of them, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The code as it stands in JSON.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $code,)+ }
            }

            /// The name of this kind of problem: `type` in RFC 9457.
            #[must_use]
            pub const fn urn(self) -> &'static str {
                match self { $(Self::$variant => concat!("urn:leasehold:problem:", $code),)+ }
            }

            /// One short phrase for people, the same at every occurrence.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)+ }
            }
        }
    };
}

codes! {
    /// The request cannot be understood; `field` and `allowed` say why.
    InvalidRequest = "invalid_request", "The request is not valid";
    /// No credential, or one that is not known.
    Unauthenticated = "unauthenticated", "No valid credential";
    /// The caller may not do this.
    Forbidden = "forbidden", "Not permitted";
    /// A policy said no.
    PolicyDenied = "policy_denied", "A policy denied the request";
    /// There is nothing at this address, or no such thing.
    NotFound = "not_found", "Not found";
    /// The route does not take this method.
    MethodNotAllowed = "method_not_allowed", "Method not allowed";
    /// The caller accepts none of the types that the route has.
    NotAcceptable = "not_acceptable", "Not acceptable";
    /// The request did not arrive, or could not be begun, in the time that it had.
    RequestTimeout = "request_timeout", "The request took too long";
    /// Somebody else holds the lock, or stands in line for it.
    Held = "held", "The lock is held";
    /// The wait is over without a grant.
    WaitTimeout = "wait_timeout", "The wait is over";
    /// The grant is somebody else's, or never was.
    NotHolder = "not_holder", "Not the holder";
    /// The wait would never end.
    WouldDeadlock = "would_deadlock", "The wait would never end";
    /// The request does not fit the present state.
    Conflict = "conflict", "In conflict with the present state";
    /// The grant has ended.
    GrantEnded = "grant_ended", "The grant has ended";
    /// The lease has ended.
    LeaseEnded = "lease_ended", "The lease has ended";
    /// What the change was conditional on is not so.
    PreconditionFailed = "precondition_failed", "Precondition failed";
    /// The change must be conditional.
    PreconditionRequired = "precondition_required", "Precondition required";
    /// The body is larger than the route takes.
    TooLarge = "too_large", "The body is too large";
    /// The body's content type is not one that the route reads.
    UnsupportedMediaType = "unsupported_media_type", "Unsupported media type";
    /// The head of the request is too large.
    HeadersTooLarge = "headers_too_large", "The headers are too large";
    /// The policy cannot be accepted.
    InvalidPolicy = "invalid_policy", "The policy is not valid";
    /// The request id was used with other content.
    RequestIdReused = "request_id_reused", "The request id was used with other content";
    /// A budget of a domain, resource or client is used up.
    Shed = "shed", "Refused to protect others";
    /// A fault of the service itself.
    Internal = "internal", "Internal error";
    /// The whole node has too much to do.
    Overloaded = "overloaded", "Overloaded";
    /// Nobody leads the cluster at the moment.
    NoLeader = "no_leader", "No leader";
    /// The node has not applied its log yet.
    NotReady = "not_ready", "Not ready";
    /// A policy could not be asked.
    PolicyUnavailable = "policy_unavailable", "A policy could not be asked";
    /// The disk has only its reserve left.
    StorageFull = "storage_full", "The storage is full";
    /// The node is stopping.
    ShuttingDown = "shutting_down", "Shutting down";
    /// The request may or may not take effect; repeating it with its `request_id` settles it.
    OutcomeUnknown = "outcome_unknown", "The outcome is not known";
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
