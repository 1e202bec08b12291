//! `leasehold exec`: runs a command while holding a lock.
//!
//! Three processes, all of this binary until the last becomes the command:
//!
//! ```text
//! exec       gets and renews the lock, passes signals on, gives the lock back
//!   guardian   ends the job if exec dies or falls silent
//!     starter -> the job, first process of a process group of its own
//! ```
//!
//! | file | does |
//! | --- | --- |
//! | `args` | the command line |
//! | `ask` | gets the lock: one place in line, and leaving it |
//! | `keeper` | renews |
//! | `supervisor` | watches job, lock and signals, and judges how it ended |
//! | `guardian`, `starter` | the other two processes |
//! | `link`, `message` | how they talk |
//! | `group`, `signals`, `terminal` | processes and the terminal |
//!
//! What must stay true:
//!
//! - Nothing of the job's process group runs when the validity of the lock is over, as long as
//!   one of exec and guardian can run: each of them ends it alone.
//! - The job does not begin before its guardian watches, nor when there is no time left.
//! - The lock is given back only when nothing of the group is left, and only if the job ended
//!   by itself.
//! - A signal never goes to a process group whose number may be somebody else's by now.

mod args;
mod ask;
mod group;
mod guardian;
mod keeper;
mod link;
mod message;
mod signals;
mod starter;
mod supervisor;
mod terminal;

pub(crate) use args::{commands, is_part};

use crate::complain;
use crate::exit;
use crate::failure::Failure;
use crate::service::Service;
use args::Wanted;
use ask::{Got, give_back};
use clap::ArgMatches;
use leasehold_client::{BootInstant, Client};
use leasehold_wire::Grant;
use nix::sys::signal::{SigSet, Signal as Number};
use rustix::process::{getpid, set_child_subreaper};
use signals::Signals;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};
use std::time::Duration;
use supervisor::{OTHERS_RUN, Supervisor, Verdict};

const GUARDIAN: &str = "exec-guardian";
const STARTER: &str = "exec-starter";

/// Runs `exec` or one of its parts.
pub(crate) fn main(name: &str, given: &ArgMatches) -> ExitCode {
    match name {
        GUARDIAN => guardian::main(&command_of(given)),
        STARTER => starter::main(&command_of(given)),
        _ => run(given),
    }
}

fn command_of(given: &ArgMatches) -> Vec<OsString> {
    given.get_many::<OsString>("command").unwrap_or_default().cloned().collect()
}

/// This very program, whatever has become of its file since.
fn myself(part: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("leasehold").arg(part);
    command
}

fn run(given: &ArgMatches) -> ExitCode {
    let outcome = Wanted::from(given).and_then(|wanted| {
        prepare()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Failure::Local(error.to_string()))?;
        runtime.block_on(lock_and_run(&wanted, given))
    });
    outcome.unwrap_or_else(|failure| {
        crate::complain_of(&failure, crate::service::wanted(given));
        ExitCode::from(match failure {
            Failure::Local(_) | Failure::Output(_) => exit::FAILED,
            wrong if wrong.exit_code() == exit::USAGE => exit::USAGE,
            // Whatever kept it from the lock: the command did not run.
            _ => exit::NOT_GOT,
        })
    })
}

/// What has to be so before there are threads or children.
fn prepare() -> Result<(), Failure> {
    let mut blocked = SigSet::empty();
    // A process that takes the terminal back stands in its background.
    blocked.add(Number::SIGTTOU);
    blocked.thread_block().map_err(|error| Failure::Local(error.to_string()))?;
    // If the guardian dies, its child must become ours and not that of a stranger who reaps it.
    set_child_subreaper(Some(getpid())).map_err(|error| Failure::Local(error.to_string()))
}

async fn lock_and_run(wanted: &Wanted, given: &ArgMatches) -> Result<ExitCode, Failure> {
    // A renewal must not hang for longer than the next one is away.
    let patience = keeper::patience(wanted.ask.ttl);
    let client = Service::new(given, Some(wanted.client_id.clone()), patience)?.client;
    let mut signals = Signals::catch().map_err(|error| Failure::Local(error.to_string()))?;
    let grant = match wanted.ask.get(&client, &mut signals).await? {
        Got::Lock(grant) => *grant,
        Got::Interrupted => {
            complain(&format!("interrupted while waiting for {}", wanted.ask.resource));
            return Ok(ExitCode::from(exit::NOT_GOT));
        }
    };
    let verdict = match Supervisor::start(wanted, &client, &grant, signals) {
        Ok(supervisor) => supervisor.run().await,
        Err(error) => Verdict::NotStarted(error.to_string()),
    };
    Ok(conclude(wanted, &client, &grant, verdict).await)
}

/// Gives back what may be given back, and says what has to be said.
async fn conclude(
    wanted: &Wanted,
    client: &Client,
    grant: &Grant<'_>,
    verdict: Verdict,
) -> ExitCode {
    let resource = &wanted.ask.resource;
    match verdict {
        Verdict::Ended { code, until } => {
            let left = until.saturating_since(BootInstant::now()).min(Duration::from_secs(5));
            let client = client.with_budget(left);
            if let Err(error) = client.release(&grant.resource, grant.token).await {
                complain(&format!(
                    "{resource} could not be given back and ends by itself: {error}"
                ));
            }
            ExitCode::from(code)
        }
        Verdict::Left { code } => {
            complain(&format!("{resource} is not given back and ends by itself: {OTHERS_RUN}"));
            ExitCode::from(code)
        }
        Verdict::NotStarted(why) => {
            give_back(client, grant).await;
            complain(&format!("the job could not be started: {why}"));
            ExitCode::from(exit::FAILED)
        }
        Verdict::Lost(why) => {
            complain(&format!("lost: {resource}: {why}"));
            ExitCode::from(exit::LOST)
        }
    }
}
