//! The rule inside the caller's own transaction.

use super::tables::{FORMAT, Tables};
use crate::fence::Usage;
use crate::fence::refused::{Refused, StorageFault};
use crate::fence::row::{self, Change, Row};
use ::redb::WriteTransaction;

/// Checks and records a token in the transaction that writes: both become durable together, or
/// neither. For storage that is itself in a redb file.
///
/// redb has one write transaction at a time, so nothing waits here, and nothing is in flight. The
/// tables are made beside the caller's, under names that start with `leasehold_fence`; they grow
/// with the resources, as the caller's own rows do. A transaction that was refused is dropped.
///
/// ```
/// use leasehold_client::fence::{Refused, Usage};
/// use leasehold_client::fence::redb::{guard, seal};
/// # use redb::{Database, TableDefinition};
/// # const INVOICES: TableDefinition<&str, &str> = TableDefinition::new("invoices");
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let db = Database::builder().create_with_backend(redb::backends::InMemoryBackend::new())?;
/// // The new holder seals before it reads.
/// let txn = db.begin_write()?;
/// assert_eq!(seal(&txn, "invoice/42", 34)?, None);
/// txn.commit()?;
///
/// // Each write is checked in its own transaction.
/// let write = |token, text: &str| -> Result<(), Box<dyn std::error::Error>> {
///     let txn = db.begin_write()?;
///     guard(&txn, "invoice/42", token, Usage::Many)?;
///     txn.open_table(INVOICES)?.insert("invoice/42", text)?;
///     Ok(txn.commit()?)
/// };
/// write(34, "paid")?;
/// let late = write(33, "open").unwrap_err();
/// assert_eq!(late.to_string(), "token 33 is stale: invoice/42 has seen token 34");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Refused::Stale`], [`Refused::Used`], [`Refused::Invalid`]; [`Refused::Storage`] if redb
/// fails, or if a newer release has changed the tables.
pub fn guard(
    txn: &WriteTransaction,
    resource: &str,
    token: u64,
    usage: Usage,
) -> Result<(), Refused> {
    raise(txn, resource, token, usage == Usage::Once).map(drop)
}

/// Records a token in the caller's transaction before its holder reads. Answers T_max as it was.
/// It counts once the transaction is committed.
///
/// # Errors
/// As of [`guard`].
pub fn seal(txn: &WriteTransaction, resource: &str, token: u64) -> Result<Option<u64>, Refused> {
    raise(txn, resource, token, false).map(Row::highest)
}

fn raise(txn: &WriteTransaction, resource: &str, token: u64, use_up: bool) -> Result<Row, Refused> {
    row::check(resource, token)?;
    let failed = |cause: ::redb::Error| {
        Refused::Storage(StorageFault::new("the fence could not use its tables", cause))
    };
    let mut tables = Tables::open(txn).map_err(failed)?;
    if tables.format().map_err(failed)? != FORMAT {
        let what = "the tables of the fence are those of another release";
        return Err(Refused::Storage(StorageFault::plain(what)));
    }
    let change = Change { token, clear: true, use_up };
    match tables.apply(resource, change).map_err(failed)? {
        Ok((before, _)) => Ok(before),
        Err((no, _)) => Err(no.refused(resource, token)),
    }
}
