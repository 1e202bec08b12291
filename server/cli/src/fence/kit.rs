//! `install`, `status`, `remove`.

use super::args::Store;
use crate::args::text;
use crate::exit;
use crate::failure::Failure;
use crate::output::{self, Output, shown};
use crate::service::{json, wanted};
use crate::table::Table;
use clap::ArgMatches;
use leasehold_fences::{Finding, Severity, postgres, redis};
use serde::Serialize;
use std::process::ExitCode;

/// Prints what would be installed.
pub(super) fn print(given: &ArgMatches) -> Result<(), Failure> {
    let redis_named = text(given, "redis").is_some();
    let text = match text(given, "kind") {
        Some("redis") => redis::INSTALL,
        _ if redis_named => redis::INSTALL,
        _ => postgres::INSTALL,
    };
    output::line(&text.trim_end())
}

pub(super) async fn install(store: &Store, given: &ArgMatches) -> Result<(), Failure> {
    let roles: Vec<String> =
        given.get_many::<String>("grant-to").unwrap_or_default().cloned().collect();
    match store {
        Store::Postgres(database) => {
            let done = postgres::install(database, &roles).await?;
            let may = match done.granted.as_slice() {
                [] => "; let a role use it with --grant-to".to_owned(),
                roles => format!("; {} may use it", shown(&roles.join(", "))),
            };
            let from = done.taken_over.map(|resources| {
                format!(", and goes on from the highest tokens of {resources} resources")
            });
            let from = from.unwrap_or_default();
            show(given, &done, || format!("{}{from}{may}", installed(done.before, done.version)))
        }
        Store::Redis(_) if !roles.is_empty() => {
            Err(Failure::Usage("--grant-to is for PostgreSQL; Redis has its ACL".to_owned()))
        }
        Store::Redis(server) => {
            let done = redis::install(server).await?;
            show(given, &done, || installed(done.before, done.version))
        }
    }
}

fn installed(before: Option<i64>, now: i64) -> String {
    match before {
        None => format!("version {now} is installed"),
        Some(before) if before == now => format!("version {now} was installed already"),
        Some(before) => format!("version {now} is installed in the place of version {before}"),
    }
}

/// Exits otherwise than with 0 if nobody could rely on the fence.
pub(super) async fn status(store: &Store, given: &ArgMatches) -> Result<ExitCode, Failure> {
    match store {
        Store::Postgres(database) => {
            let status = postgres::status(database).await?;
            show(given, &status, || of_postgres(&status))?;
            Ok(code(status.version, &status.findings))
        }
        Store::Redis(server) => {
            let status = redis::status(server).await?;
            show(given, &status, || {
                let mut lines = vec![head(&status.store, status.version, status.shipped)];
                lines.extend(findings(&status.findings));
                lines.join("\n")
            })?;
            Ok(code(status.version, &status.findings))
        }
    }
}

fn of_postgres(status: &postgres::Status) -> String {
    let mut lines = vec![head(&status.store, status.version, status.shipped)];
    if status.tokens_kept {
        lines.push("the highest tokens are kept for the next installation".to_owned());
    }
    if status.version.is_some() {
        lines.extend(status.owner.as_ref().map(|owner| format!("owner: {}", shown(owner))));
        let tables: Vec<String> = status.protected.iter().map(ToString::to_string).collect();
        lines.push(format!("tables in trigger mode: {}", listed(&tables)));
        lines.push(format!("roles that may use it: {}", listed(&status.granted)));
    }
    lines.extend(findings(&status.findings));
    lines.join("\n")
}

fn code(version: Option<i64>, found: &[Finding]) -> ExitCode {
    let hole = found.iter().any(|finding| finding.severity == Severity::Hole);
    if version.is_none() || hole { ExitCode::from(exit::REFUSED) } else { ExitCode::SUCCESS }
}

fn head(store: &str, version: Option<i64>, shipped: i64) -> String {
    let store = shown(store);
    match version {
        None => format!("{store}: no part of Leasehold is installed"),
        Some(version) if version < shipped => {
            format!("{store}: version {version} is installed, {shipped} is current")
        }
        Some(version) => format!("{store}: version {version} is installed"),
    }
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { shown(&names.join(", ")) }
}

pub(super) async fn remove(store: &Store, given: &ArgMatches) -> Result<(), Failure> {
    let how = postgres::Removal {
        unprotect: given.get_flag("unprotect"),
        forget_tokens: given.get_flag("forget-tokens"),
    };
    match store {
        Store::Postgres(database) => {
            let done = postgres::remove(database, how).await?;
            show(given, &done, || removed(&done))
        }
        Store::Redis(_) if how.forget_tokens || how.unprotect => Err(Failure::Usage(
            "--forget-tokens and --unprotect are for PostgreSQL; in Redis a fence is a key that you can delete"
                .to_owned(),
        )),
        Store::Redis(server) => {
            let done = redis::remove(server).await?;
            show(given, &done, || match done.before {
                Some(version) => format!("version {version} is removed; the keys of fences stay"),
                None => "nothing was installed".to_owned(),
            })
        }
    }
}

fn removed(done: &postgres::Removed) -> String {
    let what = match done.before {
        Some(version) => format!("version {version} is removed"),
        None if !done.tables_removed.is_empty() || !done.tables_left.is_empty() => {
            "the kit was removed before".to_owned()
        }
        None => return "nothing was installed".to_owned(),
    };
    let fate = if done.tokens_forgotten { "forgotten" } else { "kept for the next installation" };
    match done.tokens {
        Some(resources) => {
            format!("{what}; the highest tokens of {resources} resources are {fate}")
        }
        None if done.tokens_kept || done.tokens_forgotten => {
            format!("{what}; the highest tokens are {fate}")
        }
        None => format!(
            "{what}; there were no highest tokens any more to forget: installed again, it lets \
             whoever held a lock before write"
        ),
    }
}

/// A table of findings and what to do about each; nothing if there are none.
pub(super) fn findings(found: &[Finding]) -> Vec<String> {
    if found.is_empty() {
        return Vec::new();
    }
    let mut table = Table::new(&["", "FINDING", "WHAT IS SO"]);
    for one in found {
        table.row([one.severity.name().to_owned(), one.code.to_owned(), one.detail.clone()]);
    }
    let mut lines = vec![String::new(), table.to_string(), String::new()];
    for one in found {
        let line = format!("{}: {}", one.code, shown(&one.advice));
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

fn show<T: Serialize>(
    given: &ArgMatches,
    value: &T,
    human: impl FnOnce() -> String,
) -> Result<(), Failure> {
    match wanted(given) {
        Output::Json => output::line(&json(value)?),
        Output::Human => output::line(&human()),
    }
}
