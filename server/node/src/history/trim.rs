//! When a partition is full, and which ones are forgotten.

use super::pending::Retention;
use super::tables::{self, Filling, Layout, Shelf};
use redb::{ReadableTable, ReadableTableMetadata, WriteTransaction};

/// Partitions that the bound is spread over: the file holds what it must, and at most about a
/// sixteenth or one batch more.
const PARTITIONS: u64 = 16;
/// Larger ones would make the trees deep, and random rows touch more pages.
const PARTITION_MAX: u64 = 65_536;
/// A partition that fills slowly is full after this long, so that age can forget it.
const SPAN_MS: u64 = 4 * 24 * 3_600_000;

/// Begins another partition if the newest is full, and forgets the oldest ones.
pub(super) fn trim(
    txn: &WriteTransaction,
    layout: &mut Layout,
    retention: Retention,
) -> Result<(), redb::Error> {
    layout.before_ms = layout.before_ms.max(retention.before_ms);
    if is_full(&Filling::open(txn, Shelf::Kept, layout.current)?, retention)? {
        layout.current += 1;
    }
    let mut lens = Vec::new();
    for partition in layout.first..layout.current {
        lens.push(Filling::open(txn, Shelf::Kept, partition)?.records.len()?);
    }
    let mut total = lens.iter().sum::<u64>();
    if layout.first <= layout.current {
        total += Filling::open(txn, Shelf::Kept, layout.current)?.records.len()?;
    }
    for len in lens {
        let ended = span_ms(&Filling::open(txn, Shelf::Kept, layout.first)?)?;
        if total - len < retention.keep && !is_over(txn, layout.first, retention)? {
            break;
        }
        layout.dropped_ms = layout.dropped_ms.max(ended.map_or(0, |(_, last)| last));
        tables::delete(txn, Shelf::Kept, layout.first)?;
        layout.first += 1;
        total -= len;
    }
    Ok(())
}

pub(super) fn is_full(filling: &Filling<'_>, retention: Retention) -> Result<bool, redb::Error> {
    let len = filling.records.len()?;
    let span = span_ms(filling)?;
    Ok(len >= (retention.keep / PARTITIONS).clamp(1, PARTITION_MAX)
        || span.is_some_and(|(first, last)| last - first > SPAN_MS || last < retention.before_ms))
}

/// Whether all of it ended too long ago.
fn is_over(
    txn: &WriteTransaction,
    partition: u64,
    retention: Retention,
) -> Result<bool, redb::Error> {
    let span = span_ms(&Filling::open(txn, Shelf::Kept, partition)?)?;
    Ok(span.is_none_or(|(_, last)| last < retention.before_ms))
}

/// When the first and the last of its grants ended.
fn span_ms(filling: &Filling<'_>) -> Result<Option<(u64, u64)>, redb::Error> {
    let first = filling.by_time.first()?.map(|(key, _)| key.value().0);
    let last = filling.by_time.last()?.map(|(key, _)| key.value().0);
    Ok(first.zip(last))
}

/// Drops blocks of changes that are older than the newest `keep` of them, whole ones only.
pub(super) fn trim_changes(txn: &WriteTransaction, keep: u64) -> Result<(), redb::Error> {
    let mut table = txn.open_table(tables::CHANGES)?;
    let Some(newest) = table.last()?.map(|(key, _)| key.value()) else { return Ok(()) };
    let cutoff = newest.saturating_sub(keep);
    loop {
        let mut blocks = table.iter()?;
        let first = blocks.next().transpose()?.map(|(key, _)| key.value());
        let second = blocks.next().transpose()?.map(|(key, _)| key.value());
        drop(blocks);
        match (first, second) {
            (Some(first), Some(second)) if second <= cutoff => drop(table.remove(first)?),
            _ => return Ok(()),
        }
    }
}

/// Drops all but the newest `keep` deeds of operators.
pub(super) fn trim_audits(txn: &WriteTransaction, keep: u64) -> Result<(), redb::Error> {
    let mut table = txn.open_table(tables::AUDIT)?;
    while table.len()? > keep.max(1) && table.pop_first()?.is_some() {}
    Ok(())
}
