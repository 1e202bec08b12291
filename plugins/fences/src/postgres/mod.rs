//! PostgreSQL: the kit in it, and the test of a schema.
//!
//! | file | holds |
//! | --- | --- |
//! | `connect` | [`Database`]: an address, TLS, sessions |
//! | `kit` | installing, looking at and removing the kit |
//! | `scripts` | the SQL of the kit |
//! | `findings` | what a database has that weakens a fence |
//! | `strange` | what is there and not of the kit's making, and what of the kit is gone |
//! | `protected` | the tables in trigger mode |
//! | `statement` | statements with the parameters `:resource`, `:token`, `:value` |
//! | `session` | one holder: its statements in their transactions |
//! | `schemas` | the statements of the kit's parts, and of the user |
//! | `test` | the races through them |

mod connect;
mod findings;
mod kit;
mod protected;
mod schemas;
mod scripts;
mod session;
mod statement;
mod strange;
mod test;

pub use connect::Database;
pub use kit::{Installed, Removal, Removed, Status, highest, install, remove, status};
pub use protected::Protected;
pub use scripts::{INSTALL, REMOVE, VERSION};
pub use session::{Isolation, Transactions};
pub use test::test;
