//! `fence test`: the races, their report, and stopping them.

use super::args::Store;
use super::kit::findings;
use crate::args::text;
use crate::failure::Failure;
use crate::output::{self, Output, shown};
use crate::service::{json, wanted};
use crate::table::Table;
use crate::{complain, exit};
use clap::ArgMatches;
use clap::parser::ValueSource;
use leasehold_fences::postgres::Isolation;
use leasehold_fences::{Own, Race, Report, Row, Stop, Verdict, Wanted, Weight, postgres, redis};
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

pub(super) async fn run(store: &Store, given: &ArgMatches) -> Result<ExitCode, Failure> {
    let stop = Stop::default();
    stop_on_signals(&stop)?;
    stop_in_time(&stop, given);
    let tell = |row: &Row| complain(&progress(row));
    let wish = wish(store, given)?;
    let report = match store {
        Store::Postgres(database) => postgres::test(database, &wish, &stop, &tell).await?,
        Store::Redis(server) => redis::test(server, &wish, &stop, &tell).await?,
    };
    match wanted(given) {
        Output::Json => output::line(&json(&report)?)?,
        Output::Human => output::line(&human(&report))?,
    }
    Ok(ExitCode::from(code(&report)))
}

fn code(report: &Report) -> u8 {
    match (report.verdict, report.stopped.as_ref().map(|stopped| stopped.code)) {
        (Verdict::Fenced, _) => 0,
        (Verdict::Unfinished, Some("store_unavailable")) => exit::UNAVAILABLE,
        (Verdict::Unfinished, Some("usage")) => exit::USAGE,
        _ => exit::REFUSED,
    }
}

/// The first signal lets the test tidy up, the second one does not.
fn stop_on_signals(stop: &Stop) -> Result<(), Failure> {
    let local = |error: std::io::Error| Failure::Local(error.to_string());
    for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
        let mut signals = signal(kind).map_err(local)?;
        let stop = stop.clone();
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                if stop.asked() {
                    complain("stopped before it was tidied up: the next test removes its tables");
                    std::process::exit(i32::from(exit::REFUSED));
                }
                complain("stopping; once more to stop without tidying up");
                stop.ask("interrupted", "a signal asked for it");
            }
        });
    }
    Ok(())
}

fn stop_in_time(stop: &Stop, given: &ArgMatches) {
    let limit = given.get_one::<Duration>("time-limit").copied().unwrap_or_default();
    let stop = stop.clone();
    tokio::spawn(async move {
        tokio::time::sleep(limit).await;
        stop.ask("time_limit", "it took longer than --time-limit");
    });
}

/// # Errors
/// What only PostgreSQL has cannot be asked of a Redis.
fn wish(store: &Store, given: &ArgMatches) -> Result<Wanted, Failure> {
    let isolated = given.value_source("isolation") == Some(ValueSource::CommandLine);
    let of_postgres = given.get_flag("autocommit") || isolated;
    if of_postgres && matches!(store, Store::Redis(_)) {
        return Err(Failure::Usage("--autocommit and --isolation are for PostgreSQL".to_owned()));
    }
    let own = text(given, "write").is_some().then(|| Own {
        setup: all(given, "setup"),
        cleanup: all(given, "cleanup"),
        seal: all(given, "seal"),
        read: all(given, "read"),
        write: all(given, "write"),
        autocommit: given.get_flag("autocommit"),
        once: given.get_flag("once"),
        refusals: all(given, "refusal"),
    });
    Ok(Wanted {
        rounds: number(given, "rounds"),
        lanes: usize::try_from(number(given, "lanes")).unwrap_or(1),
        races: races(given),
        parts: all(given, "only"),
        isolations: isolations(&all(given, "isolation")),
        own,
        resources: all(given, "resource"),
        overwrite: given.get_flag("overwrite"),
        token_from: number(given, "token-from"),
    })
}

fn all(given: &ArgMatches, name: &str) -> Vec<String> {
    given.get_many::<String>(name).unwrap_or_default().cloned().collect()
}

fn number(given: &ArgMatches, name: &str) -> u64 {
    given.get_one::<u64>(name).copied().unwrap_or(1)
}

fn races(given: &ArgMatches) -> Vec<Race> {
    let named = all(given, "race");
    Race::ALL.into_iter().filter(|race| named.iter().any(|name| name == race.name())).collect()
}

fn isolations(named: &[String]) -> Vec<Isolation> {
    let is_named = |level: &Isolation| {
        let name = level.name().replace(' ', "-");
        named.iter().any(|one| *one == name || one == "all")
    };
    Isolation::ALL.into_iter().filter(is_named).collect()
}

fn progress(row: &Row) -> String {
    let level = row.isolation.map(|level| format!(", {level}")).unwrap_or_default();
    format!(
        "{}{level}, {}: {} rounds, {} got through",
        row.schema, row.race, row.rounds, row.got_through
    )
}

fn human(report: &Report) -> String {
    let kit = match report.kit {
        Some(version) => format!("version {version} of Leasehold's part"),
        None => "nothing of Leasehold".to_owned(),
    };
    let mut lines = vec![format!("{}, {kit} installed", shown(&report.store)), String::new()];
    lines.push(table(&report.races).to_string());
    lines.extend(findings(&report.findings));
    lines.push(String::new());
    if let Some(stopped) = &report.stopped {
        lines.push(format!("stopped early: {}: {}", stopped.code, shown(&stopped.detail)));
    }
    lines.extend(report.left.iter().map(|left| format!("left behind: {}", shown(left))));
    lines.push(format!("verdict: {}", verdict(report)));
    lines.join("\n")
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(&[
        "STATEMENTS",
        "ISOLATION",
        "RACE",
        "ROUNDS",
        "WRITES",
        "REFUSED",
        "RETRIED",
        "GOT THROUGH",
        "HOLDER REFUSED",
        "OUTCOME",
    ]);
    for row in rows {
        table.row([
            row.schema.clone(),
            row.isolation.unwrap_or_default().to_owned(),
            row.race.to_owned(),
            row.rounds.to_string(),
            row.writes.to_string(),
            row.refused.to_string(),
            row.retries.to_string(),
            row.got_through.to_string(),
            row.denied.to_string(),
            remark(row).to_owned(),
        ]);
    }
    table
}

/// How the figures of a row are to be read.
fn remark(row: &Row) -> &'static str {
    let bad = match row.weight {
        Weight::Judged => row.got_through > 0 || row.denied > 0,
        // That somebody is refused is no loss.
        Weight::Control => row.got_through > 0,
    };
    match (row.weight, bad) {
        (Weight::Judged, false) => "held",
        (Weight::Judged, true) => "NOT HELD",
        (Weight::Control, true) => "loses, as it has to",
        (Weight::Control, false) => "too tame to lose",
    }
}

fn verdict(report: &Report) -> &'static str {
    match report.verdict {
        Verdict::Fenced => "fenced: nothing got through",
        Verdict::NotFenced => "not fenced: see the findings",
        Verdict::Unproven => unproven(&report.races),
        Verdict::Unfinished => "not shown: it did not come to its end",
    }
}

/// Why races in which nothing got through show nothing.
fn unproven(rows: &[Row]) -> &'static str {
    let has = |weight| rows.iter().any(|row| row.weight == weight);
    match (has(Weight::Judged), has(Weight::Control)) {
        (false, _) => "not shown: only races ran in which something has to get through",
        (_, false) => {
            "not shown: everything held, and no race ran in which something has to get through; \
             give --seal, or leave out --only and --race"
        }
        _ => "not shown: nothing was lost even where something has to be",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_that_only_refuses_somebody_has_lost_nothing() {
        let row = |weight, got_through, denied| Row {
            schema: "own".to_owned(),
            isolation: None,
            race: "updates",
            weight,
            rounds: 9,
            writes: 9,
            refused: 0,
            retries: 0,
            got_through,
            denied,
        };
        assert_eq!(remark(&row(Weight::Control, 0, 3)), "too tame to lose");
        assert_eq!(remark(&row(Weight::Control, 1, 0)), "loses, as it has to");
        assert_eq!(remark(&row(Weight::Judged, 0, 3)), "NOT HELD");
        assert_eq!(remark(&row(Weight::Judged, 0, 0)), "held");
    }
}
