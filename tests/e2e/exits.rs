//! What a supervisor sees of a process that does not serve: its exit code, and why.

use std::ffi::{OsStr, OsString};
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Command, Output};

const BROKEN: &[u8] = b"not \xff utf-8";

fn run(args: &[&OsStr], environment: &[(&[u8], &[u8])]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("LEASEHOLD_") {
            command.env_remove(name);
        }
    }
    let environment = environment.iter();
    command.envs(environment.map(|(name, value)| (OsStr::from_bytes(name), os(value))));
    command.args(args).output().expect("the binary is there")
}

fn os(bytes: &[u8]) -> OsString {
    OsStr::from_bytes(bytes).to_owned()
}

fn plain(args: &[&str]) -> Output {
    run(&args.iter().map(OsStr::new).collect::<Vec<_>>(), &[])
}

/// The standard error of a run that must have ended like this, and without a panic.
#[track_caller]
fn complaint(output: &Output, code: i32) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    said
}

#[test]
fn wrong_use_is_64_and_help_and_version_are_success() {
    for args in [
        &["serve", "--no-such-flag"][..],
        &["serve", "--queue-max"],
        &["serve", "unexpected"],
        &["no-such-command"],
        &[],
    ] {
        let said = complaint(&plain(args), 64);
        assert!(said.contains("--help"), "it says where to read on: {args:?}: {said}");
    }
    for args in [&["--version"][..], &["serve", "--version"]] {
        let output = plain(args);
        complaint(&output, 0);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains(env!("CARGO_PKG_VERSION")), "{args:?}: {said}");
    }
    let help = plain(&["serve", "--help"]);
    complaint(&help, 0);
    assert!(String::from_utf8_lossy(&help.stdout).contains("--propose-queue-max"));
}

#[test]
fn wrong_values_are_64_and_all_of_them_are_told_at_once() {
    let dir = tempfile_dir();
    let config = dir.join("leasehold.toml");
    std::fs::write(&config, "no_such_key = 1\ngrants_max = 0\n").expect("a file");
    let args = ["serve", "--queue-max", "many", "--listen", "here", "--config"].map(OsStr::new);
    let args: Vec<&OsStr> = args.into_iter().chain([config.as_os_str()]).collect();
    let environment: [(&[u8], &[u8]); 2] =
        [(b"LEASEHOLD_TTL_MIN_MS", b"-5"), (b"LEASEHOLD_NO_SUCH", b"1")];
    let said = complaint(&run(&args, &environment), 64);
    for mistake in [
        "queue_max (flag)",
        "listen (flag)",
        "ttl_min_ms (LEASEHOLD_TTL_MIN_MS)",
        "LEASEHOLD_NO_SUCH",
        "no_such_key",
        "grants_max (",
    ] {
        assert!(said.contains(mistake), "{mistake} is missing in:\n{said}");
    }
    assert_eq!(said.lines().count(), 6, "one line each:\n{said}");
    assert!(said.contains(&*config.to_string_lossy()), "it names the file:\n{said}");
    std::fs::remove_dir_all(dir).expect("the directory is ours");
}

#[test]
fn an_environment_that_is_not_utf8_panics_nowhere() {
    let check = ["serve", "--check-config"].map(OsStr::new);
    // Variables of others may hold anything.
    complaint(&run(&check, &[(b"OTHER", BROKEN), (BROKEN, b"x")]), 0);
    // In one of ours it is a mistake like another.
    let said = complaint(&run(&check, &[(b"LEASEHOLD_LISTEN", BROKEN)]), 64);
    assert!(said.contains("LEASEHOLD_LISTEN"), "{said}");
    let broken = os(BROKEN);
    let args = [OsStr::new("serve"), OsStr::new("--listen"), &broken];
    complaint(&run(&args, &[]), 64);
    // The filter of the log is read late, so it takes a start to get there.
    let args = ["serve", "--listen", "127.0.0.1:0", "--data-dir", "/dev/null/x"].map(OsStr::new);
    complaint(&run(&args, &[(b"LEASEHOLD_LOG", BROKEN)]), 70);
}

#[test]
fn a_start_that_cannot_be_is_70_and_names_what_is_in_the_way() {
    let dir = tempfile_dir();
    let data = dir.join("data");
    let data = data.to_str().expect("a plain path");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("a bound socket").to_string();
    let said = complaint(&plain(&["serve", "--listen", &address, "--data-dir", data]), 70);
    assert!(said.contains(&address), "{said}");

    let file = dir.join("file");
    std::fs::write(&file, "").expect("a file");
    let file = file.to_str().expect("a plain path");
    let said = complaint(&plain(&["serve", "--listen", "127.0.0.1:0", "--data-dir", file]), 70);
    assert!(said.contains(file), "{said}");
    std::fs::remove_dir_all(dir).expect("the directory is ours");
}

#[test]
fn a_log_that_cannot_be_written_stops_nobody() {
    use std::io::{BufRead as _, BufReader};
    let dir = tempfile_dir();
    let full = std::fs::File::options().write(true).open("/dev/full").expect("Linux has it");
    let mut server = Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(dir.join("data"))
        // Refusals are logged, so that each of them meets the full disk.
        .env("LEASEHOLD_LOG", "info,leasehold_http::refused=info")
        .stdout(std::process::Stdio::piped())
        .stderr(full)
        .spawn()
        .expect("the binary is there");
    let output = server.stdout.take().expect("it is piped");
    let lines = BufReader::new(output).lines().map(|line| line.expect("text"));
    let said: Vec<String> = lines.take_while(|line| !line.ends_with("is ready")).collect();
    let address = said[0].rsplit_once("http://").expect("an address").1;
    let address = address.parse().expect("an address");
    let mut client = leasehold_harness::Client::new(address);
    client.acquire(&leasehold_harness::ask("r", "a", 60_000)).token();
    client.acquire(&leasehold_harness::ask("r", "b", 60_000)).problem(409, "held");
    let pid = rustix::process::Pid::from_child(&server);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it is ours");
    assert!(server.wait().expect("it is ours").success());
    std::fs::remove_dir_all(dir).expect("the directory is ours");
}

fn tempfile_dir() -> std::path::PathBuf {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("leasehold-exits-{}-{next}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    dir
}
