//! A real Redis in a process of its own, on data that survives its death.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::certificate::{self, CERTIFICATE, KEY};
use crate::ports::free_port;
use crate::process;
use crate::within;

/// A loaded machine may take seconds for a start that takes a tenth of one when it is idle.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// How often another port is tried when somebody else was faster.
const PORTS_TRIED: usize = 10;

/// Names the server to run when it is not the `redis-server` of the machine.
const BINARY: &str = "LEASEHOLD_REDIS_BIN";

/// How to start a Redis. It syncs every write before it answers, unless told otherwise.
#[derive(Debug, Clone)]
pub struct Builder {
    settings: Vec<(String, String)>,
    root: Option<PathBuf>,
    /// What its certificate is for, if it has one.
    names: Option<String>,
}

impl Builder {
    /// Gives a setting of `redis.conf` a value.
    #[must_use]
    pub fn setting(mut self, name: &str, value: impl ToString) -> Self {
        self.settings.retain(|(known, _)| known != name);
        self.settings.push((name.to_owned(), value.to_string()));
        self
    }

    /// Makes the directory for its data inside `root`, when the disk under it matters.
    #[must_use]
    pub fn inside(mut self, root: &Path) -> Self {
        self.root = Some(root.to_owned());
        self
    }

    /// Lets it speak TLS on a second port, with a certificate for `names` that signs for itself.
    #[must_use]
    pub fn tls(mut self, names: &str) -> Self {
        self.names = Some(names.to_owned());
        self
    }

    /// Starts it and waits until it answers.
    #[track_caller]
    pub fn start(self) -> Redis {
        let home = match &self.root {
            Some(root) => TempDir::new_in(root),
            None => TempDir::new(),
        };
        let home = home.expect("a temporary directory can be made");
        fs::create_dir(home.path().join("data")).expect("a fresh directory can be written");
        if let Some(names) = &self.names {
            certificate::make(home.path(), names);
        }
        let process = Process::start(&self, home.path());
        Redis { process: Some(process), builder: self, home }
    }
}

/// A Redis, running or dead, together with its data.
#[derive(Debug)]
pub struct Redis {
    /// Before `home`: what it said is read when it is dropped, and lies in there.
    process: Option<Process>,
    builder: Builder,
    home: TempDir,
}

impl Redis {
    /// Describes one that loses nothing it has acknowledged.
    pub fn builder() -> Builder {
        let builder = Builder { settings: Vec::new(), root: None, names: None };
        builder.setting("appendonly", "yes").setting("appendfsync", "always").setting("save", "")
    }

    /// Starts one that loses nothing it has acknowledged.
    #[track_caller]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Where it listens. Every start has a port of its own.
    #[track_caller]
    pub fn addr(&self) -> SocketAddr {
        self.running().addr
    }

    /// `addr` in the form that clients take.
    #[track_caller]
    pub fn url(&self) -> String {
        format!("redis://{}/", self.addr())
    }

    /// `url` of the port that speaks TLS.
    #[track_caller]
    pub fn tls_url(&self) -> String {
        format!("rediss://{}/", self.running().tls.expect("it was started with TLS"))
    }

    /// The certificate of one that was started with TLS.
    pub fn authority(&self) -> PathBuf {
        self.home.path().join(CERTIFICATE)
    }

    /// Where its append-only files are.
    pub fn data_dir(&self) -> PathBuf {
        self.home.path().join("data")
    }

    /// Its process, for those who measure it.
    #[track_caller]
    pub fn pid(&self) -> u32 {
        self.running().child.id()
    }

    /// Kills it without a chance to write or say anything.
    #[track_caller]
    pub fn kill9(&mut self) {
        let mut process = self.process.take().expect("the Redis runs");
        process.child.kill().expect("the process is ours");
        process.child.wait().expect("the process is ours");
    }

    /// Starts it again on the same data and waits until it answers.
    #[track_caller]
    pub fn restart(&mut self) {
        assert!(self.process.is_none(), "the Redis still runs");
        self.process = Some(Process::start(&self.builder, self.home.path()));
    }

    /// Stops it from doing anything, while its sockets go on taking in what clients send.
    #[track_caller]
    pub fn freeze(&self) {
        process::freeze(self.pid());
    }

    /// Lets it go on.
    #[track_caller]
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    #[track_caller]
    fn running(&self) -> &Process {
        self.process.as_ref().expect("the Redis runs")
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
    tls: Option<SocketAddr>,
    output: PathBuf,
}

impl Process {
    /// Redis takes no port 0, so a port is looked for first; whoever takes it in between costs one
    /// more try.
    #[track_caller]
    fn start(builder: &Builder, home: &Path) -> Self {
        let output = home.join("output.log");
        for _ in 0..PORTS_TRIED {
            let mut process = Self::spawn(builder, home, &output);
            if within(START_PATIENCE, "Redis answers or exits", || process.settled()) {
                return process;
            }
            let said = process.said();
            assert!(said.contains("Address already in use"), "Redis did not start:\n{said}");
        }
        panic!("no port was free in {PORTS_TRIED} tries");
    }

    fn spawn(builder: &Builder, home: &Path, output: &Path) -> Self {
        let file = File::create(output).expect("the output file can be written");
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let binary = std::env::var_os(BINARY).unwrap_or_else(|| "redis-server".into());
        let mut command = Command::new(&binary);
        command.args(["--bind", "127.0.0.1", "--port"]).arg(addr.port().to_string());
        command.arg("--dir").arg(home.join("data"));
        let tls =
            builder.names.as_ref().map(|_| SocketAddr::from((Ipv4Addr::LOCALHOST, free_port())));
        if let Some(addr) = tls {
            command.arg("--tls-port").arg(addr.port().to_string());
            command.args(["--tls-auth-clients", "no"]);
            for (name, file) in [("cert", CERTIFICATE), ("key", KEY), ("ca-cert", CERTIFICATE)] {
                command.arg(format!("--tls-{name}-file")).arg(home.join(file));
            }
        }
        for (name, value) in &builder.settings {
            command.arg(format!("--{name}")).arg(value);
        }
        command
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("a file handle can be shared"))
            .stderr(file);
        let child = command.spawn().unwrap_or_else(|e| panic!("{}: {e}", binary.display()));
        Self { child, addr, tls, output: output.to_owned() }
    }

    /// Whether it answers; nothing as long as it has neither begun to nor given up.
    fn settled(&mut self) -> Option<bool> {
        if self.child.try_wait().expect("the process is ours").is_some() {
            return Some(false);
        }
        // Another process on this port would answer as well, so its own word is asked for, too.
        let announced = self.said().contains("eady to accept connections");
        (announced && answers(self.addr)).then_some(true)
    }

    fn said(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.output).unwrap_or_default()).into_owned()
    }
}

impl Drop for Process {
    #[allow(clippy::print_stderr)]
    fn drop(&mut self) {
        // Both fail only when it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- what Redis said ---\n{}", self.said());
        }
    }
}

/// A server that still loads its data answers with an error instead.
fn answers(addr: SocketAddr) -> bool {
    let ask = || {
        let mut stream = TcpStream::connect(addr)?;
        stream.set_read_timeout(Some(START_PATIENCE))?;
        stream.write_all(b"PING\r\n")?;
        let mut answer = [0; 5];
        stream.read_exact(&mut answer)?;
        std::io::Result::Ok(answer == *b"+PONG")
    };
    ask().unwrap_or(false)
}
