//! A blocking HTTP/1.1 client over one kept-alive connection.
//!
//! It is written by hand so that tests can do what a library forbids: send broken bytes, hang up in
//! the middle of a wait, never read an answer.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::Answer;

/// Above the longest wait that a request may ask for, so that only a hang exhausts it.
const PATIENCE: Duration = Duration::from_secs(90);

/// One connection to one server.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    unread: Vec<u8>,
    sent: Instant,
}

impl Client {
    /// Connects. Panics when nobody listens: a test has nothing to do then.
    #[track_caller]
    pub fn new(addr: SocketAddr) -> Self {
        Self::try_new(addr).unwrap_or_else(|error| panic!("connect to {addr}: {error}"))
    }

    /// Connects, for tests in which the server may be gone.
    pub fn try_new(addr: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&addr, Duration::from_secs(10))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream, unread: Vec::new(), sent: Instant::now() })
    }

    /// Waits this long for an answer, or for a server to take a request, and not longer.
    pub fn patient_for(self, time: Duration) -> io::Result<Self> {
        self.stream.set_read_timeout(Some(time))?;
        self.stream.set_write_timeout(Some(time))?;
        Ok(self)
    }

    /// Posts JSON and reads the answer.
    #[track_caller]
    pub fn post(&mut self, path: &str, body: &Value) -> Answer {
        self.post_bytes(path, body.to_string().as_bytes())
    }

    /// Posts bytes that need not be JSON, or JSON that `Value` cannot hold.
    #[track_caller]
    pub fn post_bytes(&mut self, path: &str, body: &[u8]) -> Answer {
        self.call("POST", path, &[("Content-Type", "application/json")], body)
    }

    /// Gets `path`, which must be encoded already.
    #[track_caller]
    pub fn get(&mut self, path: &str) -> Answer {
        self.call("GET", path, &[], b"")
    }

    /// Any method with any headers.
    #[track_caller]
    pub fn call(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        let answer = self.try_call(method, path, headers, body);
        answer.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// `post` for tests in which the server may die on the way.
    pub fn try_post(&mut self, path: &str, body: &Value) -> io::Result<Answer> {
        self.try_call(
            "POST",
            path,
            &[("Content-Type", "application/json")],
            body.to_string().as_bytes(),
        )
    }

    /// `call` for tests in which the server may die on the way.
    pub fn try_call(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Answer> {
        self.send(&request(method, path, headers, body))?;
        self.read()
    }

    /// Sends a POST and returns at once; `finish` reads the answer. This is how a test waits in many
    /// queues without as many threads.
    #[track_caller]
    pub fn begin(&mut self, path: &str, body: &Value) {
        let headers = [("Content-Type", "application/json")];
        let bytes = request("POST", path, &headers, body.to_string().as_bytes());
        self.send(&bytes).unwrap_or_else(|error| panic!("POST {path}: {error}"));
    }

    /// Reads the answer to `begin`.
    #[track_caller]
    pub fn finish(&mut self) -> Answer {
        self.read().unwrap_or_else(|error| panic!("no answer: {error}"))
    }

    /// Whether any byte of an answer has arrived, without waiting for one.
    pub fn has_answer(&mut self) -> bool {
        if !self.unread.is_empty() {
            return true;
        }
        let mut one = [0];
        self.stream.set_nonblocking(true).expect("a socket can be made non-blocking");
        let seen = self.stream.peek(&mut one);
        self.stream.set_nonblocking(false).expect("a socket can be made blocking");
        // An end of stream counts: it ends the wait as well, and reading will tell how.
        seen.is_ok()
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sent = Instant::now();
        self.stream.write_all(bytes)
    }

    /// Reads one answer, whatever was sent.
    pub fn read(&mut self) -> io::Result<Answer> {
        loop {
            if let Some(answer) = self.parse()? {
                return Ok(answer);
            }
            self.fill()?;
        }
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

    fn parse(&mut self) -> io::Result<Option<Answer>> {
        let mut slots = [httparse::EMPTY_HEADER; 64];
        let mut head = httparse::Response::new(&mut slots);
        let parsed = head.parse(&self.unread).map_err(io::Error::other)?;
        let httparse::Status::Complete(head_len) = parsed else { return Ok(None) };
        let headers: Vec<(String, String)> = head
            .headers
            .iter()
            .map(|h| (h.name.to_ascii_lowercase(), String::from_utf8_lossy(h.value).into_owned()))
            .collect();
        let status = head.code.unwrap_or_default();
        let find =
            |name: &str| headers.iter().find(|(key, _)| key == name).map(|(_, v)| v.as_str());
        let rest = &self.unread[head_len..];
        let (body, body_len) = if find("transfer-encoding") == Some("chunked") {
            let Some(whole) = dechunk(rest)? else { return Ok(None) };
            whole
        } else {
            let len = find("content-length").and_then(|v| v.parse().ok()).unwrap_or(0);
            if rest.len() < len {
                return Ok(None);
            }
            (rest[..len].to_vec(), len)
        };
        self.unread.drain(..head_len + body_len);
        Ok(Some(Answer { status, headers, body, sent: self.sent, received: Instant::now() }))
    }
}

/// The body of a chunked answer and the bytes it took, once all of it is there.
fn dechunk(mut rest: &[u8]) -> io::Result<Option<(Vec<u8>, usize)>> {
    let whole = rest.len();
    let mut body = Vec::new();
    loop {
        let parsed = httparse::parse_chunk_size(rest);
        let parsed = parsed.map_err(|_| io::Error::other("a broken chunk size"))?;
        let httparse::Status::Complete((start, size)) = parsed else { return Ok(None) };
        let end = start + size as usize;
        if rest.len() < end + 2 {
            return Ok(None);
        }
        body.extend_from_slice(&rest[start..end]);
        rest = &rest[end + 2..];
        if size == 0 {
            return Ok(Some((body, whole - rest.len())));
        }
    }
}

fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n").into_bytes();
    for (name, value) in headers {
        bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    if !body.is_empty() || method != "GET" {
        bytes.extend_from_slice(format!("Content-Length: {}\r\n", body.len()).as_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(body);
    bytes
}

/// A text as one value in a query: everything but the unreserved characters is encoded.
pub fn encode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}
