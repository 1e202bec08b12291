//! The kit: installing it, looking at it, removing it.

use super::connect::{Database, failure, rows, value};
use super::findings;
use crate::error::Error;
use crate::report::Finding;
use serde::Serialize;
use tokio_postgres::Client;

/// What installs the kit, or brings an older one up to date.
pub const INSTALL: &str = include_str!("../../postgres/install.sql");
/// What removes it.
pub const REMOVE: &str = include_str!("../../postgres/remove.sql");
/// The version that [`INSTALL`] installs.
pub const VERSION: i64 = 2;

/// What an installation did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Installed {
    /// What was there before.
    pub before: Option<i64>,
    /// What is there now.
    pub version: i64,
    /// Roles that may use it now.
    pub granted: Vec<String>,
}

/// What is in a database.
#[derive(Debug, Clone, Serialize)]
pub struct Status {
    /// The server and its version.
    pub store: String,
    /// The version of the kit, if there is one.
    pub version: Option<i64>,
    /// The version that this program installs.
    pub shipped: i64,
    /// The tables in trigger mode.
    pub protected: Vec<String>,
    /// Roles that may use it.
    pub granted: Vec<String>,
    /// What weakens the fence.
    pub findings: Vec<Finding>,
}

/// What a removal did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Removed {
    /// What was there before.
    pub before: Option<i64>,
    /// Whether the highest tokens are gone as well.
    pub tokens_forgotten: bool,
}

/// Installs the kit, and lets `roles` use it.
///
/// # Errors
/// When the database cannot be reached or does not let this role do it.
pub async fn install(database: &Database, roles: &[String]) -> Result<Installed, Error> {
    let client = database.connect().await?;
    let before = version(&client).await?;
    client.batch_execute(INSTALL).await.map_err(|error| failure(&error))?;
    for role in roles {
        let grant = format!("GRANT USAGE ON SCHEMA leasehold TO {}", identifier(role));
        client.batch_execute(&grant).await.map_err(|error| failure(&error))?;
    }
    let now = version(&client).await?.unwrap_or(VERSION);
    Ok(Installed { before, version: now, granted: roles.to_vec() })
}

/// What is there.
///
/// # Errors
/// When the database cannot be reached.
pub async fn status(database: &Database) -> Result<Status, Error> {
    let client = database.connect().await?;
    let version = version(&client).await?;
    let mut status = Status {
        store: store(&client).await?,
        version,
        shipped: VERSION,
        protected: Vec::new(),
        granted: Vec::new(),
        findings: findings::of(&client, version).await?,
    };
    if version.is_some() {
        status.protected = names(&client, PROTECTED).await?;
        status.granted = names(&client, GRANTED).await?;
    }
    Ok(status)
}

const PROTECTED: &str = "SELECT t.tgrelid::regclass FROM pg_catalog.pg_trigger AS t \
     WHERE t.tgname = 'leasehold_fence' AND t.tgparentid = 0 ORDER BY 1";
const GRANTED: &str = "SELECT DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC' \
     ELSE pg_catalog.pg_get_userbyid(a.grantee) END \
     FROM pg_catalog.pg_namespace AS n, pg_catalog.aclexplode(n.nspacl) AS a \
     WHERE n.nspname = 'leasehold' AND a.privilege_type = 'USAGE' AND a.grantee <> n.nspowner \
     ORDER BY 1";

/// What a removal may do beside removing the functions.
#[derive(Debug, Clone, Copy, Default)]
pub struct Removal {
    /// Take tables out of trigger mode first.
    pub unprotect: bool,
    /// Remove the highest tokens as well.
    pub forget_tokens: bool,
}

/// Removes the kit. The highest tokens stay unless they are to be forgotten.
///
/// # Errors
/// When tables are in trigger mode, the database cannot be reached, or does not let this role do it.
pub async fn remove(database: &Database, how: Removal) -> Result<Removed, Error> {
    let client = database.connect().await?;
    let before = version(&client).await?;
    for (name, wanted) in
        [("leasehold.unprotect", how.unprotect), ("leasehold.forget_tokens", how.forget_tokens)]
    {
        if wanted {
            let set = format!("SELECT set_config('{name}', 'yes', false)");
            client.batch_execute(&set).await.map_err(|error| failure(&error))?;
        }
    }
    client.batch_execute(REMOVE).await.map_err(|error| failure(&error))?;
    Ok(Removed { before, tokens_forgotten: how.forget_tokens })
}

/// The version of the kit that is installed. A role that may not look at it learns from the
/// refusal, as the functions are there and not for it.
pub(super) async fn version(client: &Client) -> Result<Option<i64>, Error> {
    let there = "SELECT EXISTS (SELECT FROM pg_catalog.pg_proc AS p \
         JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace \
         WHERE n.nspname = 'leasehold' AND p.proname = 'version')";
    if value(client, there).await?.as_deref() != Some("t") {
        return Ok(None);
    }
    let told = value(client, "SELECT leasehold.version()").await;
    let told =
        told.map_err(|error| error.during("the kit is installed; asking for its version"))?;
    Ok(told.and_then(|version| version.parse().ok()))
}

pub(super) async fn store(client: &Client) -> Result<String, Error> {
    let version = value(client, "SHOW server_version").await?.unwrap_or_default();
    Ok(format!("PostgreSQL {version}"))
}

async fn names(client: &Client, sql: &str) -> Result<Vec<String>, Error> {
    Ok(rows(client, sql).await?.into_iter().filter_map(|row| row.into_iter().next()?).collect())
}

/// A name as SQL takes it literally.
fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_script() {
        assert!(INSTALL.contains(&format!("ours constant integer := {VERSION};")));
        assert_eq!(identifier("o\"neil"), "\"o\"\"neil\"");
    }
}
