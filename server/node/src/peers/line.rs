//! One connection to one peer. It is made when it is first needed, and again after a failure.

use super::{Frames, HANDSHAKE_WITHIN, Identity, PROTOCOLS, framed};
use crate::codec::{self, About, DecodeError, Standing, Told, Unwelcome, Welcome};
use crate::runtime;
use crate::types::Member;
use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;

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
    address: String,
    /// Which life of the peer is meant, once it is a member.
    incarnation: Option<u128>,
    frames: Option<Frames>,
}

impl Line {
    /// To a member.
    pub(crate) fn new(us: Arc<Identity>, peer: u64, member: &Member) -> Self {
        let (address, incarnation) = (member.peer.clone(), Some(member.incarnation));
        Self { us, peer, address, incarnation, frames: None }
    }

    /// To a node of which only the address is known.
    pub(crate) fn unmet(us: Arc<Identity>, peer: u64, address: String) -> Self {
        Self { us, peer, address, incarnation: None, frames: None }
    }

    /// Connects and answers who is there.
    pub(crate) async fn greet(&mut self) -> Result<(About, Standing), LineError> {
        let (frames, about, standing) = self.open().await?;
        self.frames = Some(frames);
        Ok((about, standing))
    }

    /// Takes the connection out, and makes it if there is none. Whoever has it puts it back with
    /// [`Line::put_back`] once every question is answered; else it closes.
    pub(super) async fn take(&mut self, within: Duration) -> Result<Open, LineError> {
        let frames = match self.frames.take() {
            Some(frames) => frames,
            None => {
                let opening = self.open();
                let opened = runtime::timeout_at(runtime::now() + within, opening).await;
                opened.ok_or_else(|| self.silent(within))??.0
            }
        };
        Ok(Open { frames, address: self.address.clone() })
    }

    pub(super) fn put_back(&mut self, open: Open) {
        self.frames = Some(open.frames);
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

    /// A connection that carries requests of clients from here on.
    pub(super) async fn begin_session(&mut self, within: Duration) -> Result<Frames, LineError> {
        let mut open = self.take(within).await?;
        open.ask(codec::encode_session()).await?;
        Ok(open.frames)
    }

    fn silent(&self, within: Duration) -> LineError {
        LineError::Silent { address: self.address.clone(), within }
    }

    /// The name is looked up at every attempt: the peer may have moved.
    async fn open(&mut self) -> Result<(Frames, About, Standing), LineError> {
        let told = self.incarnation.and_then(|life| self.us.told_address(self.peer, life));
        self.address = told.unwrap_or_else(|| self.address.clone());
        let address = || self.address.clone();
        let connected = TcpStream::connect(&self.address).await;
        let frames = connected
            .and_then(framed)
            .map_err(|cause| LineError::Connect { address: address(), cause })?;
        let mut open = Open { frames, address: address() };
        let greeting = async {
            open.ask(codec::encode_hello(&self.us.hello(self.peer))).await?;
            let bytes = open.next().await?;
            codec::decode_welcome(&bytes)
                .map_err(|cause| LineError::Decode { address: address(), cause })
        };
        let welcome = runtime::timeout_at(runtime::now() + HANDSHAKE_WITHIN, greeting).await;
        let unwelcome = |why| LineError::Unwelcome { address: address(), why };
        match welcome.ok_or_else(|| self.silent(HANDSHAKE_WITHIN))?? {
            Welcome::Refused(why) => {
                if let Unwelcome::Commands(level) = why {
                    self.us.meet(level);
                }
                Err(unwelcome(why))
            }
            Welcome::Protocol { version, about, standing } => {
                self.judge(version, &about, &standing).map_err(unwelcome)?;
                Ok((open.frames, about, standing))
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
}

impl Open {
    pub(super) async fn ask(&mut self, message: Vec<u8>) -> Result<(), LineError> {
        self.frames.send(Bytes::from(message)).await.map_err(|cause| self.broken(cause))
    }

    pub(super) async fn told(&mut self) -> Result<Told, LineError> {
        let bytes = self.next().await?;
        let decoded = codec::decode_told(&bytes);
        match decoded.map_err(|cause| LineError::Decode { address: self.address.clone(), cause })? {
            Told::Unable(why) => Err(LineError::Unable { address: self.address.clone(), why }),
            told => Ok(told),
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

    fn broken(&self, cause: io::Error) -> LineError {
        LineError::Broken { address: self.address.clone(), cause }
    }
}
