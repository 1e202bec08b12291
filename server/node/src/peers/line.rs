//! One connection to one peer. It is made when it is first needed, and again after a failure.

use super::echo::Asking;
use super::{Frames, HANDSHAKE_WITHIN, Identity, PROTOCOLS, framed};
use crate::codec::{self, About, Carried, Dating, DecodeError, Standing, Told, Unwelcome, Welcome};
use crate::runtime;
use crate::types::{AppendAsk, Member};
use bytes::Bytes;
use futures_util::stream::FuturesUnordered;
use futures_util::{SinkExt as _, StreamExt as _};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;

/// So much later than the likeliest place of a peer the next one is tried.
const HEAD_START: Duration = Duration::from_millis(100);

/// A peer that reads nothing for so long is gone, whatever TCP still hopes for.
const SENT_WITHIN: Duration = Duration::from_secs(10);

/// What was found at a place.
type Opened = (Open, About, Standing);

/// Why a peer could not be asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LineError {
    #[error("no connection to {address}")]
    Connect {
        address: String,
        #[source]
        cause: io::Error,
    },
    #[error("no answer from {address} within {} ms", within.as_millis())]
    Silent { address: String, within: Duration },
    #[error("the connection to {address} broke")]
    Broken {
        address: String,
        #[source]
        cause: io::Error,
    },
    #[error("{address} sent what has no meaning here")]
    Decode {
        address: String,
        #[source]
        cause: DecodeError,
    },
    #[error("{address} and this node do not talk: {why}")]
    Unwelcome { address: String, why: Unwelcome },
    #[error("{address} could not: {why}")]
    Unable { address: String, why: String },
    #[error("{address} answered another question")]
    OtherAnswer { address: String },
}

impl LineError {
    /// The error and what is behind it, in one line.
    pub(crate) fn with_causes(&self) -> String {
        let cause = std::error::Error::source(self);
        cause.map_or_else(|| self.to_string(), |cause| format!("{self}: {cause}"))
    }
}

/// The way to one peer.
#[derive(Debug)]
pub(crate) struct Line {
    us: Arc<Identity>,
    peer: u64,
    /// Where it should be.
    entered: String,
    /// Where it was found last.
    address: String,
    /// Which life of the peer is meant, once it is a member.
    incarnation: Option<u128>,
    open: Option<Open>,
}

impl Line {
    /// To a member.
    pub(crate) fn new(us: Arc<Identity>, peer: u64, member: &Member) -> Self {
        let line = Self::unmet(us, peer, member.peer.clone());
        Self { incarnation: Some(member.incarnation), ..line }
    }

    /// To a node of which only the address is known.
    pub(crate) fn unmet(us: Arc<Identity>, peer: u64, address: String) -> Self {
        Self { us, peer, entered: address.clone(), address, incarnation: None, open: None }
    }

    /// Connects and answers who is there.
    pub(crate) async fn greet(&mut self) -> Result<(About, Standing), LineError> {
        let (open, about, standing) = self.connect().await?;
        self.put_back(open);
        Ok((about, standing))
    }

    /// Takes the connection out, and makes it if there is none. Whoever has it puts it back with
    /// [`Line::put_back`] once every question is answered; else it closes.
    pub(super) async fn take(&mut self, within: Duration) -> Result<Open, LineError> {
        if let Some(open) = self.open.take() {
            return Ok(open);
        }
        let opened = runtime::timeout_at(runtime::now() + within, self.connect()).await;
        Ok(opened.ok_or_else(|| self.silent(within))??.0)
    }

    pub(super) fn put_back(&mut self, open: Open) {
        self.open = Some(open);
    }

    /// One question and its answer.
    pub(crate) async fn call(
        &mut self,
        message: Vec<u8>,
        within: Duration,
    ) -> Result<Told, LineError> {
        let mut open = self.take(within).await?;
        let exchange = async {
            open.ask(message).await?;
            open.told().await
        };
        let told = runtime::timeout_at(runtime::now() + within, exchange).await;
        let told = told.ok_or_else(|| self.silent(within))??;
        self.put_back(open);
        Ok(told)
    }

    /// A connection that carries requests of clients from here on. Nothing is sent on it before
    /// the peer has said that it takes them.
    pub(super) async fn begin_session(&mut self, within: Duration) -> Result<Frames, LineError> {
        let mut open = self.take(within).await?;
        let taken = async {
            open.ask(codec::encode_session()).await?;
            open.beat().await
        };
        let taken = runtime::timeout_at(runtime::now() + within, taken).await;
        taken.ok_or_else(|| self.silent(within))??;
        Ok(open.frames)
    }

    fn silent(&self, within: Duration) -> LineError {
        LineError::Silent { address: self.address.clone(), within }
    }

    /// Connects to the peer wherever it may be, and takes the first place at which it answers. If
    /// there is none, what is said is said of the likeliest.
    async fn connect(&mut self) -> Result<Opened, LineError> {
        let (us, peer) = (Arc::clone(&self.us), self.peer);
        let trying = self.places().into_iter().zip(0_u32..).map(async |(address, nth)| {
            if nth > 0 {
                runtime::sleep(nth * HEAD_START).await;
            }
            (nth, self.connect_at(address).await)
        });
        let mut trying: FuturesUnordered<_> = trying.collect();
        let mut failed: Option<(u32, LineError)> = None;
        let opened = loop {
            match trying.next().await {
                Some((_, Ok(opened))) => break opened,
                Some((nth, Err(cause))) if failed.as_ref().is_none_or(|(of, _)| nth < *of) => {
                    failed = Some((nth, cause));
                }
                Some(_) => {}
                None => return Err(failed.map_or_else(|| self.nowhere(), |(_, cause)| cause)),
            }
        };
        drop(trying);
        us.note_place(peer, &opened.1);
        self.address.clone_from(&opened.0.address);
        Ok(opened)
    }

    fn places(&self) -> Vec<String> {
        match self.incarnation {
            Some(life) => self.us.places(self.peer, life, &self.entered),
            None => vec![self.entered.clone()],
        }
    }

    fn nowhere(&self) -> LineError {
        let cause = io::Error::new(io::ErrorKind::NotFound, "it answers no peers");
        LineError::Connect { address: format!("node {}", self.peer), cause }
    }

    /// The name is looked up at every attempt: the peer may have moved.
    async fn connect_at(&self, address: String) -> Result<Opened, LineError> {
        let frames = match TcpStream::connect(&address).await.and_then(framed) {
            Ok(frames) => frames,
            Err(cause) => return Err(LineError::Connect { address, cause }),
        };
        let mut open = Open { frames, address, appends: Asking::default() };
        let greeting = async {
            open.ask(codec::encode_hello(&self.us.hello(self.peer))).await?;
            let bytes = open.next().await?;
            codec::decode_welcome(&bytes).map_err(|cause| open.senseless(cause))
        };
        let welcome = runtime::timeout_at(runtime::now() + HANDSHAKE_WITHIN, greeting).await;
        match welcome.ok_or_else(|| open.silent(HANDSHAKE_WITHIN))?? {
            Welcome::Refused(why) => {
                if let Unwelcome::Commands(level) = why {
                    self.us.meet(level);
                }
                Err(open.unwelcome(why))
            }
            Welcome::Protocol { version, about, standing } => {
                match self.judge(version, &about, &standing) {
                    Ok(()) => Ok((open, about, standing)),
                    Err(why) => Err(open.unwelcome(why)),
                }
            }
        }
    }

    fn judge(&self, version: u16, about: &About, standing: &Standing) -> Result<(), Unwelcome> {
        if !(PROTOCOLS.0..=PROTOCOLS.1).contains(&version) {
            return Err(Unwelcome::Protocol(PROTOCOLS.0, PROTOCOLS.1));
        }
        if !self.us.same_cluster(standing.cluster) {
            return Err(Unwelcome::OtherCluster);
        }
        if self.incarnation.is_some_and(|meant| meant != about.incarnation) {
            return Err(Unwelcome::OtherIncarnation(self.peer));
        }
        Ok(())
    }
}

/// A connection that is being used.
#[derive(Debug)]
pub(super) struct Open {
    frames: Frames,
    address: String,
    appends: Asking,
}

impl Open {
    pub(super) async fn ask(&mut self, message: Vec<u8>) -> Result<(), LineError> {
        let sending = self.frames.send(Bytes::from(message));
        match runtime::timeout_at(runtime::now() + SENT_WITHIN, sending).await {
            Some(sent) => sent.map_err(|cause| self.broken(cause)),
            None => Err(self.silent(SENT_WITHIN)),
        }
    }

    /// When the next request is from, of a leader that had a quorum so long ago.
    pub(super) fn date(&mut self, quorum_age: Option<Duration>) -> Dating {
        self.appends.asks(quorum_age)
    }

    /// Sends as many of the entries as fit into a frame, and answers how many those were.
    pub(super) async fn append(
        &mut self,
        ask: &AppendAsk,
        dating: Dating,
    ) -> Result<usize, LineError> {
        let (message, count) = codec::encode_append(ask, dating);
        self.ask(message).await?;
        Ok(count)
    }

    pub(super) async fn told(&mut self) -> Result<Told, LineError> {
        let bytes = self.next().await?;
        match codec::decode_told(&bytes).map_err(|cause| self.senseless(cause))? {
            Told::Unable(why) => Err(LineError::Unable { address: self.address.clone(), why }),
            told => {
                if matches!(told, Told::Append(_)) {
                    self.appends.answered();
                }
                Ok(told)
            }
        }
    }

    /// The first word of a session. Whoever refuses one says so in an answer.
    async fn beat(&mut self) -> Result<(), LineError> {
        let bytes = self.next().await?.freeze();
        match (codec::decode_carried(&bytes), codec::decode_told(&bytes)) {
            (Ok(Carried::Beat), _) => Ok(()),
            (_, Ok(Told::Unable(why))) => {
                Err(LineError::Unable { address: self.address.clone(), why })
            }
            _ => Err(self.other_answer()),
        }
    }

    pub(super) fn other_answer(&self) -> LineError {
        LineError::OtherAnswer { address: self.address.clone() }
    }

    pub(super) fn silent(&self, within: Duration) -> LineError {
        LineError::Silent { address: self.address.clone(), within }
    }

    async fn next(&mut self) -> Result<bytes::BytesMut, LineError> {
        match self.frames.next().await {
            Some(Ok(bytes)) => Ok(bytes),
            Some(Err(cause)) => Err(self.broken(cause)),
            None => Err(self.broken(io::ErrorKind::UnexpectedEof.into())),
        }
    }

    fn senseless(&self, cause: DecodeError) -> LineError {
        LineError::Decode { address: self.address.clone(), cause }
    }

    fn unwelcome(&self, why: Unwelcome) -> LineError {
        LineError::Unwelcome { address: self.address.clone(), why }
    }

    fn broken(&self, cause: io::Error) -> LineError {
        LineError::Broken { address: self.address.clone(), cause }
    }
}
