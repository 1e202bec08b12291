//! A server that answers as it is told.

use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

/// So long that only what never comes exhausts it.
const PATIENCE: Duration = Duration::from_secs(60);

/// One request as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// The method.
    pub method: String,
    /// Path and query, still encoded.
    pub target: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Received {
    /// The path, without the query.
    #[must_use]
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// A header, if it is there.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The body as JSON; null if it is none.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// A parameter of the query, undecoded.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let query = self.target.split_once('?')?.1;
        query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
    }
}

/// What a request gets.
pub enum Reply {
    /// A whole answer.
    Answer {
        /// The status.
        status: u16,
        /// Beside the length.
        headers: Vec<(&'static str, String)>,
        /// The body.
        body: Vec<u8>,
    },
    /// These bytes and then the end of the connection.
    Bytes(Vec<u8>),
    /// Nothing, while the connection stays.
    Silence,
    /// What the future says, when it says it.
    Later(Pin<Box<dyn Future<Output = Reply> + Send>>),
    /// A stream of events: its head, and every piece as it comes, until the channel closes.
    Stream {
        /// Beside the type.
        headers: Vec<(&'static str, String)>,
        /// Sent as they come.
        pieces: mpsc::UnboundedReceiver<Vec<u8>>,
    },
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").finish_non_exhaustive()
    }
}

impl Reply {
    /// A JSON answer.
    pub fn json(status: u16, body: &impl Serialize) -> Self {
        let body = serde_json::to_vec(body).unwrap_or_default();
        let headers = vec![("Content-Type", "application/json".to_owned())];
        Self::Answer { status, headers, body }
    }

    /// A problem.
    #[must_use]
    pub fn problem(problem: &leasehold_wire::Problem<'_>) -> Self {
        Self::json(problem.status, problem)
    }

    /// A problem with nothing but its code.
    #[must_use]
    pub fn code(status: u16, code: leasehold_wire::Code) -> Self {
        Self::problem(&leasehold_wire::Problem::new(status, code, "as the test wants it"))
    }

    /// The same answer with one more header.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        if let Self::Answer { headers, .. } | Self::Stream { headers, .. } = &mut self {
            headers.push((name, value.into()));
        }
        self
    }

    /// A stream of events.
    #[must_use]
    pub fn stream(pieces: mpsc::UnboundedReceiver<Vec<u8>>) -> Self {
        Self::Stream { headers: Vec::new(), pieces }
    }

    /// A grant of what was asked for, valid for this long.
    #[must_use]
    pub fn grant(received: &Received, token: u64, valid_for_ms: u64) -> Self {
        let asked = received.json();
        let text = |name: &str| asked[name].as_str().unwrap_or_default().to_owned();
        let grant = leasehold_wire::Grant {
            resource: text("resource").into(),
            token,
            lease_id: leasehold_wire::HexId(token.into()),
            client_id: text("client_id").into(),
            mode: leasehold_wire::Mode::Exclusive,
            ttl_ms: asked["ttl_ms"].as_u64().unwrap_or(valid_for_ms),
            expires_in_ms: valid_for_ms,
            valid_for_ms,
            granted_at: leasehold_wire::Time(0),
            waited_ms: 0,
            policies: Vec::new(),
        };
        Self::json(200, &grant)
    }

    /// A renewal, valid for this long.
    #[must_use]
    pub fn renewed(valid_for_ms: u64) -> Self {
        let renewed = leasehold_wire::Renewed {
            expires_in_ms: valid_for_ms,
            valid_for_ms,
            ended_grants: Vec::new(),
            draining_grants: Vec::new(),
        };
        Self::json(200, &renewed)
    }

    /// What [`Reply::Answer`] looks like on the wire, for cutting it.
    #[must_use]
    pub fn wire(&self) -> Vec<u8> {
        let Self::Answer { status, headers, body } = self else { return Vec::new() };
        let mut head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n", body.len());
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        [head.into_bytes(), body.clone()].concat()
    }

    /// The answer cut off after this many bytes.
    #[must_use]
    pub fn cut(&self, bytes: usize) -> Self {
        let mut wire = self.wire();
        wire.truncate(bytes);
        Self::Bytes(wire)
    }
}

type Handler = Box<dyn FnMut(&Received) -> Reply + Send>;

struct Shared {
    handler: Mutex<Handler>,
    received: watch::Sender<Vec<Received>>,
}

/// A server on a port of its own, until it is dropped.
pub struct Fake {
    addr: SocketAddr,
    shared: Arc<Shared>,
    task: AbortHandle,
}

impl fmt::Debug for Fake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fake").field("addr", &self.addr).finish_non_exhaustive()
    }
}

impl Fake {
    /// Listens, and answers every request as `handler` says.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn start(
        handler: impl FnMut(&Received) -> Reply + Send + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        let shared = Arc::new(Shared {
            handler: Mutex::new(Box::new(handler)),
            received: watch::Sender::new(Vec::new()),
        });
        let task = tokio::spawn(accept(listener, Arc::clone(&shared))).abort_handle();
        Ok(Self { addr, shared, task })
    }

    /// Where it listens.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Everything that came so far.
    #[must_use]
    pub fn received(&self) -> Vec<Received> {
        self.shared.received.borrow().clone()
    }

    /// Waits until `enough` says that enough came, and tells what did.
    ///
    /// # Panics
    /// When it never does.
    pub async fn until(&self, enough: impl Fn(&[Received]) -> bool) -> Vec<Received> {
        let mut received = self.shared.received.subscribe();
        match timeout(PATIENCE, received.wait_for(|received| enough(received))).await {
            Ok(seen) => seen.map(|received| received.clone()).unwrap_or_default(),
            Err(_) => panic!("not enough came: {:#?}", self.received()),
        }
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A port on which nobody listens, and nobody else can until this is dropped.
#[derive(Debug)]
pub struct Closed {
    socket: TcpSocket,
}

impl Closed {
    /// Takes a port.
    ///
    /// # Errors
    /// When none can be had.
    pub fn new() -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        Ok(Self { socket })
    }

    /// Where nobody listens.
    ///
    /// # Errors
    /// When the system does not tell the port.
    pub fn url(&self) -> io::Result<String> {
        Ok(format!("http://{}", self.socket.local_addr()?))
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        // Whoever hangs up in the middle is no failure of a server.
        let shared = Arc::clone(&shared);
        connections.spawn(async move { serve(stream, &shared).await.is_ok() });
    }
}

async fn serve(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut unread = Vec::new();
    while let Some(received) = next(&mut stream, &mut unread).await? {
        let reply = (shared.handler.lock())(&received);
        shared.received.send_modify(|all| all.push(received));
        if !send(&mut stream, reply).await? {
            break;
        }
    }
    Ok(())
}

/// Sends a reply. Says whether the connection goes on.
async fn send(stream: &mut TcpStream, mut reply: Reply) -> io::Result<bool> {
    loop {
        match reply {
            Reply::Answer { .. } => {
                stream.write_all(&reply.wire()).await?;
                return Ok(true);
            }
            Reply::Bytes(bytes) => {
                stream.write_all(&bytes).await?;
                return Ok(false);
            }
            Reply::Silence => {
                // Ends when the client gives up.
                let mut rest = Vec::new();
                stream.read_to_end(&mut rest).await?;
                return Ok(false);
            }
            Reply::Later(later) => reply = later.await,
            Reply::Stream { headers, pieces } => {
                stream_out(stream, headers, pieces).await?;
                return Ok(false);
            }
        }
    }
}

async fn stream_out(
    stream: &mut TcpStream,
    headers: Vec<(&'static str, String)>,
    mut pieces: mpsc::UnboundedReceiver<Vec<u8>>,
) -> io::Result<()> {
    let mut head =
        "HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nConnection: close\r\n".to_owned();
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).await?;
    while let Some(piece) = pieces.recv().await {
        stream.write_all(&piece).await?;
    }
    Ok(())
}

/// Reads one request; `None` at the end of the connection.
async fn next(stream: &mut TcpStream, unread: &mut Vec<u8>) -> io::Result<Option<Received>> {
    let head_end = loop {
        if let Some(at) = unread.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(unread).await? == 0 {
            return Ok(None);
        }
    };
    let head: Vec<u8> = unread.drain(..head_end).collect();
    let mut received = head_of(&String::from_utf8_lossy(&head));
    let length = received.header("content-length").and_then(|length| length.parse().ok());
    let length = length.unwrap_or(0);
    while unread.len() < length {
        if stream.read_buf(unread).await? == 0 {
            return Ok(None);
        }
    }
    received.body = unread.drain(..length).collect();
    Ok(Some(received))
}

fn head_of(head: &str) -> Received {
    let mut lines = head.split("\r\n");
    let mut first = lines.next().unwrap_or_default().split(' ');
    let mut word = || first.next().unwrap_or_default().to_owned();
    let (method, target) = (word(), word());
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_ascii_lowercase(), value.trim().to_owned()))
    };
    Received { method, target, headers: lines.filter_map(header).collect(), body: Vec::new() }
}
