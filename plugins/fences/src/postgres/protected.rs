//! The tables in trigger mode, and what is wrong with one.

use super::connect::rows;
use super::scripts::{JUDGED, PROTECTED};
use crate::error::Error;
use crate::report::{Finding, Severity};
use serde::Serialize;
use tokio_postgres::Client;

/// A table in trigger mode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Protected {
    /// Its name, as SQL takes it.
    pub table: String,
    /// The column that names the resource of a row, as it is called now.
    pub column: Option<String>,
    /// The name that its triggers have for it, if another column is called like that.
    #[serde(skip)]
    pub misnamed: Option<String>,
    /// Whether a token passes for one transaction.
    pub strict: bool,
    /// Whether all triggers that do it are there, enabled, and as `leasehold.protect` makes them; nothing
    /// while somebody has the table locked.
    pub enabled: Option<bool>,
    /// The statement that protects it anew as it is.
    pub call: String,
}

impl std::fmt::Display for Protected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let column = self.column.as_ref().map(|column| format!("column {column}"));
        let strict = self.strict.then(|| "strict".to_owned());
        let state = match self.enabled {
            Some(true) => None,
            Some(false) => Some("DISABLED".to_owned()),
            None => Some("locked".to_owned()),
        };
        let how: Vec<String> = [column, strict, state].into_iter().flatten().collect();
        f.write_str(&self.table)?;
        if how.is_empty() { Ok(()) } else { write!(f, " ({})", how.join(", ")) }
    }
}

/// The tables in trigger mode, from the catalog alone.
///
/// # Errors
/// When the database cannot be asked.
pub(super) async fn all(client: &Client) -> Result<Vec<Protected>, Error> {
    let sql = format!(
        "SELECT p.target::text, coalesce(c.judges, p.resource_column), \
         CASE WHEN c.misnamed THEN p.resource_column END, p.strict, p.enabled, \
         format('SELECT leasehold.protect(%L::pg_catalog.regclass, %L::pg_catalog.name, %s)', \
         p.target, coalesce(c.judges, p.resource_column), p.strict::text) \
         FROM ({PROTECTED}) AS p (target, resource_column, strict, enabled, remade), \
         LATERAL ({JUDGED}) AS c ORDER BY 1"
    );
    let yes = |told: &str| told == "t";
    let tables = rows(client, &sql).await?.into_iter().filter_map(|row| {
        let [table, column, misnamed, strict, enabled, call] = row.try_into().ok()?;
        Some(Protected {
            table: table?,
            column,
            misnamed,
            strict: strict.as_deref().is_some_and(yes),
            enabled: enabled.as_deref().map(yes),
            call: call?,
        })
    });
    Ok(tables.collect())
}

/// What is wrong with a table, if something is. The advice has all arguments: a call with fewer takes
/// column and strictness away.
pub(super) fn finding(protected: &Protected) -> Option<Finding> {
    let Protected { table, call, .. } = protected;
    let (severity, code, detail, advice) = match (protected.enabled, &protected.misnamed) {
        (Some(true), _) => return None,
        (None, _) => (
            Severity::Warning,
            "trigger_unseen",
            format!(
                "{table} is locked by somebody: nobody can see whether its triggers protect it"
            ),
            "look again when they are done".to_owned(),
        ),
        (Some(false), Some(name)) => (
            Severity::Hole,
            "trigger_disabled",
            format!(
                "the rows of {table} are judged by the column {}, and another column has the name by \
                 now that it had: {name}",
                protected.column.as_deref().unwrap_or_default()
            ),
            format!("run {call} to go on with that column, or the same with the right one"),
        ),
        (Some(false), None) => (
            Severity::Hole,
            "trigger_disabled",
            format!(
                "a trigger that protects {table} or a partition of it is disabled, gone, or not as \
                 leasehold.protect makes it"
            ),
            format!("run {call}, or leasehold.unprotect"),
        ),
    };
    Some(Finding::new(severity, code, detail, advice))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_for_a_table_keeps_its_column_and_strictness() {
        let call = "SELECT leasehold.protect('inv'::pg_catalog.regclass, 'resource'::pg_catalog.name, true)";
        let table = Protected {
            table: "inv".to_owned(),
            column: Some("resource".to_owned()),
            misnamed: None,
            strict: true,
            enabled: Some(false),
            call: call.to_owned(),
        };
        assert!(finding(&table).is_some_and(|finding| finding.advice.contains(call)));
        assert_eq!(table.to_string(), "inv (column resource, strict, DISABLED)");
    }
}
