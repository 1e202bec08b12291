//! Crashes at every sync, and a disk that fails.

use super::tables::{self, COMMITTED, META};
use super::{LogSetup, LogStore};
use crate::codec::{self, samples};
use crate::fatal::Fatal;
use crate::open::disk::Disk;
use crate::open::support::{Dice, Syncs, append, busy_entry, database, reopen};
use crate::types::{LeaderId, LogId, TypeConfig, Vote};
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::type_config::TypeConfigExt;
use redb::{Database, ReadableDatabase};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the file must hold after some number of operations.
#[derive(Debug, Clone, Default, PartialEq)]
struct Model {
    vote: Option<Vote>,
    purged: Option<LogId>,
    entries: BTreeMap<u64, u64>,
}

impl Model {
    fn last(&self) -> Option<LogId> {
        let last = self.entries.last_key_value();
        last.map(|(index, term)| samples::log_id(*term, *index)).or(self.purged)
    }

    fn next(&self) -> u64 {
        self.last().map_or(1, |id| id.index + 1)
    }

    fn id(&self, index: u64) -> Option<LogId> {
        self.entries.get(&index).map(|term| samples::log_id(*term, index)).or(self.purged)
    }
}

fn start(disk: &Disk) -> (LogStore, Fatal) {
    let db = database(disk, tables::create);
    let found = tables::load(&db).expect("a new file is readable");
    let fatal = Fatal::new();
    let setup =
        LogSetup { observer: Arc::new(Syncs::default()), fatal: fatal.clone(), tail_bytes: 4_000 };
    (LogStore::start(db, found, setup).expect("a thread"), fatal)
}

/// Runs random operations and answers the model after each. The disk is marked with the number of
/// operations that were acknowledged.
async fn work(log: &mut LogStore, disk: &Disk, dice: &mut Dice) -> Vec<Model> {
    let mut models = vec![Model::default()];
    let (mut term, mut committed) = (1, 0);
    let mut waiting = Vec::new();
    for _ in 0..250 {
        let mut model = models.last().expect("there is a first").clone();
        match dice.below(20) {
            0 => {
                term += 1;
                let vote = Vote { leader_id: LeaderId { term, voted_for: 1 }, committed: false };
                log.save_vote(&vote).await.expect("saved");
                model.vote = Some(vote);
            }
            1 if model.entries.len() > 10 => {
                let keep = model.id(model.next() - 1 - dice.below(9));
                if keep.is_none_or(|keep| keep.index < committed) {
                    // Raft never removes what was committed.
                    continue;
                }
                log.truncate_after(keep).await.expect("in line");
                model.entries.retain(|index, _| keep.is_some_and(|keep| *index <= keep.index));
                term += 1;
            }
            2 if model.entries.len() > 20 => {
                let upto = model.id(model.next() - 10).expect("long enough");
                log.purge(upto).await.expect("in line");
                model.entries.retain(|index, _| *index > upto.index);
                model.purged = Some(upto);
            }
            3 => {
                // As a snapshot that reaches beyond the log does.
                let upto = samples::log_id(term, model.next() + 5);
                log.purge(upto).await.expect("in line");
                model = Model { vote: model.vote, purged: Some(upto), entries: BTreeMap::new() };
            }
            4..8 => {
                let ahead = dice.below(4);
                let id = samples::log_id(term, (model.next() + ahead).saturating_sub(2));
                log.save_committed(Some(id)).await.expect("in line");
                committed = committed.max(id.index);
            }
            _ => {
                let count = 1 + dice.below(6);
                let new: Vec<_> = (model.next()..).take(count as usize).collect();
                let (done, durable) = TypeConfig::oneshot();
                let entries = new.iter().map(|index| busy_entry(term, *index));
                log.append(entries.collect::<Vec<_>>(), IOFlushed::signal(done))
                    .await
                    .expect("in line");
                model.entries.extend(new.iter().map(|index| (*index, term)));
                waiting.push(durable);
            }
        }
        models.push(model);
        if dice.below(3) == 0 {
            // Nothing was asked for since the newest of them but what has no answer, and an
            // append answers for all before it.
            let appended = !waiting.is_empty();
            for durable in waiting.drain(..) {
                durable.await.expect("answered").expect("synced");
            }
            if appended {
                disk.mark(last_answered(&models));
            }
        }
    }
    models
}

/// The number of operations up to the newest one that was an append or a vote.
fn last_answered(models: &[Model]) -> usize {
    let changed = |at: &usize| {
        let (before, after) = (&models[at - 1], &models[*at]);
        before.vote != after.vote || before.entries.len() < after.entries.len()
    };
    (1..models.len()).rev().find(changed).unwrap_or(0)
}

fn recovered(db: &Database) -> Model {
    let found = tables::load(db).expect("a crash leaves a log without holes");
    let read = || -> Result<BTreeMap<u64, u64>, redb::Error> {
        let log = db.begin_read()?.open_table(tables::LOG)?;
        let from = found.purged.map_or(0, |id| id.index + 1);
        log.range(from..)?
            .map(|item| {
                let (index, bytes) = item?;
                let entry = codec::decode_entry(bytes.value()).expect("no damaged entry");
                Ok((index.value(), entry.log_id.leader_id.term))
            })
            .collect()
    };
    Model { vote: found.vote, purged: found.purged, entries: read().expect("readable") }
}

fn stored_committed(db: &Database) -> Option<LogId> {
    let meta = db.begin_read().expect("readable").open_table(META).expect("there");
    let bytes = meta.get(COMMITTED).expect("readable");
    bytes.map(|bytes| codec::decode_log_id(bytes.value()).expect("a log id"))
}

fn check_seed(seed: u64) {
    let disk = Disk::default();
    let mut dice = Dice::new(seed);
    let (mut log, fatal) = start(&disk);
    let first = disk.syncs();
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let models = runtime.block_on(work(&mut log, &disk, &mut dice));
    log.close().expect("nothing failed");
    drop(log);
    assert!(fatal.get().is_none());

    // All of it lost, all of it there, and parts.
    for percent in [0, 100, 30, 70] {
        let mut dice = Dice::new(seed + percent);
        disk.crashes(
            first,
            || dice.below(100) < percent,
            |crash| {
                let context = format!("seed {seed}, {percent} %, sync {}", crash.at_sync);
                let db = reopen(&crash.disk);
                let found = recovered(&db);
                let at = models.iter().rposition(|model| *model == found);
                assert!(at.is_some(), "{context}: no prefix of the operations gives {found:?}");
                assert!(at >= Some(crash.mark), "{context}: {at:?} of {} acknowledged", crash.mark);
                if let Some(id) = stored_committed(&db) {
                    let held = found.entries.get(&id.index) == Some(&id.leader_id.term);
                    let purged = found.purged.is_some_and(|purged| id.index <= purged.index);
                    assert!(held || purged, "{context}: committed {id} in {found:?}");
                }
            },
        );
    }
}

#[test]
fn nothing_acknowledged_is_lost_at_any_sync() {
    (1..=4).for_each(check_seed);
}

#[tokio::test]
async fn after_a_failed_sync_nothing_is_acknowledged() {
    let disk = Disk::default();
    let (mut log, fatal) = start(&disk);
    append(&mut log, vec![busy_entry(1, 1)]).await.expect("synced");
    disk.fail_from_next_sync();
    append(&mut log, vec![busy_entry(1, 2)]).await.expect_err("the sync failed");
    let fault = fatal.get().expect("the node was told");
    assert_eq!(fault.to_string(), "log.redb: could not write and sync");
    append(&mut log, vec![busy_entry(1, 3)]).await.expect_err("nothing is taken in any more");
    log.save_vote(&samples::vote()).await.expect_err("nothing is taken in any more");
    log.close().expect_err("the fault is told again");
    drop(log);

    let mut seen = 0;
    disk.crashes(
        disk.syncs() - 1,
        || true,
        |crash| {
            seen += 1;
            assert!(recovered(&reopen(&crash.disk)).entries.contains_key(&1));
        },
    );
    assert_eq!(seen, 1);
}
