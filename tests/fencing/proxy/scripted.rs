//! An upstream that does what a test tells it, byte by byte: hangs, cuts, answers early.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use leasehold_harness::within;

const PATIENCE: Duration = Duration::from_secs(60);

/// It accepts nothing before it is told to.
pub(super) struct Scripted(TcpListener);

/// One connection of the proxy.
pub(super) struct Link {
    stream: TcpStream,
    unread: Vec<u8>,
}

/// A request as it came.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) line: String,
    /// Names in lower case.
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Scripted {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        listener.set_nonblocking(true).expect("a socket can be made non-blocking");
        Self(listener)
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.0.local_addr().expect("it is bound"))
    }

    /// The next connection.
    #[track_caller]
    pub(super) fn accept(&self) -> Link {
        within(PATIENCE, "the proxy connects", || self.try_accept())
    }

    /// The next connection, if there is one already.
    pub(super) fn try_accept(&self) -> Option<Link> {
        let (stream, _) = self.0.accept().ok()?;
        stream.set_nonblocking(false).expect("a socket can be made blocking");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        stream.set_nodelay(true).expect("an option");
        Some(Link { stream, unread: Vec::new() })
    }
}

impl Link {
    /// Reads a whole request.
    #[track_caller]
    pub(super) fn request(&mut self) -> Received {
        let head = self.head();
        let body = match (head.header("content-length"), head.header("transfer-encoding")) {
            (Some(length), _) => self.take(length.parse().expect("a length")),
            (None, Some(_)) => self.chunks(),
            (None, None) => Vec::new(),
        };
        Received { body, ..head }
    }

    /// Reads the head of a request and leaves its body.
    #[track_caller]
    pub(super) fn head(&mut self) -> Received {
        let end = loop {
            if let Some(at) = self.unread.windows(4).position(|four| four == b"\r\n\r\n") {
                break at;
            }
            self.fill().expect("a head arrives");
        };
        let head = self.take(end + 4);
        let head = String::from_utf8(head[..end].to_vec()).expect("text");
        let mut lines = head.split("\r\n").map(str::to_owned);
        let line = lines.next().unwrap_or_default();
        let pair = |line: String| {
            let (name, value) = line.split_once(": ").expect("a header");
            (name.to_ascii_lowercase(), value.to_owned())
        };
        Received { line, headers: lines.map(pair).collect(), body: Vec::new() }
    }

    #[track_caller]
    pub(super) fn take(&mut self, count: usize) -> Vec<u8> {
        while self.unread.len() < count {
            self.fill().expect("the rest arrives");
        }
        self.unread.drain(..count).collect()
    }

    fn chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let end = loop {
                if let Some(at) = self.unread.windows(2).position(|two| two == b"\r\n") {
                    break at;
                }
                self.fill().expect("a chunk arrives");
            };
            let line = self.take(end + 2);
            let size = std::str::from_utf8(&line[..end]).expect("text");
            let size = usize::from_str_radix(size, 16).expect("a size");
            let chunk = self.take(size + 2);
            body.extend_from_slice(&chunk[..size]);
            if size == 0 {
                return body;
            }
        }
    }

    pub(super) fn send(&mut self, bytes: &str) {
        self.stream.write_all(bytes.as_bytes()).expect("the proxy reads");
    }

    /// Answers with a body.
    pub(super) fn answer(&mut self, status: &str, body: &str) {
        self.send(&format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
    }

    /// Waits for the proxy to close.
    #[track_caller]
    pub(super) fn closed(&mut self) {
        loop {
            match self.fill() {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => panic!("it stays open"),
                Err(_) => return,
            }
        }
    }

    /// What is left to be read before the proxy closes.
    #[track_caller]
    pub(super) fn rest(&mut self) -> Vec<u8> {
        self.closed();
        std::mem::take(&mut self.unread)
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut chunk = [0; 16 * 1024];
        match self.stream.read(&mut chunk)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            n => {
                self.unread.extend_from_slice(&chunk[..n]);
                Ok(())
            }
        }
    }
}

impl Received {
    /// The only header of this name.
    #[track_caller]
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let all: Vec<&str> = self
            .headers
            .iter()
            .filter(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
            .collect();
        assert!(all.len() <= 1, "{name} stands there several times: {all:?}");
        all.first().copied()
    }
}
