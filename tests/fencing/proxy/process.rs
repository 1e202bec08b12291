//! The proxy in a process of its own, on a data directory that survives its death.

use crate::proxy::BINARY;
use leasehold_harness::{Client, Server, process, within};
use rustix::process::Signal;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, UNIX_EPOCH};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);

/// How to start a proxy.
#[derive(Clone)]
pub(crate) struct Builder {
    args: Vec<String>,
    environment: Vec<(String, String)>,
    service: SocketAddr,
}

/// A proxy, running or dead, with its data.
pub(crate) struct Proxy {
    builder: Builder,
    home: TempDir,
    running: Option<Running>,
}

struct Running {
    child: Child,
    output: PathBuf,
    addr: SocketAddr,
    ops: SocketAddr,
}

/// A start that ended in an exit.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) status: ExitStatus,
    pub(super) output: String,
}

impl Builder {
    pub(super) fn flag(mut self, name: &str, value: &str) -> Self {
        self.args.extend([name.to_owned(), value.to_owned()]);
        self
    }

    pub(super) fn switch(mut self, name: &str) -> Self {
        self.args.push(name.to_owned());
        self
    }

    pub(super) fn variable(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts it where that must not succeed.
    #[track_caller]
    pub(super) fn refused(self) -> Refused {
        let home = TempDir::new().expect("a temporary directory can be made");
        let output = home.path().join("output.log");
        match Running::start(&self, &home.path().join("data"), &output) {
            Ok(_) => panic!("it started"),
            Err(refused) => refused,
        }
    }

    /// One that is refused at first, to be started again later.
    #[track_caller]
    pub(super) fn standby(self) -> (Proxy, Refused) {
        let home = TempDir::new().expect("a temporary directory can be made");
        let mut proxy = Proxy { builder: self, home, running: None };
        let refused = proxy.try_start_again().expect_err("it started");
        (proxy, refused)
    }

    #[track_caller]
    pub(crate) fn start(self) -> Proxy {
        let home = TempDir::new().expect("a temporary directory can be made");
        let mut proxy = Proxy { builder: self, home, running: None };
        proxy.start_again();
        proxy
    }
}

impl Proxy {
    pub(crate) fn builder(service: &Server, upstream: &str) -> Builder {
        let args = ["--upstream", upstream].map(str::to_owned).to_vec();
        Builder { args, environment: Vec::new(), service: service.addr() }
    }

    #[track_caller]
    pub(crate) fn addr(&self) -> SocketAddr {
        self.running().addr
    }

    #[track_caller]
    pub(super) fn client(&self) -> Client {
        Client::new(self.addr())
    }

    #[track_caller]
    pub(super) fn pid(&self) -> u32 {
        self.running().child.id()
    }

    /// Asks one of the operator's addresses.
    #[track_caller]
    pub(super) fn ops(&self, path: &str) -> leasehold_harness::Answer {
        Client::new(self.running().ops).get(path)
    }

    /// The value of a metric, by its name and labels.
    #[track_caller]
    pub(super) fn metric(&self, name: &str) -> f64 {
        let text = String::from_utf8(self.ops("/metrics").body).expect("text");
        let name = format!("leasehold_fence_proxy_{name} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&name));
        line.unwrap_or_else(|| panic!("no {name}in {text}")).parse().expect("a number")
    }

    #[track_caller]
    pub(super) fn kill9(&mut self) {
        let mut running = self.running.take().expect("it runs");
        running.child.kill().expect("the process is ours");
        running.child.wait().expect("the process is ours");
    }

    /// Asks it to stop and waits until it has.
    #[track_caller]
    pub(super) fn stop(&mut self) -> ExitStatus {
        self.ask_to_stop();
        self.ended()
    }

    #[track_caller]
    pub(super) fn ask_to_stop(&self) {
        process::signal(self.pid(), Signal::TERM);
    }

    /// Waits until it has ended.
    #[track_caller]
    pub(super) fn ended(&mut self) -> ExitStatus {
        let mut running = self.running.take().expect("it runs");
        within(PATIENCE, "the proxy exits", || {
            running.child.try_wait().expect("the process is ours")
        })
    }

    /// Starts it on the same data, and waits until it answers.
    #[track_caller]
    pub(super) fn start_again(&mut self) {
        self.try_start_again().unwrap_or_else(|refused| panic!("not started: {refused:?}"));
    }

    /// The same, where it may be refused.
    pub(super) fn try_start_again(&mut self) -> Result<(), Refused> {
        let dir = self.home.path().join("data");
        let output = self.home.path().join("output.log");
        self.running = Some(Running::start(&self.builder, &dir, &output)?);
        Ok(())
    }

    /// Starts another one on a data directory of its own, which must not succeed.
    #[track_caller]
    pub(super) fn second(&self) -> Refused {
        self.second_on(&self.home.path().join("second").display().to_string())
    }

    /// The same, on a directory that is there already.
    #[track_caller]
    pub(super) fn second_on(&self, dir: &str) -> Refused {
        let dir = Path::new(dir);
        let output = self.home.path().join("second.log");
        match Running::start(&self.builder, dir, &output) {
            Ok(_) => panic!("a second proxy started"),
            Err(refused) => refused,
        }
    }

    /// Starts another one on a copy of the data directory that cannot be told from it, as it lies
    /// on the copy of a whole disk.
    #[track_caller]
    pub(super) fn start_copy(&self) -> Proxy {
        let home = TempDir::new().expect("a temporary directory can be made");
        let mut copy = Proxy { builder: self.builder.clone(), home, running: None };
        fs::create_dir(copy.data()).expect("it is new");
        copy_files(&self.data(), &copy.data());
        let fence = fs::metadata(copy.data().join("fence.redb")).expect("it is there");
        let made = fence.created().ok().and_then(|made| made.duration_since(UNIX_EPOCH).ok());
        let place = format!("{} {}\n", fence.ino(), made.unwrap_or_default().as_nanos());
        fs::write(copy.data().join("place"), place).expect("written");
        copy.start_again();
        copy
    }

    /// Starts another one on the same data directory, which must not succeed.
    #[track_caller]
    pub(super) fn twin(&self) -> Refused {
        let output = self.home.path().join("twin.log");
        match Running::start(&self.builder, &self.home.path().join("data"), &output) {
            Ok(_) => panic!("a second proxy started"),
            Err(refused) => refused,
        }
    }

    /// Asks another service from the next start on, or the same one at another address.
    pub(super) fn turn_to(&mut self, service: &Server) {
        self.builder.service = service.addr();
    }

    /// Changes a flag for the next start.
    pub(super) fn set(&mut self, name: &str, value: &str) {
        let args = &mut self.builder.args;
        match args.iter().position(|arg| arg == name) {
            Some(at) => value.clone_into(&mut args[at + 1]),
            None => args.extend([name.to_owned(), value.to_owned()]),
        }
    }

    /// What the one that runs has said, or the one that ran last.
    pub(super) fn said(&self) -> String {
        said(&self.home.path().join("output.log"))
    }

    pub(super) fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }

    /// Copies the data directory, as a backup does.
    pub(super) fn back_up(&self) -> PathBuf {
        let backup = self.home.path().join("backup");
        fs::create_dir(&backup).expect("it is new");
        copy_files(&self.data(), &backup);
        backup
    }

    /// Moves on to another data directory, as a new machine would.
    pub(super) fn forget(&mut self) {
        fs::remove_dir_all(self.home.path().join("data")).expect("it is there");
    }

    #[track_caller]
    fn running(&self) -> &Running {
        self.running.as_ref().expect("the proxy runs")
    }
}

impl Running {
    fn start(builder: &Builder, dir: &Path, output: &Path) -> Result<Self, Refused> {
        let file = File::create(output).expect("the output file can be written");
        let mut command = std::process::Command::new(BINARY);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("LEASEHOLD_") {
                command.env_remove(name);
            }
        }
        command
            .args(["fence-proxy", "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0"])
            .args(["--server", &format!("http://{}", builder.service), "--data-dir"])
            .arg(dir)
            .args(&builder.args)
            .envs(builder.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("a file handle can be shared"))
            .stderr(file);
        let mut child = command.spawn().expect("the binary is there");
        let addresses = within(PATIENCE, "the proxy listens or exits", || {
            if let Some(status) = child.try_wait().expect("the process is ours") {
                return Some(Err(Refused { status, output: said(output) }));
            }
            announced(&said(output)).map(Ok)
        });
        let (addr, ops) = addresses?;
        Ok(Self { child, output: output.to_owned(), addr, ops })
    }
}

impl Drop for Running {
    #[allow(clippy::print_stderr)]
    fn drop(&mut self) {
        // Both fail only when it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let said = said(&self.output);
        if std::thread::panicking() {
            eprintln!("--- what the proxy said ---\n{said}");
        } else {
            assert!(!said.contains("panicked at"), "the proxy panicked:\n{said}");
        }
    }
}

fn said(output: &Path) -> String {
    String::from_utf8_lossy(&fs::read(output).unwrap_or_default()).into_owned()
}

/// Into the files that are there already, where they are.
pub(super) fn copy_files(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).expect("it is there") {
        let entry = entry.expect("it is there");
        fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
    }
}

/// Where clients come in, and where health and metrics are.
fn announced(said: &str) -> Option<(SocketAddr, SocketAddr)> {
    let address = |before: &str| {
        let (line, _) = said.split_once(before)?.1.split_once('\n')?;
        line.parse().ok()
    };
    Some((address("listening on http://")?, address("health and metrics on http://")?))
}
