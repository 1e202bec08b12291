//! The starter: what the job's process is before it is the job.
//!
//! It gets the job's standard input, output and error in a message, and that message is the
//! permission to begin. So nothing of the job runs before its guardian is in place.

use super::link::Link;
use super::message::Order;
use super::terminal;
use crate::complain;
use crate::exit;
use leasehold_client::BootInstant;
use nix::sys::signal::SigSet;
use rustix::process::{Signal, set_parent_process_death_signal};
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

/// Becomes `command`, or says why it cannot.
pub(crate) fn main(command: &[OsString]) -> ExitCode {
    let [program, arguments @ ..] = command else { return ExitCode::from(exit::USAGE) };
    match permission() {
        Ok(Some([input, output, error])) => {
            let mut command = Command::new(program);
            command.args(arguments).stdin(input).stdout(output).stderr(error);
            let error = command.exec();
            complain(&format!("{}: {error}", program.display()));
            ExitCode::from(match error.kind() {
                io::ErrorKind::NotFound => exit::COMMAND_NOT_FOUND,
                _ => exit::COMMAND_NOT_EXECUTABLE,
            })
        }
        Ok(None) => {
            complain("the lock left no time to start the job");
            ExitCode::from(exit::LOST)
        }
        Err(error) => {
            complain(&format!("the job could not be started: {error}"));
            ExitCode::from(exit::LOST)
        }
    }
}

/// The job's descriptors; none if it must not begin.
fn permission() -> io::Result<Option<[OwnedFd; 3]>> {
    // The guardian's eye on `exec` is what protects the job's lock. Should somebody kill the
    // guardian too, the kernel ends at least this process.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let Some((order, descriptors)) = Link::inherited()?.receive()? else {
        return Err(io::Error::other("its guardian died"));
    };
    let (Order::Start { schedule, terminal }, Ok(descriptors)) =
        (order, <[OwnedFd; 3]>::try_from(descriptors))
    else {
        return Err(io::Error::other("the guardian sent no order to start"));
    };
    if terminal {
        // While SIGTTOU is still blocked: this group is in the background until the call is done.
        terminal::give_to_own_group(&descriptors[0]);
    }
    SigSet::empty().thread_set_mask()?;
    Ok((BootInstant::now() < schedule.term()).then_some(descriptors))
}
