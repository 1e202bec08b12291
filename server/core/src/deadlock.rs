//! Waits that can never end: a cycle of owners that wait for each other's grants.
//!
//! The nodes are leases. A waiting ticket has an edge to the lease of every incompatible holder
//! and of every earlier incompatible ticket of its resource. A ticket waits for the lease that it
//! stands on and for those that its owner said to hold (`behalf`).
//!
//! Source: the wait-for graph of database lock managers (Gray and Reuter 1993).

use crate::command::{Acquire, Basis, Mode};
use crate::ids::{LeaseId, TicketId};
use crate::machine::Step;
use crate::name::{Owner, ResourceName};
use crate::outcome::CycleStep;
use crate::queue::place_of;
use crate::row::Ticket;
use crate::state::{Content, Item, Lease, Place, State};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

impl Step<'_> {
    /// The cycle that this wait would close.
    pub(crate) fn cycle_of(&self, asked: &Acquire) -> Option<Vec<CycleStep>> {
        let mut own: BTreeSet<LeaseId> =
            self.behalf_of(asked).iter().flat_map(|ids| ids.iter().copied()).collect();
        if let Basis::Explicit { lease } = asked.basis {
            own.insert(lease);
        }
        let owner = self.interned(&asked.owner);
        let place = (Reverse(asked.priority), TicketId(u64::MAX));
        let wait =
            Wait { owner: &owner, resource: &asked.resource, mode: asked.mode, place, from: None };
        self.state.find_cycle_of(&own, wait)
    }

    /// The same for a ticket that was detached, so that nothing counted its wait meanwhile.
    pub(crate) fn cycle_of_ticket(&self, ticket: &Ticket) -> Option<Vec<CycleStep>> {
        let mut own: BTreeSet<LeaseId> =
            ticket.behalf.iter().flat_map(|ids| ids.iter().copied()).collect();
        own.insert(ticket.lease);
        self.state.find_cycle_of(&own, Wait::of(ticket, None))
    }

    /// The leases of what the caller says to hold; what is not its own live grant is not counted.
    pub(crate) fn behalf_of(&self, asked: &Acquire) -> Option<Arc<[LeaseId]>> {
        let held = asked.holding.iter().filter_map(|holding| {
            let grant = self.state.grants.get(&holding.token)?;
            (grant.resource == holding.resource && *grant.owner == asked.owner)
                .then_some(grant.lease)
        });
        let leases: BTreeSet<LeaseId> = held.collect();
        (!leases.is_empty()).then(|| leases.into_iter().collect())
    }
}

/// A wait that the search looks at, and the lease (an index of `reached`) that led to it.
#[derive(Clone, Copy)]
struct Wait<'a> {
    owner: &'a Arc<Owner>,
    resource: &'a ResourceName,
    mode: Mode,
    place: Place,
    from: Option<usize>,
}

/// A lease that the search has reached, and through which wait.
struct Reached<'a> {
    lease: LeaseId,
    through: Wait<'a>,
}

impl<'a> Wait<'a> {
    fn of(ticket: &'a Ticket, from: Option<usize>) -> Self {
        Self {
            owner: &ticket.owner,
            resource: &ticket.resource,
            mode: ticket.mode,
            place: place_of(ticket),
            from,
        }
    }

    /// Whether this wait stands behind `other` in one line and must let it go first.
    fn is_behind(&self, other: &Wait<'_>) -> bool {
        self.resource == other.resource && self.place > other.place && clash(self.mode, other.mode)
    }
}

fn clash(one: Mode, other: Mode) -> bool {
    one == Mode::Exclusive || other == Mode::Exclusive
}

impl State {
    fn find_cycle_of<'a>(
        &'a self,
        own: &BTreeSet<LeaseId>,
        new: Wait<'a>,
    ) -> Option<Vec<CycleStep>> {
        if own.is_empty() && !self.goes_before_others(&new) {
            return None;
        }
        self.find_cycle(|lease| own.contains(&lease), new)
    }

    /// The cycle that an exclusive wait of this owner would close, or that its ticket is part of,
    /// if all that the owner holds counts.
    pub(crate) fn cycle_if_waiting(
        &self,
        owner: &Arc<Owner>,
        resource: &ResourceName,
        ticket: Option<&Ticket>,
    ) -> Option<Vec<CycleStep>> {
        let place = (Reverse(0), TicketId(u64::MAX));
        let new = Wait { owner, resource, mode: Mode::Exclusive, place, from: None };
        let wait = ticket.map_or(new, |ticket| Wait::of(ticket, None));
        // Who only stands in line elsewhere may be another thread.
        let holds = |lease: &Lease| match lease.content {
            Content::Single(item) => matches!(item, Item::Grant(_)),
            Content::Many { grants, .. } => grants > 0,
        };
        let own =
            |id| self.leases.get(&id).is_some_and(|lease| *lease.owner == **owner && holds(lease));
        self.find_cycle(own, wait)
    }

    /// Breadth first from the new wait, so that the answer is a shortest cycle. The order is
    /// fixed by tokens and places, and the walk ends after `walk_max` steps, whatever they found.
    fn find_cycle<'a>(
        &'a self,
        own: impl Fn(LeaseId) -> bool,
        new: Wait<'a>,
    ) -> Option<Vec<CycleStep>> {
        let mut steps_left = self.limits.walk_max as usize;
        let mut seen = BTreeSet::new();
        let mut reached: Vec<Reached<'a>> = Vec::new();
        let mut waits = vec![new];
        let mut next = 0;
        loop {
            for wait in waits.drain(..) {
                // The new wait is in no line yet, so the edge to it is looked for by hand.
                if wait.from.is_some() && wait.is_behind(&new) {
                    return Some(path(&reached, wait));
                }
                for lease in self.blocking(wait) {
                    steps_left = steps_left.checked_sub(1)?;
                    let Some(lease) = lease else { continue };
                    if own(lease) {
                        return Some(path(&reached, wait));
                    }
                    if seen.insert(lease) {
                        reached.push(Reached { lease, through: wait });
                    }
                }
            }
            let here = reached.get(next)?.lease;
            for ticket in self.waits_of(here) {
                steps_left = steps_left.checked_sub(1)?;
                waits.extend(ticket.attached.then(|| Wait::of(ticket, Some(next))));
            }
            next += 1;
        }
    }

    /// Only a priority lets a new wait stand before others, and make them wait for it.
    fn goes_before_others(&self, new: &Wait<'_>) -> bool {
        let line = self.locks.get(new.resource).and_then(|lock| lock.line.as_ref());
        line.is_some_and(|line| {
            line.attached.range((Bound::Excluded(new.place), Bound::Unbounded)).next().is_some()
        })
    }

    /// The leases that stand before a wait. Whoever is compatible is `None`: looking at it is
    /// work all the same.
    fn blocking<'a>(&'a self, wait: Wait<'a>) -> impl Iterator<Item = Option<LeaseId>> + use<'a> {
        let lock = self.locks.get(wait.resource);
        let held = lock.filter(|lock| !lock.admits(wait.mode));
        let holders = held.into_iter().flat_map(|lock| lock.holders.iter());
        let line = lock.and_then(|lock| lock.line.as_ref());
        let earlier = line.into_iter().flat_map(move |line| line.attached.range(..wait.place));
        let tickets = earlier.map(move |((_, id), other)| {
            let ticket = self.tickets.get(id).filter(|_| clash(wait.mode, *other));
            ticket.map(|ticket| ticket.lease)
        });
        holders.map(|token| self.grants.get(&token).map(|grant| grant.lease)).chain(tickets)
    }

    /// The tickets that keep a lease's owner waiting, if they are attached.
    fn waits_of(&self, lease: LeaseId) -> impl Iterator<Item = &Ticket> {
        let single = match self.leases.get(&lease).map(|lease| lease.content) {
            Some(Content::Single(Item::Ticket(id))) => Some(id),
            _ => None,
        };
        let first = (lease, Item::Ticket(TicketId(0)));
        let last = (lease, Item::Ticket(TicketId(u64::MAX)));
        let on_lease = self.on_lease.range(first..=last).filter_map(|((_, item), ())| match item {
            Item::Ticket(id) => Some(*id),
            Item::Grant(_) => None,
        });
        let behalf = self.on_behalf.range((lease, TicketId(0))..=(lease, TicketId(u64::MAX)));
        let ids = single.into_iter().chain(on_lease).chain(behalf.map(|((_, id), ())| *id));
        ids.filter_map(|id| self.tickets.get(&id)).map(|ticket| &**ticket)
    }
}

fn path(reached: &[Reached<'_>], last: Wait<'_>) -> Vec<CycleStep> {
    let mut steps = Vec::new();
    let mut at = Some(last);
    while let Some(wait) = at {
        steps.push(CycleStep { owner: wait.owner.clone(), resource: wait.resource.clone() });
        at = wait.from.and_then(|from| reached.get(from)).map(|here| here.through);
    }
    steps.reverse();
    steps
}
