//! What attaches Leasehold to storage: the PostgreSQL kit, the Redis library, and the test that a
//! store refuses a stale token.
//!
//! | file | holds |
//! | --- | --- |
//! | [`postgres`] | the kit in a database: installing, removing, testing it or a schema |
//! | [`redis`] | the same for the function library and for commands |
//! | `races` | stale and current holders at once, independent of the store |
//! | `tally`, [`Report`] | what comes of the races, and what is found |
//! | [`Wanted`], [`Own`] | what to test, and how |
//! | [`Stop`] | asking a test to stop, so that it tidies up |
//! | `tls`, [`Error`] | whom to trust, and what goes wrong |
//!
//! What must stay true: a test touches only resources and tables of its own, and says what it could
//! not remove; no password gets into an error.

mod error;
pub mod postgres;
mod races;
pub mod redis;
mod report;
mod stop;
mod tally;
mod tls;
mod wanted;

pub use error::Error;
pub use races::Race;
pub use report::{Finding, Report, Row, Severity, Stopped, Verdict, Weight};
pub use stop::Stop;
pub use tally::Tell;
pub use wanted::{Own, Wanted};
