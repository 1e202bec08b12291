//! Handing the terminal to the job and taking it back, as a shell does.

use rustix::process::{Signal, getpgrp, getpid, kill_current_process_group, kill_process};
use rustix::termios::{isatty, tcgetpgrp, tcsetpgrp};
use std::io;
use std::os::fd::AsFd;

/// The terminal, where it is ours to hand on.
///
/// Functions that change its foreground group need SIGTTOU blocked.
#[derive(Debug)]
pub(crate) struct Terminal(());

impl Terminal {
    /// None unless standard input and output are both the terminal and this process stands in its
    /// foreground. In a pipeline like `leasehold exec ... | less` the terminal belongs to others
    /// as well, and taking it from them would stop them.
    pub(crate) fn ours() -> Option<Self> {
        let (input, output) = (io::stdin(), io::stdout());
        let ours = isatty(&input) && isatty(&output) && tcgetpgrp(&input).ok() == Some(getpgrp());
        ours.then_some(Self(()))
    }

    /// Makes this process group the foreground one again.
    pub(crate) fn take_back(&self) {
        give_to_own_group(&io::stdin());
    }

    /// Stops this process and its group, so that the shell that started it gets its prompt back.
    /// Returns when it goes on.
    pub(crate) fn suspend(&self) {
        self.take_back();
        // The others in a pipeline get the signal that Ctrl-Z sends.
        let _ = kill_current_process_group(Signal::TSTP);
        stop();
    }

    /// Makes `group` the foreground one if this one is: a shell that lets a stopped job go on in
    /// the background keeps the terminal.
    pub(crate) fn hand_on(&self, group: super::group::Group) {
        if tcgetpgrp(io::stdin()).ok() == Some(getpgrp()) {
            let _ = tcsetpgrp(io::stdin(), group.leader());
        }
    }
}

/// Stops this process, which catches the signal that Ctrl-Z sends and so needs the other one.
/// Returns when it goes on.
pub(crate) fn stop() {
    let _ = kill_process(getpid(), Signal::STOP);
}

/// The terminal may be gone; then nobody misses it.
pub(crate) fn give_to_own_group(terminal: &impl AsFd) {
    let _ = tcsetpgrp(terminal, getpgrp());
}
