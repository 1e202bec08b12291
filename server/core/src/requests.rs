//! Repeats: what a request id remembers, for how long, and who remembers it.

use crate::command::{Acquire, Basis, EndedHow, Mode};
use crate::ids::Token;
use crate::machine::Step;
use crate::name::{Owner, RequestId};
use crate::outcome::{Outcome, Refusal};
use crate::row::{EndedRow, EndedWhat, Got};
use crate::state::{Client, Request, RequestKey};
use std::sync::Arc;

impl Step<'_> {
    /// The answer to a request that was made before; `None` if it is new.
    ///
    /// A grant that drains is answered as it is: whoever answers the client must not renew it.
    pub(crate) fn repeat(
        &mut self,
        key: &RequestKey,
        fingerprint: u64,
        wait: bool,
    ) -> Option<Outcome> {
        match *self.state.requests.get(key)? {
            Request::Ended(seq) => Some(Outcome::Refused(self.ended_refusal(seq, fingerprint))),
            Request::Live { fingerprint: first, .. } if first != fingerprint => {
                Some(Outcome::Refused(Refusal::RequestReused))
            }
            Request::Live { got: Got::Grant(token), .. } => Some(self.repeat_grant(token)?),
            Request::Live { got: Got::Ticket(id), .. } => {
                let ticket = self.state.tickets.get(&id)?.clone();
                Some(if let Err(refusal) = self.living_lease(ticket.lease) {
                    Outcome::Refused(refusal)
                } else if wait || self.would_be_next(&ticket) {
                    self.attach_again(&ticket)
                } else {
                    // Who tries once does not take the place of whoever still waits for it.
                    Outcome::Refused(Refusal::Held(self.blockers(&ticket.resource)))
                })
            }
        }
    }

    fn repeat_grant(&mut self, token: Token) -> Option<Outcome> {
        let lease = self.state.leases.get(&self.state.grants.get(&token)?.lease)?;
        let (ttl_ms, ending) = (lease.ttl_ms, lease.ending());
        if let Some(how) = ending {
            let ended_at_ms = self.now_ms();
            return Some(Outcome::Refused(Refusal::RequestEnded {
                token: Some(token),
                how,
                ended_at_ms,
            }));
        }
        let slot = self.state.grants.get_mut(&token)?;
        let grant = Arc::make_mut(slot);
        grant.attachment = grant.attachment.saturating_add(1);
        Some(Outcome::Granted { grant: slot.clone(), ttl_ms, repeat: true })
    }

    fn ended_refusal(&self, seq: u64, fingerprint: u64) -> Refusal {
        match self.state.ended.get(&seq).map(|row| &**row) {
            Some(EndedRow {
                how,
                ended_at_ms,
                what: EndedWhat::Request { token, fingerprint: first, .. },
                ..
            }) if *first == fingerprint => {
                Refusal::RequestEnded { token: *token, how: *how, ended_at_ms: *ended_at_ms }
            }
            _ => Refusal::RequestReused,
        }
    }

    /// The owner as the state already knows it, so that its text is stored once.
    pub(crate) fn interned(&self, owner: &Owner) -> Arc<Owner> {
        self.state.clients.get_key(owner).cloned().unwrap_or_else(|| Arc::new(owner.clone()))
    }

    /// Changes what is counted of an owner. One that has nothing left is dropped.
    pub(crate) fn count<R>(
        &mut self,
        owner: &Arc<Owner>,
        change: impl FnOnce(&mut Client) -> R,
    ) -> R {
        let clients = &mut self.state.clients;
        if let Some(client) = clients.get_mut(owner) {
            let result = change(client);
            if client.is_idle() {
                clients.remove(owner);
            }
            return result;
        }
        let mut client = Client::default();
        let result = change(&mut client);
        if !client.is_idle() {
            clients.insert(owner.clone(), client);
        }
        result
    }

    pub(crate) fn remember_live(
        &mut self,
        owner: &Arc<Owner>,
        id: Option<&RequestId>,
        fingerprint: u64,
        got: Got,
    ) {
        let Some(id) = id else { return };
        let key = RequestKey { owner: owner.clone(), id: id.clone() };
        self.state.requests.insert(key, Request::Live { fingerprint, got });
        self.count(owner, |client| client.requests += 1);
    }

    /// A ticket has become a grant.
    pub(crate) fn request_got(&mut self, owner: &Arc<Owner>, id: Option<&RequestId>, now: Got) {
        let Some(id) = id else { return };
        let key = RequestKey { owner: owner.clone(), id: id.clone() };
        if let Some(Request::Live { got, .. }) = self.state.requests.get_mut(&key) {
            *got = now;
        }
    }

    /// Answers the fingerprint of what was forgotten.
    pub(crate) fn forget_live(&mut self, owner: &Arc<Owner>, id: &RequestId) -> Option<u64> {
        let key = RequestKey { owner: owner.clone(), id: id.clone() };
        let Some(Request::Live { fingerprint, .. }) = self.state.requests.get(&key).copied() else {
            return None;
        };
        self.state.requests.remove(&key);
        self.count(owner, |client| client.requests -= 1);
        Some(fingerprint)
    }

    /// Remembers what ended; beyond the bounds the oldest is forgotten.
    ///
    /// At most two are forgotten for one that is added: after a bound was lowered the memory
    /// shrinks step by step instead of stopping everybody for a million removals.
    pub(crate) fn remember_ended(&mut self, how: EndedHow, what: EndedWhat) {
        self.state.head.last_ended += 1;
        let seq = self.state.head.last_ended;
        let owner = match &what {
            EndedWhat::Request { owner, id, .. } => {
                let key = RequestKey { owner: owner.clone(), id: id.clone() };
                self.state.requests.insert(key, Request::Ended(seq));
                self.count(owner, |client| client.ended.push_back(seq));
                Some(owner.clone())
            }
            EndedWhat::Lease { id } => {
                self.state.ended_leases.insert(*id, seq);
                None
            }
        };
        let row = EndedRow { seq, how, ended_at_ms: self.now_ms(), what };
        self.state.ended.insert(seq, Arc::new(row));
        for _ in 0..2 {
            self.crowd_out(owner.as_ref());
        }
    }

    fn crowd_out(&mut self, owner: Option<&Arc<Owner>>) {
        let limits = self.state.limits.clone();
        let of_client = owner.and_then(|owner| self.state.clients.get(owner));
        let too_many =
            of_client.filter(|client| client.ended.len() > limits.client_ended_max as usize);
        if let Some(oldest) = too_many.and_then(|client| client.ended.front().copied()) {
            self.forget_ended(oldest);
        }
        if self.state.ended.len() as u64 > limits.ended_max
            && let Some(oldest) = self.state.ended.first().map(|(seq, _)| *seq)
        {
            self.forget_ended(oldest);
        }
    }

    pub(crate) fn forget_ended(&mut self, seq: u64) {
        let Some(row) = self.state.ended.remove(&seq) else { return };
        match &row.what {
            EndedWhat::Request { owner, id, .. } => {
                self.state.requests.remove(&RequestKey { owner: owner.clone(), id: id.clone() });
                self.count(owner, |Client { ended, .. }| {
                    if let Ok(at) = ended.binary_search(&seq) {
                        ended.remove(at);
                    }
                });
            }
            EndedWhat::Lease { id } => {
                self.state.ended_leases.remove(id);
            }
        }
    }
}

/// Tells requests with different content apart. Not a defence: an owner who builds a collision
/// only fools itself.
pub(crate) fn fingerprint(asked: &Acquire) -> u64 {
    let mut hash = Fnv::new();
    hash.text(asked.resource.as_str());
    match asked.basis {
        Basis::Single { ttl_ms, .. } => hash.number(1).number(ttl_ms),
        Basis::Explicit { lease } => {
            hash.number(2).number(lease.0 as u64).number((lease.0 >> 64) as u64)
        }
    };
    hash.number(match asked.mode {
        Mode::Exclusive => 1,
        Mode::Shared => 2,
    });
    for (key, value) in asked.metadata.iter().flat_map(|pairs| pairs.iter()) {
        hash.text(key);
        hash.text(value);
    }
    hash.0
}

/// FNV-1a, 64 bits: the same on every build and machine, which `std`'s hasher does not promise.
struct Fnv(u64);

impl Fnv {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        self
    }

    fn number(&mut self, number: u64) -> &mut Self {
        self.bytes(&number.to_le_bytes())
    }

    fn text(&mut self, text: &str) -> &mut Self {
        self.number(text.len() as u64).bytes(text.as_bytes())
    }
}
