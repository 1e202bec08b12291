//! What Leasehold says and hears: JSON shapes and the closed set of error codes, as pure data.
//!
//! | file | holds |
//! | --- | --- |
//! | [`acquire`], [`renew`], [`release`], [`cancel_wait`], [`batch`], [`lease`], [`fence`] | one verb, its request and its answer |
//! | [`force_release`], [`domain`], [`cluster`] | what operators ask for |
//! | [`lock`], [`why`], [`client`], [`page`], [`health`] | what readers get |
//! | [`event`], [`history`], [`audit`], [`stats`] | what happened, and how things are |
//! | [`code`], [`problem`] | the one error shape |
//! | [`parse()`], `diagnose` | strict reading: first fast, then, only after a failure, precise |
//! | [`mode`], [`metadata`], [`id`], [`time`] | the pieces that several shapes share |
//! | [`schema`] | all of it as JSON Schema, for descriptions of the API |
//!
//! What must stay true:
//!
//! - A request with an unknown or repeated field, a `null`, or a value of the wrong kind is never
//!   read as something else. The error names the field and says what is allowed.
//! - Answers may gain fields, so whoever reads them ignores what it does not know.
//! - Tokens are numbers below 2^53; every other identifier is an opaque string.

pub mod acquire;
pub mod audit;
pub mod batch;
pub mod cancel_wait;
pub mod client;
pub mod cluster;
pub mod code;
mod diagnose;
pub mod domain;
pub mod event;
pub mod fence;
pub mod force_release;
pub mod health;
pub mod history;
pub mod id;
pub mod lease;
pub mod lock;
pub mod metadata;
pub mod mode;
pub mod page;
pub mod parse;
pub mod problem;
pub mod release;
pub mod renew;
pub mod schema;
pub mod stats;
pub mod time;
pub mod why;

pub use acquire::{Acquire, Grant, Holding, PolicyVerdict};
pub use audit::AuditRecord;
pub use batch::{Batch, BatchResult, BatchResults, Operation};
pub use cancel_wait::{CancelWait, WaitCancelled};
pub use client::ClientSummary;
pub use cluster::{
    AddNode, ChangeNode, Cluster, ClusterNode, LeadershipTransferred, NodeChanged, NodeRole,
    NodeStanding, TransferLeadership,
};
pub use code::Code;
pub use domain::{Domain, DomainReset, SetDomain};
pub use event::{Event, EventKind, Gap};
pub use fence::{FenceCheck, FenceChecked};
pub use force_release::{ForceRelease, ForceReleased, ForceWhen};
pub use health::Health;
pub use history::{EndedHow, GrantRecord, GrantState};
pub use id::HexId;
pub use lease::{
    KeepAlive, KeepAliveMany, KeptAlive, KeptAliveMany, Lease, LeaseEnded, LeaseGrant, LeaseOpened,
    OpenLease,
};
pub use lock::{Holder, Lock, LockState, LockSummary, Waiter};
pub use metadata::Metadata;
pub use mode::Mode;
pub use page::Page;
pub use parse::{Invalid, Shape, parse};
pub use problem::{CycleStep, Problem};
pub use release::{NotReleased, Release, Released};
pub use renew::{DrainingGrant, EndedGrant, Renew, Renewed};
pub use stats::{Attention, Concern, Config, Latency, Setting, Severity, Stats};
pub use time::Time;
pub use why::{Usage, Why, WhyState};
