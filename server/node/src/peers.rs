//! The way to other nodes. A node alone has none: every call says that nobody is there.

use crate::state::SnapshotData;
use crate::types::{Member, Snapshot, TypeConfig, Vote};
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use std::future::Future;

/// Makes connections to peers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NoPeers;

/// A connection to nobody.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Nobody;

fn unreachable() -> Unreachable<TypeConfig> {
    Unreachable::from_string("this node has no way to its peers")
}

impl RaftNetworkFactory<TypeConfig> for NoPeers {
    type Network = Nobody;

    async fn new_client(&mut self, _target: u64, _node: &Member) -> Nobody {
        Nobody
    }
}

impl RaftNetworkV2<TypeConfig> for Nobody {
    type SnapshotData = SnapshotData;

    async fn append_entries(
        &mut self,
        _rpc: AppendEntriesRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RPCError<TypeConfig>> {
        Err(unreachable().into())
    }

    async fn vote(
        &mut self,
        _rpc: VoteRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        Err(unreachable().into())
    }

    async fn pre_vote(
        &mut self,
        _rpc: VoteRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        Err(unreachable().into())
    }

    async fn full_snapshot(
        &mut self,
        _vote: Vote,
        _snapshot: Snapshot,
        _cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        Err(unreachable().into())
    }
}
