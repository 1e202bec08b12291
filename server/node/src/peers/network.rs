//! What openraft asks of a network.

use super::Identity;
use super::line::{Line, LineError, Open};
use super::snapshot;
use crate::codec::{self, Dating, Told};
use crate::contact::Contact;
use crate::runtime;
use crate::state::SnapshotData;
use crate::types::{
    AppendAsk, AppendTold, LogId, Member, Snapshot, TransferAsk, TransferTold, TypeConfig, Vote,
    VoteAsk, VoteTold,
};
use futures_util::{Stream, StreamExt as _, stream};
use openraft::base::{BoxFuture, BoxStream};
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{SnapshotResponse, StreamAppendResult};
use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Appends that may be on their way to a follower at once.
const WINDOW: usize = 32;
/// A follower answers an append after its sync, which a bad disk can hold up for long. openraft's
/// own limit, the heartbeat interval, would take every stall for a broken connection.
const APPENDED_WITHIN: Duration = Duration::from_secs(10);
/// What is granted for a connection, whatever the question is worth.
const CONNECTED_WITHIN: Duration = Duration::from_secs(2);
/// A peer that could not be reached is tried again after this: soon enough for one that restarts,
/// seldom enough for one that stays away.
const CONNECT_AGAIN: Duration = Duration::from_millis(200);

type RpcError = RPCError<TypeConfig>;

/// Makes ways to peers.
#[derive(Debug, Clone)]
pub(crate) struct Peers {
    us: Arc<Identity>,
    contact: Arc<Contact>,
}

impl Peers {
    pub(crate) fn new(us: Arc<Identity>, contact: Arc<Contact>) -> Self {
        Self { us, contact }
    }
}

impl RaftNetworkFactory<TypeConfig> for Peers {
    type Network = Peer;

    async fn new_client(&mut self, target: u64, node: &Member) -> Peer {
        let line = Line::new(self.us.clone(), target, node);
        Peer { line, contact: self.contact.clone(), not_before: None }
    }
}

/// One peer, asked by one task of openraft. Each has a connection of its own, so that a snapshot
/// never stands in the way of a heartbeat.
#[derive(Debug)]
pub(crate) struct Peer {
    line: Line,
    contact: Arc<Contact>,
    /// After a connection that failed. openraft waits between requests of a stream, which it does
    /// not get to where there is no connection to ask them on.
    not_before: Option<Instant>,
}

impl RaftNetworkV2<TypeConfig> for Peer {
    type SnapshotData = SnapshotData;

    async fn append_entries(
        &mut self,
        rpc: AppendAsk,
        _option: RPCOption,
    ) -> Result<AppendTold, RpcError> {
        // openraft asks in streams, so nothing is gained by saying when this is from.
        let (message, count) = codec::encode_append(&rpc, Dating::default());
        let upto = (count < rpc.entries.len()).then(|| reached(&rpc, count));
        match self.line.call(message, APPENDED_WITHIN).await.map_err(failed)? {
            Told::Append(told) if told.is_success() => {
                Ok(upto.map_or(told, AppendTold::PartialSuccess))
            }
            Told::Append(told) => Ok(told),
            other => Err(unexpected(&other)),
        }
    }

    /// Up to [`WINDOW`] appends are on their way at once; answers come in the order of questions.
    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        _option: RPCOption,
    ) -> BoxFuture<
        's,
        Result<BoxStream<'s, Result<StreamAppendResult<TypeConfig>, RpcError>>, RpcError>,
    >
    where
        S: Stream<Item = AppendAsk> + openraft::OptionalSend + Unpin + 'static,
    {
        Box::pin(async move {
            if let Some(at) = self.not_before.take() {
                runtime::sleep_until(at).await;
            }
            let open = match self.line.take(CONNECTED_WITHIN).await {
                Ok(open) => open,
                Err(cause) => {
                    self.not_before = Some(runtime::now() + CONNECT_AGAIN);
                    return Err(failed(cause));
                }
            };
            let contact = self.contact.clone();
            let pipeline = Pipeline::new(open, contact, input);
            let state = Some((pipeline, &mut self.line));
            let told = stream::unfold(state, |state| async move {
                let (mut pipeline, line) = state?;
                match pipeline.next().await {
                    Some(Ok(told @ Ok(_))) => Some((Ok(told), Some((pipeline, line)))),
                    // After these nothing more may be asked, and what was asked is void.
                    Some(last) => Some((last.map_err(failed), None)),
                    None => {
                        line.put_back(pipeline.open);
                        None
                    }
                }
            });
            let told: BoxStream<'s, _> = Box::pin(told);
            Ok(told)
        })
    }

    async fn vote(&mut self, rpc: VoteAsk, option: RPCOption) -> Result<VoteTold, RpcError> {
        self.ask_vote(&rpc, false, option).await
    }

    async fn pre_vote(&mut self, rpc: VoteAsk, option: RPCOption) -> Result<VoteTold, RpcError> {
        self.ask_vote(&rpc, true, option).await
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let sending = snapshot::send(&mut self.line, vote, snapshot);
        tokio::select! {
            sent = sending => sent
                .map(SnapshotResponse::new)
                .map_err(|cause| StreamingError::from(failed_to_send(cause))),
            closed = cancel => Err(StreamingError::Closed(closed)),
        }
    }

    async fn transfer_leader(
        &mut self,
        req: TransferAsk,
        option: RPCOption,
    ) -> Result<TransferTold, RpcError> {
        let message = codec::encode_transfer(&req);
        match self.line.call(message, option.soft_ttl()).await.map_err(failed)? {
            Told::Transfer(told) => Ok(told),
            other => Err(unexpected(&other)),
        }
    }
}

impl Peer {
    async fn ask_vote(
        &mut self,
        rpc: &VoteAsk,
        pre: bool,
        option: RPCOption,
    ) -> Result<VoteTold, RpcError> {
        let message = codec::encode_vote_ask(rpc, pre);
        // All of the time there is: a vote is answered after its sync.
        match self.line.call(message, option.hard_ttl()).await.map_err(failed)? {
            Told::Vote(told) => Ok(told),
            other => Err(unexpected(&other)),
        }
    }
}

/// What one append amounts to, and whether its answer completes the request it is a piece of.
struct Asked {
    prev: Option<LogId>,
    last: Option<LogId>,
    completes: bool,
}

/// Appends on their way.
struct Pipeline<S> {
    open: Open,
    contact: Arc<Contact>,
    input: S,
    more: bool,
    asked: VecDeque<Asked>,
    /// Since when the peer could have answered and has not.
    silent_since: Instant,
    /// What is left of a request of which some pieces were sent, and when it is from.
    rest: Option<(AppendAsk, Dating)>,
}

impl<S: Stream<Item = AppendAsk> + Unpin> Pipeline<S> {
    fn new(open: Open, contact: Arc<Contact>, input: S) -> Self {
        let (asked, silent_since) = (VecDeque::new(), runtime::now());
        Self { open, contact, input, more: true, asked, silent_since, rest: None }
    }

    async fn next(&mut self) -> Option<Result<StreamAppendResult<TypeConfig>, LineError>> {
        loop {
            let may_ask = self.asked.len() < WINDOW;
            if let Some((rest, dating)) = self.rest.take_if(|_| may_ask) {
                match self.ask(rest, dating).await {
                    Ok(()) => continue,
                    Err(cause) => return Some(Err(cause)),
                }
            }
            if self.asked.is_empty() && !self.more {
                return None;
            }
            tokio::select! {
                biased;
                ask = self.input.next(), if may_ask && self.more => match ask {
                    Some(ask) => {
                        let dating = self.open.date(self.contact.quorum_age());
                        self.rest = Some((ask, dating));
                    }
                    None => self.more = false,
                },
                told = answer(&mut self.open, self.silent_since), if !self.asked.is_empty() => {
                    self.silent_since = runtime::now();
                    let asked = self.asked.pop_front()?;
                    match told.map(|told| judged(told, &asked)) {
                        Ok(Some(Ok(_))) if !asked.completes || self.is_asked_again(&asked) => {}
                        Ok(Some(result)) => return Some(Ok(result)),
                        Ok(None) => return Some(Err(self.open.other_answer())),
                        Err(cause) => return Some(Err(cause)),
                    }
                }
            }
        }
    }

    /// Whether a later request ends at the same entry, as one does that only says how far the
    /// leader has committed. openraft would take this answer for one to both, and so believe that
    /// the follower had heard the later one: a read could be confirmed by what was said before it.
    /// What that one is answered covers this one.
    fn is_asked_again(&self, answered: &Asked) -> bool {
        self.asked.front().is_some_and(|next| next.last == answered.last)
    }

    /// Sends as much of it as fits into a frame.
    async fn ask(&mut self, mut ask: AppendAsk, dating: Dating) -> Result<(), LineError> {
        if self.asked.is_empty() {
            self.silent_since = runtime::now();
        }
        let count = self.open.append(&ask, dating).await?;
        let last = reached(&ask, count);
        let rest = ask.entries.split_off(count);
        let completes = rest.is_empty();
        self.asked.push_back(Asked { prev: ask.prev_log_id, last, completes });
        if !completes {
            self.rest = Some((AppendAsk { prev_log_id: last, entries: rest, ..ask }, dating));
        }
        Ok(())
    }
}

async fn answer(open: &mut Open, silent_since: Instant) -> Result<Told, LineError> {
    let told = runtime::timeout_at(silent_since + APPENDED_WITHIN, open.told()).await;
    told.unwrap_or_else(|| Err(open.silent(APPENDED_WITHIN)))
}

fn judged(told: Told, asked: &Asked) -> Option<StreamAppendResult<TypeConfig>> {
    match told {
        // Nothing to disagree with: only a peer that is out of its mind says so, or that it has
        // what it was not sent.
        Told::Append(AppendTold::Conflict) if asked.prev.is_none() => None,
        Told::Append(AppendTold::PartialSuccess(upto)) if upto > asked.last => None,
        Told::Append(told) => Some(told.into_stream_result(asked.prev, asked.last)),
        _ => None,
    }
}

/// The last entry among the first `count`.
fn reached(ask: &AppendAsk, count: usize) -> Option<LogId> {
    match count.checked_sub(1).and_then(|last| ask.entries.get(last)) {
        Some(entry) => Some(entry.log_id),
        None => ask.prev_log_id,
    }
}

/// Whether trying again at once is worth it.
fn failed(cause: LineError) -> RpcError {
    match cause {
        LineError::Connect { .. }
        | LineError::Silent { .. }
        | LineError::Unwelcome { .. }
        | LineError::Unable { .. } => RPCError::Unreachable(Unreachable::new(&cause)),
        cause => RPCError::Network(NetworkError::new(&cause)),
    }
}

fn failed_to_send(cause: snapshot::SendError) -> RpcError {
    match cause {
        snapshot::SendError::Line(cause) => failed(cause),
        cause => RPCError::Network(NetworkError::new(&cause)),
    }
}

fn unexpected(told: &Told) -> RpcError {
    RPCError::Network(NetworkError::from_string(format!("an answer to another question: {told:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Ask, Standing, Welcome, samples};
    use crate::config::NodeConfig;
    use crate::node::Node;
    use crate::peers::tests::open;
    use crate::peers::{Frames, framed};
    use crate::types::{Entry, Payload};
    use bytes::Bytes;
    use futures_util::SinkExt as _;
    use std::net::TcpListener;
    use tempfile::TempDir;

    async fn node() -> (TempDir, Node) {
        let dir = tempfile::tempdir().expect("a directory");
        let config = NodeConfig { reserve_bytes: 0, ..NodeConfig::new(1, dir.path().join("data")) };
        let node = open(&config).await;
        (dir, node)
    }

    /// Greets whoever calls as a node that belongs to no cluster yet.
    async fn greet(listener: tokio::net::TcpListener) -> Frames {
        let (stream, _) = listener.accept().await.expect("somebody calls");
        let mut frames = framed(stream).expect("tuned");
        frames.next().await.expect("a greeting").expect("a frame");
        let about = samples::hello().caller;
        let standing = Standing { empty: true, cluster: None, member: false };
        let welcome = Welcome::Protocol { version: 1, about, standing };
        frames.send(Bytes::from(codec::encode_welcome(&welcome))).await.expect("it listens");
        frames
    }

    fn append(prev: u64, entries: u64) -> AppendAsk {
        let entry = |index| Entry { log_id: samples::log_id(9, index), payload: Payload::Blank };
        AppendAsk {
            vote: samples::vote(),
            prev_log_id: Some(samples::log_id(9, prev)),
            entries: (prev + 1..=prev + entries).map(entry).collect(),
            leader_commit: Some(samples::log_id(9, prev)),
        }
    }

    /// What is reported of these appends, each of which is answered when all have arrived.
    async fn reported(appends: Vec<AppendAsk>) -> Vec<u64> {
        let (_dir, node) = node().await;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let peer = listener.local_addr().expect("bound").to_string();
        let incarnation = samples::hello().caller.incarnation;
        let there = Member { peer, incarnation, ..Member::default() };
        let count = appends.len();
        let answering = tokio::spawn(async move {
            let mut frames = greet(listener).await;
            let mut asked = Vec::new();
            while asked.len() < count {
                let frame = frames.next().await.expect("it asks").expect("a frame");
                asked.push(codec::decode_ask(&frame, 3).expect("it makes sense"));
            }
            for ask in asked {
                let Ask::Append(ask, _) = ask else { panic!("an append") };
                let last = ask.entries.last().map(|entry| entry.log_id).or(ask.prev_log_id);
                let told = Told::Append(AppendTold::PartialSuccess(last));
                frames.send(Bytes::from(codec::encode_told(&told))).await.expect("it listens");
            }
            frames
        });
        let mut peer = Peers::new(node.inner.identity.clone(), node.inner.contact.clone())
            .new_client(2, &there)
            .await;
        let option = RPCOption::new(Duration::from_secs(60));
        let told = peer.stream_append(stream::iter(appends), option).await.expect("it is there");
        let told: Vec<_> = told.collect().await;
        answering.await.expect("it answers");
        node.shutdown().await;
        let index = |told: Result<StreamAppendResult<TypeConfig>, RpcError>| {
            told.expect("answered").expect("taken").expect("an entry").index
        };
        told.into_iter().map(index).collect()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_answer_is_not_taken_for_one_to_what_was_said_later_of_the_same_entry() {
        let appends = vec![append(5, 1), append(6, 0), append(6, 2), append(8, 0), append(8, 0)];
        assert_eq!(reported(appends).await, [6, 8]);
        assert_eq!(reported(vec![append(5, 1), append(6, 1)]).await, [6, 7]);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_peer_that_stays_away_is_not_connected_to_in_a_loop() {
        let (_dir, node) = node().await;
        let port = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let peer = port.local_addr().expect("bound").to_string();
        drop(port);
        let away = Member { peer, ..Member::default() };
        let mut peer = Peers::new(node.inner.identity.clone(), node.inner.contact.clone())
            .new_client(2, &away)
            .await;
        let begun = runtime::now();
        for _ in 0..4 {
            let option = RPCOption::new(Duration::from_millis(1));
            let asked = peer.stream_append(stream::pending(), option).await;
            assert!(matches!(asked, Err(RPCError::Unreachable(_))));
        }
        assert!(runtime::since(begun) >= 3 * CONNECT_AGAIN);
        node.shutdown().await;
    }
}
