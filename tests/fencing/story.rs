//! The paused worker, told from the lock to the store, as the README shows it: the very scripts
//! that it shows, each of them in front of a real store.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use leasehold_harness::nginx::Nginx;
use leasehold_harness::postgres::Postgres;
use leasehold_harness::process::{children, client_of};
use leasehold_harness::redis::Redis;
use leasehold_harness::{Server, eventually, within};

use crate::proxy::process::Proxy;

const LEASEHOLD: &str = env!("CARGO_BIN_EXE_leasehold");
const PATIENCE: Duration = Duration::from_secs(60);

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("plugins/fences/examples").join(name)
}

/// One store, and the script that pays into it.
struct Store<'a> {
    script: &'a str,
    /// Tells the script where the store is.
    environment: &'a [(&'a str, String)],
}

impl Store<'_> {
    /// `leasehold exec` with the script.
    fn pay(&self, server: &Server, flags: &[&str], arguments: &[&str]) -> Child {
        let mut command = client_of(LEASEHOLD, server);
        command.args(["exec", "--resource", "account/42", "--ttl", "2s"]).args(flags);
        command.arg("--").arg(example(self.script)).args(arguments);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("the binary is there")
    }

    /// A reads and thinks; everything of it is frozen; B gets the lock and pays; A's job wakes up
    /// and writes. Answers what B and A said.
    fn tell(&self, server: &Server) -> (String, String) {
        let mut a = self.pay(server, &[], &["100", "1"]);
        eventually("a has read, and thinks", || thinks(a.id()));
        let mut freeze = Command::new(example("freeze.sh"));
        let mut freeze = freeze.arg(a.id().to_string()).stdin(Stdio::piped()).spawn();
        let freeze = freeze.as_mut().expect("the script can be run");

        let b = ended(self.pay(server, &["--wait", "60s"], &["10"]));
        let said = text(&b.stderr);
        assert!(b.status.success(), "{said}");

        // The end of its input lets A go on.
        drop(freeze.stdin.take());
        let a_ended = within(PATIENCE, "a ends", || a.try_wait().expect("the process is ours"));
        freeze.wait().expect("the process is ours");
        assert_eq!(a_ended.code(), Some(76), "the lock was lost");
        let a = a.wait_with_output().expect("the process is ours");
        (text(&b.stdout), text(&a.stderr))
    }
}

/// Whether the job of this `exec` is at its `sleep`.
fn thinks(exec: u32) -> bool {
    let jobs = children(exec).into_iter().flat_map(children);
    let mut steps = jobs.flat_map(children);
    steps.any(|step| {
        fs::read_to_string(format!("/proc/{step}/comm")).is_ok_and(|name| name.trim() == "sleep")
    })
}

fn ended(mut child: Child) -> Output {
    within(PATIENCE, "it ends", || child.try_wait().expect("the process is ours"));
    child.wait_with_output().expect("the process is ours")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn run(command: &mut Command) -> String {
    let output = command.output().expect("the program is installed");
    assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
    text(&output.stdout).trim().to_owned()
}

/// A is told which token is in its way, and B's payment is the only one.
fn check((b, a): (String, String), balance: &str) {
    let token = b.split([' ', ':']).nth(1).expect("B says its token");
    assert_eq!(b, format!("token {token}: 0 + 10 = 10\n"));
    let stale = a.split_once("\"code\":\"stale_token\"").expect("the store refuses A").1;
    assert!(stale.contains(&format!("\"highest_token\":{token}")), "{a}");
    assert_eq!(balance, "10", "100 was not written over it");
}

#[test]
fn postgres_refuses_the_worker_that_was_paused() {
    let server = Server::builder(LEASEHOLD).start();
    let postgres = Postgres::start();
    let environment = [
        ("PGHOST", "127.0.0.1".to_owned()),
        ("PGPORT", postgres.port().to_string()),
        ("PGUSER", "postgres".to_owned()),
    ];
    let sql = |sql: &str| {
        let mut psql = Command::new("psql");
        psql.envs(environment.iter().map(|(name, value)| (name, value)));
        run(psql.args(["-XqAt", "-v", "ON_ERROR_STOP=1", "-c", sql]))
    };
    run(Command::new(LEASEHOLD).args(["fence", "install", "--postgres", &postgres.url()]));
    sql("CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL)");
    sql("INSERT INTO account VALUES (42, 0)");
    let story = Store { script: "pay-postgres.sh", environment: &environment }.tell(&server);
    check(story, &sql("SELECT balance FROM account WHERE id = 42"));
}

#[test]
fn redis_refuses_the_worker_that_was_paused() {
    let server = Server::builder(LEASEHOLD).start();
    let redis = Redis::start();
    let port = redis.addr().port().to_string();
    run(Command::new(LEASEHOLD).args(["fence", "install", "--redis", &redis.url()]));
    let environment = [("REDIS", format!("-p {port}"))];
    let story = Store { script: "pay-redis.sh", environment: &environment }.tell(&server);
    let balance = ["-p", &port, "GET", "balance:{account/42}"];
    check(story, &run(Command::new("redis-cli").args(balance)));
}

#[test]
fn a_proxy_refuses_the_worker_that_was_paused() {
    let server = Server::builder(LEASEHOLD).start();
    let nginx = Nginx::start();
    fs::create_dir_all(nginx.file("account")).expect("a directory can be made");
    fs::write(nginx.file("account/42"), "0").expect("a file can be written");
    let proxy = Proxy::builder(&server, &nginx.url()).start();
    let environment = [("STORE", format!("http://{}", proxy.addr()))];
    let story = Store { script: "pay-http.sh", environment: &environment }.tell(&server);
    check(story, &String::from_utf8_lossy(&nginx.stored("account/42").expect("it is there")));
}
