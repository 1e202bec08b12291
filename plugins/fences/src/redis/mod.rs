//! Redis: the function library in it, and the test of commands.
//!
//! | file | holds |
//! | --- | --- |
//! | `connect` | [`Server`]: an address, TLS, sessions |
//! | `library` | installing, looking at and removing the library |
//! | `findings` | what a server has that weakens a fence |
//! | `command` | command lines with the parameters `:resource`, `:token`, `:value` |
//! | `session` | one holder and its commands |
//! | `schemas` | the commands of the library, and of the user |
//! | `test` | the races through them |

mod command;
mod connect;
mod findings;
mod library;
mod schemas;
mod session;
mod test;

pub use connect::Server;
pub use library::{INSTALL, Installed, Removed, Status, VERSION, highest, install, remove, status};
pub use test::test;
