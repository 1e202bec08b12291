//! A digest over rows that every build computes alike.
//!
//! Every field is fed in with a length or a tag before it, so that no two different rows feed
//! the same bytes. Two FNV-1a lanes with different bases make 128 bits.

use crate::command::{Metadata, Mode, PolicyVerdict};
use crate::ids::{ClusterId, LeaseId};
use crate::limits::Limits;
use crate::name::Owner;
use crate::outcome::Grant;
use crate::row::{EndedRow, EndedWhat, Got, LeaseRow, LiveRequest, Row, Ticket};
use crate::snapshot::{how_number, token_number};

const PRIME: u64 = 0x0000_0100_0000_01b3;

pub(crate) struct Digest {
    low: u64,
    high: u64,
}

impl Digest {
    pub(crate) fn new() -> Self {
        Self { low: 0xcbf2_9ce4_8422_2325, high: 0x6c62_272e_07bb_0142 }
    }

    pub(crate) fn finish(&self) -> u128 {
        (u128::from(self.high) << 64) | u128::from(self.low)
    }

    /// Eight bytes at a time: a million rows are digested in well under a second.
    fn word(&mut self, word: u64) -> &mut Self {
        self.low = (self.low ^ word).wrapping_mul(PRIME).rotate_left(23);
        self.high = (self.high ^ word.rotate_left(32))
            .wrapping_mul(PRIME ^ 0x9e37_79b9_7f4a_7c14)
            .rotate_left(29);
        self
    }

    fn text(&mut self, text: &str) -> &mut Self {
        self.word(text.len() as u64);
        for piece in text.as_bytes().chunks(8) {
            let mut word = [0u8; 8];
            word[..piece.len()].copy_from_slice(piece);
            self.word(u64::from_le_bytes(word));
        }
        self
    }

    fn maybe(&mut self, number: Option<u64>) -> &mut Self {
        match number {
            Some(number) => self.word(1).word(number),
            None => self.word(0),
        }
    }

    fn lease_id(&mut self, id: LeaseId) -> &mut Self {
        self.word(id.0 as u64).word((id.0 >> 64) as u64)
    }

    fn owner(&mut self, owner: &Owner) -> &mut Self {
        self.text(owner.principal.as_str()).text(owner.client.as_str())
    }

    fn metadata(&mut self, metadata: Option<&Metadata>) -> &mut Self {
        self.word(metadata.map_or(0, |pairs| pairs.len() as u64 + 1));
        for (key, value) in metadata.iter().flat_map(|pairs| pairs.iter()) {
            self.text(key).text(value);
        }
        self
    }

    fn policies(&mut self, policies: Option<&[PolicyVerdict]>) -> &mut Self {
        self.word(policies.map_or(0, |all| all.len() as u64 + 1));
        for policy in policies.into_iter().flatten() {
            self.text(&policy.name).text(&policy.version).text(&policy.verdict);
        }
        self
    }

    fn mode(&mut self, mode: Mode) -> &mut Self {
        self.word(match mode {
            Mode::Exclusive => 1,
            Mode::Shared => 2,
        })
    }

    pub(crate) fn row(&mut self, row: &Row) {
        match row {
            Row::Head(head) => {
                self.word(1).word(head.revision).word(head.last_token).word(head.last_ticket);
                self.word(head.last_ended).word(head.at_ms);
                self.word(u64::from(head.level)).word(head.hold_ms);
                // In two halves, and nothing at all before there is a cluster.
                if let Some(ClusterId(id)) = head.cluster {
                    self.word((id >> 64) as u64).word(id as u64);
                }
            }
            Row::Limits(limits) => self.limits(limits),
            Row::Domain { domain, settings } => {
                let queue_max = settings.limits.queue_max.map(u64::from);
                self.word(3).text(domain).word(settings.version.0).maybe(queue_max);
            }
            Row::Lease(lease) => self.lease(lease),
            Row::Grant(grant) => self.grant(grant),
            Row::Ticket(ticket) => self.ticket(ticket),
            Row::Live(request) => self.live(request),
            Row::Ended(ended) => self.ended(ended),
        }
    }

    /// Taken apart by name, so that a new limit cannot be forgotten here.
    fn limits(&mut self, limits: &Limits) {
        let Limits {
            ttl_min_ms,
            ttl_max_ms,
            queue_max,
            client_tickets_max,
            tickets_max,
            grants_max,
            leases_max,
            lease_items_max,
            metadata_bytes_max,
            client_ended_max,
            ended_max,
            piece_max,
            walk_max,
            overtaken_max,
            claim_window_ms,
            remember_ms,
            history_max,
            history_ms,
        } = limits;
        self.word(2).word(*ttl_min_ms).word(*ttl_max_ms).word(u64::from(*queue_max));
        self.word(u64::from(*client_tickets_max)).word(*tickets_max).word(*grants_max);
        self.word(*leases_max).word(u64::from(*lease_items_max)).word(*metadata_bytes_max);
        self.word(u64::from(*client_ended_max)).word(*ended_max).word(u64::from(*piece_max));
        self.word(u64::from(*walk_max)).word(u64::from(*overtaken_max)).word(*claim_window_ms);
        self.word(*remember_ms).word(*history_max).word(*history_ms);
    }

    fn lease(&mut self, lease: &LeaseRow) {
        self.word(4).lease_id(lease.id).owner(&lease.owner).word(lease.ttl_ms);
        self.word(lease.longest_ttl_ms);
        self.word(u64::from(lease.single))
            .word(lease.opened_at_ms)
            .metadata(lease.metadata.as_ref());
        self.maybe(lease.ending.map(how_number)).word(lease.lost.len() as u64);
        for lost in &lease.lost {
            self.text(lost.resource.as_str())
                .word(lost.token.0)
                .word(how_number(lost.how))
                .word(lost.ended_at_ms);
        }
    }

    fn grant(&mut self, grant: &Grant) {
        self.word(5).word(grant.token.0).text(grant.resource.as_str()).owner(&grant.owner);
        self.lease_id(grant.lease).word(u64::from(grant.single)).mode(grant.mode);
        self.maybe(grant.ticket.map(|id| id.0))
            .word(u64::from(grant.attachment))
            .text(grant.request_id.as_ref().map_or("", |id| id.as_str()));
        self.word(grant.asked_at_ms)
            .word(grant.granted_at_ms)
            .maybe(grant.claim_ms)
            .maybe(grant.ttl_cap_ms);
        self.policies(grant.policies.as_deref())
            .metadata(grant.metadata.as_ref())
            .word(u64::from(grant.draining));
    }

    fn ticket(&mut self, ticket: &Ticket) {
        self.word(6).word(ticket.id.0).text(ticket.resource.as_str()).owner(&ticket.owner);
        self.lease_id(ticket.lease).mode(ticket.mode).word(u64::from(ticket.priority));
        self.word(u64::from(ticket.overtaken))
            .word(u64::from(ticket.attached))
            .word(u64::from(ticket.attachment));
        self.text(ticket.request_id.as_ref().map_or("", |id| id.as_str())).word(ticket.asked_at_ms);
        self.maybe(ticket.claim_ms).word(u64::from(ticket.keep_place));
        self.word(ticket.behalf.as_ref().map_or(0, |leases| leases.len() as u64));
        for lease in ticket.behalf.iter().flat_map(|leases| leases.iter()) {
            self.lease_id(*lease);
        }
        self.metadata(ticket.metadata.as_ref())
            .maybe(ticket.ttl_cap_ms)
            .policies(ticket.policies.as_deref());
    }

    fn live(&mut self, request: &LiveRequest) {
        self.word(7).owner(&request.owner).text(request.id.as_str()).word(request.fingerprint);
        match request.got {
            Got::Ticket(id) => self.word(1).word(id.0),
            Got::Grant(token) => self.word(2).word(token.0),
        };
    }

    fn ended(&mut self, ended: &EndedRow) {
        self.word(8).word(ended.seq).word(how_number(ended.how)).word(ended.ended_at_ms);
        match &ended.what {
            EndedWhat::Request { owner, id, fingerprint, token } => {
                self.word(1)
                    .owner(owner)
                    .text(id.as_str())
                    .word(*fingerprint)
                    .word(token_number(*token));
            }
            EndedWhat::Lease { id } => {
                self.word(2).lease_id(*id);
            }
        }
    }
}
