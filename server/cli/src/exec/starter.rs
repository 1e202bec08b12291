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
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

/// Becomes `command`, or says why it cannot.
pub(crate) fn main(command: &[OsString]) -> ExitCode {
    let [program, arguments @ ..] = command else { return ExitCode::from(exit::USAGE) };
    match protect_and_ask() {
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

fn protect_and_ask() -> io::Result<Option<[OwnedFd; 3]>> {
    // The guardian's eye on `exec` is what protects the job's lock. Should somebody kill the
    // guardian too, the kernel ends at least this process.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    permission(&Link::inherited()?)
}

/// The job's descriptors; none if it must not begin.
fn permission(link: &Link) -> io::Result<Option<[OwnedFd; 3]>> {
    let guardian_died = || io::Error::other("its guardian died");
    let (order, descriptors) = link.receive()?.ok_or_else(guardian_died)?;
    let (Order::Start { schedule, terminal, guardian }, Ok(descriptors)) =
        (order, <[OwnedFd; 3]>::try_from(descriptors))
    else {
        return Err(io::Error::other("the guardian sent no order to start"));
    };
    // A guardian that died before the kernel was told to watch it may have left its order.
    if getppid().map(Pid::as_raw_pid) != Some(guardian) {
        return Err(guardian_died());
    }
    if terminal {
        // While SIGTTOU is still blocked: this group is in the background until the call is done.
        terminal::give_to_own_group(&descriptors[0]);
    }
    SigSet::empty().thread_set_mask()?;
    Ok((BootInstant::now() < schedule.term()).then_some(descriptors))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::message::Schedule;
    use std::os::fd::AsFd as _;
    use std::time::Duration;

    fn permission_from(guardian: i32) -> io::Result<Option<[OwnedFd; 3]>> {
        let until = BootInstant::now().saturating_add(Duration::from_secs(60));
        let schedule = Schedule::new(until, Duration::from_secs(1));
        let (ours, theirs) = Link::pair()?;
        let input = io::stdin();
        let descriptors = [input.as_fd(); 3];
        ours.send(&Order::Start { schedule, terminal: false, guardian }, &descriptors)?;
        // As of a guardian that died with its order on the way.
        drop(ours);
        permission(&Link::from(theirs))
    }

    #[test]
    fn an_order_that_outlived_its_guardian_starts_nothing() {
        let parent = getppid().expect("a test has a parent").as_raw_pid();
        assert!(permission_from(parent).expect("the guardian lives").is_some());
        let refused = permission_from(parent + 1).expect_err("somebody else is the parent");
        assert_eq!(refused.to_string(), "its guardian died");
    }
}
