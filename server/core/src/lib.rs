//! The lock rules of Leasehold: commands in, outcomes and events out.
//!
//! | file | holds |
//! | --- | --- |
//! | [`name`], [`ids`], [`command`], [`outcome`] | the words: what may be asked and answered |
//! | [`limits`] | every number that a rule compares with |
//! | [`LockTable`] | the state and the one entrance, [`LockTable::apply`] |
//! | `acquire`, `release`, `renew`, `lease`, `expire`, `trim` | one verb, one rule, one file |
//! | `administer`, `force` | what operators do, and its record |
//! | `queue`, `deadlock`, `requests` | who is next; waits that can never end; repeats |
//! | [`row`], `snapshot`, `import` | the state as a canonical stream, its digest, and back |
//! | [`restore`] | what becomes of a state that was brought back from a backup |
//! | [`view`], [`list`], [`standing`] | what readers see: one thing, a page, why somebody waits |
//! | `index` | who has what, so that a page costs what it shows |
//! | [`sound`](LockTable::sound) | the invariants as a function |
//!
//! What must stay true:
//!
//! - **C1** `apply` is a total function of (state, header, command): no clock, randomness, I/O,
//!   threads, floats or unordered iteration.
//! - **C2** Time is in the header, moves only forward, and decides nothing but what is displayed
//!   and how long ended things are remembered.
//! - **C3** One exclusive holder a resource at most, never beside a shared one.
//! - **C4** Tokens strictly increase in log order and are never issued twice.
//! - **C5** A lease that ended holds nothing and waits for nothing; one that is ending in pieces
//!   gets nothing more.
//! - **C6** The first attached ticket of a line is never compatible with the holders.
//! - **C7** A repeat with the same request id has no second effect while it is remembered.
//! - **C8** The same log gives the same rows and digest, also through a snapshot at any index.
//! - **C9** Work per command does not grow with the number of locks or leases.

mod acquire;
mod administer;
pub mod command;
mod cow_map;
mod deadlock;
mod digest;
mod expire;
mod force;
pub mod ids;
mod import;
mod index;
mod lease;
pub mod limits;
pub mod list;
mod live;
mod machine;
pub mod name;
pub mod outcome;
mod queue;
mod release;
mod renew;
mod requests;
pub mod restore;
pub mod row;
mod snapshot;
mod sound;
pub mod standing;
mod state;
mod trim;
pub mod view;

pub use command::{Command, Header};
pub use ids::{ClusterId, LeaseId, Revision, TicketId, Token};
pub use import::ImportError;
pub use index::Piece;
pub use limits::Limits;
pub use machine::LockTable;
pub use name::{ClientId, Owner, Principal, RequestId, ResourceName};
pub use outcome::{Applied, Event, EventKind, Outcome, Refusal};
pub use restore::Restore;
pub use snapshot::{DIGEST_VERSION, Frozen};
pub use sound::Breach;
