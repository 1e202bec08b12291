//! One who watches: reads a stream of server-sent events, and resumes when it is cut.
//!
//! Written by hand like the client beside it, so that a test can cut the stream anywhere, or stop
//! reading from it.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Far above the time between two signs of life of a silent stream.
const PATIENCE: Duration = Duration::from_secs(60);

/// One who watches.
#[derive(Debug)]
pub struct Watcher {
    addr: SocketAddr,
    query: String,
    seen: Option<String>,
    narrow: bool,
    stream: Option<Stream>,
}

/// What it was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// A change.
    Event(Value),
    /// Changes after the first revision, up to and with the second, are not known any more.
    Gap(u64, u64),
}

impl Told {
    /// The change that this must be.
    #[track_caller]
    pub fn event(self) -> Value {
        match self {
            Self::Event(event) => event,
            Self::Gap(from, to) => panic!("a gap from {from} to {to}"),
        }
    }
}

#[derive(Debug)]
struct Stream {
    socket: TcpStream,
    raw: Vec<u8>,
    in_body: bool,
    text: Vec<u8>,
}

impl Watcher {
    /// One who watches what `query` selects, from `from` on or from now on.
    pub fn new(addr: SocketAddr, query: &str, from: Option<u64>) -> Self {
        let seen = from.map(|from| from.to_string());
        Self { addr, query: query.to_owned(), seen, narrow: false, stream: None }
    }

    /// With next to no room on the way: when it stops reading, that is noticed after kilobytes and
    /// not megabytes. Reading is slow as well.
    #[must_use]
    pub fn narrow(mut self) -> Self {
        self.narrow = true;
        self
    }

    /// On a new connection, with all the room that there is. What was still on the old one is lost
    /// on the way.
    #[must_use]
    pub fn widened(mut self) -> Self {
        self.narrow = false;
        self.cut();
        self
    }

    /// The same watcher, of a server that was started again elsewhere.
    pub fn moved_to(&mut self, addr: SocketAddr) {
        self.addr = addr;
        self.stream = None;
    }

    /// Where it watches.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Where it is: the last revision that it knows of.
    pub fn position(&self) -> Option<u64> {
        self.seen.as_ref().map(|seen| seen.parse().expect("revisions are numbers to the server"))
    }

    /// Connects now, so that everything from now on is told.
    #[track_caller]
    pub fn connect(&mut self) {
        let told = self.try_connect();
        told.unwrap_or_else(|error| panic!("watch at {}: {error}", self.addr));
        // The stream begins by saying where it is.
        while self.seen.is_none() {
            self.read(Instant::now() + PATIENCE).expect("the stream says where it is");
        }
    }

    fn try_connect(&mut self) -> io::Result<()> {
        let socket = TcpStream::connect_timeout(&self.addr, PATIENCE)?;
        if self.narrow {
            rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 4 << 10)?;
        }
        let mut head = format!("GET /v1/watch?{} HTTP/1.1\r\nHost: localhost\r\n", self.query);
        if let Some(seen) = &self.seen {
            head.push_str(&format!("Last-Event-ID: {seen}\r\n"));
        }
        (&socket).write_all(format!("{head}\r\n").as_bytes())?;
        self.stream = Some(Stream { socket, raw: Vec::new(), in_body: false, text: Vec::new() });
        Ok(())
    }

    /// Cuts the stream: what was not read is lost on the way.
    pub fn cut(&mut self) {
        self.stream = None;
    }

    /// Cuts the stream in the middle of an event, after a part of one was read. False, and nothing
    /// was cut, if no event began within this time.
    pub fn cut_amid(&mut self, time: Duration) -> bool {
        let deadline = Instant::now() + time;
        let begun = self.stream.as_mut().is_some_and(|stream| stream.read_a_part(deadline).is_ok());
        if begun {
            self.cut();
        }
        begun
    }

    /// Waits for what is told next, connecting again as often as it takes.
    #[track_caller]
    pub fn wait(&mut self) -> Told {
        self.next_within(PATIENCE).expect("something is told in time")
    }

    /// What is told next, if it is within this time.
    #[track_caller]
    pub fn next_within(&mut self, time: Duration) -> Option<Told> {
        let deadline = Instant::now() + time;
        loop {
            if self.stream.is_none() && self.try_connect().is_err() {
                std::thread::sleep(Duration::from_millis(10));
            }
            match self.read(deadline) {
                Ok(Some(told)) => return Some(told),
                Ok(None) => {}
                Err(error) if is_timeout(&error) => return None,
                Err(_) => self.stream = None,
            }
            if Instant::now() >= deadline {
                return None;
            }
        }
    }

    /// Reads one block of the stream; `None` if it tells of nothing.
    fn read(&mut self, deadline: Instant) -> io::Result<Option<Told>> {
        let stream = self.stream.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        let block = stream.block(deadline)?;
        let field = |name: &str| {
            let lines = block.lines();
            lines.filter_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).next_back()
        };
        if let Some(id) = field("id") {
            self.seen = Some(id.to_owned());
        }
        let Some(data) = field("data") else { return Ok(None) };
        let data: Value = serde_json::from_str(data).map_err(io::Error::other)?;
        let number = |name: &str| data[name].as_str().and_then(|text| text.parse().ok());
        Ok(Some(match (field("event"), number("from"), number("to")) {
            (Some("gap"), Some(from), Some(to)) => Told::Gap(from, to),
            _ => Told::Event(data),
        }))
    }
}

impl Stream {
    /// The text up to the next empty line.
    fn block(&mut self, deadline: Instant) -> io::Result<String> {
        loop {
            if let Some(end) = self.text.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.text.drain(..end + 2).collect();
                return String::from_utf8(block).map_err(io::Error::other);
            }
            if !self.unpack()? {
                self.fill(deadline, 16 << 10)?;
            }
        }
    }

    /// Reads until there is a beginning of a chunk whose end is not there.
    fn read_a_part(&mut self, deadline: Instant) -> io::Result<()> {
        loop {
            while self.unpack()? {}
            if self.in_body && !self.raw.is_empty() {
                return Ok(());
            }
            self.fill(deadline, 64)?;
        }
    }

    /// Moves whole chunks of the body into the text; false if there was none.
    fn unpack(&mut self) -> io::Result<bool> {
        if !self.in_body {
            let Some(end) = self.raw.windows(4).position(|four| four == b"\r\n\r\n") else {
                return Ok(false);
            };
            let head: Vec<u8> = self.raw.drain(..end + 4).collect();
            if !head.starts_with(b"HTTP/1.1 200") {
                if head.starts_with(b"HTTP/1.1 503") {
                    return Err(io::Error::other("it cannot be watched now"));
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                panic!("no stream but: {head}");
            }
            self.in_body = true;
        }
        let parsed = httparse::parse_chunk_size(&self.raw);
        let parsed = parsed.map_err(|_| io::Error::other("a broken chunk size"))?;
        let httparse::Status::Complete((start, size)) = parsed else { return Ok(false) };
        let end = start + size as usize;
        if self.raw.len() < end + 2 {
            return Ok(false);
        }
        if size == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.text.extend_from_slice(&self.raw[start..end]);
        self.raw.drain(..end + 2);
        Ok(true)
    }

    fn fill(&mut self, deadline: Instant, at_most: usize) -> io::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        self.socket.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        let mut bytes = [0; 16 << 10];
        match self.socket.read(&mut bytes[..at_most])? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            n => {
                self.raw.extend_from_slice(&bytes[..n]);
                Ok(())
            }
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
