//! `leasehold exec` under faults: whatever is killed or frozen, two jobs never run at once, and the
//! second one never starts before the service could know that the first is over.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_harness::process::{children, client_of, lives, signal, signal_group, state};
use leasehold_harness::{Random, Server, within};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::exec_job::{Record, now, read, record};
use crate::server;

const TTL: Duration = Duration::from_millis(1_200);
const LANES: u64 = 4;
const PATIENCE: Duration = Duration::from_secs(60);
/// Longer than any round takes.
const ENDLESS: Duration = Duration::from_secs(300);

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// `exec` alone is killed.
    KillExec,
    /// The process groups of `exec` and of the job are killed.
    KillAll,
    /// The job is killed.
    KillJob,
    /// The guardian is killed.
    KillGuardian,
    /// `exec` is stopped, and goes on when the second job has run.
    FreezeExec,
    /// The job is stopped.
    FreezeJob,
    /// `exec` and the job are stopped, and go on when the second job has run.
    FreezeBoth,
    /// Guardian and job are stopped: `exec` alone is left.
    FreezeGuardianAndJob,
    /// All three are stopped, and go on when the second job has run.
    FreezeAll,
    /// The server is stopped for a while that leaves time for a renewal.
    ServerShort,
    /// The server is stopped until the job has ended.
    ServerLong,
}

use Fault::*;

const FAULTS: [Fault; 11] = [
    KillExec,
    KillAll,
    KillJob,
    KillGuardian,
    FreezeExec,
    FreezeJob,
    FreezeBoth,
    FreezeGuardianAndJob,
    FreezeAll,
    ServerShort,
    ServerLong,
];

/// One `exec` that a test has started.
struct Exec {
    child: Child,
    said: PathBuf,
}

impl Exec {
    fn start(server: &Server, resource: &str, dir: &Path, name: &str, span: Duration) -> Self {
        let said = dir.join(name);
        let mut command = client_of(env!("CARGO_BIN_EXE_leasehold"), server);
        command.args(["exec", "--resource", resource, "--wait", "60s", "--client-id", name]);
        command.args(["--ttl", &format!("{}ms", TTL.as_millis())]);
        record(&mut command, &dir.join("record"), span);
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&said).expect("a file"))
            .process_group(0)
            .spawn()
            .expect("the binary is there");
        Self { child, said }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("the process is ours")
    }

    #[track_caller]
    fn code(&mut self) -> Option<i32> {
        within(PATIENCE, "exec ends", || self.ended()).code()
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap_or_default()
    }
}

impl Drop for Exec {
    fn drop(&mut self) {
        let family = children(self.pid());
        let jobs: Vec<u32> = family.iter().flat_map(|&guardian| children(guardian)).collect();
        for pid in family.into_iter().chain(jobs) {
            signal(pid, Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A round: one holder that meets with a fault, and one that waits for it.
struct Round<'a> {
    server: &'a Server,
    dir: TempDir,
    fault: Fault,
    first: Exec,
    second: Exec,
    guardian: u32,
    job: u32,
    /// The service itself says that it grants to nobody before.
    not_before: u64,
}

impl<'a> Round<'a> {
    fn begin(server: &'a Server, number: u64, fault: Fault, random: &mut Random) -> Self {
        let resource = format!("round/{number}");
        let dir = TempDir::new().expect("a directory");
        let first = Exec::start(server, &resource, dir.path(), "first", ENDLESS);
        let records =
            within(PATIENCE, "the first job runs", || some(read(&dir.path().join("record"))));
        let second =
            Exec::start(server, &resource, dir.path(), "second", Duration::from_millis(40));
        let mut client = server.client();
        within(PATIENCE, "the second waits", || {
            (client.queue_length(&resource) == 1).then_some(())
        });
        let guardian = *children(first.pid()).first().expect("a guardian");
        // Anywhere between two renewals.
        std::thread::sleep(Duration::from_millis(random.below(TTL.as_millis() as u64)));
        let asked = now();
        let left = client.lock(&resource)["holders"][0]["expires_in_ms"].as_u64();
        // Whole milliseconds may have been rounded up.
        let not_before = asked + (left.expect("the first holds") - 1) * 1_000_000;
        let job = records[0].pid;
        assert!(lives(job), "it runs until something happens: {}", first.said());
        Self { server, dir, fault, first, second, guardian, job, not_before }
    }

    fn records(&self) -> Vec<Record> {
        read(&self.dir.path().join("record"))
    }

    fn freeze(&self, pids: &[u32]) {
        for &pid in pids {
            signal(pid, Signal::STOP);
        }
        for &pid in pids {
            within(PATIENCE, "a process stops", || (state(pid) == Some('T')).then_some(()));
        }
    }

    fn thaw(&self, pids: &[u32]) {
        for &pid in pids {
            signal(pid, Signal::CONT);
        }
    }

    /// The exit code of the first `exec` is part of what is promised.
    fn run(&mut self, random: &mut Random) {
        let (exec, guardian, job) = (self.first.pid(), self.guardian, self.job);
        let mut thaw: Vec<u32> = Vec::new();
        match self.fault {
            KillExec => signal(exec, Signal::KILL),
            KillAll => {
                // In this order, as an `exec` that sees its job end gives the lock back.
                signal_group(exec, Signal::KILL);
                signal_group(job, Signal::KILL);
            }
            KillJob => signal_group(job, Signal::KILL),
            KillGuardian => signal(guardian, Signal::KILL),
            FreezeExec => thaw = vec![exec],
            FreezeJob => self.freeze(&[job]),
            FreezeBoth => thaw = vec![exec, job],
            FreezeGuardianAndJob => self.freeze(&[job, guardian]),
            FreezeAll => thaw = vec![exec, guardian, job],
            ServerShort => self.server_short(),
            ServerLong => self.server_long(),
        }
        self.freeze(&thaw);
        if thaw.is_empty() {
            let code = self.first.code();
            assert_eq!(code, self.expected(), "{}", self.first.said());
        }
        assert_eq!(self.second.code(), Some(0), "{}", self.second.said());
        if random.chance(50) {
            thaw.reverse();
        }
        self.thaw(&thaw);
        if !thaw.is_empty() {
            assert_eq!(self.first.code(), Some(76), "{}", self.first.said());
        }
        within(PATIENCE, "the first job is gone", || (!lives(job)).then_some(()));
        self.thaw(&[guardian]);
        self.judge();
    }

    fn expected(&self) -> Option<i32> {
        match self.fault {
            KillExec | KillAll => None,
            KillJob => Some(137),
            ServerShort => Some(143),
            _ => Some(76),
        }
    }

    /// A renewal is due within a third of the TTL, and its answer before the margin begins.
    fn server_short(&self) {
        self.server.freeze();
        std::thread::sleep(TTL / 5);
        self.server.thaw();
        // Longer than the validity that was left.
        std::thread::sleep(TTL);
        assert!(lives(self.job), "the job does not notice: {}", self.first.said());
        signal(self.first.pid(), Signal::TERM);
    }

    fn server_long(&mut self) {
        self.server.freeze();
        let frozen = now();
        assert_eq!(self.first.code(), Some(76), "{}", self.first.said());
        assert!(!lives(self.job));
        let last = self.records().last().expect("it ran").at;
        assert!(last < frozen + TTL.as_nanos() as u64, "it ran on after its validity");
        self.server.thaw();
    }

    fn judge(&self) {
        let records = self.records();
        let token = records[0].token;
        let fault = self.fault;
        let begun = records.iter().position(|one| one.token != token);
        let begun = begun.unwrap_or_else(|| panic!("{fault:?}: the second ran"));
        let next = records[begun];
        assert!(next.token > token, "{fault:?}");
        let (before, after) = records.split_at(begun);
        let late = after.iter().filter(|one| one.token == token).count();
        // Where nobody was left to stop it, it may live for an instant after the thaw.
        if fault != FreezeAll {
            assert_eq!(late, 0, "{fault:?}: the first job ran while the second held the lock");
        }
        let last = before.iter().map(|one| one.at).max().expect("the first ran");
        assert!(last < next.at, "{fault:?}: {last} is not before {}", next.at);
        // A job that ended is over at once; one that was stopped or killed with its exec is over
        // when the service says so.
        if !matches!(fault, KillJob | ServerShort) {
            assert!(next.at >= self.not_before, "{fault:?}: the second started too early");
        }
        let said = self.first.said();
        let tells = match fault {
            KillJob | ServerShort | KillAll => true,
            _ => said.contains("lost: "),
        };
        assert!(tells, "{fault:?}: it says why:\n{said}");
    }
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        // A round that failed must not leave a job that runs for minutes, or a stopped process.
        if std::thread::panicking() {
            signal(self.job, Signal::KILL);
            signal(self.guardian, Signal::KILL);
        }
    }
}

fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

#[test]
fn whatever_is_killed_or_frozen_two_jobs_never_run_at_once() {
    let rounds = std::env::var("LEASEHOLD_EXEC_ROUNDS").ok().and_then(|text| text.parse().ok());
    let rounds: u64 = rounds.unwrap_or(100);
    let seed = Random::seed_from_environment();
    let next = AtomicU64::new(0);
    let counts = Mutex::new([0_u32; FAULTS.len()]);
    std::thread::scope(|scope| {
        for lane in 0..LANES {
            let (next, counts) = (&next, &counts);
            scope.spawn(move || {
                let server = server();
                let mut random = Random::new(seed ^ lane);
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= rounds {
                        return;
                    }
                    // Every kind in turn, so that a short run has them all; its moment is random.
                    let kind = number as usize % FAULTS.len();
                    Round::begin(&server, number, FAULTS[kind], &mut random).run(&mut random);
                    counts.lock().expect("no lane panicked")[kind] += 1;
                }
            });
        }
    });
    let counts = counts.into_inner().expect("no lane panicked");
    assert_eq!(counts.iter().sum::<u32>() as u64, rounds);
}
