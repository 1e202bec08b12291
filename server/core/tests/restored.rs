//! A state that was brought back issues no token twice and holds nothing, whatever it was before.

use crate::draw::{Drawer, histories, limits};
use crate::line;
use leasehold_core::command::EndedHow;
use leasehold_core::outcome::EventKind;
use leasehold_core::restore::RestoreError;
use leasehold_core::{ClusterId, Event, Header, Limits, LockTable, Outcome, Restore, Token};
use proptest::prelude::*;
use std::collections::BTreeSet;

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_goes_on_and_no_token_comes_again(seed in histories(80), above in 0u64..50) {
        let mut table = LockTable::new(limits(seed.tight));
        let mut drawer = Drawer::new(&seed);
        for entry in &seed.entries {
            let (header, commands) = drawer.entry(entry, &table);
            table.apply(header, &commands);
        }
        let before = table.clone();
        let live: BTreeSet<Token> = before.grants().map(|grant| grant.token).collect();
        let ending: BTreeSet<_> = before.ending_leases().collect();
        let restore = Restore {
            cluster: ClusterId(99),
            token_floor: before.last_token().0 + above,
            now_ms: before.at_ms() + 10,
            // Where nothing is open, nobody but the operator can say.
            hold_ms: (before.longest_ttl_ms() == 0).then_some(0),
        };
        let pieces: Vec<Vec<Event>> =
            table.restore(&restore).expect("the floor is high enough").collect();
        let events: Vec<Event> = pieces.into_iter().flatten().collect();

        prop_assert_eq!(table.sound(), []);
        let counts = table.counts();
        prop_assert_eq!((counts.grants, counts.tickets, counts.leases, counts.locks), (0, 0, 0, 0));
        prop_assert_eq!(table.cluster(), Some(ClusterId(99)));
        prop_assert_eq!(table.last_token().0, restore.token_floor);
        prop_assert_eq!(table.hold_ms(), before.longest_ttl_ms());
        prop_assert_eq!(table.limits(), before.limits());

        // Every live grant is told of once, and how it ended.
        let mut ended = BTreeSet::new();
        for event in &events {
            prop_assert!(event.revision.0 > before.revision() + (1 << 40));
            match &event.kind {
                EventKind::Ended(record) => {
                    prop_assert!(ended.insert(record.grant.token));
                    let own = ending.contains(&record.grant.lease);
                    prop_assert!(own || record.how == EndedHow::Restored);
                }
                EventKind::Granted { .. } => prop_assert!(false, "granted while it was restored"),
                _ => {}
            }
        }
        prop_assert_eq!(ended, live);
        prop_assert_eq!(table.revision(), before.revision() + jump(&before, restore.now_ms) + events.len() as u64);

        // It is a state like any other: rows bring it back, and it grants above the floor.
        let rows: Vec<_> = table.freeze().rows().collect();
        let copy = LockTable::import(rows).expect("own rows");
        prop_assert_eq!(copy.freeze().digest(), table.freeze().digest());
        let unhold = line::parse("unhold", 50, table.limits());
        let acquire = line::parse("acquire new by=n lease=ffffffff ttl=1000", 50, table.limits());
        let told = table.apply(Header { term: 50, at_ms: 0 }, &[unhold, acquire]);
        match &told.outcomes[1] {
            Outcome::Granted { grant, .. } => {
                prop_assert!(grant.token.0 > restore.token_floor);
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }
}

fn jump(table: &LockTable, now_ms: u64) -> u64 {
    table.auto_token_floor(now_ms).expect("the clock goes forward") - table.last_token().0
}

/// The second time comes a while after the first, and the first cluster has granted meanwhile.
#[test]
fn the_same_state_brought_back_twice_gives_other_tokens() {
    let now_ms = 1_800_000_000_000;
    let mut fresh = LockTable::new(Limits::default());
    fresh.apply(Header { term: 1, at_ms: now_ms }, &[]);
    let auto = |now_ms| fresh.auto_token_floor(now_ms).expect("the clock goes forward");
    let (first, second) = (auto(now_ms), auto(now_ms + 1_000));
    assert_eq!(first, 1 << 40);
    assert!(second - first >= 1_000_000, "a million tokens fit into that second");
    // However wrong a clock is, what is left lasts.
    assert!(auto(u64::MAX) < Token::LIMIT / 16);
}

#[test]
fn a_floor_that_is_too_low_or_too_high_changes_nothing() {
    let mut table = LockTable::new(Limits::default());
    let take = line::parse("acquire x by=a lease=1 ttl=1000", 1, table.limits());
    table.apply(Header { term: 1, at_ms: 5 }, &[take]);
    let before = table.freeze().digest();
    let ask =
        |token_floor| Restore { cluster: ClusterId(2), token_floor, now_ms: 9, hold_ms: Some(0) };
    let low = table.restore(&ask(0)).map(|_| ()).expect_err("below the counter");
    assert_eq!(low, RestoreError::FloorTooLow { floor: 0, counter: 1 });
    let high = table.restore(&ask(Token::LIMIT)).map(|_| ()).expect_err("no token is that high");
    assert_eq!(high, RestoreError::FloorTooHigh { floor: Token::LIMIT });
    assert_eq!(table.freeze().digest(), before);
}

#[test]
fn what_the_state_does_not_tell_has_to_be_said() {
    let mut table = LockTable::new(Limits::default());
    let found = line::parse("found 1", 1, table.limits());
    table.apply(Header { term: 1, at_ms: 5_000 }, &[found]);
    let behind = table.auto_token_floor(4_000);
    assert_eq!(behind, Err(RestoreError::ClockBehind { by_ms: 1_000 }));
    let mut restore =
        Restore { cluster: ClusterId(2), token_floor: 1_000, now_ms: 6_000, hold_ms: None };
    let unsaid = table.restore(&restore).map(|_| ()).expect_err("nothing is open");
    assert_eq!(unsaid, RestoreError::NothingOpen);
    restore.hold_ms = Some(7);
    table.restore(&restore).expect("it is said").for_each(drop);
    assert_eq!(table.hold_ms(), 7);
}
