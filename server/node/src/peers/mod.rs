//! The way to other nodes: Raft's messages over TCP, on a listener of their own.
//!
//! | file | holds |
//! | --- | --- |
//! | `identity` | who this node is, and whom it talks to |
//! | `line` | one connection to one peer: the handshake, questions and answers in order |
//! | `echo` | how old what a leader tells is at most |
//! | `network` | what openraft asks of a network; appends are pipelined |
//! | `session`, `bodies` | requests of clients on their way to the leader, and the room for them |
//! | `snapshot` | a snapshot on its way, with the history that belongs to it |
//! | `listener`, `serve` | the other end |
//!
//! Frames are length-delimited (tokio-util); what is in them is `codec::peer`. What must stay true:
//!
//! - An answer belongs to the oldest question that has none: whoever gives up waiting closes the
//!   connection, as the answer could still come.
//! - What one peer has under way here is bounded in number and in bytes.
//! - Nothing a peer sends is larger than [`FRAME_BYTES_MAX`], and nothing it sends panics a node.
//! - Two nodes talk only if they belong to the same cluster, or one of them to none yet; requests
//!   of clients and reads are for members.
//! - A node that lost its data is not taken for the one that had it: its votes are gone.

mod bodies;
mod echo;
mod identity;
mod line;
mod listener;
mod network;
mod serve;
mod session;
mod snapshot;

pub(crate) use identity::{Identity, member_of};
pub(crate) use line::{Line, LineError};
pub(crate) use listener::{Host, PeerListener};
pub(crate) use network::Peers;
pub(crate) use session::Forwarder;

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

#[cfg(test)]
pub(crate) mod tests;
