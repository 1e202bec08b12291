//! The tables, in the fence's own file or beside the caller's in the caller's.
//!
//! ```text
//! leasehold_fence_meta      name of a number -> the number
//! leasehold_fence           resource -> (token, used, cleared)
//! leasehold_fence_by_token  (token, resource): the lowest are folded first
//! ```

use crate::fence::row::{Change, No, Row};
use ::redb::{
    ReadTransaction, ReadableTable, ReadableTableMetadata, Table, TableDefinition, TableError,
    WriteTransaction,
};

/// The format that this code writes, and the only one that it reads.
pub(super) const FORMAT: u64 = 1;

const META: TableDefinition<'_, &str, u64> = TableDefinition::new("leasehold_fence_meta");
const ROWS: TableDefinition<'_, &str, (u64, u64, u64)> = TableDefinition::new("leasehold_fence");
const BY_TOKEN: TableDefinition<'_, (u64, &str), ()> =
    TableDefinition::new("leasehold_fence_by_token");

const FORMAT_KEY: &str = "format";
const FLOOR: &str = "floor";
const CLEAN: &str = "clean";
/// How often the file was opened. Counting makes each opening a commit that syncs whatever an
/// earlier process wrote without knowing whether it is durable.
const OPENED: &str = "opened";

/// All tables, to be written to.
pub(super) struct Tables<'t> {
    meta: Table<'t, &'static str, u64>,
    rows: Table<'t, &'static str, (u64, u64, u64)>,
    by_token: Table<'t, (u64, &'static str), ()>,
    floor: u64,
}

/// What came of a change: the rows before and after, or the one in its way.
pub(super) type Changed = Result<(Row, Row), (No, Row)>;

impl<'t> Tables<'t> {
    pub(super) fn open(txn: &'t WriteTransaction) -> Result<Self, ::redb::Error> {
        let meta = txn.open_table(META)?;
        let floor = number(&meta, FLOOR)?.unwrap_or_default();
        let (rows, by_token) = (txn.open_table(ROWS)?, txn.open_table(BY_TOKEN)?);
        Ok(Self { meta, rows, by_token, floor })
    }

    /// The format, written if there is none yet.
    pub(super) fn format(&mut self) -> Result<u64, ::redb::Error> {
        let found = number(&self.meta, FORMAT_KEY)?;
        if found.is_none() {
            self.meta.insert(FORMAT_KEY, FORMAT)?;
        }
        Ok(found.unwrap_or(FORMAT))
    }

    /// Takes the mark of a clean end away, and answers whether it was there.
    pub(super) fn begin(&mut self) -> Result<bool, ::redb::Error> {
        let clean = number(&self.meta, CLEAN)? == Some(1);
        let opened = number(&self.meta, OPENED)?.unwrap_or_default();
        self.meta.insert(OPENED, opened.wrapping_add(1))?;
        self.mark(false)?;
        Ok(clean)
    }

    pub(super) fn mark(&mut self, clean: bool) -> Result<(), ::redb::Error> {
        self.meta.insert(CLEAN, u64::from(clean))?;
        Ok(())
    }

    pub(super) fn read(&self, resource: &str) -> Result<Row, ::redb::Error> {
        row(&self.rows, self.floor, resource)
    }

    pub(super) fn apply(
        &mut self,
        resource: &str,
        change: Change,
    ) -> Result<Changed, ::redb::Error> {
        let before = self.read(resource)?;
        let after = match before.changed(change) {
            Ok(after) => after,
            Err(no) => return Ok(Err((no, before))),
        };
        let old = self.rows.insert(resource, (after.token, after.used, after.cleared))?;
        let old = old.map(|old| old.value().0);
        if old != Some(after.token) {
            if let Some(token) = old {
                self.by_token.remove((token, resource))?;
            }
            self.by_token.insert((after.token, resource), ())?;
        }
        Ok(Ok((before, after)))
    }

    /// Folds the lowest tokens into the floor until no more than `resources_max` rows are left.
    /// Answers how many.
    pub(super) fn fold(&mut self, resources_max: u64) -> Result<u64, ::redb::Error> {
        let mut folded = 0;
        while self.rows.len()? > resources_max {
            let Some((lowest, _)) = self.by_token.pop_first()? else { break };
            let (token, resource) = lowest.value();
            self.rows.remove(resource)?;
            self.floor = self.floor.max(token);
            folded += 1;
        }
        if folded > 0 {
            self.meta.insert(FLOOR, self.floor)?;
        }
        Ok(folded)
    }

    /// How many rows there are, and the floor.
    pub(super) fn holds(&self) -> Result<(u64, u64), ::redb::Error> {
        Ok((self.rows.len()?, self.floor))
    }
}

/// The format of a file; nothing if it is not the file of a fence.
pub(super) fn format(txn: &ReadTransaction) -> Result<Option<u64>, ::redb::Error> {
    match txn.open_table(META) {
        Ok(meta) => number(&meta, FORMAT_KEY),
        Err(TableError::Storage(cause)) => Err(cause.into()),
        Err(_) => Ok(None),
    }
}

/// The row of a resource.
pub(super) fn read(txn: &ReadTransaction, resource: &str) -> Result<Row, ::redb::Error> {
    let floor = number(&txn.open_table(META)?, FLOOR)?.unwrap_or_default();
    row(&txn.open_table(ROWS)?, floor, resource)
}

/// The highest token of any resource, which is never folded; nothing if none was recorded.
pub(super) fn highest(txn: &ReadTransaction) -> Result<Option<u64>, ::redb::Error> {
    let by_token = txn.open_table(BY_TOKEN)?;
    Ok(by_token.last()?.map(|(key, _)| key.value().0))
}

fn number(
    meta: &impl ReadableTable<&'static str, u64>,
    key: &str,
) -> Result<Option<u64>, ::redb::Error> {
    Ok(meta.get(key)?.map(|value| value.value()))
}

fn row(
    rows: &impl ReadableTable<&'static str, (u64, u64, u64)>,
    floor: u64,
    resource: &str,
) -> Result<Row, ::redb::Error> {
    let found = rows.get(resource)?.map(|row| row.value());
    Ok(found.map_or(Row::at_floor(floor), |(token, used, cleared)| Row { token, used, cleared }))
}
