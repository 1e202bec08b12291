//! The command line of `exec`.

use super::ask::Ask;
use super::{GUARDIAN, STARTER, command_of};
use crate::duration::{Share, share};
use crate::failure::Failure;
use crate::{args, service};
use clap::{Arg, ArgMatches, Command, value_parser};
use leasehold_wire::Mode;
use std::ffi::OsString;
use std::time::Duration;

const AFTER: &str = "\
CMD gets these variables:
  FENCING_RESOURCE  the name of the lock, as it is; percent-encode it for the Fencing-Resource header
  FENCING_TOKEN     the token: send it along with every write, so that storage can refuse stale ones
  FENCING_MODE      exclusive or shared
LEASEHOLD_CREDENTIAL is kept from it: a CMD that calls the service itself needs a --credential-file.

The lock is renewed at a third of the TTL. If a renewal is not confirmed, exec says so once. If none
is before the validity ends, CMD is stopped: SIGTERM at the end less the margin, SIGKILL at the end
less half of it, so that nothing runs any more when somebody else may be let in. A service that is
away for less than TTL x 2/3 - margin is not noticed: by the time that a renewal fails, a third of
the TTL is over. A longer TTL or a smaller margin bears a longer absence.

CMD runs in a process group of its own. All of what this says is about that group:
  - SIGTERM, INT, HUP, QUIT, USR1, USR2, WINCH, TSTP and CONT are passed on to it.
  - When CMD ends, what it left running in the group gets SIGTERM, and SIGKILL five seconds later;
    only then the lock is given back.
  - While CMD is stopped (SIGSTOP, Ctrl-Z) the lock is not renewed: a job that does not work does
    not keep others waiting. If it goes on in time nothing is lost.
  - A second process, the guardian, kills the group if exec itself is killed, and stops it in time if
    exec is frozen. If all of them are frozen at once, the group is stopped as soon as they thaw.
    If exec and guardian are both killed or both frozen and CMD is not, nobody is left to stop it:
    CMD itself dies with a killed guardian, but not what it has started.
  - What leaves the group, as daemons do with setsid, is not stopped, nor is what runs as another
    user (sudo), nor anything in the instant after a thaw. Only fencing protects from all of these:
    storage that compares FENCING_TOKEN.
  - If what runs as another user is still in the group a second after SIGKILL, exec says so and ends.
    The lock is not given back then, nor renewed any more: it ends with its TTL.

If input and output are the terminal, CMD gets it, and Ctrl-C and Ctrl-Z go to CMD. While exec waits
for the lock, Ctrl-Z stops exec, which stays in line: if it is still stopped when its turn comes, the
lock passes on when its TTL is over.

Exit codes: that of CMD (128 and the number of the signal if one ended it); 127 no such command,
126 not executable; 75 the lock was not got, or the wait for it was interrupted; 76 the lock was
lost and CMD stopped; 64 wrong use; 70 the job could not be started.

Example, in a crontab on several machines:
  0 3 * * *  leasehold exec --resource nightly --ttl 30s --wait 0s -- ./nightly.sh";

/// `exec` and its hidden parts.
pub(crate) fn commands() -> [Command; 3] {
    let part = |name| Command::new(name).hide(true).arg(command_arg());
    [exec(), part(GUARDIAN), part(STARTER)]
}

/// Whether it is one of [`commands`].
pub(crate) fn is_part(name: &str) -> bool {
    ["exec", GUARDIAN, STARTER].contains(&name)
}

fn command_arg() -> Arg {
    Arg::new("command")
        .value_name("CMD")
        .required(true)
        .num_args(1..)
        .last(true)
        .value_parser(value_parser!(OsString))
        .help("The command and its arguments, after --")
}

fn exec() -> Command {
    Command::new("exec")
        .about("Run a command while holding a lock")
        .after_help(AFTER)
        .arg(
            Arg::new("resource")
                .long("resource")
                .short('r')
                .value_name("NAME")
                .required(true)
                .help("What to lock: 1 to 512 bytes"),
        )
        .arg(args::ttl().default_value("10s").help(
            "The lock ends this long after the last renewal: how long others wait after a crash",
        ))
        .arg(
            args::wait()
                .default_value("60s")
                .help("How long to stand in line for the lock; 0s tries once. Servers that cannot be reached are tried for 15s more"),
        )
        .arg(args::mode())
        .arg(
            Arg::new("lease-margin")
                .long("lease-margin")
                .value_name("PERCENT")
                .value_parser(share)
                .default_value("20%")
                .help("The share of the TTL that stopping CMD may take"),
        )
        .arg(args::client_id().help("The label of the holder [default: USER@HOST/PID]"))
        .arg(command_arg())
        .args(service::flags())
}

/// What the command line asks for.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) ask: Ask,
    /// How long stopping may take.
    pub(crate) margin: Duration,
    pub(crate) client_id: String,
    pub(crate) command: Vec<OsString>,
}

impl Wanted {
    pub(crate) fn from(given: &ArgMatches) -> Result<Self, Failure> {
        let span = |name| given.get_one::<Duration>(name).copied().unwrap_or_default();
        let ttl = span("ttl");
        if ttl < Duration::from_millis(100) {
            return Err(Failure::Usage(
                "--ttl: nothing can be stopped in less than 100ms".to_owned(),
            ));
        }
        let share = given.get_one::<Share>("lease-margin");
        let own = || format!("{}/{}", service::own_label(), std::process::id());
        Ok(Self {
            margin: share.map_or(ttl / 5, |share| share.of(ttl)),
            ask: Ask {
                resource: given.get_one::<String>("resource").cloned().unwrap_or_default(),
                mode: given.get_one::<Mode>("mode").copied().unwrap_or_default(),
                ttl,
                wait: span("wait"),
                request_id: leasehold_client::new_request_id()?,
            },
            client_id: given.get_one::<String>("client-id").cloned().unwrap_or_else(own),
            command: command_of(given),
        })
    }
}
