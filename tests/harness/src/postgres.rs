//! A PostgreSQL server of its own for a test: a real one, in a temporary directory, on a free port of
//! the loopback interface.
//!
//! `LEASEHOLD_POSTGRES_BIN` names the directory with the programs of another version than the newest
//! that is installed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Signal, geteuid};
use tempfile::TempDir;

use crate::certificate::{self, CERTIFICATE, KEY};
use crate::ports::free_port;
use crate::process::{children, lives, signal};
use crate::{eventually, within};

/// Recovery after a crash on a loaded machine included.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// What it says once it can be used.
const READY: &str = "database system is ready to accept connections";

/// Somebody else may take a free port before the server does.
const START_ATTEMPTS: usize = 5;

/// A server, running or dead, together with its data. The superuser is `postgres`, without a password.
#[derive(Debug)]
pub struct Postgres {
    home: TempDir,
    settings: Vec<(String, String)>,
    port: u16,
    child: Option<Child>,
}

impl Postgres {
    /// Starts one as tests need it: it survives a crash of its processes, not one of the machine.
    #[track_caller]
    pub fn start() -> Self {
        Self::start_with(&[("fsync", "off")])
    }

    /// Starts one with these settings of `postgresql.conf` and the defaults of its version otherwise.
    #[track_caller]
    pub fn start_with(settings: &[(&str, &str)]) -> Self {
        let mut server = Self::prepare(settings);
        server.restart();
        server
    }

    /// Starts one that takes nothing but TLS, with a certificate for `names` that signs for itself.
    #[track_caller]
    pub fn start_with_tls(names: &str) -> Self {
        let mut server = Self::prepare(&[
            ("fsync", "off"),
            ("ssl", "on"),
            ("ssl_cert_file", CERTIFICATE),
            ("ssl_key_file", KEY),
        ]);
        let data = server.home.path().join("data");
        certificate::make(&data, names);
        for file in [CERTIFICATE, KEY] {
            give_away(&data.join(file));
        }
        let rule = "hostssl all all 127.0.0.1/32 trust\n";
        fs::write(data.join("pg_hba.conf"), rule).expect("its rules can be written");
        server.restart();
        server
    }

    #[track_caller]
    fn prepare(settings: &[(&str, &str)]) -> Self {
        let home = TempDir::new().expect("a temporary directory can be made");
        give_away(home.path());
        copy(&template(), &home.path().join("data"));
        let settings = settings.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
        Self { home, settings: settings.collect(), port: 0, child: None }
    }

    /// The certificate of one that was started with TLS.
    pub fn authority(&self) -> PathBuf {
        self.home.path().join("data").join(CERTIFICATE)
    }

    /// How clients name it, for the database that everybody finds there.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Its port on the loopback interface; it stays the same over restarts unless somebody takes it.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Everything that it has said since it was made.
    pub fn said(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.log()).unwrap_or_default()).into_owned()
    }

    /// Kills all its processes at once, without a chance to write anything.
    #[track_caller]
    pub fn kill9(&mut self) {
        let mut child = self.child.take().expect("the server runs");
        // Stopped first, or it would replace what dies.
        signal(child.id(), Signal::STOP);
        let all = children(child.id());
        for pid in all.iter().copied().chain([child.id()]) {
            signal(pid, Signal::KILL);
        }
        child.wait().expect("the process is ours");
        // The next one refuses to start while they share memory.
        eventually("all processes of the server end", || !all.iter().any(|&pid| lives(pid)));
    }

    /// Starts it again on the same data.
    #[track_caller]
    pub fn restart(&mut self) {
        assert!(self.child.is_none(), "the server still runs");
        for _ in 0..START_ATTEMPTS {
            if self.try_start() {
                return;
            }
            self.port = 0;
        }
        panic!("PostgreSQL does not start:\n{}", self.said());
    }

    /// Whether it has become ready; otherwise it has ended.
    fn try_start(&mut self) -> bool {
        if self.port == 0 {
            self.port = free_port();
        }
        let said_before = self.said().len();
        let mut child = self.command().spawn().expect("PostgreSQL can be started");
        let ready = within(START_PATIENCE, "PostgreSQL is ready or exits", || {
            if child.try_wait().expect("the process is ours").is_some() {
                return Some(false);
            }
            self.said().get(said_before..)?.contains(READY).then_some(true)
        });
        self.child = ready.then_some(child);
        ready
    }

    fn command(&self) -> Command {
        let log = File::options().create(true).append(true).open(self.log());
        let log = log.expect("the output file can be written");
        let mut command = as_its_user(&bin().join("postgres"));
        command.arg("-D").arg(self.home.path().join("data"));
        command.args(["-h", "127.0.0.1", "-k", "", "-p", &self.port.to_string()]);
        for (name, value) in &self.settings {
            command.args(["-c", &format!("{name}={value}")]);
        }
        command
            .current_dir(self.home.path())
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file handle can be shared"))
            .stderr(log);
        command
    }

    fn log(&self) -> PathBuf {
        self.home.path().join("output.log")
    }
}

impl Drop for Postgres {
    #[allow(clippy::print_stderr)]
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Its data is of no use any more, so it need not be tidy.
            signal(child.id(), Signal::QUIT);
            // Fails only when it is gone already.
            let _ = child.wait();
        }
        if std::thread::panicking() {
            eprintln!("--- what PostgreSQL said ---\n{}", self.said());
        }
    }
}

/// The directory with the programs of the version under test.
pub fn bin() -> PathBuf {
    if let Some(chosen) = std::env::var_os("LEASEHOLD_POSTGRES_BIN") {
        return chosen.into();
    }
    let installed = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let version = |dir: &PathBuf| dir.file_name()?.to_str()?.parse::<u32>().ok();
    let newest =
        installed.map(|entry| entry.path()).filter_map(|dir| Some((version(&dir)?, dir))).max();
    newest.expect("PostgreSQL is installed below /usr/lib/postgresql").1.join("bin")
}

/// An initialised cluster to copy, since making one takes longer than most tests. Kept where builds
/// keep their files, by version.
fn template() -> PathBuf {
    let version = Command::new(bin().join("postgres")).arg("--version").output();
    let version = version.expect("PostgreSQL tells its version").stdout;
    let version =
        String::from_utf8_lossy(&version).replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let here = std::env::current_exe().expect("a test knows where it is");
    // Tests lie one directory deeper than programs.
    let mut above = here.ancestors().skip(1).filter(|dir| !dir.ends_with("deps"));
    let kept = above.nth(1).expect("it lies in a target directory").join("tmp");
    let template = kept.join(format!("template-{}", version.trim_matches('-')));
    if !template.exists() {
        fs::create_dir_all(&kept).expect("the target directory can be written");
        // Made elsewhere, since the server's user may not be allowed to look in there.
        let made = TempDir::new().expect("a temporary directory can be made");
        give_away(made.path());
        initialise(&made.path().join("data"));
        let near = TempDir::new_in(&kept).expect("the target directory can be written");
        copy(&made.path().join("data"), &near.path().join("data"));
        // Fails when another test was faster, and then there is one.
        let _ = fs::rename(near.path().join("data"), &template);
    }
    template
}

#[track_caller]
fn initialise(data: &Path) {
    let mut command = as_its_user(&bin().join("initdb"));
    command.args([
        "--auth=trust",
        "--username=postgres",
        "--encoding=UTF8",
        "--no-locale",
        "--no-sync",
    ]);
    run(command.arg("-D").arg(data).current_dir("/"));
}

/// PostgreSQL refuses to run as root, so root runs it as the user that its package has made.
fn as_its_user(program: &Path) -> Command {
    if !geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]).arg(program);
    command
}

fn give_away(dir: &Path) {
    if geteuid().is_root() {
        run(Command::new("chown").arg("postgres:postgres").arg(dir));
    }
}

/// With owners and modes, both of which PostgreSQL looks at.
fn copy(from: &Path, to: &Path) {
    run(Command::new("cp").arg("-a").args([from, to]));
}

#[track_caller]
fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
