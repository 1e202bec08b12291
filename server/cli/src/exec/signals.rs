//! The signals that `exec` passes on.

use rustix::process::Signal;
use std::fs;
use std::future::poll_fn;
use std::io;
use std::task::Poll;
use tokio::signal::unix::{self, SignalKind, signal};

const PASSED_ON: &[Signal] = &[
    Signal::TERM,
    Signal::INT,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::WINCH,
    Signal::TSTP,
    Signal::CONT,
];

/// Those of the signals that were not ignored when this process was started, and the deaths of
/// children.
#[derive(Debug)]
pub(crate) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// Starts to catch them. What is ignored stays so, for the job as well: `nohup` and shells
    /// without job control rely on it.
    pub(crate) fn catch() -> io::Result<Self> {
        let ignored = ignored();
        let caught = PASSED_ON.iter().filter(|one| !bit(ignored, one.as_raw()));
        caught
            .chain([&Signal::CHILD])
            .map(|&one| Ok((one, signal(SignalKind::from_raw(one.as_raw()))?)))
            .collect::<io::Result<_>>()
            .map(Self)
    }

    /// The next one. Can be dropped and called again without loss.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (number, stream) in &mut self.0 {
                if stream.poll_recv(context).is_ready() {
                    return Poll::Ready(*number);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// Whether a signal asks this process to end.
pub(crate) fn ends(signal: Signal) -> bool {
    matches!(signal, Signal::TERM | Signal::INT | Signal::HUP | Signal::QUIT)
}

fn ignored() -> u64 {
    mask(&fs::read_to_string("/proc/self/status").unwrap_or_default())
}

fn mask(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}

fn bit(mask: u64, number: i32) -> bool {
    mask >> (number - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_ignored_signals_is_read() {
        let mask = mask("Name:\tx\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\n");
        assert!(bit(mask, Signal::HUP.as_raw()) && bit(mask, Signal::PIPE.as_raw()));
        assert!(!bit(mask, Signal::TERM.as_raw()));
        assert_eq!(super::mask(""), 0);
    }
}
