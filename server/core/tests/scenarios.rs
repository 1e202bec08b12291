//! Golden scenarios: text in, exact outcomes and events out, one file a rule.
//!
//! Lines of a file, beside the commands of `line`:
//!
//! ```text
//! # a comment
//! at N            the wall clock of the entries that follow
//! term N          their term
//! + COMMAND       joins the entry of the command before it
//! times A..B CMD  one entry for each number, put in for {} (decimal) or {x} (hexadecimal);
//!                 only counts come out
//! show R          the line for a resource
//! level           the version of commands that is in force
//! lost ID         what a lease lost without its client's doing
//! counter token=N pretends that N tokens were given out
//! restore ID floor=N [hold=N]  brings the state back as the beginning of another cluster
//! ```
//!
//! What came out is indented: `= outcome`, then `* revision: event`. After every entry the table
//! must be sound, and equal to itself after a snapshot.

use crate::{line, show};
use leasehold_core::limits::Limits;
use leasehold_core::row::Row;
use leasehold_core::{Applied, Command, Header, LockTable, ResourceName};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

#[test]
fn scenarios_come_out_as_written() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let files = std::fs::read_dir(&folder).expect("the scenarios are part of the crate");
    let mut files: Vec<PathBuf> = files.map(|file| file.expect("readable folder").path()).collect();
    files.sort();
    assert!(files.len() > 10, "the scenarios were not found");
    let rewrite = std::env::var_os("LEASEHOLD_REWRITE").is_some();
    let mut wrong = String::new();
    for file in files {
        let written = std::fs::read_to_string(&file).expect("readable scenario");
        let came_out = run(&written);
        if rewrite {
            std::fs::write(&file, came_out).expect("writable scenario");
        } else if let Some(difference) = first_difference(&written, &came_out) {
            writeln!(wrong, "{}: {difference}", file.display())
                .expect("writing to a string does not fail");
        }
    }
    assert!(
        wrong.is_empty(),
        "{wrong}\nIf that is what you want: LEASEHOLD_REWRITE=1 cargo test -p leasehold-core scenarios, \
         then read the diff."
    );
}

fn first_difference(written: &str, came_out: &str) -> Option<String> {
    let mut expected = written.lines();
    let mut got = came_out.lines();
    for number in 1.. {
        match (expected.next(), got.next()) {
            (None, None) => return None,
            (expected, got) if expected == got => {}
            (expected, got) => {
                let (expected, got) = (expected.unwrap_or("(end)"), got.unwrap_or("(end)"));
                return Some(format!("line {number}\n  written:  {expected}\n  came out: {got}"));
            }
        }
    }
    None
}

struct Run {
    table: LockTable,
    header: Header,
    entry: Vec<Command>,
    out: String,
}

fn run(text: &str) -> String {
    let mut run = Run {
        table: LockTable::new(Limits::default()),
        header: Header { term: 1, at_ms: 1_000 },
        entry: Vec::new(),
        out: String::new(),
    };
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("  ")).collect();
    for (index, text) in lines.iter().enumerate() {
        writeln!(run.out, "{text}").expect("writing to a string does not fail");
        let joined = lines.get(index + 1).is_some_and(|next| next.starts_with("+ "));
        run.line(text.trim(), joined);
    }
    run.out
}

impl Run {
    fn line(&mut self, text: &str, joined: bool) {
        let text = text.strip_prefix("+ ").unwrap_or(text);
        match text.split_once(' ') {
            _ if text.is_empty() || text.starts_with('#') => {}
            None if text == "level" => self.say(&self.table.level().to_string()),
            Some(("at", at_ms)) => self.header.at_ms = line::number(at_ms),
            Some(("term", term)) => self.header.term = line::number(term),
            Some(("times", rest)) => self.times(rest),
            Some(("show", name)) => self.show(name),
            Some(("lost", id)) => self.lost(id),
            Some(("counter", rest)) => self.pretend(rest),
            Some(("restore", rest)) => self.restore(rest),
            _ => {
                self.entry.push(line::parse(text, self.header.term, self.table.limits()));
                if !joined {
                    let entry = std::mem::take(&mut self.entry);
                    let applied = self.apply(&entry);
                    for outcome in &applied.outcomes {
                        self.say(&format!("= {}", show::outcome(outcome)));
                    }
                    for event in &applied.events {
                        self.say(&format!("* {}", show::event(event)));
                    }
                }
            }
        }
    }

    fn say(&mut self, text: &str) {
        writeln!(self.out, "  {text}").expect("writing to a string does not fail");
    }

    fn apply(&mut self, entry: &[Command]) -> Applied {
        let applied = self.table.apply(self.header, entry);
        let breaches = self.table.sound();
        assert!(breaches.is_empty(), "{breaches:?} after\n{}", self.out);
        let frozen = self.table.freeze();
        let again = LockTable::import(frozen.rows())
            .unwrap_or_else(|why| panic!("{why} after\n{}", self.out));
        assert_eq!(again.freeze().digest(), frozen.digest());
        assert_eq!(again.counts(), self.table.counts());
        applied
    }

    fn times(&mut self, rest: &str) {
        let (range, template) = rest.split_once(' ').expect("times A..B COMMAND");
        let (from, to) = range.split_once("..").expect("times A..B COMMAND");
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for number in line::number::<u64>(from)..=line::number(to) {
            let text =
                template.replace("{}", &number.to_string()).replace("{x}", &format!("{number:x}"));
            let command = line::parse(&text, self.header.term, self.table.limits());
            let applied = self.table.apply(self.header, &[command]);
            let outcomes = applied
                .outcomes
                .iter()
                .map(|outcome| format!("= {}", first_word(&show::outcome(outcome))));
            let events = applied.events.iter().map(|event| {
                let text = show::event(event);
                format!("* {}", first_word(text.split_once(": ").map_or("", |(_, kind)| kind)))
            });
            for line in outcomes.chain(events) {
                *counts.entry(line).or_default() += 1;
            }
        }
        self.apply(&[]);
        for (line, count) in counts.iter().rev() {
            self.say(&format!("{line} x{count}"));
        }
    }

    fn show(&mut self, name: &str) {
        let resource = ResourceName::parse(name).expect("legal name");
        let Some(view) = self.table.lock_view(&resource, usize::MAX) else {
            return self.say("free");
        };
        let holders: Vec<String> = view
            .holders
            .iter()
            .map(|grant| format!("{}#{}", grant.owner.client, grant.token))
            .collect();
        self.say(&format!("held by [{}]", holders.join(" ")));
        for ticket in &view.queue {
            self.say(&show::ticket(ticket));
        }
    }

    fn lost(&mut self, id: &str) {
        let id = leasehold_core::LeaseId(u128::from_str_radix(id, 16).expect("hexadecimal id"));
        let lost: Vec<String> = self
            .table
            .lost_on(id)
            .iter()
            .map(|lost| format!("{}#{} {:?}", lost.resource, lost.token, lost.how))
            .collect();
        self.say(&format!("[{}]", lost.join(", ")));
    }

    fn restore(&mut self, rest: &str) {
        let restore = line::restore(rest, self.header.at_ms);
        let restoring = match self.table.restore(&restore) {
            Ok(restoring) => restoring,
            Err(why) => return self.say(&format!("= refused: {why}")),
        };
        let events: Vec<_> = restoring.flatten().collect();
        for event in &events {
            self.say(&format!("* {}", show::event(event)));
        }
        self.apply(&[]);
    }

    fn pretend(&mut self, rest: &str) {
        let token = line::number(rest.strip_prefix("token=").expect("counter token=N"));
        let rows: Vec<Row> = self.table.freeze().rows().collect();
        let rows = rows.into_iter().map(|row| match row {
            Row::Head(head) => Row::Head(leasehold_core::row::Head { last_token: token, ..head }),
            other => other,
        });
        self.table = LockTable::import(rows).expect("only the counter has changed");
    }
}

/// What is worth counting: the kind, and why something was refused, without the numbers.
fn first_word(text: &str) -> &str {
    let words = if text.starts_with("refused: ") { 2 } else { 1 };
    let end = text.match_indices(' ').nth(words - 1).map_or(text.len(), |(at, _)| at);
    &text[..end]
}
