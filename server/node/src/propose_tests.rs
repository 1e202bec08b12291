//! The queue in front of Raft, alone.

use super::*;
use crate::hub::cell::{Acquirer, Answer, Cell};
use leasehold_core::LeaseId;
use tokio::sync::oneshot;

fn queue(settings: QueueSettings) -> Proposals {
    Proposals::new(settings)
}

/// A command that can be told apart by its number.
fn command(number: u64) -> Command {
    Command::Trim { ended_before_ms: number, history_before_ms: 0 }
}

fn proposal(number: u64) -> Proposal {
    let (reply, _) = oneshot::channel();
    Proposal::new(command(number), ReplyTo::Once(reply), None)
}

fn numbers(batch: &[Proposal]) -> Vec<u64> {
    let number = |proposal: &Proposal| match proposal.command {
        Command::Trim { ended_before_ms, .. } => ended_before_ms,
        _ => u64::MAX,
    };
    batch.iter().map(number).collect()
}

#[test]
fn ends_go_first_and_the_service_itself_last() {
    let queue = queue(QueueSettings::default());
    for (class, number) in
        [(Class::Background, 5), (Class::Ask, 3), (Class::End, 1), (Class::Ask, 4), (Class::End, 2)]
    {
        queue.push(class, proposal(number)).expect("there is room");
    }
    assert_eq!(numbers(&queue.cut(runtime::now())), [1, 2, 3, 4, 5]);
    assert_eq!(queue.len(), 0);
    assert_eq!(queue.ready_at(runtime::now()), None);
}

#[test]
fn a_storm_of_expiries_leaves_room_for_live_traffic() {
    let queue = queue(QueueSettings::default());
    for number in 100..120 {
        queue.push(Class::Background, proposal(number)).expect("there is room");
    }
    queue.push(Class::Ask, proposal(1)).expect("there is room");
    assert_eq!(numbers(&queue.cut(runtime::now())), [1, 100], "one of them, beside a live request");
    assert_eq!(numbers(&queue.cut(runtime::now())).len(), 8, "more of them alone");
}

#[test]
fn the_queue_is_bounded_and_ends_are_refused_last() {
    let queue = queue(QueueSettings { queue_max: 4, batch_max: 512, in_flight_max: 2 });
    for number in 0..4 {
        queue.push(Class::Ask, proposal(number)).expect("there is room");
    }
    queue.push(Class::Ask, proposal(4)).expect_err("it is full");
    for number in 0..8 {
        queue.push(Class::End, proposal(number)).expect("what frees locks has room of its own");
    }
    queue.push(Class::End, proposal(8)).expect_err("which is bounded too");
    assert_eq!(queue.drain().len(), 12);
}

#[test]
fn a_batch_is_bounded_by_count_and_by_bytes() {
    let queue = queue(QueueSettings { queue_max: 10_000, batch_max: 3, in_flight_max: 2 });
    for number in 0..7 {
        queue.push(Class::Ask, proposal(number)).expect("there is room");
    }
    assert_eq!(numbers(&queue.cut(runtime::now())), [0, 1, 2]);
    assert_eq!(numbers(&queue.cut(runtime::now())), [3, 4, 5]);

    let queue =
        Proposals::new(QueueSettings { queue_max: 10_000, batch_max: 10_000, in_flight_max: 2 });
    let leases: Vec<LeaseId> = (0..64).map(LeaseId).collect();
    for _ in 0..1_000 {
        let (reply, _) = oneshot::channel();
        let expire = Command::Expire { leases: leases.clone(), term: 1 };
        queue
            .push(Class::Ask, Proposal::new(expire, ReplyTo::Once(reply), None))
            .expect("there is room");
    }
    let batch = queue.cut(runtime::now());
    let bytes: usize = batch.iter().map(|proposal| command_bytes(&proposal.command)).sum();
    assert!(bytes <= BATCH_BYTES_MAX && bytes > BATCH_BYTES_MAX / 2, "{bytes} bytes");
}

#[test]
fn who_is_in_no_hurry_waits_for_company() {
    let queue = queue(QueueSettings::default());
    queue.push(Class::Ask, proposal(1).patient(true)).expect("there is room");
    let now = runtime::now();
    let ready_at = queue.ready_at(now).expect("it is not forgotten");
    assert!(ready_at > now && ready_at <= now + PATIENCE);
    queue.push(Class::End, proposal(2)).expect("there is room");
    let now = runtime::now();
    assert_eq!(queue.ready_at(now), Some(now), "somebody hurries");
    assert_eq!(numbers(&queue.cut(now)), [2, 1], "and takes the other along");
}

#[test]
fn dead_work_is_dropped_before_it_costs_an_entry() {
    let queue = queue(QueueSettings::default());
    let now = runtime::now();
    let (late, mut answer) = oneshot::channel();
    queue
        .push(Class::Ask, Proposal::new(command(1), ReplyTo::Once(late), Some(now)))
        .expect("there is room");
    let cell = Cell::new();
    let (gone, _) = oneshot::channel();
    let acquirer = Acquirer { cell: cell.clone(), answer: gone, has_request_id: false };
    queue
        .push(Class::Ask, Proposal::new(command(2), ReplyTo::Acquire(acquirer), None))
        .expect("there is room");
    cell.abandon(now);
    queue.push(Class::Ask, proposal(3)).expect("there is room");
    assert_eq!(numbers(&queue.cut(now)), [3]);
    assert!(matches!(answer.try_recv(), Ok(Answer::Failed(Failure::DeadlinePassed))));
    assert_eq!(queue.ready_at(now), None, "what was dropped hurries nobody");
}

#[test]
fn what_ends_something_is_done_even_if_nobody_waits_for_it() {
    let queue = queue(QueueSettings::default());
    let now = runtime::now();
    let (reply, _) = oneshot::channel();
    queue
        .push(Class::End, Proposal::new(command(1), ReplyTo::Once(reply), Some(now)))
        .expect("there is room");
    assert_eq!(numbers(&queue.cut(now)), [1]);
}
