//! Who this node is, as its peers are told, and whom of them it talks to.
//!
//! Members are those of the newest membership in this node's log, committed or not, as Raft itself
//! counts them. It is read from the log when the node starts, long before anything is applied.

use super::PROTOCOLS;
use crate::codec::{About, Hello, Standing, StatusAsk, Unwelcome};
use crate::config::{NodeConfig, PeerConfig};
use crate::level::Outdated;
use crate::log::LogStore;
use crate::state::Shared;
use crate::types::{Member, TypeConfig};
use openraft::async_runtime::WatchReceiver as _;
use openraft::metrics::RaftServerMetrics;
use openraft::type_config::alias::WatchReceiverOf;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use tokio::sync::watch;

/// What Raft tells of itself.
type Told = WatchReceiverOf<TypeConfig, RaftServerMetrics<TypeConfig>>;

/// This node in the eyes of others, and the others in its own.
pub(crate) struct Identity {
    id: u64,
    about: RwLock<About>,
    founders: Option<u32>,
    /// Where nodes may be found, as the settings say, by id.
    places: BTreeMap<u64, String>,
    shared: Arc<Shared>,
    log: LogStore,
    /// Where members say that they are, by id.
    told: Mutex<BTreeMap<u64, Member>>,
    /// Set once Raft runs.
    raft: OnceLock<Told>,
    /// Set once this node is found to be too old for its cluster.
    outdated: watch::Sender<Option<Outdated>>,
}

/// Who calls, as the greeting says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Caller {
    id: u64,
    incarnation: u128,
    cluster: Option<[u8; 16]>,
}

impl From<&Hello> for Caller {
    fn from(hello: &Hello) -> Self {
        let Hello { from, cluster, .. } = *hello;
        Self { id: from, incarnation: hello.caller.incarnation, cluster }
    }
}

/// What somebody may ask of this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// A member.
    Everything,
    /// Perhaps a member that this node does not know of yet.
    Raft,
    /// Nobody that this node has to do with.
    Nothing,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("id", &self.id).finish_non_exhaustive()
    }
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
            commands: config.commands,
            http: config.http.clone(),
            peer: peers.map(|peers| peers.advertise.clone()).unwrap_or_default(),
        };
        let founders = peers.and_then(founders_number);
        Self {
            id: config.id,
            about: RwLock::new(about),
            founders,
            places: peers.map(|peers| peers.founders.clone()).unwrap_or_default(),
            shared,
            log,
            told: Mutex::default(),
            raft: OnceLock::new(),
            outdated: watch::Sender::new(None),
        }
    }

    /// From here on members are those that Raft has.
    pub(crate) fn follow(&self, raft: Told) {
        let _ = self.raft.set(raft);
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The highest version of commands that this node knows.
    pub(crate) fn knows(&self) -> u16 {
        self.about.read().commands
    }

    /// Changes once, if this node is found to be too old for its cluster.
    pub(crate) fn outdated(&self) -> watch::Receiver<Option<Outdated>> {
        self.outdated.subscribe()
    }

    /// Takes note of a version of commands that the cluster may use. A node that does not know it
    /// has to stop.
    pub(super) fn meet(&self, needs: u16) {
        let knows = self.knows();
        if needs > knows {
            self.outdated.send_if_modified(|outdated| {
                let first = outdated.is_none();
                outdated.get_or_insert(Outdated { needs, knows });
                first
            });
        }
    }

    fn level(&self) -> u16 {
        self.shared.table.read().level()
    }

    /// This node as a member of a cluster.
    pub(crate) fn member(&self) -> Member {
        member_of(&self.about.read())
    }

    /// Clients reach it there: a port may only be known once it is bound.
    pub(crate) fn set_http(&self, address: String) {
        self.about.write().http = address;
    }

    /// Keeps what a member says of itself.
    pub(super) fn note(&self, id: u64, about: &About) {
        self.keep(id, member_of(about));
    }

    /// Keeps where a member is, as its greeting says: one that has just started greets before it
    /// knows where clients reach it.
    pub(super) fn note_place(&self, id: u64, about: &About) {
        let told = self.told.lock().get(&id).cloned();
        let Some(Member { http, .. }) = told.or_else(|| self.known(id)) else { return };
        self.keep(id, Member { http, ..member_of(about) });
    }

    /// For members alone, each in its present life: so there are never more of them, and what was
    /// said of one that is none any more goes.
    fn keep(&self, id: u64, member: Member) {
        let is_member = |id: u64, told: &Member| self.member_life(id) == Some(told.incarnation);
        if member.peer.is_empty() || !is_member(id, &member) {
            return;
        }
        let mut told = self.told.lock();
        told.retain(|id, known| is_member(*id, known));
        told.insert(id, member);
    }

    /// Where members say that they are.
    pub(crate) fn told(&self) -> BTreeMap<u64, Member> {
        self.told.lock().clone()
    }

    /// Where that life of a peer may be, the likeliest place first: where it says that it is, which
    /// may not stand among the members yet, as to enter it there may take the very node that moved;
    /// where it is as a member; and where the settings have it, if most members moved at once. A
    /// wrong place does no harm, since whoever is there says who it is.
    pub(super) fn places(&self, peer: u64, incarnation: u128, entered: &str) -> Vec<String> {
        let told = self.told.lock().get(&peer).cloned();
        let told = told.filter(|member| member.incarnation == incarnation);
        let mut places: Vec<String> = Vec::with_capacity(3);
        let entered = Some(entered.to_owned());
        let all = [told.map(|member| member.peer), entered, self.places.get(&peer).cloned()];
        for place in all.into_iter().flatten() {
            if !place.is_empty() && !places.contains(&place) {
                places.push(place);
            }
        }
        places
    }

    /// Keeps for good that this node is a member: one that never was cannot have been removed.
    pub(crate) fn note_membership(&self) {
        self.log.note_member();
    }

    /// Whether this node is known to have been a member, in this or an earlier run.
    pub(crate) fn was_member(&self) -> bool {
        self.log.was_member()
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
            level: self.level(),
        }
    }

    pub(super) fn about(&self) -> About {
        self.about.read().clone()
    }

    /// Nothing was ever written here.
    pub(crate) fn is_empty(&self) -> bool {
        self.log.last_index().is_none()
    }

    fn cluster(&self) -> Option<[u8; 16]> {
        self.shared.table.read().cluster().map(|cluster| cluster.0.to_be_bytes())
    }

    /// Which life of a node is a member.
    fn member_life(&self, id: u64) -> Option<u128> {
        self.known(id).map(|member| member.incarnation)
    }

    /// A node as the newest membership has it.
    fn known(&self, id: u64) -> Option<Member> {
        match self.raft.get() {
            Some(raft) => raft.borrow_watched().membership_config.get_node(&id).cloned(),
            None => self.shared.membership().membership().get_node(&id).cloned(),
        }
    }

    /// What a caller may ask, by what this node knows at this moment.
    ///
    /// Raft's own messages are taken from callers that are no members here as well, if they name
    /// this cluster: a node that was away may hear of new members only through one of them, and
    /// their election may need its vote. An empty node has to take them from whoever founds a
    /// cluster with it or takes it in. What comes of them, Raft decides by term and log. Requests
    /// of clients and questions for the state are for members alone.
    ///
    /// Source: Ongaro's dissertation (2014), section 4.1.
    pub(super) fn admits(&self, caller: &Caller) -> Admission {
        if let Some(known) = self.member_life(caller.id) {
            let same = known == caller.incarnation;
            return if same { Admission::Everything } else { Admission::Nothing };
        }
        let ours = self.cluster();
        if self.is_empty() || (ours.is_some() && ours == caller.cluster) {
            return Admission::Raft;
        }
        Admission::Nothing
    }

    /// How this node stands, and the caller in its eyes.
    pub(super) fn standing(&self, caller: u64) -> Standing {
        Standing {
            empty: self.is_empty(),
            cluster: self.cluster(),
            member: self.member_life(caller).is_some(),
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
        self.same_commands(hello)?;
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

    /// Whether each knows the commands that the log of the other may hold.
    fn same_commands(&self, hello: &Hello) -> Result<(), Unwelcome> {
        let level = self.level();
        if hello.caller.commands < level {
            return Err(Unwelcome::Commands(level));
        }
        if hello.level <= self.knows() {
            return Ok(());
        }
        // A stranger is not believed, unless this node is about to get its first peers.
        if self.is_empty() || self.member_life(hello.from).is_some() {
            self.meet(hello.level);
        }
        Err(Unwelcome::Commands(hello.level))
    }

    fn is_another_life(&self, peer: u64, incarnation: u128) -> bool {
        self.member_life(peer).is_some_and(|known| known != incarnation)
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
