//! The PostgreSQL kit in a real server.
//!
//! `refusals` asks one session; `races` and `isolation` let several sessions meet; `triggers` and
//! `reach` are about trigger mode, what it catches and where it can stand; `pattern` is the guide's
//! plain UPDATE; `crash`, `upgrade`, `gone`, `waits`, `roles` and `strange` are about the database around
//! it.

mod crash;
pub(crate) mod fixture;
mod gone;
mod isolation;
mod pattern;
mod races;
mod reach;
mod refusals;
pub(crate) mod roles;
pub(crate) mod strange;
mod triggers;
mod upgrade;
mod waits;
