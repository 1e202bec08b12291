//! The job of the `exec` tests: writes down every instant at which it is alive.
//!
//! It is this test binary once more, started for one ignored test that is no test. All records of
//! a round go into one file, each with one appending write, so their order in the file is the
//! order in which they were written, whatever the clocks of the processors think.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

const FILE: &str = "RECORD_FILE";
const MILLISECONDS: &str = "RECORD_MS";
const BYTES: usize = 24;

/// One instant at which a job was alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) token: u64,
    pub(crate) pid: u32,
    /// Nanoseconds on the clock that runs through a suspend, read before the write.
    pub(crate) at: u64,
}

/// The present instant on the clock of the records.
pub(crate) fn now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Appends to `command`, which runs a command, the job that records into `file` for this long.
pub(crate) fn record(command: &mut Command, file: &Path, span: Duration) {
    let program = std::env::current_exe().expect("a test knows itself");
    command
        .arg("--")
        .arg(program)
        .args(["exec_job::the_job", "--exact", "--ignored", "--nocapture"])
        .env(FILE, file)
        .env(MILLISECONDS, span.as_millis().to_string());
}

/// All records in the order in which they were written.
pub(crate) fn read(file: &Path) -> Vec<Record> {
    let bytes = fs::read(file).unwrap_or_default();
    assert_eq!(bytes.len() % BYTES, 0, "records are written whole");
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    bytes
        .chunks(BYTES)
        .map(|one| Record {
            token: word(&one[..8]),
            pid: word(&one[8..16]) as u32,
            at: word(&one[16..]),
        })
        .collect()
}

#[test]
#[ignore = "the job that the tests of exec start, not a test"]
fn the_job() {
    let Some(file) = std::env::var_os(FILE) else { return };
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let token = number("FENCING_TOKEN").expect("exec names the token");
    let end = now() + number(MILLISECONDS).expect("the test names the time") * 1_000_000;
    let pid = u64::from(std::process::id());
    let mut file = File::options().create(true).append(true).open(file).expect("it can be written");
    loop {
        let at = now();
        let record: Vec<u8> = [token, pid, at].into_iter().flat_map(u64::to_le_bytes).collect();
        file.write_all(&record).expect("it can be written");
        if at >= end {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
