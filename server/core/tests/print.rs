//! A command as a line that `line` reads back, so that a random failure can be pasted.

use leasehold_core::command::{
    Acquire, Action, Basis, Caller, ClusterChange, Command, Expected, ForceWhen, GrantRef, LeftHow,
    Metadata, Mode, Stage,
};
use leasehold_core::limits::Limits;
use leasehold_core::name::Owner;
use std::fmt::Write as _;

/// The line of a command, in an entry of this term.
pub(crate) fn line(command: &Command, term: u64) -> String {
    let mut text = body(command);
    let decided = match command {
        Command::Expire { term, .. }
        | Command::EndDrained { term, .. }
        | Command::PassOn { term, .. }
        | Command::Detach { term, .. }
        | Command::Leave { term, .. }
        | Command::EndHold { term } => Some(*term),
        _ => None,
    };
    if let Some(decided) = decided.filter(|decided| *decided != term) {
        push(&mut text, format_args!(" term={decided}"));
    }
    text
}

fn body(command: &Command) -> String {
    match command {
        Command::Acquire(asked) => acquire(asked),
        Command::Release(grant) => format!("release {}", grant_ref(grant)),
        Command::Renew { grant, ttl_ms } => format!("renew {} ttl={ttl_ms}", grant_ref(grant)),
        Command::OpenLease(open) => {
            let meta = metadata(open.metadata.as_ref());
            format!("open {:x} {} ttl={}{meta}", open.lease.0, owner(&open.owner), open.ttl_ms)
        }
        Command::EndLease { lease, caller } => format!("end {:x}{}", lease.0, caller_of(caller)),
        Command::CancelWait { owner: who, request_id } => {
            format!("cancel {request_id} {}", owner(who))
        }
        Command::Administer(order) => action(&order.action),
        Command::Expire { leases, .. } => {
            leases.iter().fold("expire".to_owned(), |text, id| format!("{text} {:x}", id.0))
        }
        Command::EndDrained { token, .. } => format!("drained {token}"),
        Command::PassOn { token, attachment, .. } => format!("passon {token} {attachment}"),
        Command::Detach { ticket, attachment, .. } => format!("detach {ticket} {attachment}"),
        Command::Leave { ticket, attachment, how, .. } => {
            format!("leave {ticket} {attachment} {}", left(*how))
        }
        Command::Continue { lease } => format!("continue {:x}", lease.0),
        Command::Trim { ended_before_ms, history_before_ms } => {
            format!("trim ended={ended_before_ms} history={history_before_ms}")
        }
        Command::Found { cluster, limits } => {
            format!("found {cluster} {}", all_limits(limits))
        }
        Command::SetLimits(limits) => format!("limits {}", all_limits(limits)),
        Command::EndHold { .. } => "unhold".to_owned(),
        Command::ConfirmEnded { lease, tokens } => {
            let tokens: Vec<String> = tokens.iter().map(ToString::to_string).collect();
            format!("confirm {:x} {}", lease.0, tokens.join(","))
        }
        Command::RaiseLevel { to } => format!("level {to}"),
    }
}

fn acquire(asked: &Acquire) -> String {
    let mut text = format!("acquire {} {}", asked.resource, owner(&asked.owner));
    match asked.basis {
        Basis::Single { lease, ttl_ms } => {
            push(&mut text, format_args!(" lease={:x} ttl={ttl_ms}", lease.0))
        }
        Basis::Explicit { lease } => push(&mut text, format_args!(" on={:x}", lease.0)),
    }
    let flags = [
        (asked.mode == Mode::Shared, " shared"),
        (asked.wait, " wait"),
        (asked.keep_place, " keep"),
    ];
    text.extend(flags.iter().filter(|(on, _)| *on).map(|(_, word)| *word));
    if let Some(id) = &asked.request_id {
        push(&mut text, format_args!(" req={id}"));
    }
    if asked.priority != 0 {
        push(&mut text, format_args!(" prio={}", asked.priority));
    }
    if let Some(claim_ms) = asked.claim_ms {
        push(&mut text, format_args!(" claim={claim_ms}"));
    }
    if let Some(cap_ms) = asked.ttl_cap_ms {
        push(&mut text, format_args!(" cap={cap_ms}"));
    }
    if !asked.holding.is_empty() {
        let held: Vec<String> =
            asked.holding.iter().map(|one| format!("{}#{}", one.resource, one.token)).collect();
        push(&mut text, format_args!(" holding={}", held.join(",")));
    }
    text + &metadata(asked.metadata.as_ref())
}

/// What an operator does, as a scenario writes it.
pub(crate) fn action(action: &Action) -> String {
    match action {
        Action::ForceRelease { resource, token, when } => {
            let when = if *when == ForceWhen::Now { "now" } else { "drain" };
            format!("force {resource} {token} {when}")
        }
        Action::RevokeLease { lease } => format!("revoke {:x}", lease.0),
        Action::SetDomain { domain, limits, expected } => {
            let limits = match limits.map(|limits| limits.queue_max) {
                Some(Some(max)) => format!(" queue_max={max}"),
                Some(None) => String::new(),
                None => " none".to_owned(),
            };
            let expected = match expected {
                Expected::Any => String::new(),
                Expected::Absent => " if=absent".to_owned(),
                Expected::Version(version) => format!(" if={version}"),
            };
            format!("domain {domain}{limits}{expected}")
        }
        Action::ChangeCluster { change, stage } => {
            let change = match change {
                ClusterChange::Add { node } => format!("add {node}"),
                ClusterChange::Promote { node } => format!("promote {node}"),
                ClusterChange::Remove { node } => format!("remove {node}"),
                ClusterChange::Transfer { node } => node
                    .map_or_else(|| "transfer any".to_owned(), |node| format!("transfer {node}")),
            };
            let refused = if *stage == Stage::Refused { " refused" } else { "" };
            format!("cluster {change}{refused}")
        }
    }
}

fn push(text: &mut String, more: std::fmt::Arguments<'_>) {
    text.write_fmt(more).expect("writing to a string does not fail");
}

fn owner(owner: &Owner) -> String {
    match owner.principal.as_str() {
        "dev" => format!("by={}", owner.client),
        other => format!("by={} as={other}", owner.client),
    }
}

fn caller_of(caller: &Caller) -> String {
    let by = caller.client.as_ref().map_or(String::new(), |client| format!(" by={client}"));
    match caller.principal.as_str() {
        "dev" => by,
        other => format!("{by} as={other}"),
    }
}

fn grant_ref(grant: &GrantRef) -> String {
    format!("{} {}{}", grant.resource, grant.token, caller_of(&grant.caller))
}

fn metadata(metadata: Option<&Metadata>) -> String {
    let Some(pairs) = metadata else { return String::new() };
    let pairs: Vec<String> = pairs.iter().map(|(key, value)| format!("{key}:{value}")).collect();
    format!(" meta={}", pairs.join(","))
}

fn left(how: LeftHow) -> &'static str {
    match how {
        LeftHow::TimedOut => "timed_out",
        LeftHow::Cancelled => "cancelled",
        _ => "disconnected",
    }
}

/// Every limit that a scenario can set.
pub(crate) fn all_limits(limits: &Limits) -> String {
    let pairs = [
        ("ttl_min", limits.ttl_min_ms),
        ("ttl_max", limits.ttl_max_ms),
        ("queue_max", u64::from(limits.queue_max)),
        ("client_tickets_max", u64::from(limits.client_tickets_max)),
        ("tickets_max", limits.tickets_max),
        ("grants_max", limits.grants_max),
        ("leases_max", limits.leases_max),
        ("lease_items_max", u64::from(limits.lease_items_max)),
        ("metadata_bytes_max", limits.metadata_bytes_max),
        ("client_ended_max", u64::from(limits.client_ended_max)),
        ("ended_max", limits.ended_max),
        ("piece_max", u64::from(limits.piece_max)),
        ("walk_max", u64::from(limits.walk_max)),
        ("overtaken_max", u64::from(limits.overtaken_max)),
    ];
    pairs.map(|(name, value)| format!("{name}={value}")).join(" ")
}
