//! Answering one peer: questions are handed to Raft in the order in which they come.

use super::echo::Answering;
use super::identity::{Admission, Caller};
use super::listener::Host;
use super::snapshot::Arriving;
use super::{Frames, HANDSHAKE_WITHIN};
use crate::codec::{self, Ask, Dating, DecodeError, SnapshotAsk, StatusAsk, Told};
use crate::history::History;
use crate::runtime;
use crate::state::StateMachine;
use crate::types::{AppendAsk, AppendTold, LogId, Snapshot, TypeConfig, Vote};
use bytes::{Bytes, BytesMut};
use futures_util::stream::BoxStream;
use futures_util::{SinkExt as _, StreamExt as _, stream};
use openraft::async_runtime::WatchReceiver as _;
use openraft::errors::Fatal;
use openraft::raft::{StreamAppendError, StreamAppendResult};
use std::io;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

/// Appends that are handed to Raft before the first of them is answered.
const WINDOW: usize = 64;

/// What Raft says of one append.
type Appended = Result<StreamAppendResult<TypeConfig>, Fatal<TypeConfig>>;

/// A peer that is being answered.
struct Serving {
    host: Host,
    caller: Caller,
    appends: Option<Appends>,
    answered: Answering,
    snapshot: Option<Arriving>,
}

/// Appends on their way through Raft.
struct Appends {
    asks: mpsc::Sender<AppendAsk>,
    told: BoxStream<'static, Appended>,
    /// One for which there is no room yet. Nothing more is read meanwhile, but what is answered
    /// goes out: room comes from nothing else.
    waiting: Option<AppendAsk>,
}

/// Answers until the peer goes away or says what has no meaning.
pub(super) async fn serve(mut frames: Frames, host: Host, caller: Caller) -> io::Result<()> {
    let mut serving = Serving::new(host, caller);
    loop {
        let told = tokio::select! {
            biased;
            told = next_appended(&mut serving.appends) => serving.appended(told),
            frame = next_frame(&serving.host, &serving.caller, &mut frames), if serving.reads() => match frame {
                None => return Ok(()),
                Some(frame) => {
                    let us = &serving.host.us;
                    let ask = codec::decode_ask(&frame?, us.knows());
                    // A stranger is not believed.
                    if let Err(DecodeError::Commands { needs, .. }) = ask
                        && us.admits(&serving.caller) != Admission::Nothing
                    {
                        us.meet(needs);
                    }
                    let ask = ask.map_err(io::Error::other)?;
                    match (serving.refuses(&ask), ask) {
                        (Some(why), _) => Some(Told::Unable(why.to_owned())),
                        (None, Ask::Session) => return serving.host.session(frames).await,
                        (None, ask) => serving.answer(ask).await,
                    }
                }
            }
        };
        if let Some(told) = told {
            let unable = matches!(told, Told::Unable(_));
            frames.send(Bytes::from(codec::encode_told(&told))).await?;
            if unable {
                return Ok(());
            }
        }
    }
}

/// Somebody with whom this node has nothing to do has to ask soon: it takes up a place.
async fn next_frame(
    host: &Host,
    caller: &Caller,
    frames: &mut Frames,
) -> Option<io::Result<BytesMut>> {
    if host.us.admits(caller) != Admission::Nothing {
        return frames.next().await;
    }
    runtime::timeout_at(runtime::now() + HANDSHAKE_WITHIN, frames.next()).await.flatten()
}

/// The answer to the oldest append; never, if there is none.
async fn next_appended(appends: &mut Option<Appends>) -> Option<Appended> {
    match appends {
        Some(appends) => appends.next().await,
        None => std::future::pending().await,
    }
}

impl Appends {
    fn begin(raft: &crate::Raft) -> Self {
        let (asks, taken) = mpsc::channel(WINDOW);
        let taken =
            stream::unfold(taken, |mut taken| async move { Some((taken.recv().await?, taken)) });
        Self { asks, told: raft.stream_append(taken).boxed(), waiting: None }
    }

    fn ask(&mut self, ask: AppendAsk) {
        // Raft has stopped if nobody takes it, which the stream of answers says.
        if let Err(TrySendError::Full(ask)) = self.asks.try_send(ask) {
            self.waiting = Some(ask);
        }
    }

    async fn next(&mut self) -> Option<Appended> {
        loop {
            tokio::select! {
                biased;
                told = self.told.next() => return told,
                room = self.asks.reserve(), if self.waiting.is_some() => {
                    if let (Ok(room), Some(ask)) = (room, self.waiting.take()) {
                        room.send(ask);
                    }
                }
            }
        }
    }
}

impl Serving {
    fn new(host: Host, caller: Caller) -> Self {
        Self { host, caller, appends: None, answered: Answering::default(), snapshot: None }
    }

    /// Whether there is room for what the peer may ask next.
    fn reads(&self) -> bool {
        self.appends.as_ref().is_none_or(|appends| appends.waiting.is_none())
    }

    /// Looked at for every question: the caller may have become a member, or be none any more.
    fn refuses(&self, ask: &Ask) -> Option<&'static str> {
        if !is_plausible(ask) {
            return Some("no log has such numbers");
        }
        match (self.host.us.admits(&self.caller), ask) {
            // Who was removed learns of it from the answer, and may have applied too little to
            // name its cluster.
            (Admission::Everything, _) | (_, Ask::Status(_)) => None,
            (_, Ask::Session | Ask::ReadIndex) => Some("only members of the cluster may ask that"),
            (Admission::Raft, _) => None,
            (Admission::Nothing, _) => Some("the caller is no member of the cluster"),
        }
    }

    async fn answer(&mut self, ask: Ask) -> Option<Told> {
        match ask {
            Ask::Append(ask, dating) => {
                self.append(ask, dating);
                None
            }
            Ask::Vote(ask) => Some(told(self.host.raft.vote(ask).await, Told::Vote)),
            Ask::PreVote(ask) => Some(told(self.host.raft.pre_vote(ask).await, Told::Vote)),
            Ask::Transfer(ask) => {
                Some(told(self.host.raft.handle_transfer_leader(ask).await, Told::Transfer))
            }
            Ask::Snapshot(ask) => Some(self.snapshot(ask).await),
            Ask::Parcel(parcel) => {
                let Some(arriving) = &mut self.snapshot else {
                    return Some(Told::Unable("a history of no snapshot".to_owned()));
                };
                Some(told(arriving.parcel(parcel).await, |()| Told::GoOn))
            }
            Ask::Chunk(chunk) => Some(self.chunk(chunk).await),
            Ask::ReadIndex => Some(told(self.host.read_index().await, Told::ReadIndex)),
            Ask::Status(ask) => Some(self.host.status(ask)),
            Ask::Digests => Some(Told::Digests(self.host.shared.digests.told())),
            Ask::Session => Some(Told::Unable("a session begins with itself".to_owned())),
        }
    }

    /// A stream that ended with a refusal is begun anew: the peer knows that what it had asked
    /// before is void.
    fn append(&mut self, ask: AppendAsk, dating: Dating) {
        let knows_until = self.answered.knows_until(dating);
        self.host.heard(&ask, knows_until);
        self.appends.get_or_insert_with(|| Appends::begin(&self.host.raft)).ask(ask);
    }

    fn appended(&mut self, told: Option<Appended>) -> Option<Told> {
        // Before it is sent: so it comes out earlier than it was rather than later.
        self.answered.answers(runtime::now());
        match told {
            Some(Ok(Ok(upto))) => Some(Told::Append(AppendTold::PartialSuccess(upto))),
            Some(Ok(Err(StreamAppendError::Conflict(_)))) => {
                self.appends = None;
                Some(Told::Append(AppendTold::Conflict))
            }
            Some(Ok(Err(StreamAppendError::HigherVote(vote)))) => {
                self.appends = None;
                Some(Told::Append(AppendTold::HigherVote(vote)))
            }
            Some(Err(fatal)) => Some(Told::Unable(fatal.to_string())),
            None => Some(Told::Unable("raft has stopped".to_owned())),
        }
    }

    async fn snapshot(&mut self, ask: SnapshotAsk) -> Told {
        let history = match self.host.history().await {
            Ok(history) => history,
            Err(fatal) => return Told::Unable(fatal.to_string()),
        };
        match Arriving::begin(ask, &self.host.dir, history).await {
            Ok((arriving, reach)) => {
                self.snapshot = Some(arriving);
                Told::Reach(reach)
            }
            Err(error) => Told::Unable(error.to_string()),
        }
    }

    async fn chunk(&mut self, chunk: Vec<u8>) -> Told {
        let Some(arriving) = &mut self.snapshot else {
            return Told::Unable("a chunk of no snapshot".to_owned());
        };
        match arriving.chunk(chunk).await {
            Ok(None) => Told::GoOn,
            Ok(Some((vote, snapshot))) => {
                self.snapshot = None;
                self.host.install(vote, snapshot).await
            }
            Err(error) => Told::Unable(error.to_string()),
        }
    }
}

/// No term or index of a real log comes near, and one past it cannot be counted any more.
const NUMBER_MAX: u64 = 1 << 62;

/// Whether Raft can count with the numbers in this, and its entries follow each other.
fn is_plausible(ask: &Ask) -> bool {
    let vote = |vote: &Vote| vote.leader_id.term < NUMBER_MAX;
    let id = |id: Option<LogId>| {
        id.is_none_or(|id| id.index < NUMBER_MAX && id.leader_id.term < NUMBER_MAX)
    };
    match ask {
        Ask::Append(ask, _) => {
            let next = ask.prev_log_id.map_or(0, |id| id.index.saturating_add(1));
            let follows = (next..).zip(&ask.entries).all(|(at, entry)| entry.log_id.index == at);
            let ids = [ask.prev_log_id, ask.leader_commit].into_iter();
            let mut ids = ids.chain(ask.entries.iter().map(|entry| Some(entry.log_id)));
            vote(&ask.vote) && ids.all(id) && follows
        }
        Ask::Vote(ask) | Ask::PreVote(ask) => vote(&ask.vote) && id(ask.last_log_id),
        Ask::Transfer(ask) => vote(ask.from_leader()) && id(ask.last_log_id().copied()),
        Ask::Snapshot(ask) => vote(&ask.vote) && id(ask.meta.last_log_id),
        _ => true,
    }
}

impl Host {
    /// Only the word of a leader that this node follows counts, or will follow once it has taken
    /// this in; and that at its receipt, as the answer may have to wait for the disk. It knows
    /// of all that was committed at `knows_until`.
    fn heard(&self, ask: &AppendAsk, knows_until: Option<Instant>) {
        let leader = ask.vote.leader_id;
        let ours = self.raft.server_metrics().borrow_watched().vote;
        let later = leader.term > ours.leader_id.term;
        let elected = leader.term == ours.leader_id.term && !ours.committed;
        if leader == ours.leader_id || later || elected {
            let applied = self.shared.applied().map_or(0, |id| id.index);
            // One that has committed nothing yet may not know of all that its predecessor did.
            let own = ask.leader_commit.filter(|id| id.leader_id.term == leader.term);
            let committed = own.zip(knows_until).map(|(id, at)| (id.index, at));
            self.contact.heard(runtime::now(), leader, committed, applied);
        }
    }

    async fn session(self, frames: Frames) -> io::Result<()> {
        match self.answers.get() {
            Some(answers) => {
                super::session::serve(frames, Arc::clone(answers), self.metrics.clone()).await
            }
            // It has only just started: the other end finds the connection closed.
            None => Ok(()),
        }
    }

    /// Whatever was answered before this question is in the state at that entry.
    async fn read_index(&self) -> Result<u64, &'static str> {
        self.confirmer.confirm().await.map_err(|_| "this node does not lead")?;
        Ok(self.shared.applied().map_or(0, |id| id.index))
    }

    fn status(&self, ask: StatusAsk) -> Told {
        self.us.note(ask.from, &ask.about);
        Told::Status(Box::new(self.reporter.report()))
    }

    async fn history(&self) -> Result<History, Fatal<TypeConfig>> {
        let history = self.raft.with_state_machine(|machine: &mut StateMachine| {
            let history = machine.history().clone();
            Box::pin(async move { history })
        });
        history.await
    }

    async fn install(&self, vote: Vote, snapshot: Snapshot) -> Told {
        // Another transfer may have begun since. Without its history the snapshot would leave a
        // hole in this node's.
        let upto = snapshot.meta.last_log_id.map_or(0, |id| id.index);
        match self.history().await {
            Ok(history) if history.is_whole(upto) => {}
            Ok(_) => return Told::Unable("its history is not here any more".to_owned()),
            Err(fatal) => return Told::Unable(fatal.to_string()),
        }
        // openraft panics on a snapshot that no leader of this cluster could have sent.
        if let Err(why) = self.fits(&vote, snapshot.meta.last_log_id) {
            return Told::Unable(why.to_owned());
        }
        told(self.raft.install_full_snapshot(vote, snapshot).await, |response| {
            Told::Snapshot(response.vote)
        })
    }

    fn fits(&self, vote: &Vote, last: Option<LogId>) -> Result<(), &'static str> {
        let Some(last) = last else { return Err("a snapshot of nothing") };
        if last.leader_id.term > vote.leader_id.term {
            return Err("a snapshot that is newer than its leader");
        }
        let committed = self.raft.data_metrics().borrow_watched().last_applied;
        let contradicts =
            committed.is_some_and(|committed| last > committed && last.index <= committed.index);
        if contradicts { Err("a snapshot that contradicts what is committed here") } else { Ok(()) }
    }
}

fn told<T, E: std::fmt::Display>(result: Result<T, E>, tell: impl FnOnce(T) -> Told) -> Told {
    match result {
        Ok(answer) => tell(answer),
        Err(error) => Told::Unable(error.to_string()),
    }
}
