//! Processes as the kernel shows them, and signals to them.

use std::fs;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::{Server, eventually};

/// A command of `binary` as a client of `server`.
pub fn client_of(binary: &str, server: &Server) -> Command {
    let mut command = Command::new(binary);
    // Settings of the person who runs the tests must not leak into them.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("LEASEHOLD_") {
            command.env_remove(name);
        }
    }
    command.env("LEASEHOLD_SERVER", format!("http://{}", server.addr()));
    command
}

/// One letter: R runs, S sleeps, T is stopped, Z has ended; nothing if it is gone.
pub fn state(pid: u32) -> Option<char> {
    stat(pid)?.0
}

/// Whether it can still run, now or when it is let go on.
pub fn lives(pid: u32) -> bool {
    !matches!(state(pid), None | Some('Z' | 'X'))
}

/// Its children that have not been reaped.
pub fn children(pid: u32) -> Vec<u32> {
    let all = fs::read_dir("/proc").expect("there is a process table");
    let all = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    all.filter(|&one| stat(one).is_some_and(|(_, parent)| parent == Some(pid))).collect()
}

/// State and parent.
fn stat(pid: u32) -> Option<(Option<char>, Option<u32>)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    Some((fields.next()?.chars().next(), fields.next()?.parse().ok()))
}

/// Signals a process that the test has started, directly or not.
pub fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid as i32).expect("a process id is not 0");
    // It may have ended on its own; whoever cares looks.
    let _ = kill_process(pid, signal);
}

/// Stops a process, and returns once none of its threads runs any more: until each has seen the
/// signal, those that sleep may still wake up and work.
#[track_caller]
pub fn freeze(pid: u32) {
    signal(pid, Signal::STOP);
    eventually("every thread is stopped", || {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("the process is there");
        threads.flatten().all(|thread| {
            let id = thread.file_name().to_str().and_then(|name| name.parse().ok());
            id.and_then(state).is_none_or(|state| matches!(state, 'T' | 't' | 'Z' | 'X'))
        })
    });
}

/// Signals the process group that this process leads.
pub fn signal_group(leader: u32, signal: Signal) {
    let pid = Pid::from_raw(leader as i32).expect("a process id is not 0");
    let _ = kill_process_group(pid, signal);
}
