//! Single look-ups, in memory first and then in the file.

use super::tables::{BY_RESOURCE, RECORDS, resource_key};
use super::{FILE, History};
use crate::codec;
use crate::fatal::StorageFault;
use leasehold_core::command::Mode;
use leasehold_core::outcome::GrantRecord;
use leasehold_core::{ResourceName, Token};
use redb::{ReadableDatabase, ReadableTable, ReadableTableMetadata};
use std::sync::Arc;

type AnyError = Box<dyn std::error::Error + Send + Sync>;

impl History {
    /// The record of a grant that ended, if it is kept.
    pub(crate) fn by_token(&self, token: Token) -> Result<Option<Arc<GrantRecord>>, StorageFault> {
        let (newer, older) = self.core.pending.read(|generation| generation.by_token(token).cloned());
        match newer.or(older.flatten()) {
            Some(record) => Ok(Some(record)),
            None => self.stored(token).map_err(unreadable),
        }
    }

    /// The highest token among the ended grants of a resource that are kept.
    pub(crate) fn last_token_of(
        &self,
        resource: &ResourceName,
        exclusive_only: bool,
    ) -> Result<Option<Token>, StorageFault> {
        let hash = resource_key(resource);
        let (newer, older) = self.core.pending.read(|generation| {
            let same = generation.by_resource(hash).filter(|r| r.grant.resource == *resource);
            let wanted = same.filter(|r| !exclusive_only || r.grant.mode == Mode::Exclusive);
            wanted.map(|record| record.grant.token).max()
        });
        let stored = self.last_stored(resource, hash, exclusive_only).map_err(unreadable)?;
        Ok(newer.max(older.flatten()).max(stored))
    }

    /// The lowest token whose record is kept. A token below it may have been a grant once.
    pub(crate) fn oldest_token(&self) -> Result<Option<Token>, StorageFault> {
        let (newer, older) = self.core.pending.read(|generation| {
            generation.records().iter().map(|record| record.grant.token).min()
        });
        let stored = self.oldest_stored().map_err(unreadable)?;
        Ok([newer, older.flatten(), stored].into_iter().flatten().min())
    }

    /// How many records the file holds.
    pub(crate) fn len(&self) -> Result<u64, StorageFault> {
        self.count().map_err(unreadable)
    }

    fn stored(&self, token: Token) -> Result<Option<Arc<GrantRecord>>, AnyError> {
        let records = self.core.db.begin_read()?.open_table(RECORDS)?;
        let Some(bytes) = records.get(token.0)? else { return Ok(None) };
        Ok(Some(Arc::new(codec::decode_record(bytes.value())?)))
    }

    fn last_stored(
        &self,
        resource: &ResourceName,
        hash: u64,
        exclusive_only: bool,
    ) -> Result<Option<Token>, AnyError> {
        let txn = self.core.db.begin_read()?;
        let records = txn.open_table(RECORDS)?;
        for row in txn.open_table(BY_RESOURCE)?.range((hash, 0)..=(hash, u64::MAX))?.rev() {
            let (key, exclusive) = row?;
            if exclusive_only && !exclusive.value() {
                continue;
            }
            let token = key.value().1;
            let Some(bytes) = records.get(token)? else { continue };
            if codec::decode_record(bytes.value())?.grant.resource == *resource {
                return Ok(Some(Token(token)));
            }
        }
        Ok(None)
    }

    fn oldest_stored(&self) -> Result<Option<Token>, AnyError> {
        let records = self.core.db.begin_read()?.open_table(RECORDS)?;
        Ok(records.first()?.map(|(token, _)| Token(token.value())))
    }

    fn count(&self) -> Result<u64, AnyError> {
        Ok(self.core.db.begin_read()?.open_table(RECORDS)?.len()?)
    }
}

fn unreadable(cause: AnyError) -> StorageFault {
    StorageFault::new(FILE, "read", cause)
}
