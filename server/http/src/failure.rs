//! Every failure of the node to its status, code and fields. Decided here, for changes to the
//! cluster in `cluster`, and nowhere else.

pub(crate) mod cluster;

use crate::fault::Fault;
use crate::to_wire;
use leasehold_core::ids::Token;
use leasehold_core::outcome::{Blockers, Bound, CycleStep, Refusal};
use leasehold_node::{Failure, Gone, Holder, WaitTimeout};
use leasehold_wire::{self as wire, Code, Problem, Time};

/// When to come back if the reason is gone within moments.
const SOON_MS: u64 = 1_000;
/// When to come back during an election: they end within one or two seconds, and whoever comes
/// back late waits for longer than the service does.
const ELECTION_MS: u64 = 250;
/// When to come back if somebody has to make room first.
const LATER_MS: u64 = 5_000;

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Internal(cause) => Self::internal(cause),
            other => problem(other).into(),
        }
    }
}

/// The problem that a failure is.
pub(crate) fn problem(failure: Failure) -> Problem<'static> {
    match failure {
        Failure::Refused(refusal) => refused(refusal),
        Failure::Held { holders, holders_total, queue_length } => {
            held(to_wire::holders(&holders), holders_total, queue_length)
        }
        Failure::WaitTimeout(timeout) => wait_timeout(&timeout),
        Failure::Gone(gone) => self::gone(gone),
        Failure::NoLeader => no_leader("nobody leads the cluster at the moment"),
        Failure::NotReady => soon(Code::NotReady, "the node has not applied its log yet"),
        Failure::AboveLevel { needs, level } => retry(
            LATER_MS,
            Problem::new(
                503,
                Code::NotReady,
                format!(
                    "this takes commands of version {needs}, and the cluster is at {level} until \
                     all of its members are upgraded"
                ),
            ),
        ),
        Failure::Overloaded => soon(Code::Overloaded, "the node has too much to do"),
        Failure::OutcomeUnknown { request_id } => outcome_unknown(request_id.as_ref()),
        Failure::StorageFull => retry(
            LATER_MS,
            Problem::new(503, Code::StorageFull, "the disk has only its reserve left"),
        ),
        Failure::ShuttingDown => soon(Code::ShuttingDown, "the node is stopping"),
        Failure::DeadlinePassed => Problem::new(
            408,
            Code::RequestTimeout,
            "the time that the request had is over; nothing was done",
        ),
        Failure::AnswerTooLarge => with_field(
            "limit",
            Problem::new(
                400,
                Code::InvalidRequest,
                "the answer is longer than what one node passes on to another: ask with a smaller \
                 `limit`, or ask the leader itself",
            ),
        ),
        Failure::Internal(cause) => {
            // One operation of a batch; a whole request is logged with its trace id instead.
            tracing::error!(cause, "operation failed");
            *Fault::internal(cause).problem
        }
    }
}

fn refused(refusal: Refusal) -> Problem<'static> {
    match refusal {
        Refusal::Held(blockers) => blocked(&blockers),
        Refusal::Full { bound, max, queue_length } => full(bound, max, queue_length),
        Refusal::WouldDeadlock { cycle } => deadlock(&cycle),
        Refusal::TtlOutOfRange { min_ms, max_ms } => ttl_out_of_range(min_ms, max_ms),
        Refusal::TtlAboveCap { cap_ms } => ttl_above_cap(cap_ms),
        Refusal::LeaseIsExplicit => {
            let detail = "the grant stands on a lease for many grants, whose TTL does not change";
            with_field("ttl_ms", Problem::new(409, Code::Conflict, detail))
        }
        Refusal::LeaseIsSingle => {
            let detail = "the lease was opened for one grant, and takes no other";
            with_field("lease_id", Problem::new(409, Code::Conflict, detail))
        }
        Refusal::LeaseEnded { how, ended_at_ms } => {
            let mut problem = Problem::new(410, Code::LeaseEnded, "the lease has ended");
            problem.how = how.map(|how| to_wire::ended_how(how).into());
            problem.ended_at = ended_at_ms.map(Time);
            problem
        }
        Refusal::LeaseUnknown => {
            let detail = "no such lease: it never was, or ended so long ago that it is forgotten";
            with_field("lease_id", Problem::new(404, Code::NotFound, detail))
        }
        Refusal::NotOwner => {
            let detail = "the lease belongs to another client";
            with_field("lease_id", Problem::new(403, Code::Forbidden, detail))
        }
        Refusal::NotLive => Problem::new(410, Code::GrantEnded, "the grant has ended"),
        Refusal::NotHolder => {
            Problem::new(409, Code::NotHolder, "the grant belongs to another client")
        }
        Refusal::Draining => {
            let detail = "an operator asked for the end of the grant: it is not renewed any more";
            Problem { reason: Some("draining".into()), ..Problem::new(409, Code::Conflict, detail) }
        }
        Refusal::RequestEnded { token, how, ended_at_ms } => Problem {
            how: Some(to_wire::ended_how(how).into()),
            ended_at: Some(Time(ended_at_ms)),
            token: token.map(|token| token.0),
            ..Problem::new(410, Code::GrantEnded, "what this request got has ended")
        },
        Refusal::RequestReused => {
            let detail = "the same request id came with other content before";
            with_field("request_id", Problem::new(422, Code::RequestIdReused, detail))
        }
        Refusal::VersionDiffers { current } => {
            let current = current.map_or_else(|| "none".to_owned(), |now| now.0.to_string());
            let detail = format!("the present version is {current}: somebody changed it");
            Problem {
                current: Some(current.into()),
                ..Problem::new(412, Code::PreconditionFailed, detail)
            }
        }
        Refusal::NotWaiting => Problem::new(404, Code::NotFound, "no such request waits"),
        Refusal::OnHold { hold_ms } => {
            let detail = "the service was restored; nothing is granted while somebody may still \
                          believe in a lock from before";
            retry(hold_ms.max(50), Problem::new(503, Code::NotReady, detail))
        }
        // The leader changed between decision and effect; what was asked did not happen.
        Refusal::Void => no_leader("the leader changed; nothing was done"),
    }
}

fn no_leader(detail: &'static str) -> Problem<'static> {
    retry(ELECTION_MS, Problem::new(503, Code::NoLeader, detail))
}

fn blocked(blockers: &Blockers) -> Problem<'static> {
    let holders = blockers.holders.iter().map(|grant| to_wire::holder_of(grant, None)).collect();
    held(holders, blockers.holders_total, blockers.queue_length)
}

fn held(
    holders: Vec<wire::Holder<'static>>,
    total: usize,
    queue_length: usize,
) -> Problem<'static> {
    let detail = match (holders.first(), total) {
        (Some(holder), 1) => format!("the lock is held by {}", holder.client_id),
        (Some(_), _) => format!("the lock is held by {total} clients"),
        (None, _) => "others stand in line for the lock".to_owned(),
    };
    Problem {
        holders: Some(holders),
        holders_total: Some(total),
        queue_length: Some(queue_length),
        ..Problem::new(409, Code::Held, detail)
    }
}

fn wait_timeout(timeout: &WaitTimeout) -> Problem<'static> {
    let detail = format!("no grant within {} ms", timeout.waited_ms);
    Problem {
        waited_ms: Some(timeout.waited_ms),
        position: Some(timeout.position),
        holders: Some(to_wire::holders(&timeout.holders)),
        holders_total: Some(timeout.holders_total),
        queue_length: Some(timeout.queue_length),
        ..Problem::new(409, Code::WaitTimeout, detail)
    }
}

fn full(bound: Bound, max: u64, queue_length: usize) -> Problem<'static> {
    let (reason, what, retry_ms) = match bound {
        Bound::Queue => ("queue_full", "tickets stand in line for the resource", Some(SOON_MS)),
        Bound::ClientTickets => ("client", "tickets are the client's", Some(SOON_MS)),
        Bound::LeaseItems => ("capacity", "grants and tickets are on the lease", Some(SOON_MS)),
        Bound::Tickets => ("capacity", "tickets stand in line in all", Some(SOON_MS)),
        Bound::Grants => ("capacity", "grants are live in all", Some(LATER_MS)),
        Bound::Leases => ("capacity", "leases are open in all", Some(LATER_MS)),
        Bound::Metadata => ("capacity", "bytes of metadata are kept in all", Some(LATER_MS)),
        Bound::Domains => ("capacity", "domains have settings of their own", None),
        // No wait helps: an operator has to found a new cluster.
        Bound::Tokens => ("capacity", "tokens have been given out, which is all there are", None),
    };
    Problem {
        reason: Some(reason.into()),
        max: Some(max),
        queue_length: Some(queue_length),
        retry_after_ms: retry_ms,
        ..Problem::new(429, Code::Shed, format!("the bound is reached: {max} {what}"))
    }
}

fn deadlock(cycle: &[CycleStep]) -> Problem<'static> {
    let detail = "the wait would close a cycle of clients that wait for each other";
    Problem { cycle: Some(to_wire::cycle(cycle)), ..Problem::new(409, Code::WouldDeadlock, detail) }
}

fn ttl_out_of_range(min_ms: u64, max_ms: u64) -> Problem<'static> {
    let detail = format!("`ttl_ms` must be from {min_ms} to {max_ms}");
    Problem {
        allowed: Some(format!("{min_ms} to {max_ms}").into()),
        min: Some(min_ms),
        max: Some(max_ms),
        ..with_field("ttl_ms", Problem::new(400, Code::InvalidRequest, detail))
    }
}

fn ttl_above_cap(cap_ms: u64) -> Problem<'static> {
    let detail = format!("the policies allow a TTL of at most {cap_ms} ms for this grant");
    Problem {
        reason_code: Some("ttl_above_cap".into()),
        max: Some(cap_ms),
        ..with_field("ttl_ms", Problem::new(403, Code::PolicyDenied, detail))
    }
}

fn gone(gone: Gone) -> Problem<'static> {
    match gone {
        Gone::Known(record) => {
            let how = to_wire::ended_how(record.how);
            let detail = format!("grant {} has ended: {how}", record.grant.token);
            Problem {
                how: Some(how.into()),
                ended_at: Some(Time(record.ended_at_ms)),
                token: Some(record.grant.token.0),
                ..Problem::new(410, Code::GrantEnded, detail)
            }
        }
        Gone::Forgotten => Problem::new(410, Code::GrantEnded, "the grant has ended long ago"),
        Gone::Never { holders } => never(&holders),
    }
}

fn never(holders: &[Holder]) -> Problem<'static> {
    let detail = match holders.first().map(|holder| holder.grant.token) {
        Some(Token(token)) => {
            format!("the token is not the caller's grant of this resource; {token} holds it")
        }
        None => "the token is not the caller's grant of this resource; nobody holds it".to_owned(),
    };
    Problem {
        holders: Some(to_wire::holders(holders)),
        ..Problem::new(409, Code::NotHolder, detail)
    }
}

fn outcome_unknown(request_id: Option<&leasehold_core::RequestId>) -> Problem<'static> {
    let detail = match request_id {
        Some(_) => "the request may or may not take effect; repeat it with its request_id",
        None => "the request may or may not take effect; without a request_id a reader has to look",
    };
    Problem {
        request_id: request_id.map(|id| id.as_str().to_owned().into()),
        ..soon(Code::OutcomeUnknown, detail)
    }
}

/// For a request that only looks, and may have been looked at without its answer coming back.
pub(crate) fn leader_silent() -> Problem<'static> {
    no_leader("the node that leads did not answer; nothing was changed")
}

fn soon(code: Code, detail: &'static str) -> Problem<'static> {
    retry(SOON_MS, Problem::new(503, code, detail))
}

fn retry(after_ms: u64, problem: Problem<'static>) -> Problem<'static> {
    Problem { retry_after_ms: Some(after_ms), ..problem }
}

fn with_field(field: &'static str, problem: Problem<'static>) -> Problem<'static> {
    Problem { field: Some(field.into()), ..problem }
}

#[cfg(test)]
#[path = "failure_tests.rs"]
mod tests;
