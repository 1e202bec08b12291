//! What the replicated log carries, as openraft's generics want to know it.

use leasehold_core::Command;
use std::fmt;
use std::sync::Arc;

/// The types that openraft is generic over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TypeConfig;

// Written out, because openraft's macro takes no responder of our own.
impl openraft::RaftTypeConfig for TypeConfig {
    type D = Arc<Batch>;
    type R = Reply;
    type NodeId = u64;
    type Node = Member;
    type Term = u64;
    /// Standard Raft: a term has one leader, so a term identifies the leader of a decision.
    type LeaderId = openraft::impls::leader_id_std::LeaderId<u64, u64>;
    type Vote = openraft::impls::Vote<Self::LeaderId>;
    type Payload = openraft::EntryPayload<Self::D, u64, Member>;
    type Entry =
        openraft::Entry<<Self::LeaderId as openraft::vote::RaftLeaderId>::Committed, Self::Payload>;
    type Responder<T>
        = CallBack<T>
    where
        T: openraft::OptionalSend + 'static;
    type Batch<T>
        = openraft::impls::InlineBatch<T>
    where
        T: openraft::OptionalSend + 'static;
    type AsyncRuntime = openraft::impls::TokioRuntime;
    type ErrorSource = openraft::impls::BoxedErrorSource;
}

/// What Raft does with a result: calls back, in place. A channel would cost a task and a wake-up
/// for each batch.
pub(crate) struct CallBack<T>(Box<dyn FnOnce(T) + Send>);

impl<T> CallBack<T> {
    pub(crate) fn new(call: impl FnOnce(T) + Send + 'static) -> Self {
        Self(Box::new(call))
    }
}

impl<T: openraft::OptionalSend + 'static> openraft::raft::responder::Responder<TypeConfig, T>
    for CallBack<T>
{
    fn on_complete(self, result: T) {
        (self.0)(result);
    }
}

pub(crate) type Entry = openraft::alias::EntryOf<TypeConfig>;
pub(crate) type Payload = openraft::alias::EntryPayloadOf<TypeConfig>;
pub(crate) type LogId = openraft::alias::LogIdOf<TypeConfig>;
pub(crate) type Vote = openraft::alias::VoteOf<TypeConfig>;
pub(crate) type CommittedLeader = openraft::alias::CommittedLeaderIdOf<TypeConfig>;
pub(crate) type LeaderId = openraft::alias::LeaderIdOf<TypeConfig>;
pub(crate) type Membership = openraft::Membership<u64, Member>;
pub(crate) type StoredMembership = openraft::alias::StoredMembershipOf<TypeConfig>;
pub(crate) type SnapshotMeta = openraft::alias::SnapshotMetaOf<TypeConfig>;
pub(crate) type Snapshot = openraft::alias::SnapshotOf<TypeConfig, crate::state::SnapshotData>;
pub(crate) type AppendAsk = openraft::raft::AppendEntriesRequest<TypeConfig>;
pub(crate) type AppendTold = openraft::raft::AppendEntriesResponse<TypeConfig>;
pub(crate) type VoteAsk = openraft::raft::VoteRequest<TypeConfig>;
pub(crate) type VoteTold = openraft::raft::VoteResponse<TypeConfig>;
pub(crate) type TransferAsk = openraft::raft::TransferLeaderRequest<TypeConfig>;
pub(crate) type TransferTold = openraft::raft::TransferLeaderResponse<TypeConfig>;
pub(crate) type TransferRefusal = openraft::raft::TransferLeaderError<TypeConfig>;
pub(crate) type IoFlushed = openraft::storage::IOFlushed<TypeConfig>;
/// What Raft tells of its log, as it changes.
pub(crate) type DataMetrics =
    openraft::alias::WatchReceiverOf<TypeConfig, openraft::metrics::RaftDataMetrics<TypeConfig>>;
pub(crate) type LogState = openraft::LogState<TypeConfig>;

/// One log entry: commands that were proposed together.
///
/// Behind an `Arc`, because openraft copies every entry for each follower and for applying.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Batch {
    /// Which run of which node proposed it: random, new at every start.
    pub proposer: u64,
    /// Its number among the batches of that proposer.
    pub seq: u64,
    /// The wall clock of the proposer, in milliseconds.
    pub at_ms: u64,
    /// What is asked, in order.
    pub commands: Vec<Command>,
}

impl fmt::Display for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "batch {:x}/{} of {}", self.proposer, self.seq, self.commands.len())
    }
}

/// What Raft hands back for an applied entry. The outcomes themselves go through
/// [`Sink`](crate::state::Sink), to whoever waits for each of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Reply;

/// Where a member of the cluster is reached.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Member {
    /// The base address that clients use.
    pub http: String,
    /// The address that other members use.
    pub peer: String,
    /// Which life of the node this is: random, made with its log. A node that lost its log has
    /// another, and is never taken for the one whose votes and entries are gone.
    pub incarnation: u128,
}
