//! The commands of the binary that are clients of the service.
//!
//! | file | does |
//! | --- | --- |
//! | [`exec`] | runs a command while holding a lock |
//! | [`fence_proxy`] | stands before an HTTP storage |
//! | `acquire`, `renew`, `release`, `force_release` | one grant |
//! | `lock`, `locks`, `why`, `grants`, `watch`, `clients` | what there is, was and happens |
//! | `leases`, `domains`, `cluster` | their own small sets of commands |
//! | `stats`, `attention`, `config`, `audit` | the service about itself |
//! | `backup`, `restore`, `recover`, [`data`] | the data itself: kept elsewhere, brought back |
//! | `fence` | what refuses stale tokens in a store: install, test |
//! | `completions` | for shells |
//! | `args`, `service`, `duration` | what several commands take |
//! | [`descriptors`] | what whoever serves connections needs of the system |
//! | `output`, `table`, `when` | answers, for people and for programs |
//! | `failure`, [`exit`] | what goes wrong, and the exit codes |
//!
//! What must stay true: standard output holds the answer and nothing else, standard error
//! everything else; an error starts with the `code` of the service; a code has one exit code.

mod acquire;
mod args;
mod attention;
mod audit;
mod backup;
mod clients;
mod cluster;
mod completions;
mod config;
pub mod data;
pub mod descriptors;
mod domains;
pub mod duration;
pub mod exec;
pub mod exit;
mod failure;
mod fence;
pub mod fence_proxy;
mod force_release;
mod grants;
mod leases;
mod lock;
mod locks;
mod output;
mod pages;
mod recover;
mod release;
mod renew;
mod restore;
mod service;
mod stats;
mod table;
mod watch;
mod when;
mod why;

use clap::{ArgMatches, Command};
use data::Data;
use failure::Failure;
use output::Output;
use service::Service;
use std::future::Future;
use std::io::Write as _;
use std::pin::Pin;
use std::process::ExitCode;

type Done<'a> = Pin<Box<dyn Future<Output = Result<(), Failure>> + 'a>>;

/// One command: its line, and what it does with what was given.
struct Verb {
    command: fn() -> Command,
    run: for<'a> fn(&'a ArgMatches, &'a Service) -> Done<'a>,
}

macro_rules! verbs {
    ($($module:ident),+ $(,)?) => {
        &[$(Verb {
            command: $module::command,
            run: |given, service| Box::pin($module::run(given, service)),
        }),+]
    };
}

/// In the order of the help.
const VERBS: &[Verb] = verbs![
    acquire,
    renew,
    release,
    lock,
    locks,
    why,
    grants,
    watch,
    leases,
    clients,
    force_release,
    domains,
    cluster,
    stats,
    attention,
    config,
    audit,
];

/// The client commands, in the order of the help.
pub fn commands() -> impl Iterator<Item = Command> {
    let verbs = VERBS.iter().map(|verb| {
        let command = (verb.command)().args(service::flags());
        let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        command.after_help(format!("{after}\n\n{}", exit::HELP))
    });
    let data = [backup::command(), restore::command(), recover::command()];
    let others = [fence::command(), fence_proxy::command(), completions::command()];
    exec::commands().into_iter().chain(verbs).chain(data).chain(others)
}

/// Runs the command `name`, one of [`commands`]. `whole` is the command line of the program, `data`
/// what it can do to files of a node.
#[must_use]
pub fn main(name: &str, given: &ArgMatches, whole: Command, data: &dyn Data) -> ExitCode {
    if exec::is_part(name) {
        return exec::main(name, given);
    }
    if name == fence_proxy::NAME {
        return fence_proxy::main(given);
    }
    if name == fence::NAME {
        return fence::main(given);
    }
    let done = match VERBS.iter().find(|verb| (verb.command)().get_name() == name) {
        Some(verb) => call(given, async |given, service| (verb.run)(given, service).await),
        None => match name {
            backup::NAME => {
                call(given, async |given, service| backup::run(given, service, data).await)
            }
            restore::NAME => restore::run(given, data),
            recover::NAME => recover::run(given, data),
            _ => completions::run(given, &whole),
        },
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            complain_of(&failure, service::wanted(innermost(given)));
            ExitCode::from(failure.exit_code())
        }
    }
}

fn call(
    given: &ArgMatches,
    run: impl AsyncFnOnce(&ArgMatches, &Service) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Local(error.to_string()))?;
    runtime.block_on(async {
        let innermost = innermost(given);
        let client_id = args::text(innermost, "client-id").map(str::to_owned);
        let service = Service::new(innermost, client_id, service::ATTEMPT_MAX)?;
        run(given, &service).await
    })
}

/// Flags of the service may stand behind a command of a command.
fn innermost(given: &ArgMatches) -> &ArgMatches {
    given.subcommand().map_or(given, |(_, inner)| innermost(inner))
}

fn complain_of(failure: &Failure, output: Output) {
    match output {
        Output::Human => complain(&format!("{}: {}", failure.code(), failure.detail())),
        Output::Json => {
            let _ = writeln!(std::io::stderr(), "{}", failure.json());
        }
    }
}

/// A line on standard error. If nobody can read it, nobody can be told.
fn complain(line: &str) {
    let _ = writeln!(std::io::stderr(), "leasehold: {line}");
}
