//! The command line.

use crate::settings;
use clap::{Arg, ArgAction, Command, value_parser};
use std::path::PathBuf;

/// Exit codes, after `sysexits.h` where it has one.
pub mod exit {
    /// Wrong use of the command line or wrong settings.
    pub const USAGE: u8 = leasehold_cli::exit::USAGE;
    /// The service could not start, or stopped by itself.
    pub const FAILED: u8 = leasehold_cli::exit::FAILED;
    /// The disk failed a sync; nothing after it was acknowledged.
    pub const DISK: u8 = 74;
    /// The node was removed from its cluster. Starting it again changes nothing.
    pub const REMOVED: u8 = 77;
    /// The cluster, or the data directory, takes a newer release than this one.
    pub const OUTDATED: u8 = 78;
    /// The state of this node is not that of the others.
    pub const DIVERGED: u8 = 80;
}

const AFTER_SERVE: &str = "\
Settings are taken from defaults, then --config FILE (TOML, one `key = value` a line), then the
environment (LEASEHOLD_ and the key in upper case), then flags. --print-config shows each value
and where it came from. Settings marked (new cluster) are replicated: they count when a cluster is
founded and change nothing later.

LEASEHOLD_LOG chooses what is logged to standard error, e.g. `warn,leasehold=info`;
`info,leasehold_http::refused=info` tells of every refused request with its trace_id.

Exit codes: 0 stopped in order, 64 wrong use or settings, 70 could not start, 74 the disk failed,
77 the node was removed from its cluster: starting it again is no use, 78 the cluster takes a newer
release of this program on this node, 80 the state of this node is not that of the others, which must
never be: its data is kept, and nobody starts on it.";

/// The version, and the commit where the build was told of one.
fn version() -> String {
    let version = env!("CARGO_PKG_VERSION");
    match option_env!("BUILD_COMMIT") {
        Some(commit) => format!("{version} (commit {commit})"),
        None => version.to_owned(),
    }
}

/// The same, and what it can read: what an operator compares before an upgrade or a way back.
fn long_version() -> String {
    let (format, commands) = (leasehold_node::DATA_FORMAT, leasehold_core::Command::NEWEST);
    format!(
        "{}\nreads data format {format}, knows commands up to version {commands}, speaks HTTP API v1",
        version()
    )
}

/// The whole command line.
#[must_use]
pub fn command() -> Command {
    Command::new("leasehold")
        .about("A distributed lock service with fencing tokens")
        .version(version())
        .long_version(long_version())
        .propagate_version(true)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(serve())
        .subcommands(leasehold_cli::commands())
}

fn serve() -> Command {
    let fixed = [
        Arg::new("config")
            .long("config")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help("Read settings from this TOML file"),
        Arg::new("check-config")
            .long("check-config")
            .action(ArgAction::SetTrue)
            .help("Check the settings and exit"),
        Arg::new("print-config")
            .long("print-config")
            .action(ArgAction::SetTrue)
            .help("Print every setting with its value and source, and exit"),
    ];
    let keys = settings::KEYS.iter().map(|key| {
        let help = if key.default.is_empty() {
            key.help.to_owned()
        } else {
            format!("{} [default: {}]", key.help, key.default)
        };
        Arg::new(key.name)
            .long(key.flag())
            .value_name(key.value)
            .action(if key.is_list() { ArgAction::Append } else { ArgAction::Set })
            .help(help)
            .allow_hyphen_values(true)
    });
    Command::new("serve").about("Run a node").after_help(AFTER_SERVE).args(fixed).args(keys)
}
