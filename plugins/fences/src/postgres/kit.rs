//! The kit: installing it, looking at it, removing it.

use super::connect::{Database, as_the_database_waits, failure, rows, value};
use super::protected::{self, Protected};
use super::scripts::{INSTALL, REMOVE, VERSION};
use super::{findings, strange};
use crate::error::Error;
use crate::report::Finding;
use serde::Serialize;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

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

/// What is in a database.
#[derive(Debug, Clone, Serialize)]
pub struct Status {
    /// The server and its version.
    pub store: String,
    /// The version of the kit, if there is one.
    pub version: Option<i64>,
    /// The version that this program installs.
    pub shipped: i64,
    /// The role that owns the kit, with whose rights its calls run.
    pub owner: Option<String>,
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
    /// Of how many resources there were highest tokens, if a kit had left or had any and they belong
    /// to this role.
    pub tokens: Option<u64>,
    /// Whether there were some, and those are gone as well.
    pub tokens_forgotten: bool,
    /// Whether there are some for the next kit.
    pub tokens_kept: bool,
    /// The tables of the kit that are gone, and were there.
    pub tables_removed: Vec<String>,
    /// Those that are left.
    pub tables_left: Vec<String>,
}

/// Installs the kit, and lets `roles` use it.
///
/// # Errors
/// When the database cannot be reached or does not let this role do it, or something is there that the
/// kit did not make, or calls of a kit are there without its tables.
pub async fn install(database: &Database, roles: &[String]) -> Result<Installed, Error> {
    let client = database.connect().await?;
    let before = seen(&client).await?.map(|(version, _)| version);
    let taken_over = if before.is_none() { tokens(&client).await? } else { None };
    as_the_database_waits(&client).await?;
    // One message is one transaction: a role that there is not leaves everything as it was.
    let script = format!("{INSTALL}{}", grants(roles));
    client.batch_execute(&script).await.map_err(|error| not_installed(&error))?;
    let now = seen(&client).await?.map_or(VERSION, |(version, _)| version);
    Ok(Installed { before, version: now, granted: roles.to_vec(), taken_over })
}

fn grants(roles: &[String]) -> String {
    let grant = |role: &String| {
        let public = role.eq_ignore_ascii_case("public");
        let role = if public { "PUBLIC".to_owned() } else { identifier(role) };
        format!("GRANT USAGE ON SCHEMA leasehold TO {role};\n")
    };
    roles.iter().map(grant).collect()
}

/// What is there, from the catalog alone: what is called `leasehold` may be anybody's, and none of
/// its code runs.
///
/// # Errors
/// When the database cannot be reached, or the kit is not for this role.
pub async fn status(database: &Database) -> Result<Status, Error> {
    let client = database.connect().await?;
    let version = version(&client).await?;
    let protected = protected::all(&client).await?;
    let granted = if version.is_some() { names(&client, GRANTED).await? } else { Vec::new() };
    Ok(Status {
        store: store(&client).await?,
        version,
        shipped: VERSION,
        owner: if version.is_some() { value(&client, OWNER).await? } else { None },
        findings: findings::of(&client, version, &protected).await?,
        tokens_kept: version.is_none() && has_tokens(&client).await?,
        protected,
        granted,
    })
}

async fn has_tokens(client: &Client) -> Result<bool, Error> {
    let there = "SELECT EXISTS (SELECT FROM pg_catalog.pg_class AS c \
         JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
         WHERE n.nspname = 'leasehold' AND c.relname = 'fence')";
    Ok(value(client, there).await?.as_deref() == Some("t"))
}

/// A table and a schema that belong to exactly this role. Whoever reads a table runs what its owner
/// has put there, if only the condition of an index, which is looked at while a count is planned; and
/// what runs under `SET ROLE` can go back to the role of the session.
const TOKENS_ARE_OURS: &str = "SELECT EXISTS (SELECT FROM pg_catalog.pg_class AS c \
     JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
     WHERE n.nspname = 'leasehold' AND c.relname = 'fence' AND c.relkind = 'r' \
     AND NOT c.relrowsecurity AND current_user = session_user \
     AND pg_catalog.pg_get_userbyid(c.relowner) = current_user \
     AND pg_catalog.pg_get_userbyid(n.nspowner) = current_user)";

/// Of how many resources there are highest tokens. Counted for whoever owns the table, and nobody else.
async fn tokens(client: &Client) -> Result<Option<u64>, Error> {
    let ours = value(client, TOKENS_ARE_OURS).await?.as_deref() == Some("t");
    if !ours || strange::refusal(client).await?.is_some() {
        return Ok(None);
    }
    let counted = value(client, "SELECT count(*) FROM leasehold.fence").await?;
    Ok(counted.and_then(|counted| counted.parse().ok()))
}

/// The highest token of any resource that the database has seen; nothing if it has seen none. For the
/// owner of the kit alone, who may read all of them.
///
/// # Errors
/// When the database cannot be reached, has no kit, or the kit is another role's, or something is there
/// that it did not make, or a part of it is gone.
pub async fn highest(database: &Database) -> Result<Option<u64>, Error> {
    let client = database.connect().await?;
    if let Some(refusal) = strange::refusal(&client).await? {
        return Err(refusal);
    }
    if !has_tokens(&client).await? {
        return Err(Error::Refused(
            "there is no kit in the database, nor tokens of one".to_owned(),
        ));
    }
    if value(&client, TOKENS_ARE_OURS).await?.as_deref() != Some("t") {
        return Err(Error::Refused(
            "the highest tokens can be read by the role that owns the kit: connect as that one"
                .to_owned(),
        ));
    }
    let highest = value(&client, "SELECT max(token) FROM leasehold.fence").await?;
    Ok(highest.and_then(|highest| highest.parse().ok()))
}

fn not_installed(error: &tokio_postgres::Error) -> Error {
    let told = failure(error);
    let hinted = error.as_db_error().is_some_and(|told| told.hint().is_some());
    match error.code() {
        Some(&SqlState::UNDEFINED_OBJECT) => {
            Error::Refused(format!("{told}; everything is as it was"))
        }
        // What the script itself refuses comes with what to do.
        Some(&SqlState::INSUFFICIENT_PRIVILEGE) if !hinted => Error::Refused(format!(
            "{told}; whoever installs the kit needs CREATE on the database (GRANT CREATE ON DATABASE \
             name TO role), and whoever brings it up to date has to own it"
        )),
        _ => told,
    }
}

const OWNER: &str = "SELECT pg_catalog.pg_get_userbyid(nspowner) FROM pg_catalog.pg_namespace \
     WHERE nspname = 'leasehold'";

/// Who owns the kit, or a part of it, and is no superuser, where this session is one: what such a role
/// has written must not run with the rights of this session.
const STRANGER: &str = "SELECT r.rolname FROM pg_catalog.pg_namespace AS n, LATERAL (\
     SELECT n.nspowner UNION SELECT p.proowner FROM pg_catalog.pg_proc AS p \
     WHERE p.pronamespace = n.oid UNION SELECT c.relowner FROM pg_catalog.pg_class AS c \
     WHERE c.relnamespace = n.oid) AS o (owner) \
     JOIN pg_catalog.pg_roles AS r ON r.oid = o.owner \
     WHERE n.nspname = 'leasehold' AND NOT r.rolsuper AND EXISTS (SELECT \
     FROM pg_catalog.pg_roles AS m WHERE m.rolsuper AND m.rolname IN (current_user, session_user)) \
     LIMIT 1";

/// The owner whose kit this session had better not call.
pub(super) async fn stranger(client: &Client) -> Result<Option<String>, Error> {
    value(client, STRANGER).await
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
/// When tables are in trigger mode, something is there that the kit did not make, the
/// database cannot be reached, or does not let this role do it.
pub async fn remove(database: &Database, how: Removal) -> Result<Removed, Error> {
    let client = database.connect().await?;
    let before = match seen(&client).await? {
        Some((version, _)) => Some(version),
        None => value(&client, UNSAID).await?.and_then(|version| version.parse().ok()),
    };
    let (tokens, there) = (tokens(&client).await?, has_tokens(&client).await?);
    let tables = names(&client, TABLES).await?;
    as_the_database_waits(&client).await?;
    for (name, wanted) in
        [("leasehold.unprotect", how.unprotect), ("leasehold.forget_tokens", how.forget_tokens)]
    {
        if wanted {
            let set = format!("SELECT set_config('{name}', 'yes', false)");
            client.batch_execute(&set).await.map_err(|error| failure(&error))?;
        }
    }
    client.batch_execute(REMOVE).await.map_err(|error| not_removed(&error))?;
    let kept = has_tokens(&client).await?;
    let tables_left = names(&client, TABLES).await?;
    let tables_removed = tables.into_iter().filter(|table| !tables_left.contains(table)).collect();
    Ok(Removed {
        before,
        tokens,
        tokens_forgotten: there && !kept,
        tokens_kept: kept,
        tables_removed,
        tables_left,
    })
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

/// The first kit has no comment.
const COMMENTED: &str = "SELECT coalesce(substring(\
     pg_catalog.obj_description(p.oid, 'pg_proc') FROM '^version ([0-9]{1,9})$'), '1'), \
     pg_catalog.has_schema_privilege(n.oid, 'USAGE') \
     AND pg_catalog.has_function_privilege(p.oid, 'EXECUTE') \
     FROM pg_catalog.pg_proc AS p JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace \
     WHERE n.nspname = 'leasehold' AND p.proname = 'version' AND p.pronargs = 0";

const TABLES: &str = "SELECT 'leasehold.' || c.relname FROM pg_catalog.pg_class AS c \
     JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
     WHERE n.nspname = 'leasehold' AND c.relname IN ('fence', 'kit') ORDER BY 1";

/// The version of a kit that has lost the call that tells it.
const UNSAID: &str = "SELECT CASE WHEN bool_or(p.proname = 'fenced') THEN 2 ELSE 1 END \
     FROM pg_catalog.pg_proc AS p JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace \
     WHERE n.nspname = 'leasehold' AND p.proname IN ('seal', 'guard', 'fenced') HAVING count(*) > 0";

/// The version of the kit that is installed, without a call of it, which could be anybody's; and
/// whether this role may use it.
async fn seen(client: &Client) -> Result<Option<(i64, bool)>, Error> {
    let told = rows(client, COMMENTED).await?.into_iter().next();
    Ok(told.and_then(|row| {
        let [version, allowed] = <[_; 2]>::try_from(row).ok()?;
        Some((version?.parse().ok()?, allowed.as_deref() == Some("t")))
    }))
}

/// The version of the kit that is installed.
///
/// # Errors
/// When it is there, and not for this role.
pub(super) async fn version(client: &Client) -> Result<Option<i64>, Error> {
    match seen(client).await? {
        Some((_, false)) => Err(Error::Refused(
            "42501: the kit is installed, and this role may not use it; its owner can GRANT USAGE \
             ON SCHEMA leasehold TO the role"
                .to_owned(),
        )),
        seen => Ok(seen.map(|(version, _)| version)),
    }
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
    fn a_name_is_taken_literally() {
        assert_eq!(identifier("o\"neil"), "\"o\"\"neil\"");
    }
}
