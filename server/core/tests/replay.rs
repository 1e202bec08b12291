//! The same log gives the same state: twice, and through a snapshot at any index. What was frozen
//! stays as it was, and rows that contradict each other are refused.

use crate::draw::{Drawer, HistorySeed, histories, limits};
use crate::{line, pages};
use leasehold_core::limits::Limits;
use leasehold_core::outcome::Grant;
use leasehold_core::row::{EndedRow, EndedWhat, Head, LeaseRow, LiveRequest, Row, Ticket};
use leasehold_core::{Applied, Command, Header, ImportError, LeaseId, LockTable, RequestId, Token};
use proptest::prelude::*;
use std::sync::Arc;

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_same_log_gives_the_same_state_through_a_snapshot_at_every_index(seed in histories(50)) {
        let (log, first) = record(&seed);
        let mut table = LockTable::new(limits(seed.tight));
        // One table a snapshot: each goes on from its own index and must meet the first at the end.
        let mut restored: Vec<LockTable> = Vec::new();
        for ((header, commands), expected) in log.iter().zip(&first) {
            prop_assert_eq!(&table.apply(*header, commands), expected);
            for copy in &mut restored {
                prop_assert_eq!(&copy.apply(*header, commands), expected);
            }
            let frozen = table.freeze();
            let copy = LockTable::import(frozen.rows()).expect("own rows");
            prop_assert!(copy.freeze().rows().eq(frozen.rows()));
            prop_assert_eq!(copy.counts(), table.counts());
            restored.push(copy);
        }
        let end = table.freeze();
        for copy in &restored {
            prop_assert!(copy.sound().is_empty());
            prop_assert_eq!(copy.freeze().digest(), end.digest());
            prop_assert!(copy.freeze().rows().eq(end.rows()));
            prop_assert_eq!(pages::all(copy), pages::all(&table));
        }
    }

    #[test]
    fn what_was_frozen_stays_as_it_was(seed in histories(120)) {
        let (log, _) = record(&seed);
        let mut table = LockTable::new(limits(seed.tight));
        let mut kept = Vec::new();
        for (header, commands) in &log {
            let frozen = table.freeze();
            kept.push((frozen.rows().collect::<Vec<Row>>(), frozen.digest(), frozen));
            table.apply(*header, commands);
        }
        for (rows, digest, frozen) in &kept {
            prop_assert!(frozen.rows().eq(rows.iter().cloned()));
            prop_assert_eq!(frozen.digest(), *digest);
        }
    }
}

type Log = Vec<(Header, Vec<Command>)>;

/// Draws the log once; what came out then is what must come out always.
fn record(seed: &HistorySeed) -> (Log, Vec<Applied>) {
    let mut table = LockTable::new(limits(seed.tight));
    let mut drawer = Drawer::new(seed);
    let log: Log = seed
        .entries
        .iter()
        .map(|entry| {
            let (header, commands) = drawer.entry(entry, &table);
            table.apply(header, &commands);
            (header, commands)
        })
        .collect();
    let mut again = LockTable::new(limits(seed.tight));
    let came_out = log.iter().map(|(header, commands)| again.apply(*header, commands)).collect();
    assert_eq!(again.freeze().digest(), table.freeze().digest());
    (log, came_out)
}

/// A table with something of everything.
fn full() -> LockTable {
    let mut table = LockTable::new(Limits::default());
    for text in [
        "domain d queue_max=2",
        "open a by=a ttl=1000 meta=k:v",
        "acquire x by=a on=a req=r1",
        "acquire y by=a lease=b ttl=1000 shared req=r2",
        "acquire y by=b lease=c ttl=1000 shared",
        "acquire x by=b lease=d ttl=1000 wait req=r1",
        "acquire z by=a lease=e ttl=1000 req=r3",
        "release z 4 by=a",
        "open f by=b ttl=1000",
        "end f by=b",
        "acquire w by=a on=a",
        "force w 5 now",
    ] {
        let command = line::parse(text, 1, table.limits());
        table.apply(Header { term: 1, at_ms: 1_000 }, &[command]);
    }
    table
}

/// Rows of a full table, changed; what the import says.
fn import(change: impl FnOnce(&mut Vec<Row>)) -> Result<(), ImportError> {
    let mut rows: Vec<Row> = full().freeze().rows().collect();
    change(&mut rows);
    LockTable::import(rows).map(|table| assert!(table.sound().is_empty()))
}

fn position(rows: &[Row], wanted: impl Fn(&Row) -> bool) -> usize {
    rows.iter().position(wanted).expect("a full table has such a row")
}

fn change_grant(rows: &mut [Row], token: u64, change: impl FnOnce(&mut Grant)) {
    let at = position(rows, |row| matches!(row, Row::Grant(grant) if grant.token.0 == token));
    if let Row::Grant(grant) = &mut rows[at] {
        change(Arc::make_mut(grant));
    }
}

fn change_head(rows: &mut [Row], change: impl FnOnce(&mut Head)) {
    if let Row::Head(head) = &mut rows[0] {
        change(head);
    }
}

#[test]
fn rows_as_they_were_are_taken() {
    assert_eq!(import(|_| ()), Ok(()));
}

#[test]
fn rows_out_of_their_order_are_refused() {
    assert_eq!(import(Vec::clear), Err(ImportError::NoHead));
    assert_eq!(import(|rows| drop(rows.remove(0))), Err(ImportError::NoHead));
    assert_eq!(import(|rows| drop(rows.remove(1))), Err(ImportError::NoLimits));
    assert_eq!(import(|rows| rows.push(Row::Head(Head::default()))), Err(ImportError::SecondHead));
    for at in 2..full().freeze().rows().count() {
        let twice = import(|rows| rows.insert(at, rows[at].clone()));
        assert_eq!(twice, Err(ImportError::OutOfOrder), "row {at} twice");
        if at > 2 {
            assert_eq!(
                import(|rows| rows.swap(at - 1, at)),
                Err(ImportError::OutOfOrder),
                "row {at} too early"
            );
        }
    }
}

#[test]
fn rows_that_contradict_each_other_are_refused() {
    let is_lease = |id: u128| move |row: &Row| matches!(row, Row::Lease(LeaseRow { id: LeaseId(one), .. }) if *one == id);
    let without = |id: u128| import(|rows| drop(rows.remove(position(rows, is_lease(id)))));
    assert_eq!(without(0xa), Err(ImportError::NoLease(LeaseId(0xa))));
    assert_eq!(without(0xd), Err(ImportError::NoLease(LeaseId(0xd))), "a ticket's lease");
    let no_item = import(|rows| {
        drop(rows.remove(position(rows, |row| matches!(row, Row::Grant(g) if g.token.0 == 3))))
    });
    assert_eq!(no_item, Err(ImportError::EmptyLease(LeaseId(0xc))));
    let two = import(|rows| {
        change_grant(rows, 3, |grant| grant.mode = leasehold_core::command::Mode::Exclusive)
    });
    assert!(matches!(two, Err(ImportError::TwoHolders(_))), "{two:?}");
    let other = import(|rows| change_grant(rows, 3, |grant| grant.single = false));
    assert_eq!(
        other,
        Err(ImportError::NoLease(LeaseId(0xc))),
        "a grant that says another kind of lease"
    );
    let other = import(|rows| change_grant(rows, 3, |grant| grant.lease = LeaseId(0xb)));
    assert!(matches!(other, Err(ImportError::NoLease(_))), "{other:?}");
}

#[test]
fn requests_and_what_they_name_must_name_each_other() {
    let is_live = |row: &Row| matches!(row, Row::Live(_));
    assert_eq!(
        import(|rows| drop(rows.remove(position(rows, is_live)))),
        Err(ImportError::DanglingRequest)
    );
    let renamed = import(|rows| {
        let at = position(rows, is_live);
        if let Row::Live(LiveRequest { id, .. }) = &mut rows[at] {
            *id = RequestId::parse("r0").expect("legal id");
        }
    });
    assert_eq!(renamed, Err(ImportError::DanglingRequest));
    let both = import(|rows| {
        if let Some(Row::Ended(EndedRow { what: EndedWhat::Request { id, .. }, .. })) = rows
            .iter_mut()
            .find(|row| matches!(row, Row::Ended(EndedRow { what: EndedWhat::Request { .. }, .. })))
        {
            *id = RequestId::parse("r1").expect("legal id");
        }
    });
    assert_eq!(both, Err(ImportError::NotEnded));
    let alive = import(|rows| {
        if let Some(Row::Ended(EndedRow { what: EndedWhat::Lease { id }, .. })) = rows.last_mut() {
            *id = LeaseId(0xa);
        }
    });
    assert_eq!(alive, Err(ImportError::NotEnded));
}

#[test]
fn numbers_above_their_counter_are_refused() {
    let beyond = Err(ImportError::BeyondCounter);
    assert_eq!(import(|rows| change_head(rows, |head| head.last_token = 2)), beyond);
    assert_eq!(import(|rows| change_head(rows, |head| head.last_ticket = 0)), beyond);
    assert_eq!(import(|rows| change_head(rows, |head| head.last_ended = 1)), beyond);
    assert_eq!(import(|rows| change_head(rows, |head| head.last_token = Token::LIMIT)), beyond);
    assert_eq!(import(|rows| change_head(rows, |head| head.last_token = Token::LIMIT - 1)), Ok(()));
}

#[test]
fn the_digest_sees_every_field() {
    let digest = |change: &dyn Fn(&mut Vec<Row>)| {
        let mut rows: Vec<Row> = full().freeze().rows().collect();
        change(&mut rows);
        LockTable::import(rows).expect("still a state").freeze().digest()
    };
    let ticket = |change: &dyn Fn(&mut Ticket)| {
        digest(&|rows| {
            if let Some(Row::Ticket(ticket)) =
                rows.iter_mut().find(|row| matches!(row, Row::Ticket(_)))
            {
                change(Arc::make_mut(ticket));
            }
        })
    };
    let grant = |change: &dyn Fn(&mut Grant)| digest(&|rows| change_grant(rows, 1, change));
    let head = |change: &dyn Fn(&mut Head)| digest(&|rows| change_head(rows, change));
    let all = [
        digest(&|_| ()),
        head(&|head| head.revision += 1),
        head(&|head| head.last_token += 1),
        head(&|head| head.last_ticket += 1),
        head(&|head| head.last_ended += 1),
        head(&|head| head.at_ms += 1),
        ticket(&|ticket| ticket.priority = 1),
        ticket(&|ticket| ticket.overtaken = 1),
        ticket(&|ticket| ticket.attached = false),
        ticket(&|ticket| ticket.attachment = 2),
        ticket(&|ticket| ticket.claim_ms = Some(0)),
        ticket(&|ticket| ticket.keep_place = true),
        ticket(&|ticket| ticket.behalf = Some([LeaseId(0xa)].into())),
        ticket(&|ticket| ticket.ttl_cap_ms = Some(0)),
        ticket(&|ticket| ticket.asked_at_ms = 0),
        grant(&|grant| grant.draining = true),
        grant(&|grant| grant.attachment = 2),
        grant(&|grant| grant.claim_ms = Some(0)),
        grant(&|grant| grant.ttl_cap_ms = Some(0)),
        grant(&|grant| grant.asked_at_ms = 0),
        grant(&|grant| grant.granted_at_ms = 0),
    ];
    let different: std::collections::BTreeSet<u128> = all.iter().copied().collect();
    assert_eq!(different.len(), all.len());
}
