//! What commands do to files of a node. Only the server's own parts know how to, and the program
//! that has both hands it in.

use crate::args::{filter, ms, text};
use crate::duration::{duration, human};
use crate::failure::Failure;
use clap::{Arg, ArgAction, ArgMatches, value_parser};
use leasehold_fences::{postgres, redis};
use leasehold_wire::Time;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Backups and data directories.
pub trait Data {
    /// Reads a whole backup and checks it.
    ///
    /// # Errors
    /// What is wrong with it.
    fn check(&self, file: &Path) -> Result<Checked, Refused>;

    /// Makes a data directory from a backup.
    ///
    /// # Errors
    /// What stands in the way.
    fn restore(&self, file: &Path, wanted: &Wanted) -> Result<Restored, Refused>;

    /// Makes the data of one node the beginning of another cluster.
    ///
    /// # Errors
    /// What stands in the way.
    fn recover(&self, wanted: &Wanted) -> Result<Restored, Refused>;
}

/// Why something is not done with a file, for people.
#[derive(Debug)]
pub struct Refused(pub String);

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        Self::Local(refused.0)
    }
}

/// What is in a backup.
#[derive(Debug, Serialize)]
pub struct Checked {
    /// The cluster it was taken from, if that was founded.
    pub cluster_id: Option<String>,
    /// The newest change in it.
    pub revision: String,
    /// The newest token in it.
    pub last_token: u64,
    /// When it was taken, by the clock of the node that gave it out.
    pub taken_at: Time,
    /// The node that gave it out.
    pub node: u64,
    /// The version of that node.
    pub version: String,
    /// Its length.
    pub bytes: u64,
}

/// How data is brought back.
#[derive(Debug)]
pub struct Wanted {
    /// The data directory.
    pub dir: PathBuf,
    /// The id of the new node.
    pub node: u64,
    /// Above which token to go on.
    pub floor: Floor,
    /// For how long nothing is granted; `None`: for the longest TTL on record.
    pub hold_ms: Option<u64>,
}

/// Above which token to go on.
#[derive(Debug, Clone, Copy)]
pub enum Floor {
    /// This one.
    At(u64),
    /// Well above what is on record, and above what storage has seen.
    Auto {
        /// The highest token that any storage has seen; 0 if none was asked.
        seen: u64,
    },
}

/// What was made.
#[derive(Debug, Serialize)]
pub struct Restored {
    /// The new cluster.
    pub cluster_id: String,
    /// The node that it consists of.
    pub node: u64,
    /// Its data directory.
    pub data_dir: PathBuf,
    /// Every token from here on is above this one.
    pub token_floor: u64,
    /// The newest token that was on record.
    pub last_token: u64,
    /// The newest change on record before.
    pub revision_before: String,
    /// The newest change now.
    pub revision: String,
    /// For how long nothing is granted once it has started.
    pub hold_ms: u64,
    /// Grants that have ended.
    pub grants_ended: usize,
    /// Leases that have ended.
    pub leases_ended: usize,
    /// Places in line that are gone.
    pub waiters_dropped: usize,
    /// Where the files of before are, if there were any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files_before: Option<PathBuf>,
}

impl Restored {
    /// The same for people.
    pub(crate) fn told(&self) -> String {
        let Self { cluster_id, node, data_dir, token_floor, last_token, .. } = self;
        let Self { grants_ended, leases_ended, waiters_dropped, .. } = self;
        let dir = data_dir.display();
        let mut told = format!(
            "cluster {cluster_id}, of node {node} alone, is in {dir}\n\
             tokens go on above {token_floor}; the newest on record was {last_token}\n\
             {grants_ended} grants and {leases_ended} leases have ended, and {waiters_dropped} \
             waiters lost their places\n"
        );
        let held = match self.hold_ms {
            0 => "locks are granted as soon as it starts".to_owned(),
            ms => format!(
                "nothing is granted in the first {} after it starts; a lock that is not on record \
                 may have been granted for longer, which only --wait covers",
                human(ms)
            ),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(told, "{held}");
        if let Some(kept) = &self.files_before {
            let _ = writeln!(told, "the files of before are in {}", kept.display());
        }
        let _ = write!(told, "start it with: leasehold serve --data-dir {dir} --node-id {node}");
        told
    }
}

pub(crate) const AFTER: &str = "\
What storage remembers decides: a token that storage has seen, or that somebody was given after the
data was last seen, must never come again. So the floor has no default:
  --token-floor auto   2^40 above the newest token on record and more by its age, which no service
                       has given out in between; and above what is found at every --fence-url
  --token-floor N      N, where you know better. Lower than what is on record, or than what is found
                       at a --fence-url, is refused
A --fence-url is a database with the kit for PostgreSQL (postgres://, as the role that owns the kit)
or a Redis with the library (redis://, rediss://; of a cluster each server). A fence proxy and other
storage cannot be asked this way: with those, look for the highest token there yourself.

Every lease ends (`how: restored`), every place in line is gone, the cluster has a new id, watchers
are told of a gap, and nothing is granted until the longest TTL on record is over: whoever held a
lock may believe in it for that long. Locks that were granted after the data was last seen are not
on record: if they had longer TTLs, say --wait. Where no lease is on record --wait or --no-wait has
to be said. `auto` is refused while this machine's clock is behind the data.";

pub(crate) fn arguments() -> [Arg; 7] {
    [
        filter("data-dir", "DIR", "The data directory")
            .required(true)
            .value_parser(value_parser!(PathBuf)),
        filter("token-floor", "N|auto", "Every token from here on is above this one"),
        filter(
            "fence-url",
            "URL",
            "A storage whose highest token the floor must reach; repeatable",
        )
        .action(ArgAction::Append),
        filter("ca-file", "FILE", "Trust the authorities in this file [default: the machine's]")
            .value_parser(value_parser!(PathBuf)),
        filter("wait", "TIME", "Grant nothing for this long [default: the longest TTL on record; to be said where there is none]")
            .value_parser(duration)
            .conflicts_with("no-wait"),
        Arg::new("no-wait")
            .long("no-wait")
            .action(ArgAction::SetTrue)
            .help("Grant at once: every holder from before is known to have stopped"),
        crate::service::output_flag(),
    ]
}

/// What the flags say, once every storage was asked.
pub(crate) fn wanted(given: &ArgMatches, node: u64) -> Result<Wanted, Failure> {
    let hold = given.get_one::<Duration>("wait").copied();
    let hold = if given.get_flag("no-wait") { Some(Duration::ZERO) } else { hold };
    let dir = given.get_one::<PathBuf>("data-dir").cloned().unwrap_or_default();
    Ok(Wanted { dir, node, floor: floor(given)?, hold_ms: hold.map(ms) })
}

fn floor(given: &ArgMatches) -> Result<Floor, Failure> {
    let Some(asked) = text(given, "token-floor") else {
        return Err(Failure::Usage(
            "--token-floor N|auto is missing. Tokens that were given out after the data was last \
             seen are not on record, and must never come again: see --help"
                .to_owned(),
        ));
    };
    let exact = match asked {
        "auto" => None,
        digits => Some(digits.parse::<u64>().map_err(|_| {
            Failure::Usage(format!("--token-floor {digits}: it is a whole number, or auto"))
        })?),
    };
    let seen = seen(given)?;
    match (exact, seen) {
        (None, seen) => Ok(Floor::Auto { seen: seen.map_or(0, |(token, _)| token) }),
        (Some(floor), Some((token, url))) if floor < token => Err(Failure::Usage(format!(
            "--token-floor {floor} is below {token}, which {url} has seen"
        ))),
        (Some(floor), _) => Ok(Floor::At(floor)),
    }
}

/// The highest token that any of the named stores has seen, and which.
fn seen(given: &ArgMatches) -> Result<Option<(u64, String)>, Failure> {
    let urls: Vec<&String> = given.get_many("fence-url").unwrap_or_default().collect();
    if urls.is_empty() {
        return Ok(None);
    }
    let ca_file = given.get_one::<PathBuf>("ca-file").map(PathBuf::as_path);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Local(error.to_string()))?;
    let mut highest = None;
    for (number, url) in (1..).zip(urls) {
        let found = runtime.block_on(highest_at(url, ca_file))?;
        // An address may have a password in it, so it is not repeated.
        let named = format!("the storage of --fence-url number {number}");
        highest = highest.max(found.map(|token| (token, named)));
    }
    Ok(highest)
}

async fn highest_at(url: &str, ca_file: Option<&Path>) -> Result<Option<u64>, Failure> {
    let is = |schemes: [&str; 2]| schemes.iter().any(|scheme| url.starts_with(scheme));
    if is(["postgres://", "postgresql://"]) {
        return Ok(postgres::highest(&postgres::Database::new(url, ca_file)?).await?);
    }
    if is(["redis://", "rediss://"]) {
        let ca_file = ca_file.filter(|_| url.starts_with("rediss://"));
        return Ok(redis::highest(&redis::Server::new(url, ca_file)?).await?);
    }
    let scheme = url.split_once("://").map_or("no scheme", |(scheme, _)| scheme);
    Err(Failure::Usage(format!(
        "--fence-url with {scheme}: storage with postgres:// and redis:// can be asked for its \
         highest token; of any other find it out, and give --token-floor N"
    )))
}
