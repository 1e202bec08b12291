//! The function library: installing it, looking at it, removing it.

use super::connect::{Server, failure, text};
use super::findings;
use crate::error::Error;
use crate::report::Finding;
use ::redis::aio::MultiplexedConnection;
use ::redis::{Value, cmd};
use serde::Serialize;

/// What [`install`] loads.
pub const INSTALL: &str = include_str!("../../redis/leasehold.lua");
/// The version that it has.
pub const VERSION: i64 = 2;

const HIDDEN: &str = "a Redis whose version this user may not see";

/// What an installation did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Installed {
    /// What was there before.
    pub before: Option<i64>,
    /// What is there now.
    pub version: i64,
}

/// What is in a Redis.
#[derive(Debug, Clone, Serialize)]
pub struct Status {
    /// The server and its version.
    pub store: String,
    /// The version of the library, if it is there.
    pub version: Option<i64>,
    /// The version that this program installs.
    pub shipped: i64,
    /// What weakens the fence.
    pub findings: Vec<Finding>,
}

/// What a removal did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Removed {
    /// What was there before.
    pub before: Option<i64>,
}

/// Loads the library in the place of an older one.
///
/// # Errors
/// When the Redis cannot be reached, does not let this user do it, or has a newer one.
pub async fn install(server: &Server) -> Result<Installed, Error> {
    let mut connection = server.connect().await?;
    let before = version(&mut connection).await?;
    if before.is_some_and(|before| before > VERSION) {
        return Err(Error::Refused(format!(
            "version {} of the library is installed, and this program has version {VERSION}",
            before.unwrap_or_default()
        )));
    }
    let mut load = cmd("FUNCTION");
    load.arg("LOAD").arg("REPLACE").arg(INSTALL);
    let loaded: Result<Value, _> = load.query_async(&mut connection).await;
    loaded.map_err(|error| failure(&error))?;
    let now = version(&mut connection).await?.unwrap_or(VERSION);
    Ok(Installed { before, version: now })
}

/// What is there.
///
/// # Errors
/// When the Redis cannot be reached.
pub async fn status(server: &Server) -> Result<Status, Error> {
    let mut connection = server.connect().await?;
    let version = version(&mut connection).await?;
    Ok(Status {
        store: store(&mut connection).await?,
        version,
        shipped: VERSION,
        findings: findings::of(&mut connection, version).await?,
    })
}

/// Removes the library. The keys of fences stay: they are data.
///
/// # Errors
/// When the Redis cannot be reached, or does not let this user do it.
pub async fn remove(server: &Server) -> Result<Removed, Error> {
    let mut connection = server.connect().await?;
    let before = version(&mut connection).await?;
    if before.is_some() {
        let mut delete = cmd("FUNCTION");
        delete.arg("DELETE").arg("leasehold");
        let deleted: Result<Value, _> = delete.query_async(&mut connection).await;
        deleted.map_err(|error| failure(&error))?;
    }
    Ok(Removed { before })
}

/// Keys that one step looks at.
const SCANNED: usize = 1_000;

/// The highest token of any resource that the server has seen; nothing if it has seen none. Of a
/// cluster this is one server's part: each has to be asked.
///
/// # Errors
/// When the Redis cannot be reached, or does not let this user look at all keys.
pub async fn highest(server: &Server) -> Result<Option<u64>, Error> {
    let mut connection = server.connect().await?;
    let (mut cursor, mut highest) = ("0".to_owned(), None);
    loop {
        let mut scan = cmd("SCAN");
        scan.arg(&cursor).arg("MATCH").arg("fence:{*}").arg("COUNT").arg(SCANNED);
        scan.arg("TYPE").arg("hash");
        let found: Result<(String, Vec<Vec<u8>>), _> = scan.query_async(&mut connection).await;
        let (next, keys) = found.map_err(|error| failure(&error))?;
        if !keys.is_empty() {
            highest = highest.max(highest_of(&mut connection, &keys).await?);
        }
        if next == "0" {
            return Ok(highest);
        }
        cursor = next;
    }
}

async fn highest_of(
    connection: &mut MultiplexedConnection,
    keys: &[Vec<u8>],
) -> Result<Option<u64>, Error> {
    let mut asked = ::redis::pipe();
    for key in keys {
        asked.cmd("HGET").arg(key).arg("token");
    }
    let told: Result<Vec<Value>, _> = asked.query_async(connection).await;
    let told = told.map_err(|error| failure(&error))?;
    Ok(told.iter().filter_map(text).filter_map(|token| token.parse().ok()).max())
}

pub(super) async fn version(connection: &mut MultiplexedConnection) -> Result<Option<i64>, Error> {
    let mut ask = cmd("FCALL");
    ask.arg("leasehold_version").arg(0);
    match ask.query_async::<Value>(connection).await {
        Ok(version) => Ok(text(&version).and_then(|version| version.parse().ok())),
        Err(error) if error.to_string().contains("Function not found") => Ok(None),
        Err(error) => Err(failure(&error)),
    }
}

pub(super) async fn store(connection: &mut MultiplexedConnection) -> Result<String, Error> {
    let mut ask = cmd("INFO");
    ask.arg("server");
    let told: Result<Value, _> = ask.query_async(connection).await;
    let told = match told {
        Ok(told) => text(&told).unwrap_or_default(),
        // What it is called matters less than what it does.
        Err(error) if error.code() == Some("NOPERM") => return Ok(HIDDEN.to_owned()),
        Err(error) => return Err(failure(&error)),
    };
    let field = |name: &str| told.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    Ok(match (field("valkey_version:"), field("redis_version:")) {
        (Some(version), _) => format!("Valkey {version}"),
        (None, Some(version)) => format!("Redis {version}"),
        (None, None) => "Redis".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_library() {
        assert!(INSTALL.contains(&format!("local VERSION = {VERSION}\n")));
    }
}
