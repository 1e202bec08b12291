//! What a database has that weakens a fence, without racing anything.

use super::connect::{rows, value};
use super::protected::{self, Protected};
use super::scripts::VERSION;
use super::strange::{self, Strange};
use crate::error::Error;
use crate::report::{Finding, Severity};
use tokio_postgres::Client;

const SETTINGS: &str = "SELECT name, setting FROM pg_catalog.pg_settings WHERE name IN \
     ('fsync', 'full_page_writes', 'synchronous_commit', 'session_replication_role')";

/// Roles, quoted, that have rights on tables of the kit or on their columns with which the calls can
/// be gone round: the table, the role, and what takes the rights back. A trigger of theirs would run
/// with the rights of the owner.
///
/// What a role has handed on for a column goes with its own right on that column, if the owner gave
/// it; a right on the whole table takes nothing with it.
const WRITERS: &str = "SELECT o.place, o.role, \
     coalesce(string_agg(DISTINCT o.handed, '; ') || '; ', '') \
     || pg_catalog.format('REVOKE ALL ON leasehold.%s FROM %s CASCADE', o.place, o.role) \
     FROM (SELECT c.relname AS place, CASE a.grantee WHEN 0 THEN 'PUBLIC' \
     ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(a.grantee)) END AS role, \
     CASE WHEN a.part IS NOT NULL AND a.grantor <> c.relowner THEN pg_catalog.format( \
     'GRANT %1$s (%2$I) ON leasehold.%3$s TO %4$I WITH GRANT OPTION; \
     REVOKE %1$s (%2$I) ON leasehold.%3$s FROM %4$I CASCADE', a.privilege_type, a.part, c.relname, \
     pg_catalog.pg_get_userbyid(a.grantor)) END AS handed \
     FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace, \
     LATERAL (SELECT NULL, e.* FROM pg_catalog.aclexplode(c.relacl) AS e \
     UNION SELECT t.attname, e.* FROM pg_catalog.pg_attribute AS t, \
     pg_catalog.aclexplode(t.attacl) AS e WHERE t.attrelid = c.oid AND NOT t.attisdropped) \
     AS a (part, grantor, grantee, privilege_type, is_grantable) \
     WHERE n.nspname = 'leasehold' AND c.relname IN ('fence', 'kit') AND a.grantee <> c.relowner \
     AND a.privilege_type IN \
     ('INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER')) AS o \
     GROUP BY o.place, o.role ORDER BY 1, 2";

/// Roles, quoted, that can log in and change the tokens by being what they are a member of, and what
/// that is, quoted.
const REACHERS: &str = "SELECT pg_catalog.quote_ident(r.rolname), pg_catalog.quote_ident(g.rolname) \
     FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
     JOIN pg_catalog.pg_roles AS g ON g.rolname = 'pg_write_all_data' \
     OR g.oid = c.relowner \
     JOIN pg_catalog.pg_roles AS r ON r.rolcanlogin AND NOT r.rolsuper AND r.oid NOT IN (g.oid, c.relowner) \
     WHERE n.nspname = 'leasehold' AND c.relname = 'fence' \
     AND pg_catalog.pg_has_role(r.oid, g.oid, 'MEMBER') ORDER BY 1, 2";

/// Whether the fence belongs to this role, which is no superuser.
const OWNS: &str = "SELECT EXISTS (SELECT FROM pg_catalog.pg_class AS c \
     JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
     JOIN pg_catalog.pg_roles AS r ON r.oid = c.relowner AND NOT r.rolsuper \
     WHERE n.nspname = 'leasehold' AND c.relname = 'fence' AND r.rolname = current_user)";

/// Roles, quoted, that can make a call in the schema that is a better match than one of the kit.
const MAKERS: &str = "SELECT DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC' \
     ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(a.grantee)) END \
     FROM pg_catalog.pg_namespace AS n, pg_catalog.aclexplode(n.nspacl) AS a \
     WHERE n.nspname = 'leasehold' AND a.privilege_type = 'CREATE' \
     AND a.grantee <> n.nspowner ORDER BY 1";

/// What is in the schema and belongs to another role than the schema: what it is, and whose.
const FOREIGN: &str = "SELECT o.what, pg_catalog.pg_get_userbyid(o.owner) \
     FROM pg_catalog.pg_namespace AS n, LATERAL (\
     SELECT 'the relation ' || c.oid::regclass::text, c.relowner \
     FROM pg_catalog.pg_class AS c WHERE c.relnamespace = n.oid AND c.relkind <> 'i' \
     UNION ALL SELECT 'the function ' || p.oid::regprocedure::text, p.proowner \
     FROM pg_catalog.pg_proc AS p WHERE p.pronamespace = n.oid \
     UNION ALL SELECT 'the type ' || t.oid::regtype::text, t.typowner \
     FROM pg_catalog.pg_type AS t WHERE t.typnamespace = n.oid AND t.typrelid = 0 \
     AND t.typelem = 0) AS o (what, owner) \
     WHERE n.nspname = 'leasehold' AND o.owner <> n.nspowner ORDER BY 1";

/// Protected tables with children that are not protected themselves, those children, and whether the
/// table was protected with a column.
const INHERITED: &str = "SELECT c.oid::regclass::text, \
     string_agg(DISTINCT i.inhrelid::regclass::text, ', '), bool_or(p.proname = 'misplaced') \
     FROM pg_catalog.pg_trigger AS t JOIN pg_catalog.pg_class AS c ON c.oid = t.tgrelid \
     JOIN pg_catalog.pg_inherits AS i ON i.inhparent = c.oid \
     JOIN pg_catalog.pg_proc AS p ON p.oid = t.tgfoid \
     JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace \
     WHERE n.nspname = 'leasehold' AND c.relkind = 'r' AND (p.proname = 'misplaced' \
     OR (p.proname = 'fenced' AND NOT EXISTS (SELECT FROM pg_catalog.pg_trigger AS own \
     WHERE own.tgrelid = i.inhrelid AND own.tgfoid = p.oid))) \
     GROUP BY c.oid ORDER BY 1";

const UNLOGGED: &str = "SELECT c.relpersistence <> 'p' FROM pg_catalog.pg_class AS c \
     JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
     WHERE n.nspname = 'leasehold' AND c.relname = 'fence'";

/// Whether there is a fence without the trigger that keeps its rows.
const FORGETS: &str = "SELECT EXISTS (SELECT FROM pg_catalog.pg_class AS c \
     JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = 'leasehold' \
     AND c.relname = 'fence' AND NOT EXISTS (SELECT FROM pg_catalog.pg_trigger AS t \
     WHERE t.tgrelid = c.oid AND t.tgname = 'keep' AND t.tgenabled = 'A'))";

/// Roles, here or everywhere, whose sessions begin in the role of a replica.
const REPLICAS: &str = "SELECT DISTINCT coalesce(r.rolname, 'every role') \
     FROM pg_catalog.pg_db_role_setting AS s LEFT JOIN pg_catalog.pg_roles AS r ON r.oid = s.setrole \
     WHERE s.setdatabase IN (0, (SELECT oid FROM pg_catalog.pg_database \
     WHERE datname = current_database())) \
     AND 'session_replication_role=replica' ILIKE ANY (s.setconfig) ORDER BY 1";

const HAS_PARAMETERS: &str = "SELECT to_regclass('pg_catalog.pg_parameter_acl') IS NOT NULL";

/// Roles that may take the role of a replica without being a superuser. From PostgreSQL 15 on.
const MAY_REPLICATE: &str = "SELECT DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC' \
     ELSE pg_catalog.pg_get_userbyid(a.grantee) END \
     FROM pg_catalog.pg_parameter_acl AS p, pg_catalog.aclexplode(p.paracl) AS a \
     WHERE p.parname = 'session_replication_role' AND a.privilege_type = 'SET' \
     AND a.grantee NOT IN (SELECT oid FROM pg_catalog.pg_roles WHERE rolsuper) ORDER BY 1";

const POWER: &str = "SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user";

/// With replicas, whether a commit waits for one of them.
const UNAWAITED: &str = "SELECT count(*) > 0 AND current_setting('synchronous_standby_names') = '' \
     FROM pg_catalog.pg_stat_replication";

/// What can be seen with the rights of this connection.
pub(super) async fn of(
    client: &Client,
    version: Option<i64>,
    protected: &[Protected],
) -> Result<Vec<Finding>, Error> {
    let mut found = Vec::new();
    for row in rows(client, SETTINGS).await? {
        if let [Some(name), Some(setting)] = row.as_slice() {
            found.extend(of_a_setting(name, setting));
        }
    }
    if value(client, UNAWAITED).await?.as_deref() == Some("t") {
        found.push(Finding::new(
            Severity::Warning,
            "async_replica",
            "there are replicas, and no commit waits for them",
            "after a failover the new primary may not know the highest tokens: set \
             synchronous_standby_names, or seal anew before anybody writes",
        ));
    }
    if value(client, POWER).await?.as_deref() == Some("t") {
        found.push(Finding::new(
            Severity::Note,
            "superuser",
            "this is a superuser, whom nothing keeps from writing around a fence",
            "test with the role of the application: GRANT CREATE ON DATABASE to it for as long as \
             the test runs, or test statements on a table of yours",
        ));
    }
    found.extend(of_replicas(client).await?);
    if let Some(version) = version {
        found.extend(of_the_kit(client, version).await?);
    }
    // Also where the kit was removed: the next one goes on from the tokens that were kept.
    found.extend(of_rights(client).await?);
    found.extend(of_members(client).await?);
    found.extend(protected.iter().filter_map(protected::finding));
    if !protected.is_empty() {
        found.extend(rows(client, INHERITED).await?.iter().filter_map(|row| of_children(row)));
    }
    Ok(found)
}

fn of_a_setting(name: &str, setting: &str) -> Option<Finding> {
    let (severity, code, detail, advice) = match (name, setting) {
        ("fsync", "off") => (
            Severity::Warning,
            "fsync_off",
            "fsync is off: a crash of the machine can lose the highest tokens, and all else",
            "set fsync = on",
        ),
        ("full_page_writes", "off") => (
            Severity::Warning,
            "full_page_writes_off",
            "full_page_writes is off: a crash of the machine can tear pages of the fence",
            "set full_page_writes = on",
        ),
        ("synchronous_commit", "off") => (
            Severity::Warning,
            "synchronous_commit_off",
            "synchronous_commit is off: a crash can lose commits that were acknowledged",
            "the kit turns it on for its own transactions; statements of your own that record a \
             token need SET LOCAL synchronous_commit = on",
        ),
        ("session_replication_role", "replica") => (
            Severity::Hole,
            "triggers_off",
            "session_replication_role is replica: tables in trigger mode are not protected",
            "leave it at origin for sessions that write",
        ),
        _ => return None,
    };
    Some(Finding::new(severity, code, detail, advice))
}

/// Whoever writes in the role of a replica, whom triggers let through.
async fn of_replicas(client: &Client) -> Result<Vec<Finding>, Error> {
    let mut found = Vec::new();
    let mut tell = |row: Vec<Option<String>>, does: &str, advice: &str| {
        let role = row.into_iter().next().flatten().unwrap_or_default();
        let detail = format!("{role} {does}: tables in trigger mode are not protected from it");
        found.push(Finding::new(Severity::Warning, "replica_role", detail, advice));
    };
    for row in rows(client, REPLICAS).await? {
        let does = "begins its sessions with session_replication_role = replica";
        tell(row, does, "ALTER ROLE or ALTER DATABASE ... RESET session_replication_role");
    }
    if value(client, HAS_PARAMETERS).await?.as_deref() == Some("t") {
        for row in rows(client, MAY_REPLICATE).await? {
            let does = "may set session_replication_role = replica";
            tell(row, does, "REVOKE SET ON PARAMETER session_replication_role FROM it");
        }
    }
    Ok(found)
}

async fn of_the_kit(client: &Client, version: i64) -> Result<Vec<Finding>, Error> {
    let mut found = Vec::new();
    if version < VERSION {
        let detail = format!("version {version} of the kit is installed, {VERSION} is current");
        let advice = "run `leasehold fence install`; sessions may go on while it runs";
        found.push(Finding::new(Severity::Warning, "kit_old", detail, advice));
    }
    if value(client, UNLOGGED).await?.as_deref() == Some("t") {
        let detail = "leasehold.fence is not logged: a crash empties it";
        let advice = "ALTER TABLE leasehold.fence SET LOGGED";
        found.push(Finding::new(Severity::Hole, "fence_unlogged", detail, advice));
    }
    if version >= 2 && value(client, FORGETS).await?.as_deref() == Some("t") {
        let detail = "the trigger that keeps rows in leasehold.fence is disabled or gone";
        let advice = "run `leasehold fence install`, which sees to it";
        found.push(Finding::new(Severity::Warning, "fence_forgets", detail, advice));
    }
    Ok(found)
}

/// Who can go round the calls of the kit, or have somebody else do it. Where the advice is SQL, it
/// runs as it is.
async fn of_rights(client: &Client) -> Result<Vec<Finding>, Error> {
    let mut found = Vec::new();
    let mut tell = |code, detail: String, advice: String| {
        found.push(Finding::new(Severity::Hole, code, detail, advice));
    };
    for row in rows(client, WRITERS).await? {
        let [Some(table), Some(role), Some(advice)] = row.as_slice() else { continue };
        let detail = format!("{role} can change leasehold.{table} without the calls of the kit");
        tell("fence_writable", detail, advice.clone());
    }
    for row in rows(client, MAKERS).await? {
        let role = row.into_iter().next().flatten().unwrap_or_default();
        let detail = format!("{role} can make calls in leasehold that are taken for the kit's");
        let advice = format!("REVOKE CREATE ON SCHEMA leasehold FROM {role} CASCADE");
        tell("schema_open", detail, advice);
    }
    for (what, owner) in pairs(client, FOREIGN).await? {
        let detail = format!("{what} belongs to {owner}, and the schema to somebody else");
        let advice = "look at what it does, and drop it; `leasehold fence install` makes anew what \
                      is missing";
        tell("schema_foreign", detail, advice.to_owned());
    }
    found.extend(strange::all(client).await?.iter().map(Strange::finding));
    Ok(found)
}

/// Who can change the tokens through a role, which is nobody's mistake in itself.
async fn of_members(client: &Client) -> Result<Vec<Finding>, Error> {
    let mut found = Vec::new();
    for (role, through) in pairs(client, REACHERS).await? {
        let detail = format!("{role} can change leasehold.fence as a member of {through}");
        let advice = format!("REVOKE {through} FROM {role}, or from the role that it has it from");
        found.push(Finding::new(Severity::Warning, "fence_reachable", detail, advice));
    }
    if value(client, OWNS).await?.as_deref() == Some("t") {
        let detail = "this role owns the fence, and can write around it";
        let advice = "let the application have another role, with USAGE on the schema alone";
        found.push(Finding::new(Severity::Note, "fence_owner", detail, advice));
    }
    Ok(found)
}

/// A row of each two, of a query of our own.
async fn pairs(client: &Client, sql: &str) -> Result<Vec<(String, String)>, Error> {
    let pair = |row: Vec<Option<String>>| {
        let [one, other] = <[_; 2]>::try_from(row).ok()?;
        Some((one?, other?))
    };
    Ok(rows(client, sql).await?.into_iter().filter_map(pair).collect())
}

fn of_children(row: &[Option<String>]) -> Option<Finding> {
    let [Some(table), Some(children), Some(column)] = row else { return None };
    let beside = format!("what writes {children} itself, or a table above {table}, is let through");
    let (severity, detail, advice) = if column == "t" {
        (
            Severity::Hole,
            format!(
                "{children} inherits from {table}, whose column guards only the rows of its own: \
                 UPDATE and DELETE of {table} are refused, and {beside}"
            ),
            format!("ALTER TABLE {children} NO INHERIT {table}, or protect without a column"),
        )
    } else {
        let detail = format!("{children} inherits from {table} and is not protected: {beside}");
        (Severity::Warning, detail, "protect each child as well".to_owned())
    };
    Some(Finding::new(severity, "trigger_inherited", detail, advice))
}
