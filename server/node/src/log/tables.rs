//! The layout of `log.redb`, and what is read and checked when it is opened.

use super::growth::Growth;
use super::runs::Durable;
use crate::codec::{self, DecodeError};
use crate::runtime;
use crate::types::{Entry, LeaderId, LogId, Vote};
use redb::{ReadableDatabase, ReadableTable, TableDefinition};

/// Entries by index. Values: see `codec::entry`.
pub(crate) const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("log");
/// `vote`, `committed`, `purged`; `incarnation`, `node`, `member`.
pub(crate) const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");

pub(crate) const VOTE: &str = "vote";
pub(crate) const COMMITTED: &str = "committed";
pub(crate) const PURGED: &str = "purged";
/// Made with the file, so that whoever loses the votes in it loses this as well.
const INCARNATION: &str = "incarnation";
/// The id under which the node has voted.
const NODE: &str = "node";
/// There once the node has seen itself among the members of its cluster.
pub(crate) const MEMBER: &str = "member";

/// What a log file held when it was opened.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Which life of the node this is.
    pub(crate) incarnation: u128,
    /// The node's id, once it has run.
    pub(crate) node: Option<u64>,
    /// It is known to have been a member of its cluster.
    pub(crate) was_member: bool,
    pub(crate) vote: Option<Vote>,
    pub(crate) committed: Option<LogId>,
    pub(crate) purged: Option<LogId>,
    pub(crate) last: Option<LogId>,
    /// The first entry, where nothing was purged.
    pub(crate) origin: u64,
    pub(crate) growth: Growth,
    pub(crate) durable: Durable,
    /// The highest version of commands in an entry.
    pub(crate) needs: u16,
}

/// Why a log file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LogFileError {
    #[error("it could not be read")]
    Read(#[source] Box<redb::Error>),
    #[error("its {what} is not readable")]
    Meta {
        what: &'static str,
        #[source]
        cause: DecodeError,
    },
    #[error("its {what} is missing or malformed")]
    Identity { what: &'static str },
    #[error("its entry {index} is not readable")]
    Entry {
        index: u64,
        #[source]
        cause: DecodeError,
    },
    #[error("its entry {index} calls itself {named}")]
    Misplaced { index: u64, named: u64 },
    #[error("its entry {expected} is missing, and {found} is there")]
    Hole { expected: u64, found: u64 },
}

impl<E: Into<redb::Error>> From<E> for LogFileError {
    fn from(cause: E) -> Self {
        Self::Read(Box::new(cause.into()))
    }
}

/// Makes the tables of a new file.
pub(crate) fn create(db: &redb::Database) -> Result<(), redb::Error> {
    let txn = db.begin_write()?;
    txn.open_table(LOG)?;
    let incarnation = runtime::random().to_be_bytes();
    txn.open_table(META)?.insert(INCARNATION, incarnation.as_slice())?;
    Ok(txn.commit()?)
}

/// What a log begins after.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Beginning {
    pub(crate) incarnation: u128,
    pub(crate) node: u64,
    /// The newest entry that is in the state.
    pub(crate) last: LogId,
}

/// Makes the tables of a log whose entries up to one are in the state, and were purged.
pub(crate) fn create_after(db: &redb::Database, begin: Beginning) -> Result<(), redb::Error> {
    let leader_id = LeaderId { term: begin.last.leader_id.term, voted_for: begin.node };
    let vote = codec::encode_vote(&Vote { leader_id, committed: false });
    let last = codec::encode_log_id(begin.last);
    let txn = db.begin_write()?;
    txn.open_table(LOG)?;
    {
        let mut meta = txn.open_table(META)?;
        meta.insert(INCARNATION, begin.incarnation.to_be_bytes().as_slice())?;
        meta.insert(NODE, begin.node.to_be_bytes().as_slice())?;
        meta.insert(VOTE, vote.as_slice())?;
        meta.insert(PURGED, last.as_slice())?;
        meta.insert(COMMITTED, last.as_slice())?;
    }
    Ok(txn.commit()?)
}

/// Shows every entry from an index on, in order.
pub(crate) fn walk(
    db: &impl ReadableDatabase,
    from: u64,
    mut each: impl FnMut(Entry),
) -> Result<(), LogFileError> {
    for item in db.begin_read()?.open_table(LOG)?.range(from..)? {
        let (key, value) = item?;
        let index = key.value();
        let entry = codec::decode_entry(value.value());
        each(entry.map_err(|cause| LogFileError::Entry { index, cause })?);
    }
    Ok(())
}

/// Keeps the id of the node that a new file belongs to.
pub(crate) fn set_node(db: &redb::Database, node: u64) -> Result<(), redb::Error> {
    let txn = db.begin_write()?;
    txn.open_table(META)?.insert(NODE, node.to_be_bytes().as_slice())?;
    Ok(txn.commit()?)
}

/// Reads what openraft must know before it starts, and walks over all entries once: a log with a
/// hole or a damaged entry is refused here, not when it is needed.
pub(crate) fn load(db: &impl ReadableDatabase) -> Result<Found, LogFileError> {
    let txn = db.begin_read()?;
    let meta = txn.open_table(META)?;
    let vote = get(&meta, VOTE, codec::decode_vote)?;
    let purged = get(&meta, PURGED, codec::decode_log_id)?;
    let committed = get(&meta, COMMITTED, codec::decode_log_id)?;
    let incarnation = bytes(&meta, INCARNATION)?.map(u128::from_be_bytes);
    let mut found = Found {
        incarnation: incarnation.ok_or(LogFileError::Identity { what: INCARNATION })?,
        node: bytes(&meta, NODE)?.map(u64::from_be_bytes),
        was_member: meta.get(MEMBER)?.is_some(),
        vote,
        purged,
        durable: Durable::new(purged),
        ..Found::default()
    };
    scan(&txn.open_table(LOG)?, &mut found)?;
    found.last = found.durable.last();
    // A file written by this code never needs it; one that was cut by other means might, and a
    // `committed` beyond the end would keep openraft from starting for ever.
    found.committed = committed.filter(|id| found.durable.holds(*id)).or(purged);
    Ok(found)
}

fn get<T>(
    meta: &impl ReadableTable<&'static str, &'static [u8]>,
    what: &'static str,
    decode: fn(&[u8]) -> Result<T, DecodeError>,
) -> Result<Option<T>, LogFileError> {
    let Some(bytes) = meta.get(what)? else { return Ok(None) };
    decode(bytes.value()).map(Some).map_err(|cause| LogFileError::Meta { what, cause })
}

fn bytes<const N: usize>(
    meta: &impl ReadableTable<&'static str, &'static [u8]>,
    what: &'static str,
) -> Result<Option<[u8; N]>, LogFileError> {
    let Some(bytes) = meta.get(what)? else { return Ok(None) };
    bytes.value().try_into().map(Some).map_err(|_| LogFileError::Identity { what })
}

fn scan(
    log: &impl ReadableTable<u64, &'static [u8]>,
    found: &mut Found,
) -> Result<(), LogFileError> {
    let start = found.durable.next_index();
    if let Some((first, _)) = log.first()? {
        found.durable.set_garbage(found.purged.is_some() && first.value() < start);
    }
    for item in log.range(start..)? {
        let (key, value) = item?;
        let index = key.value();
        // Without anything purged a log may begin anywhere: openraft's first index is its own.
        if found.durable.last().is_some() && index != found.durable.next_index() {
            return Err(LogFileError::Hole { expected: found.durable.next_index(), found: index });
        }
        let codec::Peeked { log_id: id, needs } = codec::peek_entry(value.value())
            .map_err(|cause| LogFileError::Entry { index, cause })?;
        found.needs = found.needs.max(needs);
        if id.index != index {
            return Err(LogFileError::Misplaced { index, named: id.index });
        }
        if found.durable.last().is_none() {
            found.origin = index;
        }
        found.durable.appended(id);
        found.growth.wrote(index, value.value().len());
    }
    Ok(())
}
