//! `leasehold exec`: a command under a lock, as whoever types it sees it.

use std::fs::{self, Permissions};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use leasehold_harness::process::{children, client_of, lives, signal, state};
use leasehold_harness::{Client, Server, eventually, within};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::server;

const PATIENCE: Duration = Duration::from_secs(30);
/// A user who may not signal the processes of root.
const NOBODY: u32 = 65_534;

fn exec(server: &Server, flags: &[&str], script: &str) -> Command {
    let mut command = client_of(env!("CARGO_BIN_EXE_leasehold"), server);
    command.arg("exec").args(flags).args(["--", "sh", "-c", script]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[track_caller]
fn run(mut command: Command) -> Output {
    command.output().expect("the binary is there")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Starts `exec` with a script that leaves a mark, and waits for the mark.
fn started(server: &Server, flags: &[&str], script: &str) -> (Child, TempDir) {
    let dir = TempDir::new().expect("a directory");
    let mark = dir.path().join("mark");
    let script = format!("echo $$ > {}; {script}", mark.display());
    let child = exec(server, flags, &script).spawn().expect("the binary is there");
    eventually("the job runs", || fs::read_to_string(&mark).is_ok_and(|pid| pid.ends_with('\n')));
    (child, dir)
}

fn job(dir: &TempDir) -> u32 {
    let pid = fs::read_to_string(dir.path().join("mark")).expect("the job left a mark");
    pid.trim().parse().expect("a process id")
}

fn finish(mut child: Child) -> Output {
    within(PATIENCE, "exec ends", || child.try_wait().expect("the process is ours"));
    child.wait_with_output().expect("the process is ours")
}

#[test]
fn a_command_knows_its_lock_and_its_exit_code_is_passed_on() {
    let server = server();
    let script = "echo \"$FENCING_RESOURCE|$FENCING_TOKEN|$FENCING_MODE\"; exit 7";
    let output = run(exec(&server, &["--resource", "a/ü %"], script));
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    let token = server.client().lock("a/ü %")["last_token"].clone();
    assert_eq!(text(&output.stdout), format!("a/ü %|{token}|exclusive\n"));
    assert_eq!(text(&output.stderr), "", "there is nothing to say");
    assert_eq!(server.client().lock("a/ü %")["state"], "free");

    let shared = run(exec(&server, &["--resource", "s", "--mode", "shared"], "echo $FENCING_MODE"));
    assert_eq!(text(&shared.stdout), "shared\n");
    let killed = run(exec(&server, &["--resource", "s"], "kill -9 $$"));
    assert_eq!(killed.status.code(), Some(137), "128 and the signal");
}

#[test]
fn standard_input_and_other_descriptors_reach_the_command() {
    let server = server();
    let dir = TempDir::new().expect("a directory");
    fs::write(dir.path().join("in"), "from a file\n").expect("a file");
    let command = exec(&server, &["--resource", "r"], "cat; cat <&3");
    let program = command.get_program().to_owned();
    let arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
    let mut shell = Command::new("sh");
    shell.args(["-c", "echo third > $0; exec 3<$0; exec \"$@\""]).arg(dir.path().join("3"));
    shell.arg(program).args(arguments);
    shell.env("LEASEHOLD_SERVER", format!("http://{}", server.addr()));
    shell.stdin(fs::File::open(dir.path().join("in")).expect("a file"));
    assert_eq!(text(&run(shell).stdout), "from a file\nthird\n");
}

#[test]
fn a_lock_that_is_not_got_is_75_and_wrong_use_is_64() {
    let server = server();
    let (child, _dir) = started(&server, &["--resource", "r"], "sleep 600");
    for wait in ["0s", "100ms"] {
        let output = run(exec(&server, &["--resource", "r", "--wait", wait], "echo ran"));
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(75), ""), "{said}");
        let code = if wait == "0s" { "leasehold: held: " } else { "leasehold: wait_timeout: " };
        assert!(said.starts_with(code) && said.lines().count() == 1, "{said}");
    }
    signal(child.id(), Signal::TERM);
    finish(child);
    for flags in [
        &["--resource", "r", "--ttl", "10"][..],
        &["--resource", "r", "--ttl", "1ms"],
        &["--resource", "r", "--ttl", "200ms"],
        &["--resource", "r", "--lease-margin", "90%"],
        &["--resource", ""],
        &[],
    ] {
        let output = run(exec(&server, flags, "echo ran"));
        assert_eq!(output.status.code(), Some(64), "{flags:?}: {}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "", "{flags:?}");
    }
    let mut nobody = exec(&server, &["--resource", "r", "--wait", "0s"], "echo ran");
    let output = run_with(&mut nobody, "http://127.0.0.1:1");
    assert_eq!(output.status.code(), Some(75), "{}", text(&output.stderr));
    assert!(text(&output.stderr).starts_with("leasehold: unavailable: "));
}

fn run_with(command: &mut Command, server: &str) -> Output {
    command.env("LEASEHOLD_SERVER", server).output().expect("the binary is there")
}

#[test]
fn a_command_that_is_not_there_or_no_program_is_told_like_a_shell_does() {
    let server = server();
    for (program, code) in [("/no/such/program", 127), ("/etc/passwd", 126)] {
        let mut command = client_of(env!("CARGO_BIN_EXE_leasehold"), &server);
        command.args(["exec", "--resource", "r", "--", program]);
        let output = run(command);
        assert_eq!(output.status.code(), Some(code));
        assert!(text(&output.stderr).contains(program), "{}", text(&output.stderr));
        assert_eq!(server.client().lock("r")["state"], "free");
    }
}

#[test]
fn of_two_at_once_one_runs_after_the_other() {
    let server = server();
    let dir = TempDir::new().expect("a directory");
    let log = dir.path().join("log");
    let script = format!("echo in >> {0}; sleep 0.2; echo out >> {0}", log.display());
    let both: Vec<Child> = (0..2)
        .map(|_| exec(&server, &["--resource", "nightly"], &script).spawn().expect("it starts"))
        .collect();
    for child in both {
        assert_eq!(finish(child).status.code(), Some(0));
    }
    assert_eq!(fs::read_to_string(log).expect("both wrote"), "in\nout\nin\nout\n");
}

#[test]
fn signals_are_passed_on_and_what_ends_the_command_ends_exec() {
    let server = server();
    let script = "trap 'echo usr1' USR1; trap 'echo hup; exit 3' HUP; while :; do sleep 0.05; done";
    let (mut child, _dir) = started(&server, &["--resource", "r"], script);
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    for (number, said) in [(Signal::USR1, "usr1"), (Signal::HUP, "hup")] {
        signal(child.id(), number);
        assert_eq!(lines.next().expect("a line").expect("it is text"), said);
    }
    assert_eq!(finish(child).status.code(), Some(3));

    for (number, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::QUIT, 131)] {
        let (child, _dir) = started(&server, &["--resource", "r"], "exec sleep 600");
        signal(child.id(), number);
        assert_eq!(finish(child).status.code(), Some(code));
        assert_eq!(server.client().lock("r")["state"], "free", "it is given back");
    }
}

#[test]
fn what_the_command_leaves_running_ends_before_the_lock_is_given_back() {
    let server = server();
    let dir = TempDir::new().expect("a directory");
    let left = dir.path().join("left");
    let script = format!("sleep 600 & echo $! > {}; exit 5", left.display());
    let output = run(exec(&server, &["--resource", "r"], &script));
    assert_eq!(output.status.code(), Some(5));
    let pid = fs::read_to_string(left).expect("it was started").trim().parse().expect("a number");
    assert!(!lives(pid), "{:?}", state(pid));
    assert_eq!(server.client().lock("r")["state"], "free");
}

#[test]
fn an_interrupted_wait_leaves_the_line() {
    let server = server();
    let (holder, _dir) = started(&server, &["--resource", "r"], "exec sleep 600");
    let waiter = exec(&server, &["--resource", "r"], "echo ran").spawn().expect("it starts");
    let mut client = server.client();
    eventually("it waits", || client.queue_length("r") == 1);
    signal(waiter.id(), Signal::INT);
    let output = finish(waiter);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(75), ""));
    assert_eq!(client.queue_length("r"), 0);
    signal(holder.id(), Signal::TERM);
    finish(holder);
}

#[test]
fn ctrl_z_stops_an_exec_that_waits_and_it_keeps_its_place() {
    let server = server();
    let (holder, _dir) = started(&server, &["--resource", "r"], "exec sleep 600");
    let waiter = exec(&server, &["--resource", "r"], "echo ran").spawn().expect("it starts");
    let mut client = server.client();
    eventually("it waits", || client.queue_length("r") == 1);
    signal(waiter.id(), Signal::TSTP);
    eventually("it is stopped", || state(waiter.id()) == Some('T'));
    assert_eq!(client.queue_length("r"), 1);
    signal(waiter.id(), Signal::CONT);
    signal(holder.id(), Signal::TERM);
    finish(holder);
    let output = finish(waiter);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), "ran\n"));
}

#[test]
fn the_credential_of_exec_is_not_the_commands() {
    let server = server();
    let mut command = exec(&server, &["--resource", "r"], "echo ${LEASEHOLD_CREDENTIAL-none}");
    command.env("LEASEHOLD_CREDENTIAL", "a-secret");
    let output = run(command);
    assert_eq!(text(&output.stdout), "none\n", "{}", text(&output.stderr));
}

/// Passes connections on to `server`, except that the first one is told after its request was done
/// that nobody knows what came of it, and not to come back.
fn forgetful_proxy(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = listener.local_addr().expect("a port");
    std::thread::spawn(move || {
        let mut first = true;
        for client in listener.incoming().flatten() {
            let upstream = TcpStream::connect(server).expect("the server is there");
            if std::mem::take(&mut first) {
                forget(client, upstream).expect("it forgets");
            } else {
                pass_on(&client, &upstream).expect("it passes on");
            }
        }
    });
    addr
}

fn forget(mut client: TcpStream, mut server: TcpStream) -> io::Result<()> {
    server.write_all(&message(&mut client)?)?;
    message(&mut server)?;
    let problem = r#"{"type":"about:blank","title":"t","status":503,"detail":"lost",
        "code":"outcome_unknown","retry_after_ms":3600000}"#;
    let head = "HTTP/1.1 503 Unknown\r\nconnection: close\r\ncontent-length";
    write!(client, "{head}: {}\r\n\r\n{problem}", problem.len())
}

/// One request or answer, with its body.
fn message(from: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut from = BufReader::new(from);
    let (mut all, mut length) = (Vec::new(), 0);
    loop {
        let begun = all.len();
        from.read_until(b'\n', &mut all)?;
        let line = String::from_utf8_lossy(&all[begun..]).to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().expect("a length is a number");
        }
        if line.trim().is_empty() {
            break;
        }
    }
    from.take(length).read_to_end(&mut all)?;
    Ok(all)
}

fn pass_on(client: &TcpStream, server: &TcpStream) -> io::Result<()> {
    for (from, to) in [(client, server), (server, client)] {
        let (mut from, mut to) = (from.try_clone()?, to.try_clone()?);
        std::thread::spawn(move || io::copy(&mut from, &mut to));
    }
    Ok(())
}

#[test]
fn a_lock_whose_grant_was_not_heard_of_is_given_back() {
    let server = server();
    let proxy = forgetful_proxy(server.addr());
    let mut command = exec(&server, &["--resource", "r", "--ttl", "10m"], "echo ran");
    let output = run_with(&mut command, &format!("http://{proxy}"));
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(75), ""), "{said}");
    assert!(said.starts_with("leasehold: outcome_unknown: "), "{said}");
    let lock = server.client().lock("r");
    assert_eq!(lock["state"], "free", "{lock}");
    assert!(lock["last_token"].as_u64() > Some(0), "it had been granted: {lock}");
}

/// `exec` of somebody whose job's group a process of root has joined. Nothing, and a word about it,
/// where that cannot be had: the tests do not run as root, or their files are hidden from others.
fn joined_by_root(server: &Server, ttl: &str, script: &str) -> Option<(Child, u32, Child)> {
    let program = env!("CARGO_BIN_EXE_leasehold");
    let probe = Command::new(program).arg("--version").uid(NOBODY).gid(NOBODY).output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        let _ = writeln!(io::stderr(), "skipped: {program} cannot be run as another user");
        return None;
    }
    let dir = TempDir::new().expect("a directory");
    fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).expect("it is ours");
    let mark = dir.path().join("mark");
    let script = format!("echo $$ > {}; {script}", mark.display());
    let mut command = exec(server, &["--resource", "r", "--ttl", ttl], &script);
    let child = command.uid(NOBODY).gid(NOBODY).spawn().expect("the binary is there");
    eventually("the job runs", || fs::read_to_string(&mark).is_ok_and(|pid| pid.ends_with('\n')));
    let job = job(&dir);
    let group = i32::try_from(job).expect("a process id");
    let foreign = Command::new("sleep").arg("600").process_group(group).spawn();
    Some((child, job, foreign.expect("it joins the group")))
}

#[test]
fn a_process_that_may_not_be_signalled_does_not_keep_the_lock() {
    let server = server();
    let script = "trap 'exit 7' USR1; while :; do sleep 0.05; done";
    let Some((child, job, mut foreign)) = joined_by_root(&server, "2s", script) else { return };
    signal(child.id(), Signal::USR1);
    let output = finish(child);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert!(said.contains("r is not given back") && said.contains("other users"), "{said}");
    assert!(!lives(job) && lives(foreign.id()), "only the foreign one is left");
    let mut client = server.client();
    assert_eq!(client.lock("r")["state"], "held");
    eventually("nobody renews it", || client.lock("r")["state"] == "free");
    foreign.kill().expect("the process is ours");
    foreign.wait().expect("the process is ours");
}

#[test]
fn a_lost_lock_is_told_in_time_although_a_process_may_not_be_signalled() {
    let server = server();
    let Some((child, job, mut foreign)) = joined_by_root(&server, "1s", "exec sleep 600") else {
        return;
    };
    server.freeze();
    let output = finish(child);
    server.thaw();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(76), "{said}");
    assert!(said.contains("leasehold: lost: r: ") && said.contains("other users"), "{said}");
    assert!(!lives(job) && lives(foreign.id()), "only the foreign one is left");
    foreign.kill().expect("the process is ours");
    foreign.wait().expect("the process is ours");
}

#[test]
fn a_killed_exec_takes_its_job_with_it_and_the_lock_lasts_its_ttl() {
    let server = server();
    let flags = ["--resource", "r", "--ttl", "2s"];
    let (mut child, dir) = started(&server, &flags, "sleep 600 & wait");
    let job = job(&dir);
    child.kill().expect("the process is ours");
    eventually("the job is gone", || !lives(job));
    assert_eq!(server.client().lock("r")["state"], "held", "nobody gave it back");
    assert_eq!(child.wait().expect("the process is ours").signal(), Some(9));
    assert_eq!(run(exec(&server, &flags, "echo $FENCING_TOKEN")).status.code(), Some(0));
}

#[test]
fn a_stopped_job_does_not_keep_the_lock_unless_it_goes_on_in_time() {
    let server = server();
    let mut client = server.client();
    let script = "trap 'exit 9' USR1; while :; do sleep 0.05; done";
    let (child, dir) = started(&server, &["--resource", "r", "--ttl", "6s"], script);
    signal(job(&dir), Signal::STOP);
    eventually("it is stopped", || state(job(&dir)) == Some('T'));
    // A renewal would have come with four seconds left.
    eventually("nothing is renewed", || left(&mut client) < Duration::from_millis(3_500));
    signal(job(&dir), Signal::CONT);
    eventually("it is renewed", || left(&mut client) > Duration::from_millis(4_500));
    signal(child.id(), Signal::USR1);
    let output = finish(child);
    assert_eq!(output.status.code(), Some(9), "{}", text(&output.stderr));

    let (child, dir) = started(&server, &["--resource", "r", "--ttl", "2s"], "exec sleep 600");
    signal(job(&dir), Signal::STOP);
    let output = finish(child);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(76), "{said}");
    assert!(
        said.starts_with("leasehold: lost: r: ") && said.contains("stopped by a signal"),
        "{said}"
    );
    assert!(!lives(job(&dir)));
}

/// Until the lock expires, as its server sees it.
fn left(client: &mut Client) -> Duration {
    let lock = client.lock("r");
    let left = lock["holders"][0]["expires_in_ms"].as_u64();
    Duration::from_millis(left.unwrap_or_else(|| panic!("it is held: {lock}")))
}

#[test]
fn a_server_that_is_away_for_long_costs_the_job_and_a_short_while_does_not() {
    let server = server();
    let flags = ["--resource", "r", "--ttl", "6s"];
    let (mut child, dir) = started(&server, &flags, "exec sleep 600");
    let mut said = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let mut client = server.client();
    let uncertain = "leasehold: uncertain: r: ";
    server.freeze();
    let line = said.next().expect("a renewal is missed").expect("it is text");
    assert!(line.starts_with(uncertain), "{line}");
    server.thaw();
    // The first may be what the service itself adds after it was away.
    for what in ["it is renewed in the last moment", "it is renewed again"] {
        let mut before = Duration::MAX;
        eventually(what, || {
            let now = left(&mut client);
            now > std::mem::replace(&mut before, now)
        });
    }
    assert!(lives(job(&dir)));

    server.freeze();
    assert_eq!(finish(child).status.code(), Some(76));
    let lines: Vec<String> = said.map(|line| line.expect("it is text")).collect();
    let said = lines.join("\n");
    assert!(lines.iter().any(|line| line.starts_with(uncertain)), "{said}");
    assert!(lines.last().is_some_and(|line| line.starts_with("leasehold: lost: r: ")), "{said}");
    assert!(!lives(job(&dir)));
    server.thaw();
}

#[test]
fn a_job_that_ignores_the_request_to_end_is_killed_in_time() {
    let server = server();
    let script = "trap '' TERM; while :; do sleep 0.05; done";
    let (child, dir) = started(&server, &["--resource", "r", "--ttl", "1s"], script);
    server.freeze();
    assert_eq!(finish(child).status.code(), Some(76));
    assert!(!lives(job(&dir)));
    server.thaw();
}

#[test]
fn a_guardian_that_dies_takes_the_job_with_it() {
    let server = server();
    let (child, dir) = started(&server, &["--resource", "r"], "sleep 600 & wait");
    let guardian = *children(child.id()).first().expect("there is a guardian");
    signal(guardian, Signal::KILL);
    let output = finish(child);
    assert_eq!(output.status.code(), Some(76));
    assert!(text(&output.stderr).contains("guardian"), "{}", text(&output.stderr));
    assert!(!lives(job(&dir)));
}
