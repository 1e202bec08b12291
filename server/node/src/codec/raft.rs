//! What Raft itself keeps: votes, log ids, memberships, and the head of a snapshot.

use super::{DecodeError, Format, read, write};
use crate::types::{
    CommittedLeader, LeaderId, LogId, Member, Membership, SnapshotMeta, StoredMembership, Vote,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

pub(super) const VOTE: Format = Format { what: "vote", version: 1 };
pub(super) const LOG_ID: Format = Format { what: "log id", version: 1 };
pub(super) const SLOT: Format = Format { what: "snapshot head", version: 1 };

#[derive(Serialize, Deserialize, Clone, Copy)]
pub(super) struct StoredVote {
    term: u64,
    node: u64,
    committed: bool,
}

#[derive(Serialize, Deserialize, Clone, Copy)]
pub(super) struct StoredLogId {
    term: u64,
    index: u64,
}

/// Joint sets of voters, then every member with its addresses.
#[derive(Serialize, Deserialize)]
pub(super) struct StoredMembers {
    voters: Vec<Vec<u64>>,
    members: Vec<StoredMember>,
}

#[derive(Serialize, Deserialize)]
struct StoredMember {
    id: u64,
    http: String,
    peer: String,
    incarnation: [u8; 16],
}

#[derive(Serialize, Deserialize)]
struct StoredSlot {
    slot: u8,
    last: Option<StoredLogId>,
    members_at: Option<StoredLogId>,
    members: StoredMembers,
    chunks: u32,
    rows: u64,
    bytes: u64,
    digest: [u8; 16],
    level: u16,
}

/// What is known of a complete snapshot before its first chunk is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SlotHead {
    /// Which of the two slots holds the chunks.
    pub(crate) slot: u8,
    pub(crate) meta: SnapshotMeta,
    pub(crate) chunks: u32,
    pub(crate) rows: u64,
    /// Bytes of all chunks, without their own heads.
    pub(crate) bytes: u64,
    /// The digest of the table that it holds.
    pub(crate) digest: u128,
    /// The version of commands that a node must know to understand it.
    pub(crate) level: u16,
}

pub(crate) fn encode_vote(vote: &Vote) -> Vec<u8> {
    let mut out = Vec::new();
    write(VOTE, &vote_out(vote), &mut out);
    out
}

pub(crate) fn decode_vote(bytes: &[u8]) -> Result<Vote, DecodeError> {
    read(VOTE, bytes).map(vote_in)
}

pub(crate) fn encode_log_id(id: LogId) -> Vec<u8> {
    let mut out = Vec::new();
    write(LOG_ID, &log_id_out(id), &mut out);
    out
}

pub(crate) fn decode_log_id(bytes: &[u8]) -> Result<LogId, DecodeError> {
    read(LOG_ID, bytes).map(log_id_in)
}

pub(crate) fn encode_slot(head: &SlotHead) -> Vec<u8> {
    let mut out = Vec::new();
    let stored = StoredSlot {
        slot: head.slot,
        last: head.meta.last_log_id.map(log_id_out),
        members_at: head.meta.last_membership.log_id().map(log_id_out),
        members: members_out(head.meta.last_membership.membership()),
        chunks: head.chunks,
        rows: head.rows,
        bytes: head.bytes,
        digest: head.digest.to_be_bytes(),
        level: head.level,
    };
    write(SLOT, &stored, &mut out);
    out
}

pub(crate) fn decode_slot(bytes: &[u8]) -> Result<SlotHead, DecodeError> {
    let stored: StoredSlot = read(SLOT, bytes)?;
    let members = members_in(stored.members)?;
    Ok(SlotHead {
        slot: stored.slot,
        meta: SnapshotMeta {
            last_log_id: stored.last.map(log_id_in),
            last_membership: StoredMembership::new(stored.members_at.map(log_id_in), members),
        },
        chunks: stored.chunks,
        rows: stored.rows,
        bytes: stored.bytes,
        digest: u128::from_be_bytes(stored.digest),
        level: stored.level,
    })
}

pub(super) fn vote_out(vote: &Vote) -> StoredVote {
    StoredVote {
        term: vote.leader_id.term,
        node: vote.leader_id.voted_for,
        committed: vote.committed,
    }
}

pub(super) fn vote_in(stored: StoredVote) -> Vote {
    let leader_id = LeaderId { term: stored.term, voted_for: stored.node };
    Vote { leader_id, committed: stored.committed }
}

pub(super) fn log_id_out(id: LogId) -> StoredLogId {
    StoredLogId { term: id.leader_id.term, index: id.index }
}

pub(super) fn log_id_in(stored: StoredLogId) -> LogId {
    LogId::new(CommittedLeader::new(stored.term), stored.index)
}

pub(super) fn members_out(members: &Membership) -> StoredMembers {
    StoredMembers {
        voters: members
            .get_joint_config()
            .iter()
            .map(|set| set.iter().copied().collect())
            .collect(),
        members: members
            .nodes()
            .map(|(id, member)| StoredMember {
                id: *id,
                http: member.http.clone(),
                peer: member.peer.clone(),
                incarnation: member.incarnation.to_be_bytes(),
            })
            .collect(),
    }
}

pub(super) fn members_in(stored: StoredMembers) -> Result<Membership, DecodeError> {
    let voters: Vec<BTreeSet<u64>> =
        stored.voters.into_iter().map(|set| set.into_iter().collect()).collect();
    let member = |stored: StoredMember| {
        let incarnation = u128::from_be_bytes(stored.incarnation);
        (stored.id, Member { http: stored.http, peer: stored.peer, incarnation })
    };
    let members: BTreeMap<u64, Member> = stored.members.into_iter().map(member).collect();
    Membership::new(voters, members).map_err(|cause| DecodeError::Membership(cause.to_string()))
}
