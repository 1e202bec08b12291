//! `leasehold exec`: a command under a lock, as whoever types it sees it.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use leasehold_harness::process::{children, client_of, lives, signal, state};
use leasehold_harness::{Server, eventually, within};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::server;

const PATIENCE: Duration = Duration::from_secs(30);

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
    let (child, _dir) = started(&server, &["--resource", "r"], script);
    signal(child.id(), Signal::USR1);
    // Two signals at once have no order.
    std::thread::sleep(Duration::from_millis(300));
    signal(child.id(), Signal::HUP);
    let output = finish(child);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(text(&output.stdout), "usr1\nhup\n");

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
    let flags = ["--resource", "r", "--ttl", "2s"];
    let (child, dir) = started(&server, &flags, "sleep 1; sleep 1; sleep 1; exit 9");
    for _ in 0..2 {
        signal(job(&dir), Signal::STOP);
        eventually("it is stopped", || state(job(&dir)) == Some('T'));
        std::thread::sleep(Duration::from_millis(300));
        signal(job(&dir), Signal::CONT);
        std::thread::sleep(Duration::from_millis(800));
    }
    let output = finish(child);
    assert_eq!(output.status.code(), Some(9), "{}", text(&output.stderr));

    let (child, dir) = started(&server, &flags, "exec sleep 600");
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

#[test]
fn a_server_that_is_away_for_long_costs_the_job_and_a_short_while_does_not() {
    let server = server();
    let flags = ["--resource", "r", "--ttl", "3s"];
    let (mut child, dir) = started(&server, &flags, "exec sleep 600");
    server.freeze();
    std::thread::sleep(Duration::from_millis(700));
    server.thaw();
    // Until the validity of the time before the freeze is over for sure.
    std::thread::sleep(Duration::from_millis(3_000));
    assert!(child.try_wait().expect("the process is ours").is_none());
    assert!(lives(job(&dir)));

    server.freeze();
    let output = finish(child);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(76), "{said}");
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines.iter().any(|line| line.starts_with("leasehold: uncertain: r: ")), "{said}");
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
