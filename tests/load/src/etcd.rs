//! etcd's lock service through its JSON gateway.

use std::net::SocketAddr;

use anyhow::Context as _;

use crate::connection::{Connection, cut};

/// Longer than a whole comparison: keeping leases alive is not what is measured.
pub(crate) const TTL_S: i64 = 3_600;

#[derive(Debug)]
pub(crate) struct Gateway {
    connection: Connection,
    lease: i64,
    lock: Vec<u8>,
    unlock: Vec<u8>,
}

impl Gateway {
    pub(crate) async fn open(addr: SocketAddr, name: &str) -> anyhow::Result<Self> {
        let mut connection = Connection::open(addr).await?;
        let ask = format!(r#"{{"TTL":{TTL_S}}}"#);
        let granted = connection.post("/v3/lease/grant", ask.as_bytes()).await?;
        let lease = std::str::from_utf8(cut(granted, r#""ID":""#, b"\"")?)?;
        let lease = lease.parse().context("a lease id is a number")?;
        let lock = format!(r#"{{"name":"{}","lease":{lease}}}"#, base64(name.as_bytes()));
        Ok(Self { connection, lease, lock: lock.into_bytes(), unlock: Vec::new() })
    }

    pub(crate) fn lease(&self) -> i64 {
        self.lease
    }

    pub(crate) async fn lock(&mut self) -> anyhow::Result<()> {
        let locked = self.connection.post("/v3/lock/lock", &self.lock).await?;
        let key = cut(locked, r#""key":""#, b"\"")?;
        self.unlock.clear();
        for part in [br#"{"key":""#, key, br#""}"#] {
            self.unlock.extend_from_slice(part);
        }
        Ok(())
    }

    pub(crate) async fn unlock(&mut self) -> anyhow::Result<()> {
        self.connection.post("/v3/lock/unlock", &self.unlock).await?;
        Ok(())
    }
}

/// Ends leases of finished clients, and with them whatever their keys still lock.
pub(crate) async fn revoke(addr: SocketAddr, leases: &[i64]) -> anyhow::Result<()> {
    let mut connection = Connection::open(addr).await?;
    for lease in leases {
        let body = format!(r#"{{"ID":{lease}}}"#);
        connection.post("/v3/lease/revoke", body.as_bytes()).await?;
    }
    Ok(())
}

/// Which of the members leads, as they say themselves.
pub(crate) async fn leader(members: &[SocketAddr]) -> anyhow::Result<SocketAddr> {
    for &addr in members {
        let mut connection = Connection::open(addr).await?;
        let status = connection.post("/v3/maintenance/status", b"{}").await?;
        if cut(status, r#""member_id":""#, b"\"")? == cut(status, r#""leader":""#, b"\"")? {
            return Ok(addr);
        }
    }
    anyhow::bail!("no member of etcd leads")
}

/// The gateway carries bytes as base64.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0_u32, |bits, &byte| bits << 8 | u32::from(byte))
            << (8 * (3 - chunk.len()));
        for i in 0..4 {
            let digit = bits >> (18 - 6 * i) & 63;
            text.push(if i <= chunk.len() { char::from(ALPHABET[digit as usize]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn the_encoding_pads_to_whole_groups() {
        let texts = ["", "f", "fo", "foo", "foob"].map(|text| base64(text.as_bytes()));
        assert_eq!(texts, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg=="]);
    }
}
