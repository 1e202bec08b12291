//! A disk that loses what was not synced.

use parking_lot::Mutex;
use redb::StorageBackend;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// What happened to the disk, in order.
#[derive(Debug, Clone)]
enum Step {
    Write(usize, Vec<u8>),
    SetLen(usize),
    Sync,
    /// Something that the test wants to find again between the others.
    Mark(usize),
}

#[derive(Debug, Default)]
struct State {
    image: Vec<u8>,
    steps: Vec<Step>,
    syncs: usize,
    /// The sync from which on all of them fail.
    fail_from: Option<usize>,
}

/// A handle to the disk; clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Disk {
    state: Arc<Mutex<State>>,
}

/// What a crash left.
pub(crate) struct Crash {
    pub(crate) disk: Disk,
    /// The newest mark before it.
    pub(crate) mark: usize,
    pub(crate) at_sync: usize,
}

impl Disk {
    pub(crate) fn mark(&self, mark: usize) {
        self.state.lock().steps.push(Step::Mark(mark));
    }

    pub(crate) fn syncs(&self) -> usize {
        self.state.lock().syncs
    }

    pub(crate) fn fail_from_next_sync(&self) {
        let mut state = self.state.lock();
        state.fail_from = Some(state.syncs);
    }

    fn holding(image: Vec<u8>) -> Self {
        Self { state: Arc::new(Mutex::new(State { image, ..State::default() })) }
    }

    /// Every crash in the middle of a sync: of what was written since the sync before, an
    /// arbitrary part has reached the disk. `keep` decides for each write.
    pub(crate) fn crashes(
        &self,
        first_sync: usize,
        mut keep: impl FnMut() -> bool,
        mut look: impl FnMut(Crash),
    ) {
        let steps = self.state.lock().steps.clone();
        let (mut durable, mut unsynced) = (Vec::new(), Vec::<&Step>::new());
        let (mut mark, mut at_sync) = (0, 0);
        for step in &steps {
            match step {
                Step::Mark(new) => mark = *new,
                Step::Sync => {
                    if at_sync >= first_sync {
                        let mut image = durable.clone();
                        unsynced
                            .iter()
                            .filter(|_| keep())
                            .for_each(|step| replay(&mut image, step));
                        look(Crash { disk: Self::holding(image), mark, at_sync });
                    }
                    unsynced.drain(..).for_each(|step| replay(&mut durable, step));
                    at_sync += 1;
                }
                change => unsynced.push(change),
            }
        }
    }
}

fn replay(image: &mut Vec<u8>, step: &Step) {
    match step {
        Step::Write(at, data) => {
            let range: Range<usize> = *at..at + data.len();
            // A write can reach the disk although the growth of the file before it did not.
            image.resize(image.len().max(range.end), 0);
            image[range].copy_from_slice(data);
        }
        Step::SetLen(len) => image.resize(*len, 0),
        Step::Sync | Step::Mark(_) => {}
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> Result<u64, io::Error> {
        Ok(self.state.lock().image.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        let state = self.state.lock();
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let bytes = state.image.get(start..start + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.change(Step::SetLen(usize::try_from(len).map_err(io::Error::other)?));
        Ok(())
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        let mut state = self.state.lock();
        if state.fail_from.is_some_and(|from| state.syncs >= from) {
            return Err(io::Error::other("the disk is gone"));
        }
        state.syncs += 1;
        state.steps.push(Step::Sync);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        let at = usize::try_from(offset).map_err(io::Error::other)?;
        self.change(Step::Write(at, data.to_vec()));
        Ok(())
    }

    fn try_lock_range(
        &self,
        _: std::ops::Bound<u64>,
        _: std::ops::Bound<u64>,
    ) -> Result<bool, redb::BackendError> {
        Ok(true)
    }

    fn unlock_range(
        &self,
        _: std::ops::Bound<u64>,
        _: std::ops::Bound<u64>,
    ) -> Result<(), redb::BackendError> {
        Ok(())
    }
}

impl Disk {
    fn change(&self, step: Step) {
        let mut state = self.state.lock();
        replay(&mut state.image, &step);
        state.steps.push(step);
    }
}
