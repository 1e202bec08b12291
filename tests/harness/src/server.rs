//! The real binary in a process of its own, on a data directory that survives its death.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::{Client, process, within};

/// A loaded machine may take seconds for a start that takes a tenth of one when it is idle.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// How to start a server.
#[derive(Debug, Clone)]
pub struct Builder {
    binary: PathBuf,
    args: Vec<String>,
    environment: Vec<(String, PathBuf)>,
    root: Option<PathBuf>,
    /// The command that starts it, if it is not started directly.
    through: Vec<String>,
}

impl Builder {
    /// Adds a flag with its value.
    #[must_use]
    pub fn flag(mut self, name: &str, value: impl ToString) -> Self {
        self.args.extend([name.to_owned(), value.to_string()]);
        self
    }

    /// Starts it with a variable in its environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: &Path) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Makes the directory for data and output inside `root`, when the disk under it matters.
    #[must_use]
    pub fn inside(mut self, root: &Path) -> Self {
        self.root = Some(root.to_owned());
        self
    }

    /// Starts it with this command, which must become the server in the same process.
    #[must_use]
    pub fn through(mut self, command: Vec<String>) -> Self {
        self.through = command;
        self
    }

    /// Starts it and waits until it is ready.
    #[track_caller]
    pub fn start(self) -> Server {
        self.try_start().unwrap_or_else(|refused| panic!("it did not start: {refused:?}"))
    }

    /// Starts it and waits until it is ready or has given up.
    pub fn try_start(self) -> Result<Server, Refused> {
        self.launch(Until::Ready)
    }

    /// Starts it and waits until it listens, which it does before it serves.
    #[track_caller]
    pub fn begin(self) -> Server {
        let begun = self.launch(Until::Listening);
        begun.unwrap_or_else(|refused| panic!("it did not start: {refused:?}"))
    }

    fn launch(self, until: Until) -> Result<Server, Refused> {
        let home = match &self.root {
            Some(root) => TempDir::new_in(root),
            None => TempDir::new(),
        };
        let home = home.expect("a temporary directory can be made");
        let data_dir = home.path().join("data");
        let process = Process::start(&self, &data_dir, &home.path().join("output.log"), until)?;
        Ok(Server { builder: self, home, data_dir, process: Some(process) })
    }
}

/// What a start waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    Listening,
    Ready,
}

/// A start that ended in an exit instead of readiness.
#[derive(Debug)]
pub struct Refused {
    /// How it exited.
    pub status: ExitStatus,
    /// What it said, on either stream.
    pub output: String,
}

/// A server, running or dead, together with its data.
#[derive(Debug)]
pub struct Server {
    /// Before `home`: what it said is read when it is dropped, and lies in there.
    process: Option<Process>,
    builder: Builder,
    home: TempDir,
    data_dir: PathBuf,
}

impl Server {
    /// Describes a server run from `binary`.
    pub fn builder(binary: impl Into<PathBuf>) -> Builder {
        Builder {
            binary: binary.into(),
            args: Vec::new(),
            environment: Vec::new(),
            root: None,
            through: Vec::new(),
        }
    }

    /// Where it listens. Every start has a port of its own.
    #[track_caller]
    pub fn addr(&self) -> SocketAddr {
        self.running().addr
    }

    /// A new connection to it.
    #[track_caller]
    pub fn client(&self) -> Client {
        Client::new(self.addr())
    }

    /// Its process, for those who measure it.
    #[track_caller]
    pub fn pid(&self) -> u32 {
        self.running().child.id()
    }

    /// Where its data is.
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// Kills it without a chance to write or say anything.
    #[track_caller]
    pub fn kill9(&mut self) {
        let mut process = self.process.take().expect("the server runs");
        process.child.kill().expect("the process is ours");
        process.child.wait().expect("the process is ours");
        process.assert_no_panic();
    }

    /// Asks it to stop, and returns at once.
    #[track_caller]
    pub fn begin_stop(&self) {
        self.signal(Signal::TERM);
    }

    /// Waits for the exit that was asked for.
    #[track_caller]
    pub fn finish_stop(&mut self, patience: Duration) -> ExitStatus {
        let process = self.process.as_mut().expect("the server runs");
        let status = within(patience, "the server exits", || process.exited());
        process.assert_no_panic();
        self.process = None;
        status
    }

    /// Whether it runs, or has ended by itself and waits for `finish_stop`.
    #[track_caller]
    pub fn has_ended(&mut self) -> bool {
        self.process.as_mut().expect("the server runs").exited().is_some()
    }

    /// Starts it again on the same data and waits until it is ready.
    #[track_caller]
    pub fn restart(&mut self) {
        self.try_restart().unwrap_or_else(|refused| panic!("it did not restart: {refused:?}"));
    }

    /// Gives a flag another value from the next start on.
    pub fn set_flag(&mut self, name: &str, value: impl ToString) {
        let args = &mut self.builder.args;
        match args.iter().position(|arg| arg == name) {
            Some(at) => args[at + 1] = value.to_string(),
            None => args.extend([name.to_owned(), value.to_string()]),
        }
    }

    /// Runs another binary from the next start on.
    pub fn run_from(&mut self, binary: impl Into<PathBuf>) {
        self.builder.binary = binary.into();
    }

    /// All that it has said, on either stream, since it was first started.
    pub fn said(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.output()).unwrap_or_default()).into_owned()
    }

    /// `try_restart` with another value of a flag, this once.
    pub fn try_restart_as(&mut self, name: &str, value: impl ToString) -> Result<(), Refused> {
        let before = self.builder.clone();
        self.set_flag(name, value);
        let started = self.try_restart();
        self.builder = before;
        started
    }

    /// `restart` for data that it may refuse.
    pub fn try_restart(&mut self) -> Result<(), Refused> {
        self.launch(Until::Ready)
    }

    /// `restart` that waits no longer than until it listens.
    #[track_caller]
    pub fn begin_restart(&mut self) {
        let begun = self.launch(Until::Listening);
        begun.unwrap_or_else(|refused| panic!("it did not restart: {refused:?}"));
    }

    fn launch(&mut self, until: Until) -> Result<(), Refused> {
        assert!(self.process.is_none(), "the server still runs");
        let output = self.output();
        self.process = Some(Process::start(&self.builder, &self.data_dir, &output, until)?);
        Ok(())
    }

    /// Waits until one that was begun is ready.
    #[track_caller]
    pub fn ready(&mut self) {
        let process = self.process.as_mut().expect("the server runs");
        let settled =
            within(START_PATIENCE, "the server is ready", || process.settled(0, Until::Ready));
        settled.unwrap_or_else(|refused| panic!("it ended instead: {refused:?}"));
    }

    /// Starts another process on the data of this one.
    pub fn second(&self) -> Result<(), Refused> {
        let output = self.home.path().join("second.log");
        Process::start(&self.builder, &self.data_dir, &output, Until::Ready).map(drop)
    }

    /// Stops all its threads, as a suspended machine would.
    #[track_caller]
    pub fn freeze(&self) {
        process::freeze(self.pid());
    }

    /// Lets it go on.
    #[track_caller]
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn output(&self) -> PathBuf {
        self.home.path().join("output.log")
    }

    #[track_caller]
    fn running(&self) -> &Process {
        self.process.as_ref().expect("the server runs")
    }

    #[track_caller]
    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid() as i32).expect("a process id is not 0");
        kill_process(pid, signal).expect("the process is ours");
    }
}

#[derive(Debug)]
struct Process {
    child: Child,
    addr: SocketAddr,
    output: PathBuf,
}

impl Process {
    fn start(
        builder: &Builder,
        data_dir: &Path,
        output: &Path,
        until: Until,
    ) -> Result<Self, Refused> {
        let said_before = fs::metadata(output).map_or(0, |meta| meta.len()) as usize;
        let file = File::options().create(true).append(true).open(output);
        let file = file.expect("the output file can be written");
        let mut words = builder.through.iter().map(PathBuf::from).chain([builder.binary.clone()]);
        let mut command = Command::new(words.next().expect("the binary at least"));
        command.args(words);
        // Settings of the person who runs the tests must not leak into them.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("LEASEHOLD_") {
                command.env_remove(name);
            }
        }
        command.args(["serve", "--data-dir"]).arg(data_dir);
        if !builder.args.iter().any(|arg| arg == "--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        command
            .args(&builder.args)
            .envs(builder.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("a file handle can be shared"))
            .stderr(file);
        let child = command.spawn().unwrap_or_else(|e| panic!("{}: {e}", builder.binary.display()));
        let addr = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut process = Self { child, addr, output: output.to_owned() };
        within(START_PATIENCE, "the server is there or exits", || {
            process.settled(said_before, until)
        })?;
        Ok(process)
    }

    /// There, refused, or neither yet.
    fn settled(&mut self, said_before: usize, until: Until) -> Option<Result<(), Refused>> {
        if let Some(status) = self.exited() {
            let output = self.said().get(said_before..).unwrap_or_default().to_owned();
            return Some(Err(Refused { status, output }));
        }
        if self.addr.port() == 0 {
            self.addr = announced(self.said().get(said_before..)?)?;
        }
        if until == Until::Listening {
            return Some(Ok(()));
        }
        let ready = Client::try_new(self.addr).ok()?.try_call("GET", "/readyz", &[], b"").ok()?;
        (ready.status == 200).then_some(Ok(()))
    }

    fn exited(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("the process is ours")
    }

    fn said(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.output).unwrap_or_default()).into_owned()
    }

    /// Nothing that a client sends may make a thread panic, even if the answer looked fine.
    #[track_caller]
    fn assert_no_panic(&self) {
        let said = self.said();
        assert!(!said.contains("panicked at"), "the server panicked:\n{said}");
    }
}

impl Drop for Process {
    #[allow(clippy::print_stderr)]
    fn drop(&mut self) {
        // Both fail only when it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- what the server said ---\n{}", self.said());
        } else {
            self.assert_no_panic();
        }
    }
}

/// The address in the first line that names one.
fn announced(said: &str) -> Option<SocketAddr> {
    let rest = said.split_once("http://")?.1;
    // Without the end of the line the port may be cut short.
    let (line, _) = rest.split_once('\n')?;
    let end = line.find(|c: char| !(c.is_ascii_digit() || ".:".contains(c))).unwrap_or(line.len());
    line[..end].parse().ok()
}
