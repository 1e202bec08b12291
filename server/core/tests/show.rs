//! Outcomes and events as text.

use leasehold_core::command::{Administer, EndedHow, Mode};
use leasehold_core::outcome::{
    AuditRecord, Blockers, Bound, Event, EventKind, Grant, Outcome, Refusal,
};
use leasehold_core::row::Ticket;

/// What one command was answered.
pub(crate) fn outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Granted { grant: given, ttl_ms, repeat } => {
            format!("{} ttl={ttl_ms}{}", grant(given), if *repeat { " again" } else { "" })
        }
        Outcome::Queued { ticket, attachment, lease, queue_length } => {
            format!(
                "queued ticket={ticket} attachment={attachment} lease={:x} length={queue_length}",
                lease.0
            )
        }
        Outcome::LeaseOpened { ttl_ms } => format!("opened ttl={ttl_ms}"),
        Outcome::Renewed { lease, ttl_ms } => format!("renewed lease={:x} ttl={ttl_ms}", lease.0),
        Outcome::Released => "released".to_owned(),
        Outcome::DomainSet { version: Some(version) } => format!("version is {version}"),
        Outcome::DomainSet { version: None } => "no version any more".to_owned(),
        Outcome::Done { more: false } => "done".to_owned(),
        Outcome::Done { more: true } => "done, more".to_owned(),
        Outcome::Refused(refusal) => format!("refused: {}", why(refusal)),
    }
}

fn why(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Held(blockers) => held(blockers),
        Refusal::Full { bound, max, queue_length } => {
            format!("full {} max={max} length={queue_length}", bound_name(*bound))
        }
        Refusal::WouldDeadlock { cycle } => {
            let steps: Vec<String> = cycle
                .iter()
                .map(|step| format!("{} waits for {}", step.owner.client, step.resource))
                .collect();
            format!("would deadlock: {}", steps.join(", "))
        }
        Refusal::TtlOutOfRange { min_ms, max_ms } => format!("ttl out of range {min_ms}..{max_ms}"),
        Refusal::TtlAboveCap { cap_ms } => format!("ttl above cap {cap_ms}"),
        Refusal::LeaseIsExplicit => "lease is explicit".to_owned(),
        Refusal::LeaseIsSingle => "lease is single".to_owned(),
        Refusal::LeaseEnded { how, ended_at_ms } => {
            let how = how.map_or("unknown", how_name);
            format!("lease ended {how} at={}", ended_at_ms.unwrap_or(0))
        }
        Refusal::LeaseUnknown => "lease unknown".to_owned(),
        Refusal::NotOwner => "not owner".to_owned(),
        Refusal::NotLive => "not live".to_owned(),
        Refusal::NotHolder => "not holder".to_owned(),
        Refusal::Draining => "draining".to_owned(),
        Refusal::RequestEnded { token, how, ended_at_ms } => {
            let token = token.map_or(String::new(), |token| format!(" token={token}"));
            format!("request ended {}{token} at={ended_at_ms}", how_name(*how))
        }
        Refusal::RequestReused => "request reused".to_owned(),
        Refusal::NotWaiting => "not waiting".to_owned(),
        Refusal::VersionDiffers { current } => format!(
            "version is {}",
            current.map_or("none".to_owned(), |version| version.to_string())
        ),
        Refusal::OnHold { hold_ms } => format!("on hold for {hold_ms}"),
        Refusal::Void => "void".to_owned(),
    }
}

fn held(blockers: &Blockers) -> String {
    let holders: Vec<String> = blockers
        .holders
        .iter()
        .map(|grant| format!("{}#{}", grant.owner.client, grant.token))
        .collect();
    format!(
        "held by [{}] of {}, length={}",
        holders.join(" "),
        blockers.holders_total,
        blockers.queue_length
    )
}

/// What changed, with its revision.
pub(crate) fn event(event: &Event) -> String {
    let kind = match &event.kind {
        EventKind::LeaseOpened { lease, owner, ttl_ms } => {
            format!("lease {:x} opened by={} ttl={ttl_ms}", lease.0, owner.client)
        }
        EventKind::LeaseChanged { lease, ttl_ms } => {
            format!("lease {:x} changed ttl={ttl_ms}", lease.0)
        }
        EventKind::LeaseEnded { lease, how, .. } => {
            format!("lease {:x} ended {}", lease.0, how_name(*how))
        }
        EventKind::Queued { ticket, resource, owner, mode, priority } => {
            let priority = if *priority == 0 { String::new() } else { format!(" prio={priority}") };
            format!(
                "queued {resource} ticket={ticket} by={}{}{priority}",
                owner.client,
                shared(*mode)
            )
        }
        EventKind::Left { ticket, resource, owner, how } => {
            format!("left {resource} ticket={ticket} by={} {how:?}", owner.client)
        }
        EventKind::Granted { grant: given, .. } => grant(given),
        EventKind::Ended(record) => {
            format!("ended {} {}", grant(&record.grant), how_name(record.how))
        }
        EventKind::Draining { grant: given } => format!("draining {}", grant(given)),
        EventKind::Audited(record) => {
            let AuditRecord { order, result } = &**record;
            let Administer { by, source, reason, action } = order;
            let action = crate::print::action(action);
            format!("audited {action} by {by} from {source}: {reason}: {result:?}")
        }
        EventKind::Ending { lease } => format!("lease {:x} ending", lease.0),
        EventKind::LimitsChanged => "limits changed".to_owned(),
        EventKind::DomainChanged { domain } => format!("domain {domain} changed"),
        EventKind::HistoryTrimmed { before_ms } => format!("history trimmed before={before_ms}"),
    };
    format!("{}: {kind}", event.revision)
}

fn grant(grant: &Grant) -> String {
    let ticket = grant.ticket.map_or(String::new(), |ticket| format!(" ticket={ticket}"));
    let draining = if grant.draining { " draining" } else { "" };
    let attachment = if grant.attachment == 1 {
        String::new()
    } else {
        format!(" attachment={}", grant.attachment)
    };
    let on = if grant.single { "lease" } else { "on" };
    format!(
        "granted {}#{} by={} {on}={:x}{}{ticket}{attachment}{draining}",
        grant.resource,
        grant.token,
        grant.owner.client,
        grant.lease.0,
        shared(grant.mode)
    )
}

/// A place in a line.
pub(crate) fn ticket(ticket: &Ticket) -> String {
    let attached = if ticket.attached { "" } else { " detached" };
    format!(
        "ticket={} by={}{} prio={} overtaken={} attachment={}{attached}",
        ticket.id,
        ticket.owner.client,
        shared(ticket.mode),
        ticket.priority,
        ticket.overtaken,
        ticket.attachment
    )
}

fn shared(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "",
        Mode::Shared => " shared",
    }
}

fn how_name(how: EndedHow) -> &'static str {
    match how {
        EndedHow::Released => "released",
        EndedHow::Expired => "expired",
        EndedHow::Forced => "forced",
        EndedHow::Revoked => "revoked",
        EndedHow::PassedOn => "passed on",
        EndedHow::Restored => "restored",
        EndedHow::Cancelled => "cancelled",
    }
}

fn bound_name(bound: Bound) -> &'static str {
    match bound {
        Bound::Queue => "queue",
        Bound::ClientTickets => "client tickets",
        Bound::Tickets => "tickets",
        Bound::Grants => "grants",
        Bound::Leases => "leases",
        Bound::LeaseItems => "lease items",
        Bound::Metadata => "metadata",
        Bound::Domains => "domains",
        Bound::Tokens => "tokens",
    }
}
