//! The kit: installing it, looking at it, removing it.

use super::connect::{Database, failure, rows, value};
use super::findings;
use crate::error::Error;
use crate::report::Finding;
use serde::Serialize;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

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
    /// Of how many resources an earlier kit had left the highest tokens, if one had.
    pub taken_over: Option<u64>,
}

/// A table in trigger mode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Protected {
    /// Its name, as SQL takes it.
    pub table: String,
    /// The column that names the resource of a row.
    pub column: Option<String>,
    /// Whether a token passes for one transaction.
    pub strict: bool,
    /// Whether all triggers that do it are enabled.
    pub enabled: bool,
    /// The statement that protects it anew as it is.
    pub call: String,
}

impl std::fmt::Display for Protected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let column = self.column.as_ref().map(|column| format!("column {column}"));
        let strict = self.strict.then(|| "strict".to_owned());
        let disabled = (!self.enabled).then(|| "DISABLED".to_owned());
        let how: Vec<String> = [column, strict, disabled].into_iter().flatten().collect();
        f.write_str(&self.table)?;
        if how.is_empty() { Ok(()) } else { write!(f, " ({})", how.join(", ")) }
    }
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
    pub protected: Vec<Protected>,
    /// Roles that may use it.
    pub granted: Vec<String>,
    /// Whether the highest tokens of a kit that was removed are there for the next one.
    pub tokens_kept: bool,
    /// What weakens the fence.
    pub findings: Vec<Finding>,
}

/// What a removal did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Removed {
    /// What was there before.
    pub before: Option<i64>,
    /// Of how many resources there were highest tokens, if a kit had left or had any.
    pub tokens: Option<u64>,
    /// Whether those are gone as well.
    pub tokens_forgotten: bool,
}

/// Installs the kit, and lets `roles` use it.
///
/// # Errors
/// When the database cannot be reached or does not let this role do it.
pub async fn install(database: &Database, roles: &[String]) -> Result<Installed, Error> {
    let client = database.connect().await?;
    let before = version(&client).await?;
    let taken_over = if before.is_none() { tokens(&client).await? } else { None };
    client.batch_execute(INSTALL).await.map_err(|error| not_installed(&error))?;
    for role in roles {
        let role = if role.eq_ignore_ascii_case("public") {
            "PUBLIC".to_owned()
        } else {
            identifier(role)
        };
        let grant = format!("GRANT USAGE ON SCHEMA leasehold TO {role}");
        client.batch_execute(&grant).await.map_err(|error| failure(&error))?;
    }
    let now = version(&client).await?.unwrap_or(VERSION);
    Ok(Installed { before, version: now, granted: roles.to_vec(), taken_over })
}

/// What is there.
///
/// # Errors
/// When the database cannot be reached.
pub async fn status(database: &Database) -> Result<Status, Error> {
    let client = database.connect().await?;
    let version = version(&client).await?;
    let protected = protected(&client).await?;
    let granted = if version.is_some() { names(&client, GRANTED).await? } else { Vec::new() };
    Ok(Status {
        store: store(&client).await?,
        version,
        shipped: VERSION,
        findings: findings::of(&client, version, &protected).await?,
        tokens_kept: version.is_none() && has_tokens(&client).await?,
        protected,
        granted,
    })
}

/// Triggers on partitions belong to the table that was protected. The arguments of a trigger are
/// bytes, each followed by a zero: strictness, then the column.
const PROTECTED: &str = "WITH ours AS (SELECT t.*, position('\\x00'::bytea IN t.tgargs) AS mark, \
     coalesce((SELECT a.relid FROM pg_catalog.pg_partition_ancestors(t.tgrelid) AS a \
     WHERE EXISTS (SELECT FROM pg_catalog.pg_trigger AS above WHERE above.tgrelid = a.relid \
     AND above.tgname = 'leasehold_fence') LIMIT 1), t.tgrelid) AS target \
     FROM pg_catalog.pg_trigger AS t JOIN pg_catalog.pg_proc AS p ON p.oid = t.tgfoid \
     JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace \
     WHERE n.nspname = 'leasehold' AND p.proname IN ('fenced', 'misplaced')), \
     tables AS (SELECT target::regclass::text AS target, \
     bool_and(tgenabled IN ('O', 'A')) AS enabled, \
     count(*) FILTER (WHERE tgrelid = target AND tgname LIKE 'leasehold\\_resource\\_%') AS checks, \
     coalesce(bool_or(substring(tgargs FOR 4) = 'true'::bytea) \
     FILTER (WHERE tgname = 'leasehold_fence'), false) AS strict, \
     max(nullif(convert_from(substring(tgargs FROM mark + 1 \
     FOR greatest(length(tgargs) - mark - 1, 0)), 'UTF8'), '')) \
     FILTER (WHERE tgname = 'leasehold_fence') AS named \
     FROM ours GROUP BY target HAVING bool_or(tgname = 'leasehold_fence')) \
     SELECT target, named, strict, enabled AND (named IS NULL OR checks = 3), \
     format('SELECT leasehold.protect(%L, %L, %s)', target, named, strict::text) FROM tables ORDER BY 1";

/// The tables in trigger mode.
pub(super) async fn protected(client: &Client) -> Result<Vec<Protected>, Error> {
    let yes = |told: Option<String>| told.as_deref() == Some("t");
    let tables = rows(client, PROTECTED).await?.into_iter().filter_map(|row| {
        let [table, column, strict, enabled, call] = row.try_into().ok()?;
        Some(Protected {
            table: table?,
            column,
            strict: yes(strict),
            enabled: yes(enabled),
            call: call?,
        })
    });
    Ok(tables.collect())
}

async fn has_tokens(client: &Client) -> Result<bool, Error> {
    let there = "SELECT EXISTS (SELECT FROM pg_catalog.pg_class AS c \
         JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
         WHERE n.nspname = 'leasehold' AND c.relname = 'fence')";
    Ok(value(client, there).await?.as_deref() == Some("t"))
}

/// Of how many resources there are highest tokens. For the owner of the table.
async fn tokens(client: &Client) -> Result<Option<u64>, Error> {
    if !has_tokens(client).await? {
        return Ok(None);
    }
    let counted = value(client, "SELECT count(*) FROM leasehold.fence").await?;
    Ok(counted.and_then(|counted| counted.parse().ok()))
}

fn not_installed(error: &tokio_postgres::Error) -> Error {
    let told = failure(error);
    if error.code() != Some(&SqlState::INSUFFICIENT_PRIVILEGE) {
        return told;
    }
    Error::Refused(format!(
        "{told}; whoever installs the kit needs CREATE on the database (GRANT CREATE ON DATABASE \
         name TO role), and whoever brings it up to date has to own it"
    ))
}
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
    let tokens = tokens(&client).await?;
    for (name, wanted) in
        [("leasehold.unprotect", how.unprotect), ("leasehold.forget_tokens", how.forget_tokens)]
    {
        if wanted {
            let set = format!("SELECT set_config('{name}', 'yes', false)");
            client.batch_execute(&set).await.map_err(|error| failure(&error))?;
        }
    }
    client.batch_execute(REMOVE).await.map_err(|error| not_removed(&error))?;
    Ok(Removed { before, tokens, tokens_forgotten: how.forget_tokens && tokens.is_some() })
}

/// The hints are for those who run the script themselves, or for statements of their own.
fn not_removed(error: &tokio_postgres::Error) -> Error {
    let told = error.as_db_error();
    let Some(told) = told.filter(|told| *told.code() == SqlState::DEPENDENT_OBJECTS_STILL_EXIST)
    else {
        return failure(error);
    };
    let what = format!("{}: {}", told.code().code(), told.message());
    Error::Refused(match told.detail() {
        None => format!("{what}; give --unprotect, or call leasehold.unprotect for each"),
        Some(detail) => format!(
            "{what} ({detail}); what was built on the kit is not removed with it: drop that first"
        ),
    })
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
