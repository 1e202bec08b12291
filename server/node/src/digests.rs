//! Digests of the state, compared between the nodes.
//!
//! The same log gives the same state on every node. A node on which it does not (a fault of its
//! memory, of its disk, or of this program) must not go on: it would grant what others have not
//! granted. So at every so many entries each node counts the digest of its state, away from the
//! task that applies, and asks the others for theirs at the same entry. One that differs from what a
//! majority has stops, says so, and leaves word in its directory that nobody starts on it. Where no
//! majority agrees, the leader's counts.
//!
//! Nobody is judged by what is not known: a node that does not answer, or has no digest of that
//! entry, is asked again.

use crate::codec::{self, Told};
use crate::fatal::StorageFault;
use crate::node::Node;
use crate::open::directory::Barrier;
use crate::peers::Line;
use crate::runtime;
use crate::types::Member;
use futures_util::future::join_all;
use leasehold_core::{DIGEST_VERSION, LockTable};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Digests that are remembered: those who are behind get to the same entries later.
const KEPT: usize = 8;
/// How long a peer may take to answer.
const TOLD_WITHIN: Duration = Duration::from_secs(2);
/// How often those are asked again whose digest is not known.
const AGAIN: Duration = Duration::from_secs(2);
/// How often at most.
const AGAIN_MAX: u32 = 60;

/// What a node knows of its own state.
#[derive(Debug, Default)]
pub(crate) struct Digests {
    /// Entries from one digest to the next; 0 for none.
    every: u64,
    book: Mutex<Book>,
    ready: Notify,
}

#[derive(Debug, Default)]
struct Book {
    /// By entry, the newest last.
    known: VecDeque<(u64, u128)>,
    /// One is being counted.
    busy: bool,
}

/// What a node says of its digests.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct KnownDigests {
    /// How they were counted: others say nothing about those that were counted otherwise.
    pub(crate) version: u16,
    /// By entry, the newest last.
    pub(crate) known: Vec<(u64, u128)>,
}

impl Digests {
    pub(crate) fn every(entries: u64) -> Arc<Self> {
        Arc::new(Self { every: entries, ..Self::default() })
    }

    /// Called after every entry, under the lock of the table: where a digest is due, the table is
    /// frozen, which copies a directory, and the rest is done elsewhere. If the last one is not
    /// ready yet, this one is left out.
    pub(crate) fn applied(self: &Arc<Self>, index: u64, table: &LockTable) {
        if self.every == 0 || !index.is_multiple_of(self.every) {
            return;
        }
        if std::mem::replace(&mut self.book.lock().busy, true) {
            return;
        }
        let (frozen, digests) = (table.freeze(), Arc::clone(self));
        runtime::spawn(async move {
            let digest = runtime::blocking(move || frozen.digest()).await;
            digests.counted(index, digest);
        });
    }

    fn counted(&self, index: u64, digest: Option<u128>) {
        let mut book = self.book.lock();
        book.busy = false;
        if let Some(digest) = digest {
            // After a restart the log is applied once more.
            book.known.retain(|(known, _)| *known < index);
            book.known.push_back((index, digest));
            while book.known.len() > KEPT {
                book.known.pop_front();
            }
        }
        drop(book);
        self.ready.notify_one();
    }

    /// What peers are told.
    pub(crate) fn told(&self) -> KnownDigests {
        let known = self.book.lock().known.iter().copied().collect();
        KnownDigests { version: DIGEST_VERSION, known }
    }

    fn newest(&self) -> Option<(u64, u128)> {
        self.book.lock().known.back().copied()
    }
}

/// What comes of comparing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// This node has what a majority has, or the leader where there is none.
    Sound,
    /// Somebody's is not known, and it matters.
    Unknown,
    /// This node has another state than it should.
    Diverged {
        /// The digest that counts.
        theirs: u128,
    },
}

/// Judges this node. `others` are the digests of all other voters, `leader` that of the leader if
/// that is another node.
fn judge(ours: u128, others: &[Option<u128>], is_voter: bool, leader: Option<u128>) -> Verdict {
    let voters = others.len() + usize::from(is_voter);
    let mut counts: BTreeMap<u128, usize> = BTreeMap::new();
    for digest in others.iter().copied().flatten().chain(is_voter.then_some(ours)) {
        *counts.entry(digest).or_default() += 1;
    }
    let agreed = counts.iter().find(|(_, count)| **count * 2 > voters);
    match agreed {
        Some((digest, _)) if *digest != ours => Verdict::Diverged { theirs: *digest },
        Some(_) => Verdict::Sound,
        None if others.iter().any(Option::is_none) => Verdict::Unknown,
        None => match leader {
            Some(theirs) if theirs != ours => Verdict::Diverged { theirs },
            _ => Verdict::Sound,
        },
    }
}

impl Node {
    /// Compares digests until the node stops.
    pub(crate) async fn compare_digests(self, dir: PathBuf) {
        tokio::select! {
            () = self.compare_all(&dir) => {}
            () = self.inner.hub.ended() => {}
        }
    }

    async fn compare_all(&self, dir: &Path) {
        let digests = &self.inner.shared.digests;
        loop {
            digests.ready.notified().await;
            let Some((index, ours)) = digests.newest() else { continue };
            if let Some(theirs) = self.differs(index, ours).await {
                self.stop_diverged(dir, index, ours, theirs);
                // Whoever hears of it ends the process.
                return self.inner.hub.ended().await;
            }
        }
    }

    /// What this node should have at an entry, if it has something else.
    async fn differs(&self, index: u64, ours: u128) -> Option<u128> {
        for _ in 0..AGAIN_MAX {
            match self.compare_at(index, ours).await {
                Verdict::Sound => {
                    self.inner.metrics.digests_compared.inc();
                    return None;
                }
                Verdict::Diverged { theirs } => return Some(theirs),
                Verdict::Unknown => {}
            }
            // A newer one is better than to wait for those who have forgotten this one.
            runtime::sleep(AGAIN).await;
            if self.inner.shared.digests.newest().is_some_and(|(newest, _)| newest > index) {
                self.inner.shared.digests.ready.notify_one();
                return None;
            }
        }
        None
    }

    async fn compare_at(&self, index: u64, ours: u128) -> Verdict {
        let us = self.inner.id;
        let members = self.inner.shared.membership().membership().clone();
        let voters: Vec<u64> = members.voter_ids().collect();
        let asked = voters.iter().filter(|id| **id != us);
        let asked = asked.filter_map(|id| Some((*id, members.get_node(id)?.clone())));
        let told = join_all(
            asked.map(|(id, member)| async move { (id, self.digest_of(id, &member, index).await) }),
        );
        let told: BTreeMap<u64, Option<u128>> = told.await.into_iter().collect();
        let leader = self.leader().and_then(|leader| told.get(&leader).copied().flatten());
        let others: Vec<Option<u128>> = told.into_values().collect();
        judge(ours, &others, voters.contains(&us), leader)
    }

    async fn digest_of(&self, id: u64, member: &Member, index: u64) -> Option<u128> {
        let mut line = Line::new(self.inner.identity.clone(), id, member);
        match line.call(codec::encode_digests_ask(), TOLD_WITHIN).await {
            Ok(Told::Digests(told)) if told.version == DIGEST_VERSION => {
                told.known.iter().find(|(known, _)| *known == index).map(|(_, digest)| *digest)
            }
            Ok(_) => None,
            Err(cause) => {
                tracing::debug!(%cause, node = id, "a peer did not tell its digests");
                None
            }
        }
    }

    fn stop_diverged(&self, dir: &Path, index: u64, ours: u128, theirs: u128) {
        self.inner.metrics.diverged.set(1);
        let why = format!(
            "at log entry {index} the state of node {} has the digest {ours:032x}, and that of the \
             others {theirs:032x}: the same log did not give the same state. The data is kept as it \
             is. Report it, remove this node from the cluster, and join an empty one under a new id",
            self.inner.id
        );
        tracing::error!(
            index,
            ours = format!("{ours:032x}"),
            theirs = format!("{theirs:032x}"),
            "the state of this node has diverged"
        );
        if let Err(cause) = Barrier::put(dir, &why) {
            tracing::error!(%cause, "the data directory could not be marked");
        }
        self.report(&StorageFault::diverged(why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_differs_from_a_majority_is_wrong() {
        let (x, y) = (Some(1), Some(2));
        let diverged = Verdict::Diverged { theirs: 2 };
        assert_eq!(judge(1, &[y, y], true, y), diverged);
        assert_eq!(judge(1, &[y, y], true, None), diverged, "also the leader");
        assert_eq!(judge(1, &[x, y], true, y), Verdict::Sound, "the leader is the odd one");
        assert_eq!(judge(1, &[x, x], true, x), Verdict::Sound);
        // A learner has no vote in it.
        assert_eq!(judge(1, &[y, y, x], false, x), diverged);
        assert_eq!(judge(1, &[x, x, y], false, y), Verdict::Sound);
        // Four of which two say this and two that.
        assert_eq!(judge(1, &[x, y, y], true, y), diverged, "the leader's counts");
        assert_eq!(judge(1, &[x, y, y], true, x), Verdict::Sound);
        assert_eq!(judge(1, &[x, y, y], true, None), Verdict::Sound, "this is the leader");
    }

    #[test]
    fn nobody_is_judged_by_what_is_not_known() {
        let (x, y) = (Some(1), Some(2));
        assert_eq!(judge(1, &[None, y], true, y), Verdict::Unknown);
        assert_eq!(judge(1, &[None, None], true, None), Verdict::Unknown);
        assert_eq!(judge(1, &[x, None], true, x), Verdict::Sound, "whatever the third has");
        assert_eq!(judge(1, &[y, y, None, None], true, y), Verdict::Unknown);
        assert_eq!(judge(1, &[y, y, y, None], true, y), Verdict::Diverged { theirs: 2 });
        assert_eq!(judge(1, &[], true, None), Verdict::Sound, "alone");
    }

    #[test]
    fn the_last_few_are_remembered_and_a_replay_counts_anew() {
        let digests = Digests::every(10);
        for n in 1..=12 {
            digests.counted(n * 10, Some(u128::from(n)));
        }
        let told = digests.told();
        assert_eq!(told.known.len(), KEPT);
        assert_eq!(told.known.last(), Some(&(120, 12)));
        digests.counted(110, Some(7));
        assert_eq!(digests.newest(), Some((110, 7)));
        digests.counted(120, None);
        assert_eq!(digests.newest(), Some((110, 7)));
    }
}
