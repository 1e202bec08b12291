//! How a connection begins: who calls whom, and what they speak.

use super::frame::{HELLO, Rest, WELCOME, message, of_kind};
use crate::codec::DecodeError;
use serde::{Deserialize, Serialize};

/// The first message of a connection.
///
/// It and its answer are what two releases understand of each other before anything is agreed on:
/// they keep their version, fields are appended at the end, and what follows those that a node
/// knows is passed over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// The oldest and newest protocol that the caller speaks.
    pub(crate) protocols: (u16, u16),
    /// Which cluster the caller belongs to; nothing if it belongs to none yet.
    pub(crate) cluster: Option<[u8; 16]>,
    /// Who calls.
    pub(crate) from: u64,
    /// Who is meant: a node that has another's address is told so.
    pub(crate) to: u64,
    /// Who the caller is, beyond its number.
    pub(crate) caller: About,
    /// The founders that the caller was told of, as one number, while it has no cluster.
    pub(crate) founders: Option<u32>,
    /// The version of commands that its log may hold, as far as it knows.
    pub(crate) level: u16,
}

/// What a node says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct About {
    /// Which life of the node this is.
    pub(crate) incarnation: u128,
    /// The highest version of commands that it can apply.
    pub(crate) commands: u16,
    /// Where clients reach it.
    pub(crate) http: String,
    /// Where peers reach it.
    pub(crate) peer: String,
}

/// How a node stands to its cluster, and its caller as far as it knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Standing {
    /// It has nothing: neither entries nor a cluster.
    pub(crate) empty: bool,
    /// Which cluster it belongs to.
    pub(crate) cluster: Option<[u8; 16]>,
    /// Whether the caller is a member, by the newest committed change that it knows.
    pub(crate) member: bool,
}

/// The answer to a [`Hello`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Welcome {
    /// What is spoken from here on.
    Protocol { version: u16, about: About, standing: Standing },
    /// Why nothing is.
    Refused(Unwelcome),
}

/// Why a peer does not talk to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub(crate) enum Unwelcome {
    /// Both are there, and have no protocol in common.
    #[error("it speaks protocols {0} to {1}; upgrade the older of the two nodes")]
    Protocol(u16, u16),
    /// An address that belongs to somebody else.
    #[error("it is node {0}")]
    OtherNode(u64),
    /// It remembers another life of the caller, whose votes and entries are gone.
    #[error("it knows node {0} from before that node lost its data; let it join under a new id")]
    OtherIncarnation(u64),
    /// Two nodes without a cluster that were told of different founders.
    #[error("it was told of other founders; `peers` must be the same on each of them")]
    OtherFounders,
    /// Two clusters that know an address of each other.
    #[error("it belongs to another cluster")]
    OtherCluster,
    /// It has as many connections as it takes.
    #[error("it has too many connections")]
    Full,
    /// One of the two is older than what is in their log.
    #[error(
        "the log of the cluster may hold commands of version {0}, which one of the two nodes does \
         not know: upgrade that one"
    )]
    Commands(u16),
}

pub(crate) fn encode_hello(hello: &Hello) -> Vec<u8> {
    message(HELLO, hello, &[])
}

pub(crate) fn encode_welcome(welcome: &Welcome) -> Vec<u8> {
    message(WELCOME, welcome, &[])
}

pub(crate) fn decode_hello(bytes: &[u8]) -> Result<Hello, DecodeError> {
    Ok(Rest::after(of_kind(HELLO, bytes)?)?.0)
}

pub(crate) fn decode_welcome(bytes: &[u8]) -> Result<Welcome, DecodeError> {
    Ok(Rest::after(of_kind(WELCOME, bytes)?)?.0)
}
