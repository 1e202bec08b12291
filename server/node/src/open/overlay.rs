//! A file that can be written to without being changed.

use parking_lot::Mutex;
use redb::{BackendError, StorageBackend};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::{Bound, Range};
use std::os::unix::fs::FileExt;

const BLOCK: u64 = 4096;

type Block = Box<[u8; BLOCK as usize]>;

/// Reads from the file, writes into memory, and reads back what it wrote.
#[derive(Debug)]
pub(super) struct Overlay {
    file: File,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    len: u64,
    /// Of the file, what may still be read: shrinking and growing again gives zeroes.
    file_len: u64,
    written: BTreeMap<u64, Block>,
}

impl Overlay {
    pub(super) fn new(file: File) -> io::Result<Self> {
        let len = file.metadata()?.len();
        let state = State { len, file_len: len, written: BTreeMap::new() };
        Ok(Self { file, state: Mutex::new(state) })
    }

    fn load(&self, number: u64, file_len: u64) -> io::Result<Block> {
        let mut block = Box::new([0; BLOCK as usize]);
        let start = number * BLOCK;
        let there = file_len.saturating_sub(start).min(BLOCK);
        let there = usize::try_from(there).map_err(io::Error::other)?;
        self.file.read_exact_at(&mut block[..there], start)?;
        Ok(block)
    }
}

/// The blocks that a range touches, with the part of each and the part of the range.
fn parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, Range<usize>, Range<usize>)> {
    let end = offset + len as u64;
    (offset / BLOCK..end.div_ceil(BLOCK)).map(move |number| {
        let start = number * BLOCK;
        let from = offset.max(start);
        let to = end.min(start + BLOCK);
        let within = |base: u64| (from - base) as usize..(to - base) as usize;
        (number, within(start), within(offset))
    })
}

impl StorageBackend for Overlay {
    fn len(&self) -> Result<u64, io::Error> {
        Ok(self.state.lock().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        let state = self.state.lock();
        if offset + out.len() as u64 > state.len {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        for (number, of_block, of_range) in parts(offset, out.len()) {
            let target = &mut out[of_range];
            match state.written.get(&number) {
                Some(block) => target.copy_from_slice(&block[of_block]),
                None => target.copy_from_slice(&self.load(number, state.file_len)?[of_block]),
            }
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        let mut state = self.state.lock();
        if len < state.len {
            state.file_len = state.file_len.min(len);
            let cut = len.div_ceil(BLOCK);
            state.written.split_off(&cut);
            let within = usize::try_from(len % BLOCK).map_err(io::Error::other)?;
            if within > 0
                && let Some(block) = state.written.get_mut(&(len / BLOCK))
            {
                block[within..].fill(0);
            }
        }
        state.len = len;
        Ok(())
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        let mut state = self.state.lock();
        let file_len = state.file_len;
        for (number, of_block, of_range) in parts(offset, data.len()) {
            let block = match state.written.entry(number) {
                std::collections::btree_map::Entry::Occupied(block) => block.into_mut(),
                std::collections::btree_map::Entry::Vacant(free) => {
                    free.insert(self.load(number, file_len)?)
                }
            };
            block[of_block].copy_from_slice(&data[of_range]);
        }
        Ok(())
    }

    // The directory is locked for this process, and nobody else can have the overlay.
    fn try_lock_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<bool, BackendError> {
        Ok(true)
    }

    fn unlock_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<(), BackendError> {
        Ok(())
    }
}
