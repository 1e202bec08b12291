//! Disk space that is kept for what frees locks.
//!
//! While there is little left, acquires are refused and everything that ends something goes on.
//! A file holds the reserve, because free space that is only counted belongs to whoever takes it
//! first: when others go on filling the disk, the file is emptied, and its space is what releases
//! and expiries are written to.

use crate::metrics::Metrics;
use crate::runtime;
use rustix::fs::FallocateFlags;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const FILE: &str = "reserve";

/// Free space of so many reserves is little: those who write may use it up in a moment.
const LITTLE: u64 = 4;

/// What is kept, and whether it is needed.
#[derive(Debug, Clone)]
pub(crate) struct Reserve {
    dir: PathBuf,
    bytes: u64,
    metrics: Metrics,
    full: Arc<AtomicBool>,
    /// So many voters are short that no quorum could go on.
    quorum_full: Arc<AtomicBool>,
}

impl Reserve {
    pub(crate) fn new(dir: PathBuf, bytes: u64, metrics: Metrics) -> Self {
        Self { dir, bytes, metrics, full: Arc::default(), quorum_full: Arc::default() }
    }

    /// Whether a node may soon be short that has so much free space and such a reserve.
    pub(crate) fn is_near(free: u64, reserve: u64) -> bool {
        free < reserve.saturating_mul(LITTLE)
    }

    /// How much is kept.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// This node has little space left.
    pub(crate) fn is_needed(&self) -> bool {
        self.full.load(Ordering::Acquire)
    }

    /// Only what ends something may be written: this node is short of space, or so many others that
    /// no quorum would be left.
    pub(crate) fn refuses(&self) -> bool {
        self.is_needed() || self.quorum_full.load(Ordering::Acquire)
    }

    /// What the voters say of themselves, this node among them: how many have space, how many have
    /// not, and how many there are.
    pub(crate) fn compare(&self, with_space: usize, short: usize, voters: usize) {
        // Who says nothing is no reason by itself: that is for elections.
        let needed = short > 0 && with_space < voters / 2 + 1;
        if self.quorum_full.swap(needed, Ordering::AcqRel) != needed {
            if needed {
                tracing::warn!(
                    with_space,
                    short,
                    voters,
                    "no quorum of members has disk space: acquires are refused, releases go on"
                );
            } else {
                tracing::info!(with_space, voters, "a quorum of members has disk space again");
            }
        }
    }

    /// Compares the free space with the reserve.
    pub(crate) async fn look(&self) {
        let this = self.clone();
        match runtime::blocking(move || this.measure()).await {
            Some(Ok((free, needed))) => self.tell(free, needed),
            Some(Err(error)) => tracing::warn!(%error, "free disk space is not known"),
            None => {}
        }
    }

    fn measure(&self) -> io::Result<(u64, bool)> {
        let free = self.free()?;
        if free < self.bytes / 2 {
            // Others take what is left: from here on only this space is sure.
            self.hold(0)?;
            return Ok((free, true));
        }
        // Not before there is so much that taking it does not bring the node back to here.
        if free >= self.bytes.saturating_mul(3) {
            self.hold(self.bytes)?;
        }
        Ok((free, free < self.bytes))
    }

    fn free(&self) -> io::Result<u64> {
        let fs = rustix::fs::statvfs(&self.dir)?;
        Ok(fs.f_bavail.saturating_mul(fs.f_frsize))
    }

    /// Makes the file this large, in allocated blocks.
    fn hold(&self, bytes: u64) -> io::Result<()> {
        let path = self.dir.join(FILE);
        let file: File = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        let held = file.metadata()?.len();
        if bytes < held {
            file.set_len(bytes)?;
        } else if bytes > held {
            rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes)?;
        }
        Ok(())
    }

    fn tell(&self, free: u64, needed: bool) {
        self.metrics.storage_full.set(i64::from(needed));
        self.metrics.storage_free_bytes.set(i64::try_from(free).unwrap_or(i64::MAX));
        let was_needed = self.full.swap(needed, Ordering::AcqRel);
        match (was_needed, needed) {
            (false, true) => tracing::warn!(
                free_bytes = free,
                reserve_bytes = self.bytes,
                "little disk space is left: acquires are refused, releases and expiries go on"
            ),
            (true, false) => tracing::info!(free_bytes = free, "there is disk space again"),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acquires_are_refused_while_no_quorum_has_space() {
        let metrics = Metrics::new(&prometheus::Registry::new()).expect("new names");
        let reserve = Reserve::new(PathBuf::new(), 1, metrics);
        let refuses = |with_space, short, voters| {
            reserve.compare(with_space, short, voters);
            reserve.refuses()
        };
        assert!(!refuses(1, 0, 1));
        assert!(!refuses(2, 1, 3), "two go on without the third");
        assert!(refuses(1, 2, 3));
        assert!(refuses(1, 1, 3), "the silent one may be gone");
        assert!(!refuses(1, 0, 3), "silence is a matter of elections");
        assert!(!refuses(3, 0, 3));
    }
}
