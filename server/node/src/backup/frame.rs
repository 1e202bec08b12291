//! A file in frames, each with a checksum. See the module above for the bytes.

use super::read::BackupError;
use std::io::{ErrorKind, Read};

const MAGIC: &[u8; 16] = b"leasehold backup";
/// Raised when an older binary could not read what a newer one writes.
const VERSION: u32 = 1;
/// Kind and content of one frame, in bytes.
const FRAME_BYTES_MAX: usize = 1 << 20;

pub(super) const HEAD: u8 = 1;
pub(super) const STATE: u8 = 2;
pub(super) const HISTORY: u8 = 3;
pub(super) const END: u8 = 4;

/// Makes frames.
pub(crate) struct Framer {
    sum: crc32fast::Hasher,
}

impl Framer {
    /// Answers what stands before the first frame as well.
    pub(crate) fn begin() -> (Self, Vec<u8>) {
        let mut start = MAGIC.to_vec();
        start.extend_from_slice(&VERSION.to_le_bytes());
        let mut framer = Self { sum: crc32fast::Hasher::new() };
        framer.sum.update(&start);
        (framer, start)
    }

    /// One frame, its content written by `content`. Nothing if it is too long for one.
    pub(crate) fn frame(
        &mut self,
        kind: u8,
        content: impl FnOnce(&mut Vec<u8>),
    ) -> Option<Vec<u8>> {
        let mut frame = vec![0; 8];
        frame.push(kind);
        content(&mut frame);
        let len = frame.len() - 8;
        let crc = crc32fast::hash(&frame[8..]);
        frame[..4].copy_from_slice(&u32::try_from(len).ok()?.to_le_bytes());
        frame[4..8].copy_from_slice(&crc.to_le_bytes());
        self.sum.update(&frame);
        (len <= FRAME_BYTES_MAX).then_some(frame)
    }

    /// The CRC-32 of everything so far.
    pub(super) fn sum(&self) -> u32 {
        self.sum.clone().finalize()
    }
}

/// Reads frames.
pub(super) struct Frames<R> {
    from: R,
    sum: crc32fast::Hasher,
    at: u64,
}

impl<R: Read> Frames<R> {
    pub(super) fn begin(from: R) -> Result<Self, BackupError> {
        let mut frames = Self { from, sum: crc32fast::Hasher::new(), at: 0 };
        let magic = frames.take::<16>().map_err(|error| match error {
            BackupError::CutOff { .. } => BackupError::NoBackup,
            other => other,
        })?;
        if magic != *MAGIC {
            return Err(BackupError::NoBackup);
        }
        let found = u32::from_le_bytes(frames.take()?);
        if found != VERSION {
            return Err(BackupError::Version { found, reads: VERSION });
        }
        Ok(frames)
    }

    /// The next frame: its kind and content, and the CRC-32 of everything before it. There is one,
    /// or the file is cut off.
    pub(super) fn next(&mut self) -> Result<(u8, Vec<u8>, u32), BackupError> {
        let (at, before) = (self.at, self.sum.clone().finalize());
        let len = usize::try_from(u32::from_le_bytes(self.take()?)).unwrap_or(usize::MAX);
        if !(1..=FRAME_BYTES_MAX).contains(&len) {
            return Err(BackupError::Damaged { at, what: "a length that no frame has" });
        }
        let crc = u32::from_le_bytes(self.take()?);
        let mut frame = vec![0; len];
        self.fill(&mut frame)?;
        if crc32fast::hash(&frame) != crc {
            return Err(BackupError::Damaged { at, what: "a checksum does not match" });
        }
        let kind = frame.remove(0);
        Ok((kind, frame, before))
    }

    /// Where the next frame begins, in bytes.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Whether nothing follows.
    pub(super) fn is_over(&mut self) -> Result<bool, BackupError> {
        match self.take::<1>() {
            Err(BackupError::CutOff { .. }) => Ok(true),
            Ok(_) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], BackupError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), BackupError> {
        let at = self.at;
        self.from.read_exact(bytes).map_err(|cause| match cause.kind() {
            ErrorKind::UnexpectedEof => BackupError::CutOff { at },
            _ => BackupError::Read(cause),
        })?;
        self.sum.update(bytes);
        self.at += bytes.len() as u64;
        Ok(())
    }
}
