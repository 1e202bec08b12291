//! Exit codes, after `sysexits.h` where it has one. Part of the contract: scripts switch on them.

/// The service refused, for a reason that none of the others tells.
pub const REFUSED: u8 = 1;
/// Wrong use of the command line, or a request that cannot be understood.
pub const USAGE: u8 = 64;
/// No server could be reached or could serve.
pub const UNAVAILABLE: u8 = 69;
/// A part of the program itself could not start.
pub const FAILED: u8 = 70;
/// Standard output could not be written, other than because nobody reads it.
pub const OUTPUT: u8 = 74;
/// The lock was not got: held, the wait is over, or refused to protect others.
pub const NOT_GOT: u8 = 75;
/// The lock was lost, or had ended.
pub const LOST: u8 = 76;
/// `fence-proxy`: stopped while writes were in flight, because its time to stop was over.
pub const UNCLEAN: u8 = 79;
/// `exec`: the command was found and cannot be run.
pub const COMMAND_NOT_EXECUTABLE: u8 = 126;
/// `exec`: there is no such command.
pub const COMMAND_NOT_FOUND: u8 = 127;

/// All of them, for `--help`.
pub const HELP: &str = "\
Exit codes: 0 done, 1 refused, 64 wrong use, 69 no server could serve, 74 the output could not be
written, 75 the lock was not got
(held, wait over, or refused to protect others), 76 the lock was lost or had ended.";
