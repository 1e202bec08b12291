//! The layout of `history.redb`.

use leasehold_core::{ClientId, ResourceName};
use redb::{ReadableDatabase, TableDefinition};

/// Records by token. Values: see `codec::record`.
pub(crate) const RECORDS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("records");
/// Hash of the resource, token; the value says whether the grant was exclusive.
///
/// A hash and not the name: rows of 17 bytes instead of up to 520 mean many times fewer pages to
/// rewrite in a batch, and whoever finds a row reads the record anyway and compares the name.
/// Rows whose record is gone may remain for a while; see `trim`.
pub(crate) const BY_RESOURCE: TableDefinition<'_, (u64, u64), bool> =
    TableDefinition::new("by_resource");
/// Hash of the client's label, token.
pub(crate) const BY_CLIENT: TableDefinition<'_, (u64, u64), ()> = TableDefinition::new("by_client");
/// When it ended, token.
pub(crate) const BY_TIME: TableDefinition<'_, (u64, u64), ()> = TableDefinition::new("by_time");
/// `applied`: the newest log entry whose ended grants are all in this file.
pub(crate) const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");

pub(crate) const APPLIED: &str = "applied";

/// Makes the tables of a new file.
pub(crate) fn create(db: &redb::Database) -> Result<(), redb::Error> {
    let txn = db.begin_write()?;
    txn.open_table(RECORDS)?;
    txn.open_table(BY_RESOURCE)?;
    txn.open_table(BY_CLIENT)?;
    txn.open_table(BY_TIME)?;
    txn.open_table(META)?;
    Ok(txn.commit()?)
}

/// Whether all tables are there, without reading them.
pub(crate) fn check(db: &impl ReadableDatabase) -> Result<(), redb::Error> {
    let txn = db.begin_read()?;
    txn.open_table(RECORDS)?;
    txn.open_table(BY_RESOURCE)?;
    txn.open_table(BY_CLIENT)?;
    txn.open_table(BY_TIME)?;
    txn.open_table(META)?;
    Ok(())
}

pub(crate) fn applied(db: &impl ReadableDatabase) -> Result<u64, redb::Error> {
    let txn = db.begin_read()?;
    Ok(txn.open_table(META)?.get(APPLIED)?.map_or(0, |value| value.value()))
}

pub(crate) fn resource_key(resource: &ResourceName) -> u64 {
    hash(resource.as_str())
}

pub(crate) fn client_key(client: &ClientId) -> u64 {
    hash(client.as_str())
}

/// Stored, so it can never change: FNV-1a, its weak high bits stirred at the end. Two names with
/// one hash cost a reader some comparisons, no more.
///
/// Source: Fowler, Noll and Vo 1991; the last steps after Appleby's MurmurHash3.
fn hash(text: &str) -> u64 {
    let mut hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// How many rows the indexes have that may keep dead ones.
#[cfg(test)]
pub(super) fn index_rows(db: &impl ReadableDatabase) -> Result<[u64; 2], redb::Error> {
    use redb::ReadableTableMetadata;
    let txn = db.begin_read()?;
    Ok([txn.open_table(BY_RESOURCE)?.len()?, txn.open_table(BY_CLIENT)?.len()?])
}
