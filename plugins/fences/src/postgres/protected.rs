//! The tables in trigger mode, and what is wrong with one.

use super::connect::rows;
use super::scripts::PROTECTED;
use crate::error::Error;
use crate::report::{Finding, Severity};
use serde::Serialize;
use tokio_postgres::Client;

/// A table in trigger mode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Protected {
    /// Its name, as SQL takes it.
    pub table: String,
    /// The column that names the resource of a row.
    pub column: Option<String>,
    /// Whether a token passes for one transaction.
    pub strict: bool,
    /// Whether all triggers that do it are there, enabled, and as `leasehold.protect` makes them.
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

/// The tables in trigger mode, from the catalog alone.
///
/// # Errors
/// When the database cannot be asked.
pub(super) async fn all(client: &Client) -> Result<Vec<Protected>, Error> {
    let sql = format!(
        "SELECT t.place::text, t.named, t.once, t.enabled, \
         format('SELECT leasehold.protect(%L::pg_catalog.regclass, %L::pg_catalog.name, %s)', \
         t.place, t.named, t.once::text) \
         FROM ({PROTECTED}) AS t (place, named, once, enabled, remade) ORDER BY 1"
    );
    let yes = |told: Option<String>| told.as_deref() == Some("t");
    let tables = rows(client, &sql).await?.into_iter().filter_map(|row| {
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

/// The advice has all arguments: a call with fewer takes column and strictness away.
pub(super) fn finding(protected: &Protected) -> Finding {
    let detail = format!(
        "a trigger that protects {} or a partition of it is disabled, gone, or not as \
         leasehold.protect makes it",
        protected.table
    );
    let advice = format!("run {}, or leasehold.unprotect", protected.call);
    Finding::new(Severity::Hole, "trigger_disabled", detail, advice)
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
            strict: true,
            enabled: false,
            call: call.to_owned(),
        };
        assert!(finding(&table).advice.contains(call));
        assert_eq!(table.to_string(), "inv (column resource, strict, DISABLED)");
    }
}
