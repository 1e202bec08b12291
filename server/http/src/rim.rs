//! A client's connection.
//!
//! The HTTP layer answers a head that it cannot read by itself, with an empty body, before any
//! of our code runs. This wrapper recognises those answers on their way out and gives them the
//! one shape of all errors. An answer that shares a write with one before it (a client that sent
//! several requests without waiting, the last one malformed) keeps its empty body.
//!
//! It also cuts off a client whose next head does not arrive in time, or who sends on without
//! waiting for answers.

use crate::link::Link;
use crate::metrics::{Raised, RouteMetrics};
use crate::trace::TraceId;
use actix_web::rt::net::TcpStream;
use leasehold_wire::{Code, Problem};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// A socket, counted while it is open.
#[derive(Debug)]
pub(crate) struct Rim {
    socket: TcpStream,
    link: Rc<Link>,
    unreadable: Arc<RouteMetrics>,
    patience: Patience,
    /// Wakes a connection whose head is arriving. Set once in a while, not for every request.
    head_timer: Option<Pin<Box<Sleep>>>,
    /// Runs while the client takes nothing of what is being sent.
    stalled: Option<Pin<Box<Sleep>>>,
    /// What is sent in the place of a write that was recognised.
    instead: Option<Instead>,
    _counted: Raised,
}

/// How long a client may take for what only it can do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// To send the head of a request.
    pub(crate) head: Duration,
    /// To take anything of an answer.
    pub(crate) write: Duration,
}

#[derive(Debug)]
struct Instead {
    bytes: Vec<u8>,
    sent: usize,
    /// Once everything is sent: what the client goes on sending is read and dropped for a while.
    /// Closing a socket with unread input makes the kernel tell the client of a reset, and the
    /// client would never see its answer.
    dropping: Option<Dropping>,
}

#[derive(Debug)]
struct Dropping {
    until: Pin<Box<Sleep>>,
    bytes_left: usize,
}

/// For how long, and how much, a refused client's further input is dropped.
const DROPPED_MAX: Duration = Duration::from_secs(1);
const DROPPED_BYTES_MAX: usize = 1 << 20;

impl Rim {
    pub(crate) fn new(
        socket: TcpStream,
        patience: Patience,
        unreadable: Arc<RouteMetrics>,
        counted: Raised,
    ) -> Self {
        let link = Rc::new(Link::new());
        Self {
            socket,
            link,
            unreadable,
            patience,
            head_timer: None,
            stalled: None,
            instead: None,
            _counted: counted,
        }
    }

    /// What the requests on this connection share with it.
    pub(crate) fn link(&self) -> Rc<Link> {
        Rc::clone(&self.link)
    }

    /// Whether the head, or the rest of an answered request, that is arriving has had its time.
    fn is_late(&mut self, cx: &mut Context<'_>) -> bool {
        while let Some(since) = self.link.head_since().or(self.link.rest_since()) {
            let due = Instant::from_std(since) + self.patience.head;
            let timer = self.head_timer.get_or_insert_with(|| Box::pin(sleep_until(due)));
            if timer.as_mut().poll(cx).is_pending() {
                return false;
            }
            if Instant::now() >= due {
                return true;
            }
            // Set for an earlier request, which has had its answer long ago.
            timer.as_mut().reset(due);
        }
        false
    }

    /// Sends as much as the client takes. One that takes nothing for long holds a buffer, and with
    /// a stream of events a place, for nobody: it is cut off.
    fn send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.socket).poll_write(cx, bytes);
        if sent.is_ready() {
            self.stalled = None;
            return sent;
        }
        let patience = self.patience.write;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Tells the client as far as it listens, and ends the connection like one that it closed.
    fn cut_late_head(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let answer = write(late_head(), TraceId::random());
        self.unreadable.count(Code::RequestTimeout);
        // One attempt: the buffer of a client that waits for nothing else has room.
        let _ = Pin::new(&mut self.socket).poll_write(cx, &answer);
        Poll::Ready(Ok(()))
    }

    /// Sends the replacement, and then reports the replaced write of `length` bytes as done.
    fn send_instead(&mut self, cx: &mut Context<'_>, length: usize) -> Poll<io::Result<usize>> {
        let Some(instead) = &mut self.instead else { return Poll::Ready(Ok(length)) };
        let socket = &mut self.socket;
        while instead.sent < instead.bytes.len() {
            let rest = &instead.bytes[instead.sent..];
            match ready!(Pin::new(&mut *socket).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => instead.sent += sent,
            }
        }
        if instead.dropping.is_none() {
            ready!(Pin::new(&mut *socket).poll_shutdown(cx))?;
        }
        let dropping = instead.dropping.get_or_insert_with(Dropping::begin);
        ready!(dropping.poll(socket, cx));
        self.instead = None;
        Poll::Ready(Ok(length))
    }
}

impl Dropping {
    fn begin() -> Self {
        Self { until: Box::pin(tokio::time::sleep(DROPPED_MAX)), bytes_left: DROPPED_BYTES_MAX }
    }

    /// Ready when the client has closed its side, or has had enough patience.
    fn poll(&mut self, socket: &mut TcpStream, cx: &mut Context<'_>) -> Poll<()> {
        let mut space = [0; 4096];
        while self.bytes_left > 0 && self.until.as_mut().poll(cx).is_pending() {
            let mut buffer = ReadBuf::new(&mut space);
            match ready!(Pin::new(&mut *socket).poll_read(cx, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => {
                    self.bytes_left = self.bytes_left.saturating_sub(buffer.filled().len());
                }
                _ => break,
            }
        }
        Poll::Ready(())
    }
}

impl AsyncWrite for Rim {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.instead.is_none() {
            let Some(problem) = recognise(bytes) else { return self.send(cx, bytes) };
            self.unreadable.count(problem.code);
            self.instead =
                Some(Instead { bytes: write(problem, TraceId::random()), sent: 0, dropping: None });
        }
        self.send_instead(cx, bytes.len())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

impl AsyncRead for Rim {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        match Pin::new(&mut self.socket).poll_read(cx, into) {
            Poll::Ready(Ok(())) => {
                if !self.link.received(into.filled().len() - before) {
                    into.set_filled(before); // Which is how a closed connection reads.
                }
                Poll::Ready(Ok(()))
            }
            Poll::Pending if self.is_late(cx) => match self.link.rest_since() {
                // It has had its answer: this reads like a connection that the client closed.
                Some(_) => Poll::Ready(Ok(())),
                None => self.cut_late_head(cx),
            },
            other => other,
        }
    }
}

/// The problem that stands behind an answer without a body, if this is one of those that the
/// HTTP layer makes by itself. Our own answers always have a body.
fn recognise(bytes: &[u8]) -> Option<Problem<'static>> {
    let rest = bytes.strip_prefix(b"HTTP/1.1 4")?;
    let (status, rest) = (rest.get(..2)?, rest.get(2..)?);
    let empty = rest
        .split(|byte| *byte == b'\n')
        .any(|line| line.trim_ascii().eq_ignore_ascii_case(b"content-length: 0"));
    match (status, empty) {
        (b"00", true) => {
            let detail = "the head of the request is not well-formed HTTP";
            Some(Problem::new(400, Code::InvalidRequest, detail))
        }
        (b"31", true) => {
            let detail = "the head of the request has more than 96 headers or 128 KiB";
            let expected = Some("at most 96 headers and 128 KiB in all".into());
            Some(Problem { expected, ..Problem::new(431, Code::HeadersTooLarge, detail) })
        }
        _ => None,
    }
}

fn late_head() -> Problem<'static> {
    Problem::new(408, Code::RequestTimeout, "the head of the request did not arrive in time")
}

fn write(mut problem: Problem<'static>, trace: TraceId) -> Vec<u8> {
    let trace = trace.to_string();
    let (status, reason) = match problem.code {
        Code::RequestTimeout => (408, "Request Timeout"),
        Code::HeadersTooLarge => (431, "Request Header Fields Too Large"),
        _ => (400, "Bad Request"),
    };
    let mut head = format!(
        "HTTP/1.1 {status} {reason}\r\ncontent-type: application/problem+json\r\n\
         connection: close\r\nleasehold-trace-id: {trace}\r\n"
    );
    problem.trace_id = Some(trace.into());
    let body = serde_json::to_vec(&problem).expect("shapes have string keys");
    head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
    let mut answer = head.into_bytes();
    answer.extend_from_slice(&body);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_without_a_body_are_recognised() {
        for (head, code) in [
            ("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n", Code::InvalidRequest),
            (
                "HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
                Code::HeadersTooLarge,
            ),
        ] {
            assert_eq!(recognise(head.as_bytes()).expect(head).code, code);
        }
    }

    #[test]
    fn all_other_writes_pass() {
        for head in [
            "",
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 310\r\n\r\n{}",
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 4",
        ] {
            assert!(recognise(head.as_bytes()).is_none(), "{head}");
        }
    }

    #[test]
    fn the_replacement_is_a_whole_answer() {
        let problem =
            recognise(b"HTTP/1.1 431 X\r\ncontent-length: 0\r\n\r\n").expect("recognised");
        let answer = String::from_utf8(write(problem, TraceId::random())).expect("text");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.contains(&format!("content-length: {}", body.len())), "{head}");
        let read: Problem<'_> = serde_json::from_str(body).expect("a problem");
        assert_eq!((read.status, read.code), (431, Code::HeadersTooLarge));
        assert!(head.contains(&*read.trace_id.expect("traced")));
    }
}
