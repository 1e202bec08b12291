//! Rows as a byte stream, cut into chunks that are checked one by one.
//!
//! A row is its length (four bytes, little endian) and its postcard. A chunk is a version byte,
//! the CRC-32 of the rest, and the next piece of the stream: rows may span chunks, so a chunk is
//! bounded even where a row is not.

use crate::codec::{self, DecodeError, ROW};
use leasehold_core::row::Row;

/// Bytes of the stream in one chunk: what may travel in one frame between peers.
pub(super) const CHUNK_BYTES: usize = (256 << 10) - HEAD_BYTES;
const HEAD_BYTES: usize = 5;
const LEN_BYTES: usize = 4;
/// No row comes near; a length above it is damage, and is not allocated.
const ROW_BYTES_MAX: usize = 64 << 20;

const WHAT: &str = "snapshot chunk";

/// Makes chunks out of rows.
pub(crate) struct Cutter<I> {
    rows: I,
    stream: Vec<u8>,
    pub(crate) count: u64,
    pub(crate) bytes: u64,
}

impl<I: Iterator<Item = Row>> Cutter<I> {
    pub(crate) fn new(rows: I) -> Self {
        Self { rows, stream: Vec::new(), count: 0, bytes: 0 }
    }

    fn fill(&mut self) {
        while self.stream.len() < CHUNK_BYTES {
            let Some(row) = self.rows.next() else { break };
            let at = self.stream.len();
            self.stream.extend_from_slice(&[0; LEN_BYTES]);
            codec::encode_row(&row, &mut self.stream);
            let len = u32::try_from(self.stream.len() - at - LEN_BYTES).unwrap_or(u32::MAX);
            self.stream[at..at + LEN_BYTES].copy_from_slice(&len.to_le_bytes());
            self.count += 1;
        }
    }
}

impl<I: Iterator<Item = Row>> Iterator for Cutter<I> {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        self.fill();
        let len = self.stream.len().min(CHUNK_BYTES);
        if len == 0 {
            return None;
        }
        self.bytes += len as u64;
        let chunk = seal(&self.stream[..len]);
        self.stream.drain(..len);
        Some(chunk)
    }
}

pub(super) fn seal(piece: &[u8]) -> Vec<u8> {
    let mut chunk = Vec::with_capacity(HEAD_BYTES + piece.len());
    chunk.push(ROW.version);
    chunk.extend_from_slice(&crc32fast::hash(piece).to_le_bytes());
    chunk.extend_from_slice(piece);
    chunk
}

/// Checks a chunk and answers its piece of the stream.
pub(super) fn open(chunk: &[u8]) -> Result<&[u8], DecodeError> {
    let rest = codec::versioned(ROW, chunk)?;
    let (crc, piece) = rest.split_first_chunk().ok_or(DecodeError::Checksum { what: WHAT })?;
    if crc32fast::hash(piece) != u32::from_le_bytes(*crc) {
        return Err(DecodeError::Checksum { what: WHAT });
    }
    Ok(piece)
}

/// Makes rows out of chunks.
#[derive(Default)]
pub(crate) struct Joiner {
    stream: Vec<u8>,
    at: usize,
    pub(crate) count: u64,
    pub(crate) bytes: u64,
}

impl Joiner {
    pub(crate) fn add(&mut self, chunk: &[u8]) -> Result<(), DecodeError> {
        let piece = open(chunk)?;
        self.stream.drain(..self.at);
        self.at = 0;
        self.stream.extend_from_slice(piece);
        self.bytes += piece.len() as u64;
        Ok(())
    }

    /// The next row, if all of it is there.
    pub(crate) fn row(&mut self) -> Result<Option<Row>, DecodeError> {
        let rest = &self.stream[self.at..];
        let Some((len, rest)) = rest.split_first_chunk::<LEN_BYTES>() else { return Ok(None) };
        let len = usize::try_from(u32::from_le_bytes(*len)).unwrap_or(usize::MAX);
        if len > ROW_BYTES_MAX {
            return Err(DecodeError::Checksum { what: ROW.what });
        }
        let Some(row) = rest.get(..len) else { return Ok(None) };
        let row = codec::decode_row(row)?;
        self.at += LEN_BYTES + len;
        self.count += 1;
        Ok(Some(row))
    }

    /// Whether the stream ended with a row.
    pub(crate) fn is_done(&self) -> bool {
        self.at == self.stream.len()
    }
}
