//! Who this node is, as its peers are told, and whom of them it talks to.

use super::PROTOCOLS;
use crate::codec::{About, Hello, Standing, StatusAsk, Unwelcome};
use crate::config::{NodeConfig, PeerConfig};
use crate::log::LogStore;
use crate::state::Shared;
use crate::types::{Member, Membership};
use parking_lot::RwLock;
use std::sync::Arc;

/// The version of the commands that this binary applies, as its peers are told.
pub(crate) const COMMANDS: u16 = 1;

/// This node in the eyes of others, and the others in its own.
#[derive(Debug)]
pub(crate) struct Identity {
    id: u64,
    about: RwLock<About>,
    founders: Option<u32>,
    shared: Arc<Shared>,
    log: LogStore,
}

impl Identity {
    pub(crate) fn new(
        config: &NodeConfig,
        incarnation: u128,
        shared: Arc<Shared>,
        log: LogStore,
    ) -> Self {
        let peers = config.peers.as_ref();
        let about = About {
            incarnation,
            commands: COMMANDS,
            http: config.http.clone(),
            peer: peers.map(|peers| peers.advertise.clone()).unwrap_or_default(),
        };
        let founders = peers.and_then(founders_number);
        Self { id: config.id, about: RwLock::new(about), founders, shared, log }
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// This node as a member of a cluster.
    pub(crate) fn member(&self) -> Member {
        member_of(&self.about.read())
    }

    /// Clients reach it there: a port may only be known once it is bound.
    pub(crate) fn set_http(&self, address: String) {
        self.about.write().http = address;
    }

    /// Asks how a peer is, and says who asks.
    pub(crate) fn status_ask(&self) -> StatusAsk {
        StatusAsk { from: self.id, about: self.about() }
    }

    pub(super) fn hello(&self, to: u64) -> Hello {
        Hello {
            protocols: PROTOCOLS,
            cluster: self.cluster(),
            from: self.id,
            to,
            caller: self.about(),
            founders: self.founders.filter(|_| self.is_empty()),
        }
    }

    pub(super) fn about(&self) -> About {
        self.about.read().clone()
    }

    /// Nothing was ever written here.
    fn is_empty(&self) -> bool {
        self.log.last_index().is_none()
    }

    fn cluster(&self) -> Option<[u8; 16]> {
        self.shared.table.read().cluster().map(|cluster| cluster.0.to_be_bytes())
    }

    /// The members by the newest committed change that is applied here.
    fn members(&self) -> Membership {
        self.shared.membership().membership().clone()
    }

    /// How this node stands, and the caller in its eyes.
    pub(super) fn standing(&self, caller: u64) -> Standing {
        let members = self.members();
        Standing {
            empty: self.is_empty(),
            cluster: self.cluster(),
            member: members.get_node(&caller).is_some(),
        }
    }

    /// The protocol to speak with whoever said this.
    pub(super) fn judge(&self, hello: &Hello) -> Result<u16, Unwelcome> {
        let newest = hello.protocols.1.min(PROTOCOLS.1);
        if newest < hello.protocols.0.max(PROTOCOLS.0) {
            return Err(Unwelcome::Protocol(PROTOCOLS.0, PROTOCOLS.1));
        }
        if hello.to != self.id {
            return Err(Unwelcome::OtherNode(self.id));
        }
        if !self.same_cluster(hello.cluster) {
            return Err(Unwelcome::OtherCluster);
        }
        if self.is_another_life(hello.from, hello.caller.incarnation) {
            return Err(Unwelcome::OtherIncarnation(hello.from));
        }
        match (self.founders.filter(|_| self.is_empty()), hello.founders) {
            (Some(ours), Some(theirs)) if ours != theirs => Err(Unwelcome::OtherFounders),
            _ => Ok(newest),
        }
    }

    /// A node that belongs to no cluster yet may be about to join one.
    pub(super) fn same_cluster(&self, other: Option<[u8; 16]>) -> bool {
        match (self.cluster(), other) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => true,
        }
    }

    fn is_another_life(&self, peer: u64, incarnation: u128) -> bool {
        let members = self.members();
        members.get_node(&peer).is_some_and(|known| known.incarnation != incarnation)
    }
}

pub(crate) fn member_of(about: &About) -> Member {
    Member { http: about.http.clone(), peer: about.peer.clone(), incarnation: about.incarnation }
}

/// The same for those who were told of the same founders.
fn founders_number(peers: &PeerConfig) -> Option<u32> {
    let text: Vec<String> =
        peers.founders.iter().map(|(id, address)| format!("{id}={address}")).collect();
    (!text.is_empty()).then(|| crc32fast::hash(text.join(",").as_bytes()))
}
