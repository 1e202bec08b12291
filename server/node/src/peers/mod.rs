//! The way to other nodes: Raft's messages over TCP, on a listener of their own.
//!
//! | file | holds |
//! | --- | --- |
//! | `line` | one connection to one peer: the handshake, questions and answers in order |
//! | `network` | what openraft asks of a network; appends are pipelined |
//! | `snapshot` | a snapshot on its way, with the history that belongs to it |
//! | `listener`, `serve` | the other end |
//!
//! Frames are length-delimited (tokio-util); what is in them is `codec::peer`. What must stay true:
//!
//! - An answer belongs to the oldest question that has none: whoever gives up waiting closes the
//!   connection, as the answer could still come.
//! - Nothing a peer sends is larger than [`FRAME_BYTES_MAX`], and nothing it sends panics a node.
//! - Two nodes talk only if they belong to the same cluster, or one of them to none yet.

mod line;
mod listener;
mod network;
mod serve;
mod snapshot;

pub(crate) use listener::PeerListener;
pub(crate) use network::Peers;

use crate::codec::{Hello, Unwelcome};
use parking_lot::Mutex;
use std::io;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_util::codec::{Framed, LengthDelimitedCodec};

/// The protocols that this binary speaks.
const PROTOCOLS: (u16, u16) = (1, 1);
/// An entry of 256 KiB with what stands around it.
const FRAME_BYTES_MAX: usize = 320 << 10;
/// Both ends of a new connection have this long to say who they are.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(5);

type Frames = Framed<TcpStream, LengthDelimitedCodec>;

fn framed(stream: TcpStream) -> io::Result<Frames> {
    stream.set_nodelay(true)?;
    let codec = LengthDelimitedCodec::builder().max_frame_length(FRAME_BYTES_MAX).new_codec();
    Ok(Framed::new(stream, codec))
}

/// Who this node is, as its peers are told.
#[derive(Debug)]
pub(crate) struct Identity {
    id: u64,
    /// The highest version of commands that it can apply.
    commands: u16,
    cluster: Mutex<Option<[u8; 16]>>,
}

impl Identity {
    pub(crate) fn new(id: u64, commands: u16, cluster: Option<[u8; 16]>) -> Self {
        Self { id, commands, cluster: Mutex::new(cluster) }
    }

    fn hello(&self, to: u64) -> Hello {
        let cluster = *self.cluster.lock();
        Hello { protocols: PROTOCOLS, cluster, from: self.id, to, commands: self.commands }
    }

    /// The protocol to speak with whoever said this.
    fn judge(&self, hello: &Hello) -> Result<u16, Unwelcome> {
        let newest = hello.protocols.1.min(PROTOCOLS.1);
        if newest < hello.protocols.0.max(PROTOCOLS.0) {
            return Err(Unwelcome::Protocol(PROTOCOLS.0, PROTOCOLS.1));
        }
        if hello.to != self.id {
            return Err(Unwelcome::OtherNode(self.id));
        }
        self.same_cluster(hello.cluster).then_some(newest).ok_or(Unwelcome::OtherCluster)
    }

    /// A node that belongs to no cluster yet may be about to join one.
    fn same_cluster(&self, other: Option<[u8; 16]>) -> bool {
        match (*self.cluster.lock(), other) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests;
