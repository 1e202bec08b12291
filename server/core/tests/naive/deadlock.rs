//! Deadlock: from wait to wait until one of the caller's own leases is met.

use super::*;
use leasehold_core::command::Mode;
use leasehold_core::outcome::CycleStep;
use leasehold_core::row::Ticket;
use leasehold_core::{LeaseId, TicketId};
use std::cmp::Reverse;
use std::collections::BTreeSet;

impl Naive {
    pub(crate) fn cycle(&self, new: &Ticket, own: BTreeSet<LeaseId>) -> Option<Vec<CycleStep>> {
        let waits: Vec<&Ticket> =
            self.tickets.iter().filter(|one| one.attached && one.id != new.id).collect();
        let step = |ticket: &Ticket| CycleStep {
            owner: ticket.owner.clone(),
            resource: ticket.resource.clone(),
        };
        let mut paths: Vec<Vec<&Ticket>> = vec![vec![new]];
        let mut seen: BTreeSet<TicketId> = BTreeSet::from([new.id]);
        while let Some(path) = (!paths.is_empty()).then(|| paths.remove(0)) {
            let last = path[path.len() - 1];
            let mut blocked_by = self.in_the_way(last);
            if last.id != new.id && stands_before(new, last) {
                return Some(path.into_iter().map(step).collect());
            }
            if blocked_by.iter().any(|lease| own.contains(lease)) {
                return Some(path.into_iter().map(step).collect());
            }
            blocked_by.sort();
            let next =
                waits.iter().filter(|one| blocked_by.iter().any(|lease| waits_for(one, *lease)));
            for one in next {
                if seen.insert(one.id) {
                    paths.push(path.iter().copied().chain([*one]).collect());
                }
            }
        }
        None
    }

    pub(super) fn in_the_way(&self, wait: &Ticket) -> Vec<LeaseId> {
        let holders = self.holders(&wait.resource).into_iter();
        let holders = holders.filter(|grant| clash(grant.mode, wait.mode)).map(|grant| grant.lease);
        let line = self
            .tickets
            .iter()
            .filter(|one| one.attached && one.id != wait.id && stands_before(one, wait));
        holders.chain(line.map(|one| one.lease)).collect()
    }
}

pub(super) fn waits_for(ticket: &Ticket, lease: LeaseId) -> bool {
    ticket.lease == lease || ticket.behalf.iter().any(|all| all.contains(&lease))
}

pub(super) fn stands_before(one: &Ticket, other: &Ticket) -> bool {
    let earlier = (Reverse(one.priority), one.id) < (Reverse(other.priority), other.id);
    one.resource == other.resource && earlier && clash(one.mode, other.mode)
}

pub(super) fn clash(one: Mode, other: Mode) -> bool {
    one == Mode::Exclusive || other == Mode::Exclusive
}
