//! Server-sent events out of bytes that come in any pieces.
//!
//! As the WHATWG describes the format, with bounds: lines end with CR, LF or both; a block ends
//! with an empty line; a block that is cut off is no event.

use std::mem;

/// The longest line: several times the longest event that the service writes.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// The most data of one event.
const DATA_BYTES_MAX: usize = 256 * 1024;

/// One block of the stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Block {
    /// The last id seen, up to and including this block.
    pub(crate) id: String,
    /// The kind; empty where the block names none.
    pub(crate) event: String,
    /// The data; `None` in a block that only moves the id on.
    pub(crate) data: Option<String>,
}

/// Why a stream cannot be read on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Broken {
    #[error("a line of the stream is longer than {LINE_BYTES_MAX} bytes")]
    LineTooLong,
    #[error("an event of the stream is longer than {DATA_BYTES_MAX} bytes")]
    DataTooLong,
}

/// Reads one connection.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    line: Vec<u8>,
    block: Block,
    /// The id field stood in this block.
    moved: bool,
    after_cr: bool,
    /// The first line may begin with a byte order mark.
    begun: bool,
}

impl Parser {
    /// Adds the blocks that `bytes` completes: those with data, and those that move the id on.
    ///
    /// # Errors
    /// [`Broken`] if the stream exceeds a bound; nothing after it can be trusted.
    pub(crate) fn read(&mut self, bytes: &[u8], blocks: &mut Vec<Block>) -> Result<(), Broken> {
        for byte in bytes {
            let after_cr = mem::replace(&mut self.after_cr, *byte == b'\r');
            match byte {
                b'\n' if after_cr => {}
                b'\n' | b'\r' => blocks.extend(self.line_ends()?),
                _ if self.line.len() == LINE_BYTES_MAX => return Err(Broken::LineTooLong),
                other => self.line.push(*other),
            }
        }
        Ok(())
    }

    fn line_ends(&mut self) -> Result<Option<Block>, Broken> {
        let line = mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        let first = !mem::replace(&mut self.begun, true);
        let line = if first { line.strip_prefix('\u{feff}').unwrap_or(&line) } else { &line };
        if line.is_empty() {
            return Ok(self.block_ends());
        }
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        self.field(name, value.strip_prefix(' ').unwrap_or(value))?;
        Ok(None)
    }

    fn field(&mut self, name: &str, value: &str) -> Result<(), Broken> {
        match name {
            "id" if !value.contains('\0') => {
                value.clone_into(&mut self.block.id);
                self.moved = true;
            }
            "event" => value.clone_into(&mut self.block.event),
            "data" => {
                let length = self.block.data.as_ref().map_or(0, String::len);
                if length + value.len() >= DATA_BYTES_MAX {
                    return Err(Broken::DataTooLong);
                }
                match &mut self.block.data {
                    Some(data) => data.extend(["\n", value]),
                    None => self.block.data = Some(value.to_owned()),
                }
            }
            // A comment has an empty name. Unknown fields are for newer readers.
            _ => {}
        }
        Ok(())
    }

    fn block_ends(&mut self) -> Option<Block> {
        let next = Block { id: self.block.id.clone(), ..Block::default() };
        let block = mem::replace(&mut self.block, next);
        let moved = mem::take(&mut self.moved);
        (moved || block.data.is_some()).then_some(block)
    }
}

#[cfg(test)]
#[path = "sse_tests.rs"]
mod tests;
