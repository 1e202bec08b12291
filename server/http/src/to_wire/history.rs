//! What happened: changes, grants as they were, deeds of operators.

use super::{ended_how, left_how, mode, owned};
use leasehold_core::command::{self, Action, ClusterChange};
use leasehold_core::outcome::AuditResult;
use leasehold_node::{Change, ChangeKind, Deed, GrantSeen, Named, action_name};
use leasehold_wire::{self as wire, EventKind, Time};

/// A change as its event.
pub(crate) fn event(change: &Change) -> wire::Event<'_> {
    let blank = wire::Event::new(change.revision, EventKind::LeaseEnding, Time(change.at_ms));
    match &change.kind {
        ChangeKind::LeaseOpened { client, ttl_ms } => wire::Event {
            event: EventKind::LeaseOpened,
            client_id: Some(client.as_str().into()),
            ttl_ms: Some(*ttl_ms),
            ..blank
        },
        ChangeKind::LeaseChanged { ttl_ms } => {
            wire::Event { event: EventKind::LeaseChanged, ttl_ms: Some(*ttl_ms), ..blank }
        }
        ChangeKind::LeaseEnding => blank,
        ChangeKind::LeaseEnded { client, how } => wire::Event {
            event: EventKind::LeaseEnded,
            client_id: Some(client.as_str().into()),
            how: Some(ended_how(*how).into()),
            ..blank
        },
        ChangeKind::Queued { resource, client, mode: held, priority } => wire::Event {
            event: EventKind::Queued,
            resource: Some(resource.as_str().into()),
            client_id: Some(client.as_str().into()),
            mode: Some(mode(*held)),
            priority: Some(*priority),
            ..blank
        },
        ChangeKind::Left { resource, client, how } => wire::Event {
            event: EventKind::Left,
            resource: Some(resource.as_str().into()),
            client_id: Some(client.as_str().into()),
            how: Some(left_how(*how).into()),
            ..blank
        },
        ChangeKind::Granted { grant, ttl_ms } => wire::Event {
            event: EventKind::Granted,
            ttl_ms: Some(*ttl_ms),
            ..of_grant(grant, blank)
        },
        ChangeKind::Ended { grant, granted_at_ms, how } => wire::Event {
            event: ended(*how),
            granted_at: Some(Time(*granted_at_ms)),
            ..of_grant(grant, blank)
        },
        ChangeKind::Draining { grant } => {
            wire::Event { event: EventKind::Draining, ..of_grant(grant, blank) }
        }
        ChangeKind::Audited { by, action, resource, domain, token, reason, result: came } => {
            wire::Event {
                result: Some(result(*came).into()),
                event: EventKind::Audited,
                resource: resource.as_ref().map(|resource| resource.as_str().into()),
                domain: domain.as_deref().map(Into::into),
                token: token.map(|token| token.0),
                by: Some(by.as_str().into()),
                action: Some((&**action).into()),
                reason: Some((&**reason).into()),
                ..blank
            }
        }
        ChangeKind::LimitsChanged => wire::Event { event: EventKind::LimitsChanged, ..blank },
        ChangeKind::DomainChanged { domain } => wire::Event {
            event: EventKind::DomainChanged,
            domain: Some((&**domain).into()),
            ..blank
        },
        ChangeKind::HistoryTrimmed { .. } => {
            wire::Event { event: EventKind::HistoryTrimmed, ..blank }
        }
    }
}

fn of_grant<'a>(grant: &'a Named, blank: wire::Event<'a>) -> wire::Event<'a> {
    wire::Event {
        resource: Some(grant.resource.as_str().into()),
        client_id: Some(grant.client.as_str().into()),
        token: Some(grant.token.0),
        mode: Some(mode(grant.mode)),
        ..blank
    }
}

fn ended(how: command::EndedHow) -> EventKind {
    match how {
        command::EndedHow::Expired => EventKind::Expired,
        command::EndedHow::Forced => EventKind::Forced,
        command::EndedHow::Revoked => EventKind::Revoked,
        command::EndedHow::PassedOn => EventKind::PassedOn,
        command::EndedHow::Restored => EventKind::Restored,
        // Only requests are cancelled; a grant is given back.
        command::EndedHow::Released | command::EndedHow::Cancelled => EventKind::Released,
    }
}

/// A grant as it was; `at_ms` asks whether it was valid then.
pub(crate) fn grant_record(seen: &GrantSeen, at_ms: Option<u64>) -> wire::GrantRecord<'_> {
    let grant = &*seen.grant;
    let (how, ended_at_ms) = seen.ended.unzip();
    wire::GrantRecord {
        resource: grant.resource.as_str().into(),
        token: grant.token.0,
        client_id: grant.owner.client.as_str().into(),
        principal: grant.owner.principal.as_str().into(),
        mode: mode(grant.mode),
        state: if how.is_some() { wire::GrantState::Ended } else { wire::GrantState::Live },
        asked_at: Time(grant.asked_at_ms),
        granted_at: Time(grant.granted_at_ms),
        ended_at: ended_at_ms.map(Time),
        how: how.map(ended_word),
        expires_in_ms: seen.expires_in_ms,
        valid: at_ms.map(|at_ms| seen.was_valid_at(at_ms)),
        policies: super::policies(grant.policies.as_deref()),
        metadata: grant.metadata.as_ref().map(super::metadata),
    }
}

fn ended_word(how: command::EndedHow) -> wire::EndedHow {
    match how {
        command::EndedHow::Released => wire::EndedHow::Released,
        command::EndedHow::Expired => wire::EndedHow::Expired,
        command::EndedHow::Forced => wire::EndedHow::Forced,
        command::EndedHow::Revoked => wire::EndedHow::Revoked,
        command::EndedHow::PassedOn => wire::EndedHow::PassedOn,
        command::EndedHow::Restored => wire::EndedHow::Restored,
        command::EndedHow::Cancelled => wire::EndedHow::Cancelled,
    }
}

/// What an operator did.
pub(crate) fn audit_record(deed: &Deed) -> wire::AuditRecord<'_> {
    let order = &deed.record.order;
    let (target, token) = match &order.action {
        Action::ForceRelease { resource, token, .. } => (owned(resource.as_str()), Some(token.0)),
        // The whole id would let a reader act as the owner of a lease that lives on.
        Action::RevokeLease { lease } => (format!("{:08x}..", lease.0 >> 96).into(), None),
        Action::SetDomain { domain, .. } => (owned(domain), None),
        Action::ChangeCluster { change, .. } => (changed_node(*change).into(), None),
    };
    wire::AuditRecord {
        revision: deed.revision.to_string().into(),
        happened_at: Time(deed.at_ms),
        principal: order.by.as_str().into(),
        source: (&*order.source).into(),
        action: action_name(&order.action).into(),
        target,
        token,
        reason: (&*order.reason).into(),
        result: result(deed.record.result).into(),
    }
}

fn changed_node(change: ClusterChange) -> String {
    match change {
        ClusterChange::Add { node }
        | ClusterChange::Promote { node }
        | ClusterChange::Remove { node }
        | ClusterChange::Transfer { node: Some(node) } => format!("node {node}"),
        ClusterChange::Transfer { node: None } => "any voter".to_owned(),
    }
}

/// `done`, or why nothing was.
fn result(result: AuditResult) -> &'static str {
    match result {
        AuditResult::Done => "done",
        AuditResult::NotLive => "not_live",
        AuditResult::NoLease => "no_lease",
        AuditResult::VersionDiffers => "version_differs",
        AuditResult::Full => "full",
        AuditResult::Begun => "begun",
        AuditResult::Refused => "refused",
    }
}
