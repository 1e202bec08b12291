//! `/v1/cluster`: which nodes there are, how they are, and changes to them.

use crate::parse::{Field, Kind, Shape, given, given_text};
use crate::schema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// `GET /v1/cluster`: the cluster as the answering node sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cluster<'a> {
    /// Its id: 32 hexadecimal digits. Absent before it is founded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<Cow<'a, str>>,
    /// The node that leads, by what the nodes that answered say; null if none does.
    pub leader: Option<u64>,
    /// The newest term that one of them knows.
    pub term: u64,
    /// The node that answers.
    pub this_node: u64,
    /// All members, by id.
    pub nodes: Vec<ClusterNode<'a>>,
}

/// One member. What only the node itself knows is absent if it did not answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterNode<'a> {
    /// Its id.
    pub id: u64,
    /// The address that other members use.
    pub peer_addr: Cow<'a, str>,
    /// The address that clients use.
    pub http_addr: Cow<'a, str>,
    /// What it does.
    pub role: NodeRole,
    /// Whether it counts for a majority, also while it is unreachable.
    pub voter: bool,
    /// Its newest log entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_index: Option<u64>,
    /// The newest log entry that it knows to be committed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub committed_index: Option<u64>,
    /// Its newest applied log entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_index: Option<u64>,
    /// The newest log entry that its snapshot covers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_index: Option<u64>,
    /// The newest change that it has applied. Opaque.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<Cow<'a, str>>,
    /// The version of its binary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<Cow<'a, str>>,
    /// The commit that it is built from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<Cow<'a, str>>,
    /// The highest version of commands that it applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commands_version: Option<u16>,
    /// Its Raft timing, `lan` or `wan`, which has to be the same on each node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raft_profile: Option<Cow<'a, str>>,
    /// How long it has been running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uptime_ms: Option<u64>,
    /// Free space on the disk of its data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_free_bytes: Option<u64>,
    /// Whether only the reserve is left of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_full: Option<bool>,
    /// How far its wall clock is ahead of that of the answering node, roughly. Nothing counts on
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_ahead_ms: Option<i64>,
    /// What it waits for before it serves; absent once it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<Cow<'a, str>>,
    /// Why it did not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreachable: Option<Cow<'a, str>>,
}

/// What a member does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NodeRole {
    /// It leads.
    Leader,
    /// It follows and votes.
    Follower,
    /// It follows without a vote.
    Learner,
    /// It did not answer in time.
    Unreachable,
}

impl NodeRole {
    /// The role as it stands in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Follower => "follower",
            Self::Learner => "learner",
            Self::Unreachable => "unreachable",
        }
    }
}

/// `POST /v1/cluster/add`: a node becomes a learner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AddNode<'a> {
    /// Its id, which no node of this cluster had before.
    #[schemars(schema_with = "schema::node_id")]
    pub id: u64,
    /// Where it answers other members: `HOST:PORT`.
    #[serde(borrow)]
    #[schemars(schema_with = "schema::peer_addr")]
    pub peer_addr: Cow<'a, str>,
    /// Why, for the audit: 1 to 512 bytes.
    #[serde(
        default,
        borrow,
        deserialize_with = "given_text",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "schema::reason")]
    pub reason: Option<Cow<'a, str>>,
}

impl<'a> Shape<'a> for AddNode<'a> {
    const FIELDS: &'static [Field] = &[
        Field::required("id", Kind::Count),
        Field::required("peer_addr", Kind::Text),
        Field::optional("reason", Kind::Text),
    ];
}

/// `POST /v1/cluster/promote` and `/v1/cluster/remove`: a learner gets a vote; a node stops being a
/// member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeNode<'a> {
    /// Which node.
    #[schemars(schema_with = "schema::node_id")]
    pub id: u64,
    /// Why, for the audit: 1 to 512 bytes.
    #[serde(
        default,
        borrow,
        deserialize_with = "given_text",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "schema::reason")]
    pub reason: Option<Cow<'a, str>>,
}

impl<'a> Shape<'a> for ChangeNode<'a> {
    const FIELDS: &'static [Field] =
        &[Field::required("id", Kind::Count), Field::optional("reason", Kind::Text)];
}

/// What a change of the members did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeChanged {
    /// Which node.
    pub id: u64,
    /// What it is from now on.
    pub standing: NodeStanding,
}

/// How a node stands in a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NodeStanding {
    /// It is a member without a vote.
    Learner,
    /// It is a member with a vote.
    Voter,
    /// It is no member.
    Removed,
}

/// `POST /v1/cluster/transfer`: another node leads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TransferLeadership<'a> {
    /// Which one; left out: the voter that has caught up furthest.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::node_id")]
    pub to: Option<u64>,
    /// Why, for the audit: 1 to 512 bytes.
    #[serde(
        default,
        borrow,
        deserialize_with = "given_text",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "schema::reason")]
    pub reason: Option<Cow<'a, str>>,
}

impl<'a> Shape<'a> for TransferLeadership<'a> {
    const FIELDS: &'static [Field] =
        &[Field::optional("to", Kind::Count), Field::optional("reason", Kind::Text)];
}

/// Who leads after a transfer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeadershipTransferred {
    /// The node that leads.
    pub leader: u64,
}
