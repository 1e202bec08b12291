//! Why the members were not changed, in the words that an operator needs.

use crate::types::TypeConfig;
use openraft::errors::{ChangeMembershipError, ClientWriteError, RaftError};

/// Why the members were not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MembershipError {
    /// Only the leader changes members.
    #[error("this node does not lead{}", leads(leader))]
    NotLeading {
        /// Who does, as far as it knows.
        leader: Option<u64>,
    },
    /// Other nodes cannot reach this one.
    #[error("this node answers no peers: start it with peer_listen")]
    Alone,
    /// One change at a time.
    #[error("{change} is on its way, and members change one at a time: try again once it is done")]
    InProgress {
        /// What is being changed.
        change: String,
    },
    /// No member has this id.
    #[error("node {id} is not a member of this cluster")]
    NoSuchNode {
        /// The id.
        id: u64,
    },
    /// Nobody answers where the new node should be.
    #[error("no node answers at {address}: {cause}. Is it running, with this as its peer_listen?")]
    Unreachable {
        /// The address.
        address: String,
        /// What went wrong.
        cause: String,
    },
    /// Another node answers there.
    #[error("node {found} answers at {address}, not node {id}")]
    OtherNode {
        /// The address.
        address: String,
        /// Who was to be there.
        id: u64,
        /// Who is.
        found: u64,
    },
    /// The node there does not talk to this cluster.
    #[error("node {id} at {address} and this cluster do not talk: {cause}")]
    Unwelcome {
        /// Its address.
        address: String,
        /// Its id.
        id: u64,
        /// Why.
        cause: String,
    },
    /// A node with data is not taken in: what it has could contradict what the cluster decided.
    #[error(
        "node {id} at {address} is not empty, and not a member: it has the data of another \
         cluster, or was removed from this one. Empty its data directory, and give it an id that \
         was never used"
    )]
    NotEmpty {
        /// Its address.
        address: String,
        /// Its id.
        id: u64,
    },
    /// The id belonged to a member that was removed.
    #[error(
        "a node {id} was removed from this cluster, and an id is used once: give the new node one \
         that was never used"
    )]
    IdRetired {
        /// The id.
        id: u64,
    },
    /// The id belongs to a member.
    #[error(
        "there is a node {id} already, at {address}, and the one to be added has other data. A \
         node that lost its data joins under an id that was never used; remove node {id} if it \
         is gone"
    )]
    IdTaken {
        /// The id.
        id: u64,
        /// Where that member is.
        address: String,
    },
    /// The address belongs to a member.
    #[error("{address} is the address of node {by}: remove that node first if it is gone")]
    AddressTaken {
        /// The address.
        address: String,
        /// Whose it is.
        by: u64,
    },
    /// Peers would look for it where it is not.
    #[error(
        "node {id} says that peers reach it at {advertised:?}, and there it does not answer: \
         {cause}. Set its advertise_peer"
    )]
    Advertises {
        /// Its id.
        id: u64,
        /// What it says.
        advertised: String,
        /// What went wrong.
        cause: String,
    },
    /// A cluster has no place for more.
    #[error("a cluster has at most {max} nodes")]
    TooMany {
        /// How many it may have.
        max: usize,
    },
    /// A learner that is behind would hold up every commit as a voter.
    #[error("node {id} is {entries} log entries behind: promote it once it has caught up")]
    Behind {
        /// Its id.
        id: u64,
        /// How many entries it lacks.
        entries: u64,
    },
    /// A node of which nothing is known.
    #[error("node {id} does not answer the leader: promote it once it does and has caught up")]
    NotHeardOf {
        /// Its id.
        id: u64,
    },
    /// Somebody has to decide.
    #[error("node {id} is the only voter, and a cluster without one decides nothing")]
    LastVoter {
        /// Its id.
        id: u64,
    },
    /// The change could not be committed, or nothing after it.
    #[error(
        "of the {voters} voters that there would be, {needed} have to be reachable, and \
         {silent:?} are not: bring them back, or remove the unreachable ones first"
    )]
    QuorumAtRisk {
        /// How many voters there would be.
        voters: usize,
        /// How many of them decide.
        needed: usize,
        /// Those that do not answer.
        silent: Vec<u64>,
    },
    /// The change may or may not take effect.
    #[error("it is not known whether the members change: look at them again in a moment")]
    OutcomeUnknown,
    /// Raft refuses it.
    #[error("raft refuses the change: {cause}")]
    Refused {
        /// What it says.
        cause: String,
    },
    /// The node is stopping.
    #[error("this node is stopping")]
    ShuttingDown,
}

fn leads(leader: &Option<u64>) -> String {
    leader.map_or_else(String::new, |id| format!("; node {id} does"))
}

impl From<RaftError<TypeConfig, ClientWriteError<TypeConfig>>> for MembershipError {
    fn from(error: RaftError<TypeConfig, ClientWriteError<TypeConfig>>) -> Self {
        let error = match error {
            RaftError::Fatal(_) => return Self::ShuttingDown,
            RaftError::APIError(error) => error,
        };
        match error {
            ClientWriteError::ForwardToLeader(forward) => {
                Self::NotLeading { leader: forward.leader_id }
            }
            ClientWriteError::LogEntryDiscarded(_) => Self::OutcomeUnknown,
            ClientWriteError::PreconditionFailed(_)
            | ClientWriteError::ChangeMembershipError(ChangeMembershipError::InProgress(_)) => {
                Self::InProgress { change: "another change".to_owned() }
            }
            ClientWriteError::ChangeMembershipError(cause) => {
                Self::Refused { cause: cause.to_string() }
            }
        }
    }
}
