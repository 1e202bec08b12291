//! One kept-alive HTTP/1.1 connection that costs as little as it can: what the client spends is
//! taken from the measured server, which shares the machine with it.

use std::net::SocketAddr;
use std::ops::Range;

use anyhow::{Context as _, bail, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// In the head of the last answer.
const CLOSE: &[u8] = b"\r\nconnection: close\r\n";

/// A connection with a buffer that is reused from call to call.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    request: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(addr: SocketAddr) -> anyhow::Result<Self> {
        let stream =
            TcpStream::connect(addr).await.with_context(|| format!("connect to {addr}"))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(8192), request: Vec::with_capacity(1024) })
    }

    /// Posts a body and gives the body of a 200. Anything else is an error: a benchmark whose calls
    /// fail measures nothing.
    pub(crate) async fn post(&mut self, path: &str, body: &[u8]) -> anyhow::Result<&[u8]> {
        self.begin(path, body).await?;
        self.answer().await
    }

    /// Posts a body and leaves its answer to come when it will: one request that waits.
    pub(crate) async fn begin(&mut self, path: &str, body: &[u8]) -> anyhow::Result<()> {
        let length = body.len().to_string();
        let head = [
            b"POST ",
            path.as_bytes(),
            b" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ",
            length.as_bytes(),
            b"\r\n\r\n",
            body,
        ];
        self.send(&head).await
    }

    /// Gets a path, which must be encoded already.
    pub(crate) async fn get(&mut self, path: &str) -> anyhow::Result<&[u8]> {
        self.send(&[b"GET ", path.as_bytes(), b" HTTP/1.1\r\nHost: localhost\r\n\r\n"]).await?;
        self.answer().await
    }

    /// Puts a body where it may replace another one, under some lines of headers. Answers whether
    /// the connection goes on: servers end one after so many requests.
    pub(crate) async fn put(
        &mut self,
        path: &str,
        headers: &str,
        body: &[u8],
    ) -> anyhow::Result<bool> {
        let length = body.len().to_string();
        let head = [
            b"PUT ",
            path.as_bytes(),
            b" HTTP/1.1\r\nHost: localhost\r\n",
            headers.as_bytes(),
            b"Content-Length: ",
            length.as_bytes(),
            b"\r\n\r\n",
            body,
        ];
        self.send(&head).await?;
        let (status, body) = self.received().await?;
        ensure!(matches!(status, 201 | 204), "{status}: {}", String::from_utf8_lossy(body));
        Ok(!self.buffer.to_ascii_lowercase().windows(CLOSE.len()).any(|part| part == CLOSE))
    }

    async fn send(&mut self, parts: &[&[u8]]) -> anyhow::Result<()> {
        self.request.clear();
        parts.iter().for_each(|part| self.request.extend_from_slice(part));
        self.stream.write_all(&self.request).await?;
        Ok(())
    }

    async fn answer(&mut self) -> anyhow::Result<&[u8]> {
        let (status, body) = self.received().await?;
        ensure!(status == 200, "{status}: {}", String::from_utf8_lossy(body));
        Ok(body)
    }

    async fn received(&mut self) -> anyhow::Result<(u16, &[u8])> {
        self.buffer.clear();
        loop {
            ensure!(self.stream.read_buf(&mut self.buffer).await? > 0, "the server hung up");
            if let Some((status, body)) = parse(&mut self.buffer)? {
                return Ok((status, &self.buffer[body]));
            }
        }
    }
}

/// The status and where in the buffer the body is, once all of it is there.
fn parse(buffer: &mut Vec<u8>) -> anyhow::Result<Option<(u16, Range<usize>)>> {
    let mut slots = [httparse::EMPTY_HEADER; 32];
    let mut head = httparse::Response::new(&mut slots);
    let httparse::Status::Complete(start) = head.parse(buffer)? else { return Ok(None) };
    let status = head.code.unwrap_or_default();
    if status == 204 {
        return Ok(Some((status, start..start)));
    }
    for header in head.headers.iter() {
        if header.name.eq_ignore_ascii_case("content-length") {
            let len: usize = std::str::from_utf8(header.value)?.parse()?;
            let whole = start + len <= buffer.len();
            return Ok(whole.then_some((status, start..start + len)));
        }
        if header.name.eq_ignore_ascii_case("transfer-encoding") {
            return Ok(dechunk(buffer, start)?.map(|end| (status, start..end)));
        }
    }
    bail!("an answer without a length")
}

/// Joins the chunks in place and gives their common end.
fn dechunk(buffer: &mut Vec<u8>, start: usize) -> anyhow::Result<Option<usize>> {
    let mut body = Vec::new();
    let mut at = start;
    loop {
        let parsed = httparse::parse_chunk_size(&buffer[at..]);
        let parsed = parsed.map_err(|_| anyhow::anyhow!("a broken chunk size"))?;
        let httparse::Status::Complete((skip, size)) = parsed else { return Ok(None) };
        let (from, to) = (at + skip, at + skip + size as usize);
        if buffer.len() < to + 2 {
            return Ok(None);
        }
        body.extend_from_slice(&buffer[from..to]);
        at = to + 2;
        if size == 0 {
            buffer.truncate(start);
            buffer.extend_from_slice(&body);
            return Ok(Some(buffer.len()));
        }
    }
}

/// What stands between `before` and the next `end` in an answer. Reading all of the JSON would cost
/// more than the rest of the client.
pub(crate) fn cut<'a>(body: &'a [u8], before: &str, end: &[u8]) -> anyhow::Result<&'a [u8]> {
    let before = before.as_bytes();
    let found = body.windows(before.len()).position(|window| window == before);
    let shown =
        || format!("no {} in {}", String::from_utf8_lossy(before), String::from_utf8_lossy(body));
    let rest = &body[found.with_context(shown)? + before.len()..];
    let len = rest.iter().position(|byte| end.contains(byte)).with_context(shown)?;
    Ok(&rest[..len])
}
