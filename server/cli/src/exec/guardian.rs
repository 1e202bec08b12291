//! The guardian: a process beside `exec` that ends the job where `exec` cannot.
//!
//! | it sees | it does |
//! | --- | --- |
//! | `exec` died: the line between them ends without a farewell | kills the job's group at once |
//! | no renewal was told in time: `exec` is frozen, or nobody answers it | asks the group to end, then kills it, both before the validity is over |
//!
//! It stands in a process group of its own, so that signals to the group of `exec` or of the job
//! pass it by, but in the same session, as the job needs the terminal. It is the parent of the
//! job and does not reap it (see [`super::group`]). It allocates little, has one thread, and
//! speaks to no network: what it has to do in the last moment must not fail.

use super::group::Group;
use super::link::Link;
use super::message::{Order, Report, Schedule};
use super::{STARTER, myself};
use crate::complain;
use leasehold_client::{Alarm, BootInstant};
use nix::sys::signal::{SigSet, Signal as Number};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, waitid};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::ExitCode;

/// Runs the guardian for `command`.
pub(crate) fn main(command: &[OsString]) -> ExitCode {
    match guard(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("the guardian failed: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn guard(command: &[OsString]) -> io::Result<()> {
    SigSet::all().thread_block()?;
    let link = Link::inherited()?;
    let Some((order, descriptors)) = link.receive()? else { return Ok(()) };
    let Order::Start { schedule, .. } = order else {
        return Err(io::Error::other("the first message was no order to start"));
    };
    let mut children = SigSet::empty();
    children.add(Number::SIGCHLD);
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    let children = SignalFd::with_flags(&children, flags)?;
    let alarm = Alarm::new()?;
    let (group, starter) = prepare(command)?;
    let mut guardian = Guardian {
        link,
        children,
        alarm,
        group,
        schedule,
        asked: false,
        killed: false,
        ended: false,
        reports: VecDeque::from([Report::Group(group.leader().as_raw_pid())]),
    };
    // `exec` has to know the group before the job can run.
    guardian.report();
    begin(&starter, order, &descriptors)?;
    drop((starter, descriptors));
    let watched = guardian.run();
    // On every way out, and without effect where all is over: nothing runs unguarded.
    guardian.group.signal(Signal::KILL);
    watched
}

/// Starts the process that becomes the job once it gets its descriptors.
fn prepare(command: &[OsString]) -> io::Result<(Group, Link)> {
    let (ours, theirs) = Link::pair()?;
    let child = myself(STARTER).arg("--").args(command).stdin(theirs).process_group(0).spawn()?;
    Ok((Group::of(Pid::from_child(&child)), ours))
}

fn begin(starter: &Link, order: Order, descriptors: &[OwnedFd]) -> io::Result<()> {
    let descriptors: Vec<_> = descriptors.iter().map(|one| one.as_fd()).collect();
    starter.send(&order, &descriptors)
}

struct Guardian {
    link: Link,
    children: SignalFd,
    alarm: Alarm,
    group: Group,
    schedule: Schedule,
    /// The group was asked to end: nothing that `exec` says later takes that back.
    asked: bool,
    killed: bool,
    ended: bool,
    /// Not sent yet, as `exec` does not read.
    reports: VecDeque<Report>,
}

impl Guardian {
    /// Returns when there is nobody left to guard for.
    fn run(&mut self) -> io::Result<()> {
        loop {
            self.enforce();
            self.look_at_job();
            self.report();
            self.alarm.set(self.next_step())?;
            self.wait()?;
            while self.children.read_signal()?.is_some() {}
            // First what the clock says: a thaw may have brought a deadline and an order at once.
            self.enforce();
            if self.heed()? {
                return Ok(());
            }
        }
    }

    fn next_step(&self) -> Option<BootInstant> {
        match (self.asked, self.killed) {
            (false, _) => Some(self.schedule.term()),
            (true, false) => Some(self.schedule.kill()),
            (true, true) => None,
        }
    }

    fn wait(&self) -> io::Result<()> {
        let mut line = PollFlags::IN;
        line.set(PollFlags::OUT, !self.reports.is_empty());
        let mut descriptors = [
            PollFd::new(&self.link, line),
            PollFd::new(&self.children, PollFlags::IN),
            PollFd::new(&self.alarm, PollFlags::IN),
        ];
        match poll(&mut descriptors, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Ends the job where its time is over. Goes by the clock alone, so that it does the right
    /// thing first after a suspend or a freeze.
    fn enforce(&mut self) {
        let now = BootInstant::now();
        if now >= self.schedule.kill() && !self.killed {
            self.group.signal(Signal::KILL);
            (self.asked, self.killed) = (true, true);
            self.reports.push_back(Report::Killed);
        } else if now >= self.schedule.term() && !self.asked {
            self.group.signal(Signal::TERM);
            self.asked = true;
            self.reports.push_back(Report::Asked);
        }
    }

    fn look_at_job(&mut self) {
        if self.ended {
            return;
        }
        let leader = WaitId::Pid(self.group.leader());
        let unreaped = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if let Ok(Some(status)) = waitid(leader, unreaped) {
            self.ended = true;
            self.reports.push_back(Report::ended(code(status)));
            return;
        }
        let leader = WaitId::Pid(self.group.leader());
        let paused = WaitIdOptions::STOPPED | WaitIdOptions::CONTINUED | WaitIdOptions::NOHANG;
        if let Ok(Some(status)) = waitid(leader, paused) {
            let stopped = status.stopped();
            // Of what nobody reads only the last counts.
            self.reports.retain(|one| !matches!(one, Report::Stopped | Report::Continued));
            self.reports.push_back(if stopped { Report::Stopped } else { Report::Continued });
        }
    }

    /// Sends what can be sent. If nobody is there any more, reading tells.
    fn report(&mut self) {
        while let Some(report) = self.reports.front() {
            if self.link.send(report, &[]).is_err() {
                return;
            }
            self.reports.pop_front();
        }
    }

    /// Reads what `exec` said. True if there is nobody left to guard for.
    fn heed(&mut self) -> io::Result<bool> {
        loop {
            match self.link.try_receive() {
                Ok(Some((Order::Until(schedule), _))) if !self.asked => {
                    self.schedule = schedule;
                    self.reports.retain(|one| *one != Report::Heard);
                    self.reports.push_back(Report::Heard);
                }
                Ok(Some((Order::Farewell, _))) => return Ok(true),
                Ok(Some(_)) => {}
                Ok(None) => {
                    self.avenge();
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// First the kill, and nothing before it, not even a look at what there is to kill.
    fn avenge(&self) {
        self.group.signal(Signal::KILL);
        complain("lost: `leasehold exec` died, so its guardian killed what was left of the job");
    }
}

/// How a process ended, as shells tell it.
fn code(status: WaitIdStatus) -> u8 {
    let code = status.exit_status().or_else(|| status.terminating_signal().map(|it| 128 + it));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}
