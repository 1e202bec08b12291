//! Single look-ups, in memory first and then in the file.

use super::page::Merged;
use super::tables::{Partition, resource_key};
use super::{FILE, History};
use crate::codec;
use crate::fatal::StorageFault;
use leasehold_core::command::Mode;
use leasehold_core::outcome::GrantRecord;
use leasehold_core::{ResourceName, Token};
use redb::ReadableTableMetadata;
use std::sync::Arc;

pub(super) type AnyError = Box<dyn std::error::Error + Send + Sync>;

impl History {
    /// The record of a grant that ended, if it is kept.
    pub(crate) fn by_token(&self, token: Token) -> Result<Option<Arc<GrantRecord>>, StorageFault> {
        let (newer, older) =
            self.core.pending.read(|generation| generation.by_token(token).cloned());
        let record = match newer.or(older.flatten()) {
            Some(record) => Some(record),
            None => self.stored(token).map_err(unreadable)?,
        };
        Ok(record.filter(|record| record.ended_at_ms >= self.core.pending.before_ms()))
    }

    /// The highest token among the ended grants of a resource that are kept.
    pub(crate) fn last_token_of(
        &self,
        resource: &ResourceName,
        exclusive_only: bool,
    ) -> Result<Option<Token>, StorageFault> {
        let hash = resource_key(resource);
        let before_ms = self.core.pending.before_ms();
        let wanted = |record: &GrantRecord| {
            record.grant.resource == *resource
                && record.ended_at_ms >= before_ms
                && (!exclusive_only || record.grant.mode == Mode::Exclusive)
        };
        let (newer, older) = self.core.pending.read(|generation| {
            let found = generation.by_resource(hash).filter(|record| wanted(record));
            found.map(|record| record.grant.token).max()
        });
        let stored = self.last_stored(hash, exclusive_only, wanted).map_err(unreadable)?;
        Ok(newer.max(older.flatten()).max(stored))
    }

    /// The same among exclusive ones, if none above it can have been given out and forgotten: not
    /// where others may have been lost after it ended.
    pub(crate) fn highest_token_of(
        &self,
        resource: &ResourceName,
    ) -> Result<Option<Token>, StorageFault> {
        let Some(token) = self.last_token_of(resource, true)? else { return Ok(None) };
        let lost_until_ms = self.view().dropped_ms;
        let record = self.by_token(token)?;
        Ok(record.filter(|record| record.ended_at_ms > lost_until_ms).map(|_| token))
    }

    /// How many records the file holds.
    pub(crate) fn len(&self) -> Result<u64, StorageFault> {
        let view = self.view();
        let lens = view.partitions.iter().map(|partition| partition.records.len());
        lens.sum::<Result<u64, _>>().map_err(|cause| unreadable(cause.into()))
    }

    fn stored(&self, token: Token) -> Result<Option<Arc<GrantRecord>>, AnyError> {
        for partition in &self.view().partitions {
            if let Some(record) = record_in(partition, token.0)? {
                return Ok(Some(Arc::new(record)));
            }
        }
        Ok(None)
    }

    fn last_stored(
        &self,
        hash: u64,
        exclusive_only: bool,
        wanted: impl Fn(&GrantRecord) -> bool,
    ) -> Result<Option<Token>, AnyError> {
        let view = self.view();
        let range =
            |partition: &Partition| partition.by_resource.range((hash, 0)..=(hash, u64::MAX));
        let mut rows = Merged::new(view.partitions.iter().map(|p| Ok((p, range(p)?))))?;
        while let Some((partition, (_, token), exclusive)) = rows.next()? {
            if exclusive_only && !exclusive {
                continue;
            }
            if record_in(partition, token)?.is_some_and(|record| wanted(&record)) {
                return Ok(Some(Token(token)));
            }
        }
        Ok(None)
    }
}

pub(super) fn record_in(
    partition: &Partition,
    token: u64,
) -> Result<Option<GrantRecord>, AnyError> {
    if !partition.tokens.contains(&token) {
        return Ok(None);
    }
    let Some(bytes) = partition.records.get(token)? else { return Ok(None) };
    Ok(Some(codec::decode_record(bytes.value())?))
}

pub(super) fn unreadable(cause: AnyError) -> StorageFault {
    StorageFault::new(FILE, "read", cause)
}
