//! A snapshot that comes from a peer, kept in a file until all of it is there.
//!
//! The file has no name: it goes away with the process, whatever becomes of the transfer. Chunks
//! are checked as they come, so that damage on the way is found before openraft is told of the
//! snapshot; what they amount to is checked when the table is rebuilt from them.

use super::chunk;
use super::data::{SnapshotData, SnapshotError, Totals};
use crate::fatal::StorageFault;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Chunks before they are all there. Its methods block.
#[derive(Debug)]
pub(crate) struct Incoming {
    spool: Spool,
    totals: Totals,
}

impl Incoming {
    /// In the directory of the node's files: where the snapshot is going to be kept.
    pub(crate) fn create(dir: &Path, totals: Totals) -> Result<Self, SnapshotError> {
        let file = tempfile::tempfile_in(dir).map_err(|cause| kept(0, cause))?;
        Ok(Self { spool: Spool { file, ends: Vec::new() }, totals })
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) -> Result<(), SnapshotError> {
        let number = self.spool.count();
        if self.is_complete() {
            return Err(SnapshotError::Surplus { of: self.totals.chunks });
        }
        chunk::open(bytes).map_err(|cause| SnapshotError::Chunk { number, cause })?;
        self.spool.add(bytes).map_err(|cause| kept(number, cause))
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.spool.count() >= self.totals.chunks
    }

    pub(crate) fn into_data(self) -> SnapshotData {
        SnapshotData::spooled(self.spool, self.totals)
    }
}

fn kept(number: u32, cause: io::Error) -> SnapshotError {
    let cause = StorageFault::new("incoming snapshot", "keep a chunk", cause);
    SnapshotError::Read { number, cause }
}

/// Chunks, one behind the other.
#[derive(Debug)]
pub(super) struct Spool {
    file: File,
    /// Where each of them ends.
    ends: Vec<u64>,
}

impl Spool {
    fn count(&self) -> u32 {
        u32::try_from(self.ends.len()).unwrap_or(u32::MAX)
    }

    fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        let end = self.ends.last().copied().unwrap_or(0) + bytes.len() as u64;
        self.ends.push(end);
        Ok(())
    }

    pub(super) fn get(&self, number: u32) -> io::Result<Option<Vec<u8>>> {
        let at = number as usize;
        let Some(&end) = self.ends.get(at) else { return Ok(None) };
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        let mut bytes = vec![0; usize::try_from(end - start).unwrap_or(0)];
        self.file.read_exact_at(&mut bytes, start)?;
        Ok(Some(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(chunks: u32) -> Totals {
        Totals { chunks, ..Totals::default() }
    }

    #[test]
    fn chunks_are_read_as_they_came_and_none_may_be_damaged_or_too_many() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut incoming = Incoming::create(dir.path(), totals(2)).expect("a file");
        let (one, two) = (chunk::seal(b"one"), chunk::seal(b"the second"));
        let mut damaged = one.clone();
        *damaged.last_mut().expect("a byte") ^= 1;
        assert!(matches!(incoming.add(&damaged), Err(SnapshotError::Chunk { number: 0, .. })));
        incoming.add(&one).expect("a good chunk");
        assert!(!incoming.is_complete());
        incoming.add(&two).expect("a good chunk");
        assert!(incoming.is_complete());
        assert!(matches!(incoming.add(&two), Err(SnapshotError::Surplus { of: 2 })));
        let data = incoming.into_data();
        assert_eq!(data.chunk(0).expect("readable"), one);
        assert_eq!(data.chunk(1).expect("readable"), two);
        assert!(matches!(data.chunk(2), Err(SnapshotError::Missing { number: 2, of: 2 })));
        assert_eq!(std::fs::read_dir(dir.path()).expect("a directory").count(), 0, "no name");
    }
}
