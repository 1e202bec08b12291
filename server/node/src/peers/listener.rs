//! Where peers are answered.

use super::identity::Caller;
use super::serve::serve;
use super::{HANDSHAKE_WITHIN, Identity, framed};
use crate::codec::{self, Unwelcome, Welcome};
use crate::confirm::Confirmer;
use crate::contact::Contact;
use crate::forward::Answers;
use crate::metrics::Metrics;
use crate::runtime;
use crate::state::Shared;
use crate::status::Reporter;
use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

/// Connections of all peers together: each peer has four or five, and reconnects now and then.
const CONNECTIONS_MAX: usize = 256;
/// After an accept that failed, as when the process has no descriptors left.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// A bound address that nobody is answered on yet.
#[derive(Debug)]
pub(crate) struct PeerListener {
    listener: TcpListener,
}

/// What is needed to answer a peer.
#[derive(Clone)]
pub(crate) struct Host {
    pub(crate) us: Arc<Identity>,
    pub(crate) raft: crate::Raft,
    /// Where a snapshot is spooled.
    pub(crate) dir: PathBuf,
    pub(crate) confirmer: Confirmer,
    pub(crate) shared: Arc<Shared>,
    pub(crate) contact: Arc<Contact>,
    pub(crate) metrics: Metrics,
    pub(crate) answers: Answers,
    pub(crate) reporter: Reporter,
}

impl PeerListener {
    pub(crate) async fn bind(address: &str) -> io::Result<Self> {
        Ok(Self { listener: TcpListener::bind(address).await? })
    }

    fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers peers until told to stop.
    pub(crate) fn start(self, host: Host, stop: watch::Receiver<bool>) {
        if let Ok(address) = self.address() {
            tracing::info!(%address, "peers are answered");
        }
        runtime::spawn(accept(self.listener, host, stop));
    }
}

async fn accept(listener: TcpListener, host: Host, stop: watch::Receiver<bool>) {
    let seats = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopped(stop.clone()) => return,
        };
        let (stream, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a peer could not be accepted");
                runtime::sleep(ACCEPT_AGAIN).await;
                continue;
            }
        };
        let seat = seats.clone().try_acquire_owned().ok();
        let (host, stop) = (host.clone(), stop.clone());
        runtime::spawn(async move {
            let full = seat.is_none();
            tokio::select! {
                ended = connection(stream, host, full) => if let Err(why) = ended {
                    tracing::debug!(%from, %why, "a peer's connection ended");
                },
                () = stopped(stop) => {}
            }
            drop(seat);
        });
    }
}

/// Also when the node itself is gone.
async fn stopped(mut stop: watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

async fn connection(stream: TcpStream, host: Host, full: bool) -> io::Result<()> {
    let mut frames = framed(stream)?;
    let first = runtime::timeout_at(runtime::now() + HANDSHAKE_WITHIN, frames.next()).await;
    let Some(Some(first)) = first else { return Err(io::ErrorKind::TimedOut.into()) };
    let hello = codec::decode_hello(&first?).map_err(io::Error::other)?;
    let judged = if full { Err(Unwelcome::Full) } else { host.us.judge(&hello) };
    let welcome = match &judged {
        Ok(version) => {
            host.us.note_place(hello.from, &hello.caller);
            Welcome::Protocol {
                version: *version,
                about: host.us.about(),
                standing: host.us.standing(hello.from),
            }
        }
        Err(why) => {
            match why {
                // It looks for another node wherever that may be.
                Unwelcome::OtherNode(_) => tracing::debug!(node = hello.from, "it is not here"),
                _ => tracing::warn!(node = hello.from, %why, "a peer was turned away"),
            }
            Welcome::Refused(why.clone())
        }
    };
    frames.send(Bytes::from(codec::encode_welcome(&welcome))).await?;
    match judged {
        Ok(_) => serve(frames, host, Caller::from(&hello)).await,
        Err(_) => Ok(()),
    }
}
