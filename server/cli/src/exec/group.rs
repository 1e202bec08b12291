//! The process group of a job.
//!
//! Its number stays taken for as long as its first process is not reaped. The guardian, whose
//! child that process is, never reaps it, and `exec`, which inherits it if the guardian dies,
//! does not either: so a signal to the group cannot hit somebody who got the number later.

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process};
use std::fs;

/// A process group, named by its first process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Group(Pid);

impl Group {
    pub(crate) const fn of(leader: Pid) -> Self {
        Self(leader)
    }

    /// From the number in a message. None for numbers that would mean somebody else: `kill`
    /// takes 0 and 1 as "my own group" and "everybody".
    pub(crate) fn from_raw(number: i32) -> Option<Self> {
        (number > 1).then(|| Pid::from_raw(number)).flatten().map(Self)
    }

    pub(crate) const fn leader(self) -> Pid {
        self.0
    }

    /// Signals all of it. That nobody is left to hear is no failure, and processes of other users
    /// in the group are out of reach anyway.
    pub(crate) fn signal(self, signal: Signal) {
        let _ = kill_process_group(self.0, signal);
    }

    /// Whether somebody in it can still run. Ended processes that nobody has reaped cannot.
    /// Where there is no `/proc` it cannot be told; then a kill has to be trusted.
    pub(crate) fn is_alive(self) -> bool {
        self.running().next().is_some()
    }

    /// Whether something in it runs, and all that does belongs to others who may not be signalled.
    ///
    /// Each process is asked about: a signal to the group succeeds already where it reaches the
    /// first process, which stays in the group although it has ended.
    pub(crate) fn is_out_of_reach(self) -> bool {
        let mut running = self.running().peekable();
        running.peek().is_some()
            && running.all(|process| test_kill_process(process) == Err(Errno::PERM))
    }

    fn running(self) -> impl Iterator<Item = Pid> {
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        processes.filter_map(move |entry| {
            let number = entry.file_name().to_str()?.parse().ok()?;
            // Bytes, not text: a name is cut after 15 of them, wherever that is.
            let stat = fs::read(entry.path().join("stat")).ok()?;
            runs_in(&stat, self.0.as_raw_pid()).then(|| Pid::from_raw(number))?
        })
    }
}

/// Whether a line of `/proc/PID/stat` tells of a process of `group` that has not ended.
fn runs_in(stat: &[u8], group: i32) -> bool {
    // The name in parentheses may hold anything, parentheses and spaces too.
    let Some(name_ends) = stat.windows(2).rposition(|two| two == b") ") else { return false };
    let Ok(rest) = std::str::from_utf8(&stat[name_ends + 2..]) else { return false };
    let mut fields = rest.split(' ');
    let (state, _parent, of_group) = (fields.next(), fields.next(), fields.next());
    !matches!(state, Some("Z" | "X" | "x"))
        && of_group.and_then(|of| of.parse().ok()) == Some(group)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    #[test]
    fn a_line_of_the_process_table_is_read_whatever_the_name_is() {
        assert!(runs_in(b"12 (a) S 7) S 1 34 34 0 -1", 34));
        assert!(runs_in(b"12 (nightly-report\xc3) S 1 34 34 0 -1", 34), "cut within a letter");
        assert!(runs_in(b"12 (sh) T 1 34 34 0 -1", 34), "stopped processes can go on");
        assert!(!runs_in(b"12 (sh) Z 1 34 34 0 -1", 34));
        assert!(!runs_in(b"12 (sh) S 1 35 34 0 -1", 34));
        assert!(!runs_in(b"", 34));
    }

    #[test]
    fn numbers_with_another_meaning_are_no_groups() {
        for number in [i32::MIN, -1, 0, 1] {
            assert_eq!(Group::from_raw(number), None);
        }
    }

    #[test]
    fn a_group_is_alive_until_all_of_it_has_ended() {
        let mut first =
            Command::new("sleep").arg("600").process_group(0).spawn().expect("sleep is there");
        let leader = Pid::from_child(&first);
        let group = Group::of(leader);
        let mut second = Command::new("sleep")
            .arg("600")
            .process_group(leader.as_raw_pid())
            .spawn()
            .expect("sleep is there");
        first.kill().expect("it is ours");
        assert!(group.is_alive(), "the second is left");
        assert!(!group.is_out_of_reach(), "the second is ours as well");
        group.signal(Signal::KILL);
        second.wait().expect("it is ours");
        while group.is_alive() {
            std::thread::yield_now();
        }
        first.wait().expect("it is ours");
    }
}
