//! The `leasehold` binary: the only place that knows every part.
//!
//! | file | does |
//! | --- | --- |
//! | [`args`] | the command line |
//! | [`settings`] | every setting: its key, default and meaning; raw to resolved |
//! | `join` | asks a running cluster to take this node in |
//! | [`data`] | backups and data directories, for the commands that bring them back |
//! | [`serve`] | wiring: starts the parts in order, stops them in the other |
//! | [`telemetry`] | log lines and the registry of metrics |

pub mod args;
pub mod data;
mod join;
pub mod serve;
pub mod settings;
pub mod telemetry;
