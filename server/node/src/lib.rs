//! One node of Leasehold: the replicated log, its storage, and the leader's clock.
//!
//! The one crate that names openraft and redb. Nothing of theirs is in its public face.
//!
//! | file | holds |
//! | --- | --- |
//! | [`Node`] (`node`) | the handle; `acquire`, `renew`, `release`, `lease`, `batch`, `administer`: one verb a file |
//! | `read`, `grants`, `watch` | what readers ask: how it is, how it was, what happens |
//! | `lists`, `why` | pages of locks, leases and clients; why somebody waits |
//! | `stats` | the node in numbers |
//! | [`Change`] (`change`) | what watchers are told |
//! | `found`, [`Removed`] (`place`) | how a node gets its place in a cluster, and loses it |
//! | `membership` | members come and go |
//! | [`ClusterView`] (`status`) | how the nodes of a cluster are |
//! | `propose`, `batcher` | commands gather into log entries; who goes first; into Raft |
//! | `hub` | the leader's memory: deadlines, sleeping requests, things due |
//! | `keeper` | the task that proposes what is due, and measures outages |
//! | [`backup`] | backups, and new clusters from them |
//! | [`Forwarded`] (`forward`), `peers` | what is passed on to the leader; the way to other nodes |
//! | `follower_reads` | linearizable reads on a node that does not lead |
//! | `level` | which commands the log may hold while members run different releases |
//! | `digests` | whether the nodes have the same state |
//! | `rounds` | work that is done once for all who asked before it began |
//! | `confirm`, `leadership` | the quorum's word; gaining and losing leadership |
//! | [`TransferError`] (`transfer`) | handing leadership over |
//! | `contact` | how lately this node was in touch with the others |
//! | `log`, `state`, `history`, `open` | redb: the Raft log, snapshots, ended grants |
//! | `reserve` | disk space that is kept for what frees locks |
//! | `codec` | every stored byte, versioned and pinned |
//! | `runtime` | the seam to clock, timers, tasks and randomness |

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests drive the real clock"))]

mod acquire;
mod administer;
pub mod answer;
pub mod backup;
mod batch;
mod batcher;
mod change;
mod codec;
mod config;
mod confirm;
mod contact;
mod digests;
mod fatal;
mod follower_reads;
mod forward;
mod found;
mod grants;
mod history;
mod hub;
mod keeper;
mod leadership;
mod lease;
mod level;
mod lists;
mod log;
mod membership;
mod metrics;
mod node;
mod open;
mod peers;
mod place;
mod propose;
mod read;
mod release;
mod renew;
mod reserve;
mod rounds;
mod runtime;
mod state;
mod stats;
mod status;
mod transfer;
mod types;
mod watch;
mod why;

pub use administer::{Deed, ForceReleased, Operator};
pub use answer::*;
pub use batch::{Operated, Operation};
pub use change::{Change, ChangeKind, Named, action_name};
pub use config::{NodeConfig, PeerConfig, Timing};
pub use fatal::StorageFault;
pub use forward::{AnswerForwarded, Forwarded, ForwardedAnswer};
pub use grants::{GrantSeen, GrantsFilter, NoGrant};
pub use level::Outdated;
pub use lists::{ClientsFilter, LeasesFilter, LockState, LockSummary, LocksFilter};
pub use membership::MembershipError;
pub use metrics::Metrics;
pub use node::{Node, StartError};
pub use open::{DATA_FORMAT, OpenError};
pub use place::Removed;
pub use propose::QueueSettings;
pub use stats::{Stats, Usage};
pub use status::{ClusterView, NodeRole, NodeStatus, NodeView, RaftState};
pub use transfer::TransferError;
pub use watch::{Watch, WatchFilter, Watched};
pub use why::WhyStatus;

type Raft = openraft::Raft<types::TypeConfig, state::StateMachine>;
