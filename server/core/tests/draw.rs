//! Random histories. A seed is a few small numbers; it becomes a command by looking at the table,
//! so that most commands name what is there, and some name what is not.

use crate::line::{changed, order};
use leasehold_core::command::{
    Acquire, Action, Basis, Caller, ClusterChange, Command, Expected, ForceWhen, GrantRef, Holding,
    LeftHow, Metadata, Mode, OpenLease, Stage,
};
use leasehold_core::limits::{DomainLimits, Limits};
use leasehold_core::name::{ClientId, Owner, Principal, RequestId, ResourceName};
use leasehold_core::outcome::Grant;
use leasehold_core::row::Ticket;
use leasehold_core::{ClusterId, Header, LeaseId, LockTable, Revision, TicketId, Token};
use proptest::prelude::*;
use std::fmt;
use std::sync::Arc;

/// What a command is made from. All zeros is the simplest one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seed {
    kind: u8,
    who: u8,
    what: u8,
    pick: u16,
    flags: u16,
}

/// What an entry is made from: whether the term changes before it, how far the clock goes on.
#[derive(Debug, Clone)]
pub(crate) struct EntrySeed {
    term: bool,
    ms: u16,
    commands: Vec<Seed>,
}

/// A history to be: which limits, and the seeds of its entries.
#[derive(Clone)]
pub(crate) struct HistorySeed {
    pub(crate) tight: bool,
    /// Without priorities everybody stands in order of arrival.
    pub(crate) priorities: bool,
    pub(crate) entries: Vec<EntrySeed>,
}

/// A failure prints the history as a scenario; the numbers behind it would only hide that.
impl fmt::Debug for HistorySeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} entries, tight={} priorities={}",
            self.entries.len(),
            self.tight,
            self.priorities
        )
    }
}

/// Histories of up to `max` entries.
pub(crate) fn histories(max: usize) -> impl Strategy<Value = HistorySeed> {
    let seed = (0u8..100, 0u8..4, 0u8..8, any::<u16>(), any::<u16>())
        .prop_map(|(kind, who, what, pick, flags)| Seed { kind, who, what, pick, flags });
    // Most entries carry one command; some carry a few, as batches do.
    let commands = prop_oneof![4 => prop::collection::vec(seed.clone(), 1..2), 1 => prop::collection::vec(seed, 2..5)];
    let entry = (prop::bool::weighted(0.02), 0u16..200, commands)
        .prop_map(|(term, ms, commands)| EntrySeed { term, ms, commands });
    (any::<bool>(), any::<bool>(), prop::collection::vec(entry, 1..max))
        .prop_map(|(tight, priorities, entries)| HistorySeed { tight, priorities, entries })
}

/// Bounds so small that a short history meets all of them.
pub(crate) fn limits(tight: bool) -> Limits {
    let pairs: &[(&str, &str)] = if tight {
        &[
            ("queue_max", "4"),
            ("client_tickets_max", "2"),
            ("tickets_max", "5"),
            ("grants_max", "14"),
            ("leases_max", "12"),
            ("lease_items_max", "6"),
            ("metadata_bytes_max", "24"),
            ("client_ended_max", "3"),
            ("ended_max", "7"),
            ("piece_max", "2"),
            ("overtaken_max", "2"),
        ]
    } else {
        &[("piece_max", "3"), ("overtaken_max", "4"), ("client_ended_max", "8")]
    };
    changed(&Limits::default(), pairs)
}

/// A history as it is drawn: knows the next header and the ids that are used up.
#[derive(Debug)]
pub(crate) struct Drawer {
    header: Header,
    next_lease: u128,
    priorities: bool,
}

impl Drawer {
    pub(crate) fn new(seed: &HistorySeed) -> Self {
        Self {
            header: Header { term: 1, at_ms: 1_000 },
            next_lease: 1,
            priorities: seed.priorities,
        }
    }

    /// The next entry, drawn against what the table holds before it.
    pub(crate) fn entry(&mut self, seed: &EntrySeed, table: &LockTable) -> (Header, Vec<Command>) {
        self.header.term += u64::from(seed.term);
        self.header.at_ms += u64::from(seed.ms);
        let commands = seed.commands.iter().map(|seed| self.command(*seed, table)).collect();
        (self.header, commands)
    }

    fn command(&mut self, seed: Seed, table: &LockTable) -> Command {
        // One decision in twenty is of another term.
        let term = self.header.term - u64::from(seed.flags % 20 == 19);
        let grant = pick(&table.grants().cloned().collect::<Vec<_>>(), seed.pick);
        let ticket = pick(&table.tickets().cloned().collect::<Vec<_>>(), seed.pick);
        let lease = self.lease(seed, table);
        match seed.kind {
            0..40 => Command::Acquire(Box::new(self.acquire(seed, table))),
            40..44 => {
                let again = ticket.as_deref().and_then(|ticket| self.again(seed, ticket, table));
                Command::Acquire(Box::new(again.unwrap_or_else(|| self.acquire(seed, table))))
            }
            44..60 => Command::Release(grant_ref(seed, grant.as_deref(), table)),
            60..64 => Command::OpenLease(OpenLease {
                lease: self.new_lease(seed),
                owner: owner(seed.who),
                ttl_ms: ttl(seed),
                metadata: metadata(seed),
            }),
            64..66 => Command::Renew {
                grant: grant_ref(seed, grant.as_deref(), table),
                ttl_ms: ttl(seed) * 2,
            },
            66..69 => Command::EndLease { lease, caller: caller(seed, None) },
            69..72 => match ticket
                .as_ref()
                .and_then(|ticket| ticket.request_id.clone().zip(Some(&ticket.owner)))
            {
                Some((request_id, owner)) => {
                    Command::CancelWait { owner: (**owner).clone(), request_id }
                }
                None => Command::CancelWait { owner: owner(seed.who), request_id: request(seed) },
            },
            72..75 => force(seed, grant.as_deref(), table),
            75..80 => Command::Expire { leases: self.leases(seed, table), term },
            80..81 => Command::EndDrained { token: token(grant.as_deref(), table), term },
            81..83 => {
                let wrong = u32::from(seed.flags % 12 == 4);
                let attachment = grant.as_ref().map_or(1, |grant| grant.attachment) + wrong;
                Command::PassOn { token: token(grant.as_deref(), table), attachment, term }
            }
            83..88 => {
                let (ticket, attachment) = place(seed, ticket.as_deref());
                Command::Detach { ticket, attachment, term }
            }
            88..91 => {
                let (ticket, attachment) = place(seed, ticket.as_deref());
                let how = [LeftHow::TimedOut, LeftHow::Disconnected, LeftHow::Cancelled]
                    [usize::from(seed.flags) % 3];
                Command::Leave { ticket, attachment, how, term }
            }
            91..95 => Command::Continue { lease: table.ending_leases().next().unwrap_or(lease) },
            95..96 => Command::Trim {
                ended_before_ms: self.header.at_ms.saturating_sub(u64::from(seed.pick) % 2_000),
                history_before_ms: u64::from(seed.flags % 2),
            },
            96..97 if seed.pick.is_multiple_of(7) => Command::Found {
                cluster: ClusterId(1 + u128::from(seed.flags % 2)),
                limits: Box::new(new_limits(seed, table.limits())),
            },
            96..97 if seed.pick % 7 == 1 => Command::RaiseLevel { to: seed.flags % 4 },
            96..97 => Command::SetLimits(Box::new(new_limits(seed, table.limits()))),
            97..98 if seed.pick.is_multiple_of(5) => order(Action::RevokeLease { lease }),
            97..98 if seed.pick.is_multiple_of(11) => change_cluster(seed),
            97..98 => set_domain(seed, table),
            _ => Command::ConfirmEnded {
                lease,
                tokens: table
                    .lost_on(lease)
                    .iter()
                    .skip(usize::from(seed.pick % 2))
                    .map(|lost| lost.token)
                    .collect(),
            },
        }
    }

    fn acquire(&mut self, seed: Seed, table: &LockTable) -> Acquire {
        let bit = |n: u16| seed.flags >> n & 1 == 1;
        // Once in a while a lease that takes no second grant.
        let on = if seed.pick % 16 == 2 { self.lease(seed, table) } else { LeaseId(0) };
        let on = Some(on).filter(|id| id.0 > 0).or(pick(&explicit(table), seed.pick));
        let basis = match on.filter(|_| bit(0)) {
            Some(lease) => Basis::Explicit { lease },
            None => Basis::Single { lease: self.new_lease(seed), ttl_ms: ttl(seed) },
        };
        // Mostly the owner of the lease, sometimes another.
        let owner = match basis {
            Basis::Explicit { lease } if seed.pick % 16 != 1 => {
                table.lease(lease).map_or(owner(seed.who), |(owner, _)| (**owner).clone())
            }
            _ => owner(seed.who),
        };
        let mine =
            table.grants().filter(|grant| *grant.owner == owner).take(usize::from(seed.pick % 3));
        let holding = if bit(1) { mine.map(held).collect() } else { Vec::new() };
        Acquire {
            resource: resource(seed.what),
            owner,
            basis,
            mode: if bit(2) { Mode::Shared } else { Mode::Exclusive },
            wait: bit(3) || bit(4),
            request_id: (bit(5) || bit(6)).then(|| request(seed)),
            claim_ms: (seed.pick % 32 == 3).then_some(500),
            keep_place: seed.pick % 32 == 4,
            holding,
            metadata: metadata(seed),
            priority: if self.priorities && bit(7) { (seed.pick % 3) as u8 } else { 0 },
            ttl_cap_ms: (seed.pick % 32 == 5).then_some(1_000),
            policies: None,
        }
    }

    /// The request behind a ticket once more.
    fn again(&mut self, seed: Seed, ticket: &Ticket, table: &LockTable) -> Option<Acquire> {
        let lease = table.lease_view(ticket.lease, 0)?;
        let basis = match lease.single {
            true => Basis::Single { lease: self.new_lease(seed), ttl_ms: lease.ttl_ms },
            false => Basis::Explicit { lease: lease.id },
        };
        let mut asked = self.acquire(seed, table);
        asked.resource = ticket.resource.clone();
        asked.owner = (*ticket.owner).clone();
        asked.request_id = Some(ticket.request_id.clone()?);
        (asked.mode, asked.basis, asked.metadata) = (ticket.mode, basis, ticket.metadata.clone());
        Some(asked)
    }

    /// A new id, and once in a while one that was used before.
    fn new_lease(&mut self, seed: Seed) -> LeaseId {
        if seed.pick % 64 == 63 {
            return LeaseId(self.next_lease / 2);
        }
        self.next_lease += 1;
        LeaseId(self.next_lease - 1)
    }

    fn lease(&self, seed: Seed, table: &LockTable) -> LeaseId {
        let of_grants = table.grants().map(|grant| grant.lease);
        let all: Vec<LeaseId> = explicit(table).into_iter().chain(of_grants).collect();
        pick(&all, seed.pick)
            .filter(|_| seed.flags % 16 != 7)
            .unwrap_or(LeaseId(self.next_lease / 2))
    }

    fn leases(&self, seed: Seed, table: &LockTable) -> Vec<LeaseId> {
        (0..=seed.flags % 3)
            .map(|n| self.lease(Seed { pick: seed.pick.wrapping_add(n * 7), ..seed }, table))
            .collect()
    }
}

fn explicit(table: &LockTable) -> Vec<LeaseId> {
    let all = table.leases(None, None, usize::MAX).items;
    all.into_iter().filter(|lease| !lease.single).map(|lease| lease.id).collect()
}

fn pick<T: Clone>(all: &[T], index: u16) -> Option<T> {
    all.get(usize::from(index) % all.len().max(1)).cloned()
}

fn held(grant: &Arc<Grant>) -> Holding {
    Holding { resource: grant.resource.clone(), token: grant.token }
}

fn owner(who: u8) -> Owner {
    let (principal, client) =
        [("dev", "a"), ("dev", "b"), ("dev", "c"), ("ops", "a")][usize::from(who)];
    let principal = Principal::parse(principal).expect("legal principal");
    Owner { principal, client: ClientId::parse(client).expect("legal client") }
}

/// Mostly the owner without its label, so that the command goes through.
fn caller(seed: Seed, of: Option<&Owner>) -> Caller {
    let owner = of.cloned().filter(|_| seed.flags % 8 != 3).unwrap_or_else(|| owner(seed.who));
    Caller { principal: owner.principal, client: (seed.flags % 2 == 1).then_some(owner.client) }
}

fn resource(what: u8) -> ResourceName {
    ResourceName::parse(["x", "x", "y", "y", "d/x", "d/y", "z", "x/1"][usize::from(what)])
        .expect("legal name")
}

fn request(seed: Seed) -> RequestId {
    RequestId::parse(&format!("r{}", seed.pick % 7)).expect("legal request id")
}

fn ttl(seed: Seed) -> u64 {
    [1_000, 1_000, 1_000, 2_000, 100][usize::from(seed.flags / 256) % 5]
}

fn metadata(seed: Seed) -> Option<Metadata> {
    let pair = (Arc::from("key"), Arc::from("value"));
    (seed.pick % 8 == 6).then(|| [pair].into_iter().collect())
}

fn grant_ref(seed: Seed, grant: Option<&Grant>, table: &LockTable) -> GrantRef {
    let resource = grant
        .filter(|_| seed.flags % 16 != 5)
        .map_or(resource(seed.what), |grant| grant.resource.clone());
    GrantRef {
        resource,
        token: token(grant, table),
        caller: caller(seed, grant.map(|grant| &*grant.owner)),
    }
}

/// Without any grant: the next that will be given out, perhaps in this very entry.
fn token(grant: Option<&Grant>, table: &LockTable) -> Token {
    grant.map_or(Token(table.last_token().0 + 1), |grant| grant.token)
}

fn force(seed: Seed, grant: Option<&Grant>, table: &LockTable) -> Command {
    order(Action::ForceRelease {
        resource: grant.map_or(resource(seed.what), |grant| grant.resource.clone()),
        token: token(grant, table),
        when: if seed.flags.is_multiple_of(2) { ForceWhen::Drain } else { ForceWhen::Now },
    })
}

/// Which changes nothing here.
fn change_cluster(seed: Seed) -> Command {
    let node = u64::from(seed.pick % 5);
    let change = match seed.flags / 2 % 4 {
        0 => ClusterChange::Add { node },
        1 => ClusterChange::Promote { node },
        2 => ClusterChange::Remove { node },
        _ => ClusterChange::Transfer { node: (node > 0).then_some(node) },
    };
    let stage = if seed.flags.is_multiple_of(2) { Stage::Begun } else { Stage::Refused };
    order(Action::ChangeCluster { change, stage })
}

/// With the right version, a wrong one, or none.
fn set_domain(seed: Seed, table: &LockTable) -> Command {
    let domain = ["default", "d"][usize::from(seed.flags % 2)];
    let version = table.domain(domain).map(|own| own.version);
    let expected = match (seed.flags / 2 % 4, version) {
        (0, _) => Expected::Absent,
        (1, Some(version)) => Expected::Version(version),
        (2, _) => Expected::Version(Revision(3)),
        _ => Expected::Any,
    };
    order(Action::SetDomain {
        domain: Arc::from(domain),
        limits: (!seed.pick.is_multiple_of(3))
            .then(|| DomainLimits { queue_max: (seed.pick % 3 == 1).then_some(2) }),
        expected,
    })
}

/// Mostly the present attachment, sometimes an older or newer one.
fn place(seed: Seed, ticket: Option<&Ticket>) -> (TicketId, u32) {
    let wrong = u32::from(seed.flags % 12 == 4);
    ticket.map_or((TicketId(1), 1), |ticket| (ticket.id, ticket.attachment + wrong))
}

fn new_limits(seed: Seed, now: &Limits) -> Limits {
    let name = [
        "queue_max",
        "ended_max",
        "client_ended_max",
        "overtaken_max",
        "piece_max",
        "metadata_bytes_max",
    ];
    let value = (seed.pick % 10).to_string();
    changed(now, &[(name[usize::from(seed.flags) % name.len()], &value)])
}
