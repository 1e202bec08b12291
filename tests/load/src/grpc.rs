//! etcd's lock service through gRPC, spoken by hand: two calls need no generated client.

use std::net::SocketAddr;

use anyhow::{Context as _, ensure};
use bytes::{BufMut as _, Bytes, BytesMut};
use h2::client::SendRequest;
use http::{Method, Request, Uri};
use tokio::net::TcpStream;

use crate::etcd::TTL_S;

#[derive(Debug)]
pub(crate) struct Grpc {
    send: SendRequest<Bytes>,
    driver: tokio::task::JoinHandle<()>,
    lock_uri: Uri,
    unlock_uri: Uri,
    lease: i64,
    lock: Bytes,
    key: Bytes,
}

impl Grpc {
    pub(crate) async fn open(addr: SocketAddr, name: &str) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(addr).await?;
        stream.set_nodelay(true)?;
        let (send, connection) = h2::client::handshake(stream).await?;
        let driver = tokio::spawn(async move {
            // The loop that uses the connection reports its loss.
            let _ = connection.await;
        });
        let uri = |path: &str| Uri::try_from(format!("http://{addr}{path}"));
        let mut session = Self {
            send,
            driver,
            lock_uri: uri("/v3lockpb.Lock/Lock")?,
            unlock_uri: uri("/v3lockpb.Lock/Unlock")?,
            lease: 0,
            lock: Bytes::new(),
            key: Bytes::new(),
        };
        let ask = message(|out| number(out, 1, TTL_S as u64));
        let granted = session.call(uri("/etcdserverpb.Lease/LeaseGrant")?, ask).await?;
        session.lease = find_number(&granted, 2).context("no lease id")? as i64;
        let lease = session.lease as u64;
        session.lock = message(|out| {
            bytes(out, 1, name.as_bytes());
            number(out, 2, lease);
        });
        Ok(session)
    }

    pub(crate) fn lease(&self) -> i64 {
        self.lease
    }

    pub(crate) async fn lock(&mut self) -> anyhow::Result<()> {
        let locked = self.call(self.lock_uri.clone(), self.lock.clone()).await?;
        self.key = find_bytes(&locked, 2).context("no key")?;
        Ok(())
    }

    pub(crate) async fn unlock(&mut self) -> anyhow::Result<()> {
        let key = std::mem::take(&mut self.key);
        let ask = message(|out| bytes(out, 1, &key));
        self.call(self.unlock_uri.clone(), ask).await.map(drop)
    }

    async fn call(&mut self, uri: Uri, message: Bytes) -> anyhow::Result<Bytes> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(uri)
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())?;
        let mut send = self.send.clone().ready().await?;
        let (answer, mut body) = send.send_request(request, false)?;
        body.send_data(message, true)?;
        let mut stream = answer.await?.into_body();
        let mut data = BytesMut::new();
        while let Some(chunk) = stream.data().await {
            let chunk = chunk?;
            stream.flow_control().release_capacity(chunk.len())?;
            data.extend_from_slice(&chunk);
        }
        let trailers = stream.trailers().await?;
        let status = trailers.as_ref().and_then(|map| map.get("grpc-status"));
        ensure!(status.is_some_and(|status| status == "0"), "a gRPC error: {trailers:?}");
        ensure!(data.len() >= PREFIX, "an answer without a message");
        Ok(data.freeze().slice(PREFIX..))
    }
}

impl Drop for Grpc {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Every message follows a flag and its length.
const PREFIX: usize = 5;

fn message(fill: impl FnOnce(&mut BytesMut)) -> Bytes {
    let mut out = BytesMut::zeroed(PREFIX);
    fill(&mut out);
    let len = (out.len() - PREFIX) as u32;
    out[1..PREFIX].copy_from_slice(&len.to_be_bytes());
    out.freeze()
}

fn varint(out: &mut BytesMut, mut value: u64) {
    while value >= 0x80 {
        out.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

fn number(out: &mut BytesMut, field: u64, value: u64) {
    varint(out, field << 3);
    varint(out, value);
}

fn bytes(out: &mut BytesMut, field: u64, value: &[u8]) {
    varint(out, field << 3 | 2);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

fn read_varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

enum Found {
    Number(u64),
    Bytes(Bytes),
}

/// The first value of a field at the top of a message. Only numbers and bytes occur in these.
fn find(message: &Bytes, wanted: u64) -> Option<Found> {
    let mut at = 0;
    while at < message.len() {
        let tag = read_varint(message, &mut at)?;
        let value = read_varint(message, &mut at)?;
        let found = match tag & 7 {
            0 => Found::Number(value),
            2 => {
                let start = at;
                at += value as usize;
                (at <= message.len()).then(|| Found::Bytes(message.slice(start..at)))?
            }
            _ => return None,
        };
        if tag >> 3 == wanted {
            return Some(found);
        }
    }
    None
}

fn find_number(message: &Bytes, field: u64) -> Option<u64> {
    match find(message, field)? {
        Found::Number(value) => Some(value),
        Found::Bytes(_) => None,
    }
}

fn find_bytes(message: &Bytes, field: u64) -> Option<Bytes> {
    match find(message, field)? {
        Found::Bytes(value) => Some(value),
        Found::Number(_) => None,
    }
}
