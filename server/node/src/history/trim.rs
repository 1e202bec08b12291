//! Forgetting, in pieces, as part of the batches that are written anyway.
//!
//! A record goes in the order in which grants ended. Its rows in the indexes by resource and by
//! client stand anywhere in them, a page each; so they stay, are skipped by readers, and a sweep
//! that walks through the whole index removes all dead rows of a page at once.

use super::pending::Retention;
use super::tables::{BY_CLIENT, BY_RESOURCE, BY_TIME, RECORDS};
use redb::{Key, ReadableTable, ReadableTableMetadata, Table, TableDefinition, Value, WriteTransaction};

/// Records that one transaction forgets beyond as many as it adds.
const PIECE: u64 = 4096;
/// Rows that a sweep looks at for each record forgotten: dead rows stay below about a third.
const STEPS_A_RECORD: usize = 4;

#[derive(Debug, Default)]
pub(super) struct Trimmer {
    busy: bool,
    resources_at: (u64, u64),
    clients_at: (u64, u64),
}

impl Trimmer {
    /// Whether more is to be forgotten than one transaction may.
    pub(super) fn is_busy(&self) -> bool {
        self.busy
    }

    pub(super) fn trim(
        &mut self,
        txn: &WriteTransaction,
        retention: Retention,
        added: usize,
    ) -> Result<(), redb::Error> {
        let allowed = PIECE + added as u64;
        let forgotten = forget(txn, retention, allowed)?;
        self.busy = forgotten == allowed;
        if forgotten > 0 {
            self.sweep(txn, forgotten)?;
        }
        Ok(())
    }

    fn sweep(&mut self, txn: &WriteTransaction, forgotten: u64) -> Result<(), redb::Error> {
        let oldest = txn.open_table(RECORDS)?.first()?.map_or(u64::MAX, |(token, _)| token.value());
        let steps = usize::try_from(forgotten).unwrap_or(usize::MAX).saturating_mul(STEPS_A_RECORD);
        self.resources_at = sweep(txn, BY_RESOURCE, self.resources_at, steps, oldest)?;
        self.clients_at = sweep(txn, BY_CLIENT, self.clients_at, steps, oldest)?;
        Ok(())
    }
}

/// Removes up to `allowed` records, the first to have ended first. Answers how many.
fn forget(txn: &WriteTransaction, retention: Retention, allowed: u64) -> Result<u64, redb::Error> {
    let mut times = txn.open_table(BY_TIME)?;
    let mut records = txn.open_table(RECORDS)?;
    let mut over = records.len()?.saturating_sub(retention.keep);
    let mut forgotten = 0;
    while forgotten < allowed {
        let Some((ended_at_ms, token)) = times.first()?.map(|(key, _)| key.value()) else { break };
        if over == 0 && ended_at_ms >= retention.before_ms {
            break;
        }
        times.remove((ended_at_ms, token))?;
        records.remove(token)?;
        over = over.saturating_sub(1);
        forgotten += 1;
    }
    Ok(forgotten)
}

/// Walks `steps` rows on from `at` and removes those of tokens below the oldest one kept. Answers
/// where to go on; from the start again after the end.
fn sweep<V: Value + 'static>(
    txn: &WriteTransaction,
    index: TableDefinition<'_, (u64, u64), V>,
    at: (u64, u64),
    steps: usize,
    oldest: u64,
) -> Result<(u64, u64), redb::Error> {
    let mut table = txn.open_table(index)?;
    let mut dead = Vec::new();
    let mut next = None;
    for (step, row) in table.range(at..)?.enumerate() {
        let key = row?.0.value();
        if step == steps {
            next = Some(key);
            break;
        }
        if key.1 < oldest {
            dead.push(key);
        }
    }
    remove_all(&mut table, &dead)?;
    Ok(next.unwrap_or_default())
}

fn remove_all<K, V>(table: &mut Table<'_, K, V>, keys: &[K]) -> Result<(), redb::Error>
where
    K: Key + Copy + for<'a> Value<SelfType<'a> = K> + 'static,
    V: Value + 'static,
{
    for key in keys {
        table.remove(*key)?;
    }
    Ok(())
}
