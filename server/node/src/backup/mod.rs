//! Backups of a live cluster, and new clusters from them.
//!
//! | file | holds |
//! | --- | --- |
//! | `frame` | a file in checked frames |
//! | `write` | what a node gives out, and how a stream of it is fed |
//! | `read` | a backup read and checked, piece by piece |
//! | `found` | a data directory that begins with a state, and its parts |
//! | `restore` | a directory from a backup |
//! | `recover` | a directory from the one node that is left |
//!
//! # The file
//!
//! ```text
//! leasehold backup   16 bytes of text
//! version            4 bytes, little endian: 1
//! frame ...          length of what follows the checksum    4 bytes, little endian
//!                    CRC-32 of what follows                 4 bytes, little endian
//!                    kind                                   1 byte
//!                    content
//! ```
//!
//! | kind | content | how many |
//! | --- | --- | --- |
//! | 1 | head: cluster, revision, newest token, log entry, when, by which node and version, which commands it takes | 1 |
//! | 2 | a chunk of the state, as a snapshot has it, 256 KiB at most | 1 or more |
//! | 3 | a piece of the history: ended grants, deeds of operators, changes | 1 or more |
//! | 4 | end: counts, the digest of the state, CRC-32 of all bytes before this frame | 1 |
//!
//! Numbers inside frames are postcard's, and each content begins with a version byte of its own; the
//! golden bytes of all of them are in `server/node/golden/backup.hex`. A frame has 1 MiB at most, so
//! whoever writes or reads a backup needs no more memory than that, besides the state itself.
//!
//! What must stay true:
//!
//! - **B1** A backup holds everything that was answered before it was asked for.
//! - **B2** A file that is cut off, damaged anywhere, or newer than this binary is refused before
//!   anything is made of it.
//! - **B3** Nothing that is restored or recovered grants a token that may have been granted before:
//!   see `leasehold_core::restore`.
//!   Nor does its history claim to be whole before: what came after the state was seen is lost.
//! - **B4** Data that is there is never changed: a restore wants an empty directory, a recovery
//!   keeps the old files. A directory that is not complete is refused by whoever would start on it.

mod found;
mod frame;
mod read;
mod recover;
mod restore;
#[cfg(test)]
mod tests;
mod write;

pub use found::{RestoreFailed, Restored, TokenFloor};
#[cfg(test)]
pub(crate) use frame::Framer;
pub use read::{BackupError, BackupSummary, check};
pub use recover::{RecoverSettings, recover};
pub use restore::{RestoreSettings, restore, token_counter};
pub use write::Backup;
pub(crate) use write::Turn;

use crate::state::Totals;
use leasehold_core::ClusterId;

/// What stands first in a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BackupHead {
    pub(crate) cluster: Option<ClusterId>,
    pub(crate) revision: u64,
    pub(crate) last_token: u64,
    /// Of the newest log entry in it.
    pub(crate) term: u64,
    pub(crate) index: u64,
    pub(crate) taken_at_ms: u64,
    pub(crate) node: u64,
    pub(crate) version: String,
    /// The version of commands that a node must know to go on from it.
    pub(crate) level: u16,
}

/// What stands last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct BackupEnd {
    pub(crate) state: Totals,
    /// Pieces of the history.
    pub(crate) pieces: u64,
    /// Ended grants, deeds, and blocks of changes in them.
    pub(crate) history_rows: u64,
    /// CRC-32 of everything before.
    pub(crate) sum: u32,
}
