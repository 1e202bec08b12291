//! PostgreSQL: the kit in it, and the test of a schema.
//!
//! | file | holds |
//! | --- | --- |
//! | `connect` | [`Database`]: an address, TLS, sessions |
//! | `kit` | installing, looking at and removing the kit |
//! | `findings` | what a database has that weakens a fence |
//! | `statement` | statements with the parameters `:resource`, `:token`, `:value` |
//! | `session` | one holder: its statements in their transactions |
//! | `schemas` | the statements of the kit's parts, and of the user |
//! | `test` | the races through them |

mod connect;
mod findings;
mod kit;
mod schemas;
mod session;
mod statement;
mod test;

pub use connect::Database;
pub use kit::{
    INSTALL, Installed, Protected, REMOVE, Removal, Removed, Status, VERSION, highest, install,
    remove, status,
};
pub use session::{Isolation, Transactions};
pub use test::test;
