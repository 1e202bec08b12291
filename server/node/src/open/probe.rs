//! Looking at a file without changing it.

use super::overlay::Overlay;
use super::{OpenError, io_error};
use redb::{Database, ReadableDatabase, ReadableTableMetadata};
use std::error::Error;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Enough for a walk over a file from one end to the other.
const CACHE_BYTES: usize = 32 << 20;

/// Opens the file through an overlay, verifies the checksum of every page, and answers what
/// `look` finds.
pub(crate) fn probe<T, E>(
    path: &Path,
    look: impl FnOnce(&Database) -> Result<T, E>,
) -> Result<T, OpenError>
where
    E: Into<Box<dyn Error + Send + Sync>>,
{
    let file = File::open(path).map_err(|cause| io_error(path, "could not open", cause))?;
    let overlay = Overlay::new(file).map_err(|cause| io_error(path, "could not read", cause))?;
    let run = || -> Result<T, Box<dyn Error + Send + Sync>> {
        let db = Database::builder()
            .set_cache_size(CACHE_BYTES)
            .set_check_integrity_on_open(true)
            .create_with_backend(overlay)?;
        look(&db).map_err(Into::into)
    };
    // redb trusts what its checksums cover and says that it may panic on a file that was altered
    // by others. Such a panic is an answer here: nothing but the overlay is lost with it.
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(cause)) => Err(refused(path, &cause.to_string(), cause)),
        Err(_) => Err(OpenError::Refused {
            path: path.to_owned(),
            what: "it is damaged".to_owned(),
            cause: None,
        }),
    }
}

/// Whether no table has a row.
pub(super) fn is_empty(db: &Database) -> Result<bool, redb::Error> {
    let txn = db.begin_read()?;
    for table in txn.list_tables()? {
        if !txn.open_untyped_table(table)?.is_empty()? {
            return Ok(false);
        }
    }
    Ok(true)
}

pub(super) fn refused(
    path: &Path,
    what: &str,
    cause: impl Into<Box<dyn Error + Send + Sync>>,
) -> OpenError {
    OpenError::Refused { path: path.to_owned(), what: what.to_owned(), cause: Some(cause.into()) }
}
