//! What the tests of storage share.

use super::{Opened, Setup, Sizes, open};
use crate::fatal::Fatal;
use crate::log::{LogObserver, LogSync};
use crate::state::Sink;
use crate::types::{Batch, Entry, LogState, Payload, TypeConfig};
use leasehold_core::command::{Acquire, Basis, Caller, GrantRef, Mode};
use leasehold_core::{Applied, Command, LeaseId, Limits, LockTable, Outcome, Token};
use openraft::storage::{RaftLogStorage, RaftStateMachine};
use openraft::type_config::TypeConfigExt;
use parking_lot::Mutex;
use redb::Database;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::disk::Disk;
use crate::codec::samples;

/// A sequence that looks random and is the same for the same seed.
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % n
    }
}

/// Keeps the outcomes that it hears of.
#[derive(Debug, Default)]
pub(crate) struct Heard(pub(crate) Mutex<Vec<Outcome>>);

impl Sink for Heard {
    fn applied(&self, _: u64, _: u64, _: &Batch, applied: Applied, _: &LockTable) {
        self.0.lock().extend(applied.outcomes);
    }

    fn replaced(&self, _: &LockTable) {}
}

/// Keeps the commits that it hears of.
#[derive(Debug, Default)]
pub(crate) struct Syncs(pub(crate) Mutex<Vec<LogSync>>);

impl LogObserver for Syncs {
    fn synced(&self, sync: &LogSync) {
        self.0.lock().push(*sync);
    }
}

pub(crate) fn setup(dir: &Path) -> Setup {
    Setup {
        dir: dir.to_owned(),
        node: 1,
        commands: Command::NEWEST,
        seed: Limits::default(),
        sink: Arc::new(Heard::default()),
        observer: Arc::new(Syncs::default()),
        fatal: Fatal::new(),
        sizes: Sizes { history_settle: Duration::from_millis(50), ..Sizes::default() },
        keep_changes: 1_000,
        keep_audits: 100,
        digest_every: 0,
    }
}

pub(crate) fn open_dir(dir: &Path) -> Opened {
    open(setup(dir)).expect("the directory opens")
}

/// A database on a disk of its own, with the tables that `create` makes.
pub(crate) fn database(disk: &Disk, create: fn(&Database) -> Result<(), redb::Error>) -> Database {
    let db = reopen(disk);
    create(&db).expect("tables can be made");
    db
}

pub(crate) fn reopen(disk: &Disk) -> Database {
    let db = Database::builder().set_cache_size(1 << 20).create_with_backend(disk.clone());
    db.expect("a crash leaves a file that opens")
}

pub(crate) fn take(name: &str, lease: u64) -> Command {
    Command::Acquire(Box::new(Acquire {
        basis: Basis::Single { lease: LeaseId(u128::from(lease) + 1), ttl_ms: 30_000 },
        mode: Mode::Exclusive,
        wait: false,
        request_id: None,
        holding: Vec::new(),
        ..samples::acquire(name)
    }))
}

pub(crate) fn give_back(name: &str, token: u64) -> Command {
    let owner = samples::owner("worker-1");
    Command::Release(GrantRef {
        resource: samples::resource(name),
        token: Token(token),
        caller: Caller { principal: owner.principal, client: Some(owner.client) },
    })
}

pub(crate) fn entry(term: u64, index: u64, commands: Vec<Command>) -> Entry {
    let payload = match commands.is_empty() {
        true => Payload::Blank,
        false => Payload::Normal(samples::batch(commands)),
    };
    Entry { log_id: samples::log_id(term, index), payload }
}

/// Locks that are taken and, every second one, given back: entry `n` works on lock `n`.
pub(crate) fn busy_entry(term: u64, index: u64) -> Entry {
    let name = format!("busy/{index}");
    let mut commands = vec![take(&name, index)];
    if index.is_multiple_of(2) {
        // In a log of these entries alone, token and index go together.
        commands.push(give_back(&name, index));
    }
    entry(term, index, commands)
}

/// Appends and waits for the sync.
pub(crate) async fn append(
    log: &mut impl RaftLogStorage<TypeConfig>,
    entries: Vec<Entry>,
) -> Result<(), std::io::Error> {
    let (done, durable) = TypeConfig::oneshot();
    log.append(entries, openraft::storage::IOFlushed::signal(done)).await?;
    durable.await.map_err(std::io::Error::other)?
}

pub(crate) async fn log_state(log: &mut impl RaftLogStorage<TypeConfig>) -> LogState {
    log.get_log_state().await.expect("it is in memory")
}

pub(crate) async fn apply(machine: &mut impl RaftStateMachine<TypeConfig>, entries: Vec<Entry>) {
    let stream = futures_util::stream::iter(entries.into_iter().map(|entry| Ok((entry, None))));
    machine.apply(stream).await.expect("applying does not fail");
}
