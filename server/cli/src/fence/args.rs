//! The command lines, and which store is meant.

use crate::args::{filter, text};
use crate::duration::duration;
use crate::failure::Failure;
use crate::{exit, service};
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command, value_parser};
use leasehold_fences::{Race, postgres, redis};
use std::path::PathBuf;

const POSTGRES: &str = "LEASEHOLD_POSTGRES";
const REDIS: &str = "LEASEHOLD_REDIS";

const AFTER: &str = "\
An address with a password is better given in the environment, where the list of processes does not
show it.

Example:
  leasehold fence install --postgres postgres://owner@db/shop --grant-to app
  psql postgres://owner@db/shop -c 'GRANT CREATE ON DATABASE shop TO app'
  leasehold fence test --postgres postgres://app@db/shop
  psql postgres://owner@db/shop -c 'REVOKE CREATE ON DATABASE shop FROM app'
The test makes a schema of its own, hence the GRANT; tests of statements of your own need none.";

const AFTER_TEST: &str = "\
Races stale and current holders through the store, and reports what got through. Without statements
it makes tables of its own, tests each part of what `fence install` installed, and removes them. In
PostgreSQL its role needs USAGE on the schema leasehold, and CREATE on the database for that.

The races, in each of which what the current holder writes must stay:
  equal-token       the holder writes three times
  once              one token writes three times at once, where it may once
  paused-holder     a holder that was paused writes after a newer one sealed
  two-seals         two holders seal at once, the older once more, and the older writes
  token-widths      tokens at which text, an integer or a real compares the wrong way
  paused-in-write   a holder is paused between two statements of its write
  on-the-wire       a stale write was sent already when the newer holder seals
  updates           three holders at once seal, read and write one more
  read-before-seal  the same in the wrong order: a control, which has to lose something
The parts: guard, passes, trigger, strict and conditional as the guide of the PostgreSQL kit has
them, one-transaction for seal, read, guard and write in a single one; set, hset, call and once in
Redis; and none, which has no fence and is a control as well. What gets through a control is no hole:
it shows that the races are sharp enough to find one, and without any nothing is shown. A control
runs as many rounds as the others; past 10,000 it ends as soon as it has lost a hundred writes.
token-widths takes a resource of its own through 9 and 10, 99 and 100 and so on to sixteen digits,
and past 2^15, 2^16, 2^24, 2^31 and 2^32. It runs for statements of yours and in Redis, and never
with --resource, as no token is left above afterwards.
REFUSED counts the writes that were refused, which stale ones have to be; RETRIED the transactions
that the database wanted once more; GOT THROUGH stale writes that were accepted, and accepted ones
that are gone; HOLDER REFUSED the writes of a current holder that were refused, which is a fault.

With --read and --write it tests your own statements, with the parameters :resource, :token and
:value. Give --seal, --write, --setup and --cleanup once for each statement. In PostgreSQL those of
one flag share a transaction, unless --autocommit says otherwise: so a table in trigger mode is
tested with `SET LOCAL leasehold.resource = :resource` and `SET LOCAL leasehold.token = :token`
before the statement of --setup, --write and --cleanup. --cleanup runs before a test as well. The value is a whole number that counts the accepted writes; --setup makes it, as 0.
A write is refused when a statement of it raises an LH... SQLSTATE or one of --refusal, or changes
or finds no row; in Redis, when it answers nothing.

Example:
  leasehold fence test --postgres postgres://app@db/shop \\
    --setup   'INSERT INTO invoice (name, total, last_token) VALUES (:resource, 0, 0)' \\
    --seal    'UPDATE invoice SET last_token = :token WHERE name = :resource AND last_token <= :token' \\
    --read    'SELECT total FROM invoice WHERE name = :resource' \\
    --write   'UPDATE invoice SET total = :value, last_token = :token
               WHERE name = :resource AND last_token <= :token' \\
    --cleanup 'DELETE FROM invoice WHERE name = :resource'

Exit codes: 0 nothing got through, 1 something did, or it could not be shown, 64 wrong use,
69 the store could not be reached or went away.";

const AFTER_STATUS: &str = "\
Exit codes: 0 it is installed and no hole was found, 1 it is not installed, or there is a hole,
64 wrong use, 69 the store could not be reached. A warning is no hole.";

/// The store that is meant.
#[derive(Debug)]
pub(super) enum Store {
    Postgres(postgres::Database),
    Redis(redis::Server),
}

impl Store {
    /// From flags, or else from the environment.
    pub(super) fn from(given: &ArgMatches) -> Result<Self, Failure> {
        let ca_file = given.get_one::<PathBuf>("ca-file").map(PathBuf::as_path);
        let named = (text(given, "postgres"), text(given, "redis"));
        let known = match named {
            (None, None) => (service::variable(POSTGRES)?, service::variable(REDIS)?),
            (postgres, redis) => (postgres.map(str::to_owned), redis.map(str::to_owned)),
        };
        match known {
            (Some(address), None) => {
                Ok(Self::Postgres(postgres::Database::new(&address, ca_file)?))
            }
            (None, Some(address)) => Ok(Self::Redis(redis::Server::new(&address, ca_file)?)),
            (None, None) => Err(Failure::Usage(format!(
                "which store? Give --postgres or --redis, or set {POSTGRES} or {REDIS}"
            ))),
            (Some(_), Some(_)) => Err(Failure::Usage(format!(
                "which store? Both {POSTGRES} and {REDIS} are set: give --postgres or --redis"
            ))),
        }
    }
}

/// The command.
pub(crate) const NAME: &str = "fence";

pub(crate) fn command() -> Command {
    let sub = |name, about| Command::new(name).about(about).args(address());
    Command::new(NAME)
        .about("Install, look at, remove and test what refuses stale tokens in a store")
        .after_help(format!("{AFTER}\n\n{}", exit::HELP))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .arg(service::output_flag())
        .subcommand(
            sub("install", "Install the kit, or bring an older one up to date")
                .arg(
                    filter("grant-to", "ROLE", "PostgreSQL: let this role use it; may be repeated")
                        .action(ArgAction::Append),
                )
                .arg(flag("print", "Print what would be run, and run nothing; with --kind"))
                .arg(
                    filter("kind", "postgres|redis", "What to print")
                        .value_parser(["postgres", "redis"])
                        .hide_possible_values(true)
                        .requires("print")
                        .default_value("postgres"),
                ),
        )
        .subcommand(
            sub("status", "Show what is installed, and what weakens it").after_help(AFTER_STATUS),
        )
        .subcommand(
            sub("remove", "Remove the kit")
                .arg(flag("unprotect", "PostgreSQL: take tables out of trigger mode first"))
                .arg(flag(
                    "forget-tokens",
                    "PostgreSQL: remove the highest tokens as well; whoever still holds an older \
                     lock can write then",
                )),
        )
        .subcommand(test(sub(
            "test",
            "Race stale and current holders, and report what got through",
        )))
}

fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

fn address() -> [Arg; 3] {
    [
        filter("postgres", "URL", "A PostgreSQL [env: LEASEHOLD_POSTGRES]")
            .help_heading("Store")
            .conflicts_with("redis"),
        filter("redis", "URL", "A Redis [env: LEASEHOLD_REDIS]").help_heading("Store"),
        filter("ca-file", "FILE", "Trust the authorities in this file [default: the machine's]")
            .help_heading("Store")
            .value_parser(value_parser!(PathBuf)),
    ]
}

fn test(command: Command) -> Command {
    let number = |name, value, default: &'static str, most, help| {
        filter(name, value, help)
            .default_value(default)
            .value_parser(value_parser!(u64).range(1..=most))
    };
    let races: Vec<&str> = Race::ALL.iter().map(|race| race.name()).collect();
    command
        .after_help(AFTER_TEST)
        .arg(number("rounds", "N", "1000", 10_000_000, "Rounds of each race"))
        .arg(number("lanes", "N", "4", 64, "Resources raced side by side, four connections each"))
        .arg(
            filter("time-limit", "TIME", "Stop when it takes longer")
                .default_value("10m")
                .value_parser(duration),
        )
        .arg(
            many(
                "race",
                "RACE",
                "Only this race, and the one that has to lose something; may be repeated",
            )
            .value_parser(PossibleValuesParser::new(races)),
        )
        .arg(
            many("only", "PART", "Only this part of what is installed; may be repeated")
                .value_parser([
                    "guard",
                    "passes",
                    "trigger",
                    "conditional",
                    "strict",
                    "one-transaction",
                    "none",
                    "set",
                    "hset",
                    "call",
                    "once",
                ]),
        )
        .arg(
            many(
                "isolation",
                "LEVEL",
                "PostgreSQL: read-committed, repeatable-read, serializable or all",
            )
            .value_parser(["read-committed", "repeatable-read", "serializable", "all"])
            .hide_possible_values(true)
            .default_value("read-committed"),
        )
        .args(statements())
        .group(
            ArgGroup::new("own")
                .args(["seal", "setup", "cleanup", "autocommit", "once", "refusal"])
                .multiple(true)
                .requires_all(["read", "write"])
                .conflicts_with("only"),
        )
}

fn many(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    filter(name, value, help).action(ArgAction::Append)
}

fn statements() -> [Arg; 11] {
    let own = |arg: Arg| arg.help_heading("Your own statements");
    [
        own(many("seal", "SQL", "Records a token; without it there is no seal")),
        own(many("read", "SQL", "Answers the value").requires("write")),
        own(many("write", "SQL", "Writes the value, if the token is not stale").requires("read")),
        own(many("setup", "SQL", "Makes the value of a resource, 0")),
        own(many("cleanup", "SQL", "Removes it again")),
        own(flag("autocommit", "PostgreSQL: each statement is a transaction of its own")),
        own(flag("once", "Each token is meant to write once")),
        own(many(
            "refusal",
            "WORD",
            "Also means a refusal: a SQLSTATE, the code of an error, an answer",
        )),
        own(many(
            "resource",
            "NAME",
            "A resource to use, instead of names of the test's own. It is tested for real: its \
             value is overwritten, and its tokens rise, so that whoever holds its lock is refused \
             from then on",
        )),
        own(flag("overwrite", "Use --resource although somebody does").requires("resource")),
        own(filter("token-from", "N", "The lowest token to use")
            .default_value("1")
            .value_parser(value_parser!(u64).range(1..=9_007_199_254_740_991))),
    ]
}
