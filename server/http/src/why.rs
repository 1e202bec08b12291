//! `GET /v1/lock/why`: why somebody waits for a lock, in fields for programs and in a sentence for
//! people.

use crate::answer::{Answer, Answered};
use crate::ask::Ask;
use crate::{from_wire, to_wire};
use leasehold_core::outcome::{Bound, Refusal};
use leasehold_core::standing::{Usage, Whom};
use leasehold_node::WhyStatus;
use leasehold_wire::{self as wire, Code, Invalid, WhyState};

pub(crate) const PARAMETERS: &[&str] = &["resource", "client_id", "request_id"];

pub(crate) async fn get(ask: Ask) -> Answered {
    let query = ask.query(PARAMETERS)?;
    let resource = from_wire::resource(query.required("resource")?)?;
    let request = query.text("request_id");
    let whom = Whom {
        client: query.text("client_id").map(from_wire::client_id).transpose()?,
        request: request.map(|id| from_wire::request_id("request_id", id)).transpose()?,
    };
    if whom == Whom::default() {
        let allowed = "`client_id`, `request_id` or both";
        return Err(Invalid::field("client_id", "is missing, and so is request_id", allowed).into());
    }
    let status = ask.node().why(ask.call, resource, whom).await?;
    Ok(Answer::json(&shape(&status.value)).at(status.revision).unstored())
}

fn shape(status: &WhyStatus) -> wire::Why<'_> {
    let standing = &status.standing;
    let (grant, ticket) = (standing.grants.first(), standing.ticket.as_ref());
    let request = status.whom.request.as_ref().or_else(|| match grant {
        Some(grant) => grant.request_id.as_ref(),
        None => ticket.and_then(|ticket| ticket.request_id.as_ref()),
    });
    let policies = grant.map(|grant| &grant.policies).or(ticket.map(|ticket| &ticket.policies));
    wire::Why {
        resource: status.resource.as_str().into(),
        client_id: client(status).map(Into::into),
        request_id: request.map(|id| id.as_str().into()),
        state: state(status),
        explanation: explanation(status).into(),
        code: code(standing.refusal.as_ref(), state(status)),
        token: grant.map(|grant| grant.token.0),
        waiter: status.waiter.as_ref().map(to_wire::waiter),
        ahead: status.ahead.iter().map(to_wire::waiter).collect(),
        ahead_total: standing.ahead_total,
        holders: to_wire::holders(&status.holders),
        holders_total: standing.holders_total,
        limits: standing.bounds.iter().map(usage).collect(),
        cycle: standing.cycle.as_deref().map(to_wire::cycle),
        policies: to_wire::policies(policies.and_then(|policies| policies.as_deref())),
    }
}

fn client(status: &WhyStatus) -> Option<&str> {
    let standing = &status.standing;
    let found = !standing.grants.is_empty() || standing.ticket.is_some();
    let owner = standing.owner.as_ref().filter(|_| found).map(|owner| &owner.client);
    status.whom.client.as_ref().or(owner).map(|client| client.as_str())
}

fn state(status: &WhyStatus) -> WhyState {
    let standing = &status.standing;
    match (&standing.ticket, &standing.refusal) {
        _ if !standing.grants.is_empty() => WhyState::Holds,
        (Some(ticket), _) if ticket.attached => WhyState::Waits,
        (Some(_), _) => WhyState::Detached,
        (None, None) => WhyState::Free,
        (None, Some(_)) if standing.full().is_some() => WhyState::WouldBeRefused,
        (None, Some(_)) => WhyState::WouldWait,
    }
}

fn code(refusal: Option<&Refusal>, state: WhyState) -> Option<Code> {
    match refusal? {
        Refusal::Full { .. } => Some(Code::Shed),
        _ if state == WhyState::WouldBeRefused => Some(Code::Shed),
        _ => Some(Code::Held),
    }
}

fn usage(usage: &Usage) -> wire::Usage<'static> {
    wire::Usage { name: setting(usage.bound).into(), used: usage.used, max: usage.max }
}

/// The setting behind a bound.
fn setting(bound: Bound) -> &'static str {
    match bound {
        Bound::Queue => "queue_max",
        Bound::ClientTickets => "client_waiters_max",
        Bound::Tickets => "waiters_max",
        Bound::Grants => "grants_max",
        Bound::Leases => "leases_max",
        Bound::LeaseItems => "lease_grants_max",
        Bound::Metadata => "metadata_max_bytes",
        Bound::Tokens => "tokens",
        Bound::Domains => "domains_max",
    }
}

fn explanation(status: &WhyStatus) -> String {
    let standing = &status.standing;
    let mut text = match state(status) {
        WhyState::Holds => {
            let tokens: Vec<String> =
                standing.grants.iter().map(|grant| grant.token.to_string()).collect();
            format!("{} holds the lock: token {}", subject(status), tokens.join(", "))
        }
        WhyState::Waits => format!("{} waits {}; {}", subject(status), place(status), held(status)),
        WhyState::Detached => format!(
            "{} stands {}, but no live request waits: the place is kept for a while, and nothing \
             is granted to it",
            subject(status),
            place(status),
        ),
        WhyState::Free => format!("{}; the lock is free", has_nothing(status)),
        WhyState::WouldWait => {
            let line = standing.ahead_total;
            format!("{}; {}, and {line} in line", has_nothing(status), held(status))
        }
        WhyState::WouldBeRefused => format!("{}; {}", has_nothing(status), full(status)),
    };
    if standing.cycle.is_some() {
        text.push_str(
            ". With what it holds, this wait is part of a cycle of clients that wait for each \
             other: it ends only when one of them gives up or a lease ends",
        );
    }
    if !standing.complete {
        text.push_str(". So many hold the lock or wait for it that not all were looked at");
    }
    text
}

fn subject(status: &WhyStatus) -> String {
    client(status).map_or_else(|| "the request".to_owned(), |client| format!("client {client}"))
}

fn place(status: &WhyStatus) -> String {
    match status.standing.ahead_total {
        0 => "first in line".to_owned(),
        ahead => format!("behind {ahead} others in line"),
    }
}

fn held(status: &WhyStatus) -> String {
    match (status.standing.holders.first(), status.standing.holders_total) {
        (None, _) => "nobody holds the lock at the moment".to_owned(),
        (Some(grant), 1) => {
            let (client, token) = (&grant.owner.client, grant.token);
            let since = wire::Time(grant.granted_at_ms);
            format!("client {client} holds the lock since {since} under token {token}")
        }
        (Some(_), total) => format!("{total} grants hold the lock"),
    }
}

fn has_nothing(status: &WhyStatus) -> String {
    match &status.whom.request {
        Some(id) => format!("no request {id} holds the lock or waits for it"),
        None => format!("{} neither holds the lock nor waits for it", subject(status)),
    }
}

fn full(status: &WhyStatus) -> String {
    match status.standing.full() {
        Some(usage) => {
            let (name, used, max) = (setting(usage.bound), usage.used, usage.max);
            format!("a request would be refused: {used} of {max} of {name} are used")
        }
        None => held(status),
    }
}
