//! Wall clocks that a test sets, one a process, with libfaketime. Monotonic clocks stay as they are.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

/// Where Debian's `libfaketime` has it, below the directory of the machine's architecture.
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";
const SHOW: &str = include_str!("clocks.c");

/// The wall clock of a process that a test starts, as far as it differs from the true one.
#[derive(Debug)]
pub struct WallClock {
    dir: TempDir,
}

/// What the clocks of a process show, each since its own beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Clocks {
    /// Wall time since 1970.
    pub wall: Duration,
    /// `CLOCK_MONOTONIC`.
    pub monotonic: Duration,
    /// `CLOCK_BOOTTIME`.
    pub boot: Duration,
}

impl Default for WallClock {
    fn default() -> Self {
        let clock = Self { dir: TempDir::new().expect("a temporary directory can be made") };
        clock.step(0);
        clock
    }
}

impl WallClock {
    /// What a process is started with to have this clock.
    #[track_caller]
    pub fn environment(&self) -> Vec<(&'static str, PathBuf)> {
        let places = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
        let library = places.map(|place| place.path().join(LIBRARY)).find(|path| path.exists());
        let library = library.expect("this test needs libfaketime");
        vec![
            ("LD_PRELOAD", library),
            ("DONT_FAKE_MONOTONIC", "1".into()),
            ("FAKETIME_TIMESTAMP_FILE", self.file()),
            // In seconds: how old what was read of the file may be.
            ("FAKETIME_CACHE_DURATION", "1".into()),
        ]
    }

    /// Sets it, to so many seconds before or after the true time.
    pub fn step(&self, seconds: i64) {
        let next = self.dir.path().join("next");
        std::fs::write(&next, format!("{seconds:+}\n")).expect("the file can be written");
        // It is read at any time, so there is always a whole one.
        std::fs::rename(next, self.file()).expect("it can be renamed");
    }

    /// The clocks of a process that has this one, and of a process that has the true one, shown
    /// one after the other: true, stepped, true.
    #[track_caller]
    pub fn show(&self) -> [Clocks; 3] {
        let program = build(self.dir.path());
        let show = |environment: Vec<(&'static str, PathBuf)>| {
            let output = Command::new(&program).envs(environment).output();
            let output = output.expect("what was built can be run");
            read(&String::from_utf8_lossy(&output.stdout))
        };
        [show(Vec::new()), show(self.environment()), show(Vec::new())]
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("offset")
    }
}

/// How many seconds the `Date` of an answer is ahead of the true time, or behind it: the wall clock
/// of its server. Whole days are not told apart.
pub fn ahead(date: &str) -> Option<i64> {
    const DAY: i64 = 86_400;
    let time = date.split(' ').find(|word| word.contains(':'))?;
    let parts: Option<Vec<i64>> = time.split(':').map(|part| part.parse().ok()).collect();
    let [hours, minutes, seconds] = parts?[..] else { return None };
    let shown = hours * 3_600 + minutes * 60 + seconds;
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let ahead = shown - (since.as_secs() as i64).rem_euclid(DAY);
    Some((ahead + DAY / 2).rem_euclid(DAY) - DAY / 2)
}

#[track_caller]
fn build(dir: &Path) -> PathBuf {
    let (source, program) = (dir.join("clocks.c"), dir.join("clocks"));
    std::fs::write(&source, SHOW).expect("the source can be written");
    let built = Command::new("cc").arg("-o").arg(&program).arg(&source).status();
    assert!(built.is_ok_and(|status| status.success()), "the C compiler builds the program");
    program
}

#[track_caller]
fn read(text: &str) -> Clocks {
    let numbers: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [wall, monotonic, boot] = numbers[..] else { panic!("not three clocks: {text:?}") };
    let [wall, monotonic, boot] = [wall, monotonic, boot].map(Duration::from_nanos);
    Clocks { wall, monotonic, boot }
}
