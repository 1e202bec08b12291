//! Random histories: the table does what the naive one does, stays sound after every entry, and
//! keeps its promises as they can be seen from outside.

use crate::draw::{Drawer, HistorySeed, histories, limits};
use crate::naive::Naive;
use crate::{pages, print, show};
use leasehold_core::command::Command;
use leasehold_core::outcome::{EventKind, Outcome, Refusal};
use leasehold_core::row::Ticket;
use leasehold_core::{Applied, Header, LockTable, TicketId};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{TestCaseError, TestRunner};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

proptest! {
    #![proptest_config(ProptestConfig { cases: 12_000, max_shrink_iters: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_random_history_is_what_the_naive_table_says(seed in histories(120)) {
        check(&seed)?;
    }
}

/// The histories must be worth something: together they meet nearly everything that can come out.
#[test]
fn random_histories_meet_every_outcome_and_event() {
    let mut runner = TestRunner::deterministic();
    let mut met = BTreeSet::new();
    for _ in 0..3_000 {
        let seed = histories(120).new_tree(&mut runner).expect("no filter rejects").current();
        let mut table = LockTable::new(limits(seed.tight));
        let mut drawer = Drawer::new(&seed);
        for entry in &seed.entries {
            let (header, commands) = drawer.entry(entry, &table);
            let applied = table.apply(header, &commands);
            met.extend(applied.outcomes.iter().map(|outcome| kind_of(&show::outcome(outcome))));
            met.extend(applied.events.iter().map(|event| kind_of(&show::event(event))));
        }
    }
    let wanted = [
        "again",
        "would deadlock",
        "full queue",
        "full client tickets",
        "full tickets",
        "full grants",
        "full leases",
        "full lease items",
        "full metadata",
        "ttl out of range",
        "ttl above cap",
        "lease is explicit",
        "lease is single",
        "lease ended",
        "lease unknown",
        "not owner",
        "not live",
        "not holder",
        "refused: draining",
        "request ended released",
        "request ended expired",
        "request ended forced",
        "request ended cancelled",
        "request ended passed",
        "request reused",
        "not waiting",
        "void",
        "done, more",
        "queued",
        "renewed",
        "opened",
        "ending",
        "Deadlock",
        "LeaseEnded",
        "TimedOut",
        "Cancelled",
        "passed on",
        "prio=",
        "changed",
        "trimmed",
    ];
    let missed: Vec<&str> =
        wanted.into_iter().filter(|word| !met.iter().any(|kind| kind.contains(word))).collect();
    assert!(missed.is_empty(), "never met: {missed:?}");
}

/// Text without the numbers in it.
fn kind_of(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_ascii_digit()).collect()
}

/// What is watched from outside while a history goes on.
#[derive(Default)]
struct Watch {
    header: Option<Header>,
    revision: u64,
    token: u64,
    /// How often each ticket was overtaken since its priority last changed, and that priority.
    overtaken: BTreeMap<TicketId, (u8, u32)>,
}

fn check(seed: &HistorySeed) -> Result<(), TestCaseError> {
    let mut table = LockTable::new(limits(seed.tight));
    let mut naive = Naive::new(limits(seed.tight));
    let mut drawer = Drawer::new(seed);
    let mut watch = Watch::default();
    let mut history = format!("limits {}\n", print::all_limits(table.limits()));
    for entry in &seed.entries {
        let (header, commands) = drawer.entry(entry, &table);
        write_entry(&mut history, header, watch.header.replace(header), &commands);
        let before = table.clone();
        let applied = table.apply(header, &commands);
        let expected = naive.apply(header, &commands);
        let wrong = difference(&applied, &expected)
            .or_else(|| table.sound().first().map(|breach| format!("unsound: {breach}")))
            .or_else(|| watch.events(&applied, header, &before))
            .or_else(|| watch.line(&applied, &before, &table, &commands, seed.priorities))
            .or_else(|| pages::difference(&table, &naive))
            .or_else(|| (table.level() != naive.level()).then(|| "another level".to_owned()))
            .or_else(|| repeat_changes(&table, header, &commands, &applied.outcomes))
            .or_else(|| {
                (table.counts().ended != naive.ended_len()).then(|| "remembers too much".to_owned())
            });
        if let Some(wrong) = wrong {
            return Err(TestCaseError::fail(format!("{wrong}\n\nAs a scenario:\n\n{history}")));
        }
    }
    Ok(())
}

fn write_entry(history: &mut String, header: Header, before: Option<Header>, commands: &[Command]) {
    let mut write = || -> std::fmt::Result {
        if before.is_none_or(|before| before.at_ms != header.at_ms) {
            writeln!(history, "at {}", header.at_ms)?;
        }
        if before.is_none_or(|before| before.term != header.term) {
            writeln!(history, "term {}", header.term)?;
        }
        for (index, command) in commands.iter().enumerate() {
            let joined = if index == 0 { "" } else { "+ " };
            writeln!(history, "{joined}{}", print::line(command, header.term))?;
        }
        Ok(())
    };
    write().expect("writing to a string does not fail");
}

fn difference(applied: &Applied, expected: &Applied) -> Option<String> {
    for (index, (got, want)) in applied.outcomes.iter().zip(&expected.outcomes).enumerate() {
        if !same_outcome(got, want) {
            let (got, want) = (show::outcome(got), show::outcome(want));
            return Some(format!(
                "command {index} of the last entry\n  table: {got}\n  naive: {want}"
            ));
        }
    }
    if applied.events == expected.events {
        return None;
    }
    let all = |applied: &Applied| {
        applied.events.iter().map(show::event).collect::<Vec<_>>().join("\n    ")
    };
    Some(format!("events\n  table:\n    {}\n  naive:\n    {}", all(applied), all(expected)))
}

/// There may be several shortest cycles; which one is named does not matter.
fn same_outcome(got: &Outcome, want: &Outcome) -> bool {
    match (got, want) {
        (
            Outcome::Refused(Refusal::WouldDeadlock { cycle: got }),
            Outcome::Refused(Refusal::WouldDeadlock { cycle: want }),
        ) => got.len() == want.len() && got.first() == want.first(),
        _ => got == want,
    }
}

impl Watch {
    /// Revisions count by one, tokens only grow, nothing is dated before what was.
    fn events(&mut self, applied: &Applied, header: Header, before: &LockTable) -> Option<String> {
        for event in &applied.events {
            self.revision += 1;
            if event.revision.0 != self.revision || event.at_ms != header.at_ms.max(before.at_ms())
            {
                return Some(format!("revision or date: {event:?}"));
            }
            if let EventKind::Granted { grant, .. } = &event.kind {
                if grant.token.0 <= self.token {
                    return Some(format!("token {} after {}", grant.token, self.token));
                }
                self.token = grant.token.0;
            }
        }
        None
    }

    /// Who waited longer goes first; who is overtaken too often rises.
    fn line(
        &mut self,
        applied: &Applied,
        before: &LockTable,
        after: &LockTable,
        commands: &[Command],
        priorities: bool,
    ) -> Option<String> {
        let waited: Vec<&Arc<Ticket>> = before
            .tickets()
            .filter(|old| old.attached && after.ticket(old.id).is_some_and(|new| new.attached))
            .collect();
        // A ticket that detached and came back within one entry may have been passed meanwhile.
        let stayed = !commands.iter().any(|command| matches!(command, Command::Detach { .. }));
        for event in &applied.events {
            let EventKind::Granted { grant, .. } = &event.kind else { continue };
            let arrival = grant.ticket.unwrap_or(TicketId(u64::MAX));
            for ticket in waited
                .iter()
                .filter(|ticket| ticket.resource == grant.resource && ticket.id < arrival)
            {
                if !priorities && stayed {
                    return Some(format!("#{} passed {}", grant.token, show::ticket(ticket)));
                }
                self.overtaken.entry(ticket.id).or_insert((ticket.priority, 0)).1 += 1;
            }
        }
        for ticket in after.tickets() {
            let Some(seen) = self.overtaken.get_mut(&ticket.id) else { continue };
            if seen.0 != ticket.priority {
                *seen = (ticket.priority, 0);
            }
            // A lowered bound counts from the next time on.
            let bound = before.limits().overtaken_max.max(after.limits().overtaken_max).max(4);
            if seen.1 > bound {
                return Some(format!("overtaken {} times: {}", seen.1, show::ticket(ticket)));
            }
        }
        None
    }
}

/// Whatever got a lock or a place gets the same again, and nothing else happens.
fn repeat_changes(
    table: &LockTable,
    header: Header,
    commands: &[Command],
    outcomes: &[Outcome],
) -> Option<String> {
    let ([command @ Command::Acquire(asked)], [first]) = (commands, outcomes) else { return None };
    asked.request_id.as_ref()?;
    // Coming back to a line clears it of tickets whose lease is ending, and so may grant.
    if table.ending_leases().next().is_some() {
        return None;
    }
    let mut copy = table.clone();
    let again = copy.apply(header, std::slice::from_ref(command));
    let same = match (first, &again.outcomes[0]) {
        (Outcome::Granted { grant, .. }, Outcome::Granted { grant: second, repeat, .. }) => {
            *repeat && grant.token == second.token
        }
        (Outcome::Queued { ticket, .. }, Outcome::Queued { ticket: second, .. }) => {
            ticket == second
        }
        (Outcome::Granted { .. } | Outcome::Queued { .. }, _) => false,
        _ => true,
    };
    let refused = matches!(first, Outcome::Refused(_));
    let unchanged = again.events.is_empty() && copy.counts() == table.counts();
    (!same || !(unchanged || refused))
        .then(|| format!("a repeat: {}", show::outcome(&again.outcomes[0])))
}
