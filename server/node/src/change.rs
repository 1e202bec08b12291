//! One change of the state as watchers are told of it: names and numbers, no secrets.
//!
//! Smaller than the core's event, which holds whole grants: hundreds of thousands are kept.

use leasehold_core::command::{Action, ClusterChange, EndedHow, ForceWhen, LeftHow, Mode};
use leasehold_core::outcome::{AuditRecord, AuditResult, Event, EventKind};
use leasehold_core::{ClientId, Principal, ResourceName, Token};
use std::sync::Arc;

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Its number.
    pub revision: u64,
    /// When it happened, by the proposer's wall clock.
    pub at_ms: u64,
    /// What changed.
    pub kind: ChangeKind,
}

/// What changed. The ids of leases are left out: whoever knows one can end it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeKind {
    /// A lease for many grants was opened.
    LeaseOpened {
        /// By whom.
        client: ClientId,
        /// Its TTL, in milliseconds.
        ttl_ms: u64,
    },
    /// The TTL of a lease changed.
    LeaseChanged {
        /// The new TTL, in milliseconds.
        ttl_ms: u64,
    },
    /// A lease ends in several steps, and this was one.
    LeaseEnding,
    /// A lease for many grants ended.
    LeaseEnded {
        /// Whose it was.
        client: ClientId,
        /// How.
        how: EndedHow,
    },
    /// Somebody stands in line.
    Queued {
        /// For what.
        resource: ResourceName,
        /// Who.
        client: ClientId,
        /// Exclusive or shared.
        mode: Mode,
        /// Its priority.
        priority: u8,
    },
    /// Somebody left the line without a grant.
    Left {
        /// For what.
        resource: ResourceName,
        /// Who.
        client: ClientId,
        /// Why.
        how: LeftHow,
    },
    /// A lock was granted.
    Granted {
        /// The grant.
        grant: Named,
        /// The TTL of its lease, in milliseconds.
        ttl_ms: u64,
    },
    /// A grant ended.
    Ended {
        /// The grant.
        grant: Named,
        /// When it was granted, by the proposer's wall clock.
        granted_at_ms: u64,
        /// How it ended.
        how: EndedHow,
    },
    /// An operator asked for the end of a grant.
    Draining {
        /// The grant.
        grant: Named,
    },
    /// An operator did something, or tried to.
    Audited {
        /// Who.
        by: Principal,
        /// What: see [`action_name`].
        action: Arc<str>,
        /// To which resource.
        resource: Option<ResourceName>,
        /// To which domain.
        domain: Option<Arc<str>>,
        /// To which grant.
        token: Option<Token>,
        /// Why.
        reason: Arc<str>,
        /// What came of it.
        result: AuditResult,
    },
    /// The limits changed.
    LimitsChanged,
    /// The settings of a domain changed.
    DomainChanged {
        /// Which.
        domain: Arc<str>,
    },
    /// Old records of the history were dropped.
    HistoryTrimmed {
        /// The cut-off, by the proposer's wall clock.
        before_ms: u64,
    },
}

/// A grant by name and number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// What is held.
    pub resource: ResourceName,
    /// By whom.
    pub client: ClientId,
    /// Its token.
    pub token: Token,
    /// Exclusive or shared.
    pub mode: Mode,
}

impl Named {
    fn of(grant: &leasehold_core::outcome::Grant) -> Self {
        Self {
            resource: grant.resource.clone(),
            client: grant.owner.client.clone(),
            token: grant.token,
            mode: grant.mode,
        }
    }
}

impl Change {
    /// The change that an event of the core is.
    pub(crate) fn of(event: &Event) -> Self {
        Self { revision: event.revision.0, at_ms: event.at_ms, kind: kind_of(&event.kind) }
    }

    /// The resource that it is about.
    #[must_use]
    pub fn resource(&self) -> Option<&ResourceName> {
        match &self.kind {
            ChangeKind::Queued { resource, .. } | ChangeKind::Left { resource, .. } => {
                Some(resource)
            }
            ChangeKind::Granted { grant, .. }
            | ChangeKind::Ended { grant, .. }
            | ChangeKind::Draining { grant } => Some(&grant.resource),
            ChangeKind::Audited { resource, .. } => resource.as_ref(),
            _ => None,
        }
    }

    /// The domain that it is about.
    #[must_use]
    pub fn domain(&self) -> Option<&str> {
        match &self.kind {
            ChangeKind::DomainChanged { domain } => Some(domain),
            ChangeKind::Audited { domain: Some(domain), .. } => Some(domain),
            _ => self.resource().map(ResourceName::domain),
        }
    }
}

fn kind_of(kind: &EventKind) -> ChangeKind {
    match kind {
        EventKind::LeaseOpened { owner, ttl_ms, .. } => {
            ChangeKind::LeaseOpened { client: owner.client.clone(), ttl_ms: *ttl_ms }
        }
        EventKind::LeaseChanged { ttl_ms, .. } => ChangeKind::LeaseChanged { ttl_ms: *ttl_ms },
        EventKind::LeaseEnded { owner, how, .. } => {
            ChangeKind::LeaseEnded { client: owner.client.clone(), how: *how }
        }
        EventKind::Queued { resource, owner, mode, priority, .. } => ChangeKind::Queued {
            resource: resource.clone(),
            client: owner.client.clone(),
            mode: *mode,
            priority: *priority,
        },
        EventKind::Left { resource, owner, how, .. } => {
            ChangeKind::Left { resource: resource.clone(), client: owner.client.clone(), how: *how }
        }
        EventKind::Granted { grant, ttl_ms } => {
            ChangeKind::Granted { grant: Named::of(grant), ttl_ms: *ttl_ms }
        }
        EventKind::Ended(record) => ChangeKind::Ended {
            grant: Named::of(&record.grant),
            granted_at_ms: record.grant.granted_at_ms,
            how: record.how,
        },
        EventKind::Draining { grant } => ChangeKind::Draining { grant: Named::of(grant) },
        EventKind::Audited(record) => audited(record),
        EventKind::Ending { .. } => ChangeKind::LeaseEnding,
        EventKind::LimitsChanged => ChangeKind::LimitsChanged,
        EventKind::DomainChanged { domain } => ChangeKind::DomainChanged { domain: domain.clone() },
        EventKind::HistoryTrimmed { before_ms } => {
            ChangeKind::HistoryTrimmed { before_ms: *before_ms }
        }
    }
}

fn audited(record: &AuditRecord) -> ChangeKind {
    let order = &record.order;
    let (resource, domain, token) = match &order.action {
        Action::ForceRelease { resource, token, .. } => {
            (Some(resource.clone()), None, Some(*token))
        }
        Action::RevokeLease { .. } | Action::ChangeCluster { .. } => (None, None, None),
        Action::SetDomain { domain, .. } => (None, Some(domain.clone()), None),
    };
    ChangeKind::Audited {
        by: order.by.clone(),
        action: Arc::from(action_name(&order.action)),
        resource,
        domain,
        token,
        reason: order.reason.clone(),
        result: record.result,
    }
}

/// What an operator did, in one word.
#[must_use]
pub fn action_name(action: &Action) -> &'static str {
    match action {
        Action::ForceRelease { when: ForceWhen::Drain, .. } => "force_release_drain",
        Action::ForceRelease { when: ForceWhen::Now, .. } => "force_release_now",
        Action::RevokeLease { .. } => "revoke_lease",
        Action::SetDomain { limits: Some(_), .. } => "set_domain",
        Action::SetDomain { limits: None, .. } => "unset_domain",
        Action::ChangeCluster { change, .. } => match change {
            ClusterChange::Add { .. } => "add_node",
            ClusterChange::Promote { .. } => "promote_node",
            ClusterChange::Remove { .. } => "remove_node",
            ClusterChange::Transfer { .. } => "transfer_leadership",
        },
    }
}
