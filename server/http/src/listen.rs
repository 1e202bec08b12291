//! Listening sockets, and what is set on accepted ones.

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

/// Connections that the kernel holds until a worker takes them.
const BACKLOG: i32 = 1_024;

/// A client that is gone without a word (power, network) is noticed after about 11 s of silence.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEPALIVE_PROBES: u32 = 3;
/// Likewise while something is sent to it that it does not acknowledge.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(10);

/// A socket that has an address. Who connects to it is refused, and can ask another node.
#[derive(Debug)]
pub(crate) struct Bound {
    socket: Socket,
    pub(crate) address: SocketAddr,
}

impl Bound {
    /// At `address`, or at a free port there if that is 0.
    pub(crate) fn to(address: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        // A restart must not wait for the kernel to forget the connections of the process before.
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        let bound = socket.local_addr()?;
        Ok(Self { socket, address: bound.as_socket().unwrap_or(address) })
    }

    /// From here on connections are taken.
    pub(crate) fn listen(self) -> io::Result<TcpListener> {
        self.socket.listen(BACKLOG)?;
        self.socket.set_nonblocking(true)?;
        Ok(self.socket.into())
    }
}

/// Sets what makes a dead client noticed: a waiter whose client is gone must leave the line.
pub(crate) fn tune<'s>(accepted: impl Into<SockRef<'s>>) -> io::Result<()> {
    let socket: SockRef<'_> = accepted.into();
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_PROBES);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED_MAX))?;
    // Answers are single writes; holding them back to fill a packet only adds latency.
    socket.set_tcp_nodelay(true)
}
