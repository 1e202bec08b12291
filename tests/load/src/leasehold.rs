//! Leasehold's own protocol, and so that of the constant server.

use std::io::Write as _;
use std::net::SocketAddr;

use crate::connection::{Connection, cut};

/// Longer than any run, so that no lease ends in the middle of one.
const TTL_MS: u64 = 60_000;

#[derive(Debug)]
pub(crate) struct Leasehold {
    connection: Connection,
    acquire: Vec<u8>,
    release: Vec<u8>,
    release_prefix: usize,
}

impl Leasehold {
    pub(crate) async fn open(addr: SocketAddr, name: &str, client: usize) -> anyhow::Result<Self> {
        // A lock that is free is granted at once whatever the wait, so both loops ask alike.
        let acquire = format!(
            r#"{{"resource":"{name}","client_id":"w{client}","ttl_ms":{TTL_MS},"wait_ms":60000}}"#
        );
        let release = format!(r#"{{"resource":"{name}","token":"#).into_bytes();
        Ok(Self {
            connection: Connection::open(addr).await?,
            acquire: acquire.into_bytes(),
            release_prefix: release.len(),
            release,
        })
    }

    pub(crate) async fn lock(&mut self) -> anyhow::Result<()> {
        let grant = self.connection.post("/v1/acquire-lock", &self.acquire).await?;
        let token = cut(grant, r#""token":"#, b",}")?;
        self.release.truncate(self.release_prefix);
        self.release.extend_from_slice(token);
        self.release.write_all(b"}")?;
        Ok(())
    }

    pub(crate) async fn unlock(&mut self) -> anyhow::Result<()> {
        self.connection.post("/v1/release-lock", &self.release).await?;
        Ok(())
    }
}
