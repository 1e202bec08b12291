//! A session: requests of one node on their way to the leader, many at once over one connection.
//!
//! Either end says at least every [`BEAT`] that it is there. After [`SILENT`] without a word the
//! session is over at both ends, each by its own clock: the leader drops what it was answering, so
//! those who waited count as gone, and the other end answers that the outcome is not known.
//!
//! What a session may hold is bounded at both ends: requests in number and in bytes (`bodies`). One
//! more is refused as `overloaded`, and the session goes on.

use super::bodies::{Bodies, Place, Room, Whole, meaningless};
use super::{Frames, Identity, Line};
use crate::answer::Failure;
use crate::codec::{self, Carried};
use crate::forward::{AnswerForwarded, Forwarded, ForwardedAnswer};
use crate::metrics::Metrics;
use crate::runtime;
use crate::types::Member;
use bytes::{Bytes, BytesMut};
use futures_util::{Sink, SinkExt as _, Stream, StreamExt as _};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// How often either end says that it is there.
const BEAT: Duration = Duration::from_millis(250);
/// A session without a word for this long is over.
const SILENT: Duration = Duration::from_secs(1);
const CONNECTED_WITHIN: Duration = Duration::from_secs(1);
/// Messages that wait for the connection.
const OUT_MAX: usize = 4_096;
/// Requests of one session that are being answered at once.
pub(super) const FORWARDED_MAX: usize = 16_384;
/// The longest body of a request or an answer.
pub(super) const BODY_BYTES_MAX: u64 = 32 << 20;

type Message = Vec<u8>;

/// The way to the leader, for requests that only it can answer.
#[derive(Debug)]
pub(crate) struct Forwarder {
    us: Arc<Identity>,
    session: Mutex<Option<Arc<Session>>>,
    /// Who is being connected to.
    beginning: Mutex<(u64, Arc<Beginning>)>,
}

/// Held while a session with one leader is begun, so that a crowd begins one. In it: when it was
/// known that the last attempt came to nothing, so that a crowd tries once.
type Beginning = tokio::sync::Mutex<Option<Instant>>;

#[derive(Debug)]
struct Session {
    leader: u64,
    out: mpsc::Sender<Message>,
    waiting: Arc<Mutex<Waiting>>,
    room: Room,
}

/// Requests that have no answer yet.
#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    over: bool,
    answers: HashMap<u64, oneshot::Sender<ForwardedAnswer>>,
}

impl Forwarder {
    pub(crate) fn new(us: Arc<Identity>) -> Self {
        Self { us, session: Mutex::new(None), beginning: Mutex::default() }
    }

    /// Passes a request on to `leader`. Dropping the future tells it that the client is gone.
    pub(crate) async fn forward(
        &self,
        leader: u64,
        member: &Member,
        mut request: Forwarded,
    ) -> Result<ForwardedAnswer, Failure> {
        let began = runtime::now();
        let session = self.session(leader, member).await?;
        request.elapsed += runtime::since(began);
        let place = session.room.take(request.body.len() as u64).ok_or(Failure::Overloaded)?;
        let (mut pending, answer) = Pending::begin(session, place)?;
        pending.send(&request)?;
        let answered = answer.await;
        pending.answered();
        answered.map_err(|_| Failure::OutcomeUnknown { request_id: None })
    }

    async fn session(&self, leader: u64, member: &Member) -> Result<Arc<Session>, Failure> {
        if let Some(session) = self.live(leader) {
            return Ok(session);
        }
        let asked = runtime::now();
        let beginning = self.beginning(leader);
        let mut failed = beginning.lock().await;
        if let Some(session) = self.live(leader) {
            return Ok(session);
        }
        if failed.is_some_and(|at| at >= asked) {
            return Err(Failure::NoLeader);
        }
        let mut line = Line::new(self.us.clone(), leader, member);
        let frames = line.begin_session(CONNECTED_WITHIN).await.map_err(|cause| {
            tracing::debug!(%cause, "the leader is not reached");
            *failed = Some(runtime::now());
            Failure::NoLeader
        })?;
        let session = Arc::new(start(frames, leader));
        *self.session.lock() = Some(Arc::clone(&session));
        Ok(session)
    }

    /// Nobody waits for an attempt to reach another leader.
    fn beginning(&self, leader: u64) -> Arc<Beginning> {
        let mut beginning = self.beginning.lock();
        if beginning.0 != leader {
            *beginning = (leader, Arc::default());
        }
        Arc::clone(&beginning.1)
    }

    fn live(&self, leader: u64) -> Option<Arc<Session>> {
        let session = self.session.lock();
        let live = session.as_ref().filter(|s| s.leader == leader && !s.waiting.lock().over);
        live.cloned()
    }
}

/// One request on its way. Dropped before it is answered, it hangs up.
struct Pending {
    session: Arc<Session>,
    id: u64,
    sent: bool,
    _place: Place,
}

impl Pending {
    fn begin(
        session: Arc<Session>,
        place: Place,
    ) -> Result<(Self, oneshot::Receiver<ForwardedAnswer>), Failure> {
        let (reply, answer) = oneshot::channel();
        let mut waiting = session.waiting.lock();
        if waiting.over {
            return Err(Failure::NoLeader);
        }
        if waiting.answers.len() >= FORWARDED_MAX {
            return Err(Failure::Overloaded);
        }
        waiting.next += 1;
        let id = waiting.next;
        waiting.answers.insert(id, reply);
        drop(waiting);
        Ok((Self { session, id, sent: false, _place: place }, answer))
    }

    /// All of its messages or none: half a request would wait for its rest for ever.
    fn send(&mut self, request: &Forwarded) -> Result<(), Failure> {
        let messages: Vec<Message> = codec::encode_request(self.id, request).collect();
        let places = self.session.out.try_reserve_many(messages.len());
        let places = places.map_err(|full| match full {
            mpsc::error::TrySendError::Full(()) => Failure::Overloaded,
            mpsc::error::TrySendError::Closed(()) => Failure::NoLeader,
        })?;
        places.zip(messages).for_each(|(place, message)| place.send(message));
        self.sent = true;
        Ok(())
    }

    /// There is nothing to hang up any more.
    fn answered(&mut self) {
        self.sent = false;
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.session.waiting.lock().answers.remove(&self.id);
        if self.sent && self.session.out.try_send(codec::encode_hang_up(self.id)).is_err() {
            // With no room for a word the leader is told by the end of the session.
            self.session.waiting.lock().over = true;
        }
    }
}

fn start(frames: Frames, leader: u64) -> Session {
    let (out, messages) = mpsc::channel(OUT_MAX);
    let waiting = Arc::new(Mutex::new(Waiting::default()));
    let theirs = Arc::clone(&waiting);
    runtime::spawn(async move {
        let mut bodies = Bodies::new(None);
        let ended =
            carry(frames, messages, |carried, bytes| match bodies.take(carried, bytes)? {
                Some(Whole::Answer(id, answer)) => {
                    let reply = theirs.lock().answers.remove(&id);
                    // Without one its client is gone, which is as well.
                    let _ = reply.map(|reply| reply.send(answer));
                    Ok(!theirs.lock().over)
                }
                // Without its answer the outcome is not known.
                Some(Whole::NoRoom(id)) => {
                    theirs.lock().answers.remove(&id);
                    Ok(!theirs.lock().over)
                }
                Some(Whole::Request(..) | Whole::HangUp(_)) => Err(meaningless()),
                None => Ok(!theirs.lock().over),
            })
            .await;
        if let Err(why) = ended {
            tracing::debug!(%why, leader, "the session with the leader ended");
        }
        let mut waiting = theirs.lock();
        waiting.over = true;
        // Dropping them says that their outcome is not known.
        waiting.answers.clear();
    });
    Session { leader, out, waiting, room: Room::default() }
}

/// The leader's end, which says at once that it is there: the other one waits for that.
pub(super) async fn serve(
    mut frames: Frames,
    answers: Arc<dyn AnswerForwarded>,
    metrics: Metrics,
) -> io::Result<()> {
    frames.send(Bytes::from(codec::encode_beat())).await?;
    let (out, messages) = mpsc::channel(OUT_MAX);
    let mut bodies = Bodies::new(Some(metrics.passed_on_bytes.clone()));
    let mut answering = Answering { answers, metrics, out, tasks: HashMap::new(), sweep_at: 64 };
    carry(frames, messages, |carried, bytes| {
        match bodies.take(carried, bytes)? {
            Some(Whole::Request(id, request, place)) if answering.has_room() => {
                answering.begin(id, request, place);
            }
            Some(Whole::Request(id, ..) | Whole::NoRoom(id)) => answering.refuse(id)?,
            Some(Whole::HangUp(id)) => answering.hang_up(id),
            Some(Whole::Answer(..)) => return Err(meaningless()),
            None => {}
        }
        Ok(true)
    })
    .await
}

/// Requests of one session that are being answered.
struct Answering {
    answers: Arc<dyn AnswerForwarded>,
    metrics: Metrics,
    out: mpsc::Sender<Message>,
    tasks: HashMap<u64, runtime::Task>,
    /// With so many tasks those that are over are dropped.
    sweep_at: usize,
}

impl Answering {
    fn has_room(&mut self) -> bool {
        if self.tasks.len() >= self.sweep_at {
            self.tasks.retain(|_, task| !task.is_over());
            self.sweep_at = (2 * self.tasks.len()).clamp(64, FORWARDED_MAX);
        }
        self.tasks.len() < FORWARDED_MAX
    }

    fn begin(&mut self, id: u64, request: Forwarded, place: Place) {
        let (answers, out) = (Arc::clone(&self.answers), self.out.clone());
        let task = runtime::Task::spawn(async move {
            let mut answer = answers.answer(request).await;
            if answer.body.len() as u64 > BODY_BYTES_MAX {
                answer = answers.failed(Failure::AnswerTooLarge);
            }
            drop(place);
            for message in codec::encode_answer(id, &answer) {
                if out.send(message).await.is_err() {
                    return;
                }
            }
        });
        self.tasks.insert(id, task);
    }

    /// Nothing was begun for it.
    fn refuse(&self, id: u64) -> io::Result<()> {
        self.metrics.refusals.with_label_values(&["passed_on"]).inc();
        let answer = self.answers.failed(Failure::Overloaded);
        let mut messages = codec::encode_answer(id, &answer);
        // Whoever asks without end and takes no answers has no use for a session.
        messages.try_for_each(|message| self.out.try_send(message)).map_err(io::Error::other)
    }

    fn hang_up(&mut self, id: u64) {
        self.tasks.remove(&id);
    }
}

/// Runs one end until the other is gone, silent or senseless, or until `take` says so.
async fn carry(
    frames: Frames,
    messages: mpsc::Receiver<Message>,
    take: impl FnMut(Carried, u64) -> io::Result<bool>,
) -> io::Result<()> {
    let (sink, stream) = frames.split();
    tokio::select! {
        ended = hear(stream, take) => ended,
        ended = speak(sink, messages) => ended,
    }
}

async fn hear(
    mut stream: impl Stream<Item = io::Result<BytesMut>> + Unpin,
    mut take: impl FnMut(Carried, u64) -> io::Result<bool>,
) -> io::Result<()> {
    loop {
        let heard = runtime::timeout_at(runtime::now() + SILENT, stream.next()).await;
        let bytes = match heard {
            None => return Err(io::ErrorKind::TimedOut.into()),
            Some(None) => return Ok(()),
            Some(Some(bytes)) => bytes?.freeze(),
        };
        let carried = codec::decode_carried(&bytes).map_err(io::Error::other)?;
        if !take(carried, bytes.len() as u64)? {
            return Ok(());
        }
    }
}

async fn speak(
    mut sink: impl Sink<Bytes, Error = io::Error> + Unpin,
    mut messages: mpsc::Receiver<Message>,
) -> io::Result<()> {
    loop {
        let next = runtime::timeout_at(runtime::now() + BEAT, messages.recv()).await;
        match next {
            None => sink.feed(codec::encode_beat().into()).await?,
            Some(None) => return Ok(()),
            Some(Some(message)) => sink.feed(message.into()).await?,
        }
        // Those who were woken together answer one after the other: whatever they say by then goes
        // with it, in one write.
        runtime::yield_now().await;
        while let Ok(message) = messages.try_recv() {
            sink.feed(message.into()).await?;
        }
        sink.flush().await?;
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
