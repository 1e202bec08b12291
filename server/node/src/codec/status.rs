//! What a node says of its own condition when a peer asks.
//!
//! The answer grows: a later version writes more behind what is known here, and that is passed
//! over. What is known is never left out, moved or given another meaning.

use super::peer::MESSAGE;
use super::raft::{StoredLogId, log_id_in, log_id_out};
use super::{DecodeError, peer, write_bare};
use crate::codec::About;
use crate::config::Timing;
use crate::membership::Members;
use crate::status::{NodeStatus, RaftState};
use serde::{Deserialize, Serialize};

/// The longest text in a status, in bytes.
const TEXT_BYTES_MAX: usize = 1_024;

/// Who asks, as it is to be known: it may have moved since it was entered among the members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StatusAsk {
    pub(crate) from: u64,
    pub(crate) about: About,
}

/// A node in its own words, and the members if it knows of no change on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) status: NodeStatus,
    pub(crate) members: Members,
}

#[derive(Serialize, Deserialize)]
struct SentReport {
    version: String,
    commit: String,
    commands: u16,
    uptime_ms: u64,
    state: SentState,
    term: u64,
    leader: Option<u64>,
    log: Option<u64>,
    committed: Option<u64>,
    applied: Option<u64>,
    snapshot: Option<u64>,
    revision: u64,
    disk_free_bytes: u64,
    reserve_bytes: u64,
    storage_full: bool,
    wall_clock_ms: u64,
    waits_for: Option<String>,
    members_at: Option<StoredLogId>,
    members: Vec<(u64, [u8; 16])>,
}

/// What came later.
#[derive(Serialize, Deserialize)]
struct SentTiming {
    heartbeat_ms: u64,
    election_min_ms: u64,
    election_max_ms: u64,
}

#[derive(Serialize, Deserialize, Clone, Copy)]
enum SentState {
    Learner,
    Follower,
    Candidate,
    Leader,
    Stopped,
}

pub(super) fn status_out(report: &Report) -> Vec<u8> {
    let status = &report.status;
    let sent = SentReport {
        version: short(&status.version),
        commit: short(&status.commit),
        commands: status.commands,
        uptime_ms: status.uptime_ms,
        state: state_out(status.state),
        term: status.term,
        leader: status.leader,
        log: status.log_index,
        committed: status.committed_index,
        applied: status.applied_index,
        snapshot: status.snapshot_index,
        revision: status.revision,
        disk_free_bytes: status.disk_free_bytes,
        reserve_bytes: status.reserve_bytes,
        storage_full: status.storage_full,
        wall_clock_ms: status.wall_clock_ms,
        waits_for: status.waits_for.as_deref().map(short),
        members_at: report.members.at.map(log_id_out),
        members: report.members.lives.iter().map(|(id, life)| (*id, life.to_be_bytes())).collect(),
    };
    let mut out = Vec::new();
    write_bare(&sent, &mut out);
    if let Some(Timing { heartbeat_ms, election_min_ms, election_max_ms }) = status.timing {
        write_bare(&SentTiming { heartbeat_ms, election_min_ms, election_max_ms }, &mut out);
    }
    out
}

pub(super) fn status_in(bytes: &[u8]) -> Result<Report, DecodeError> {
    let malformed = |cause| DecodeError::Malformed { what: MESSAGE.what, cause };
    let (sent, later): (SentReport, _) = postcard::take_from_bytes(bytes).map_err(malformed)?;
    let status = NodeStatus {
        version: short(&sent.version),
        commit: short(&sent.commit),
        commands: sent.commands,
        uptime_ms: sent.uptime_ms,
        state: state_in(sent.state),
        term: sent.term,
        leader: sent.leader,
        log_index: sent.log,
        committed_index: sent.committed,
        applied_index: sent.applied,
        snapshot_index: sent.snapshot,
        revision: sent.revision,
        disk_free_bytes: sent.disk_free_bytes,
        reserve_bytes: sent.reserve_bytes,
        storage_full: sent.storage_full,
        wall_clock_ms: sent.wall_clock_ms,
        waits_for: sent.waits_for.as_deref().map(short),
        timing: timing_in(later).map_err(malformed)?,
    };
    let lives = sent.members.into_iter().map(|(id, life)| (id, u128::from_be_bytes(life)));
    let members = Members { at: sent.members_at.map(log_id_in), lives: lives.collect() };
    Ok(Report { status, members })
}

/// An earlier version says nothing of it.
fn timing_in(later: &[u8]) -> Result<Option<Timing>, postcard::Error> {
    if later.is_empty() {
        return Ok(None);
    }
    let (sent, _newer): (SentTiming, _) = postcard::take_from_bytes(later)?;
    let SentTiming { heartbeat_ms, election_min_ms, election_max_ms } = sent;
    Ok(Some(Timing { heartbeat_ms, election_min_ms, election_max_ms }))
}

/// A question about it.
pub(crate) fn encode_status_ask(ask: &StatusAsk) -> Vec<u8> {
    peer::message(peer::STATUS, ask, &[])
}

fn short(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT_BYTES_MAX)].to_owned()
}

fn state_out(state: RaftState) -> SentState {
    match state {
        RaftState::Learner => SentState::Learner,
        RaftState::Follower => SentState::Follower,
        RaftState::Candidate => SentState::Candidate,
        RaftState::Leader => SentState::Leader,
        RaftState::Stopped => SentState::Stopped,
    }
}

fn state_in(sent: SentState) -> RaftState {
    match sent {
        SentState::Learner => RaftState::Learner,
        SentState::Follower => RaftState::Follower,
        SentState::Candidate => RaftState::Candidate,
        SentState::Leader => RaftState::Leader,
        SentState::Stopped => RaftState::Stopped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::samples;

    #[test]
    fn what_a_later_version_says_beyond_this_one_is_passed_over() {
        let mut bytes = status_out(&samples::report());
        bytes.extend_from_slice(b"of a later version");
        assert_eq!(status_in(&bytes).expect("the known part is whole"), samples::report());
        let known = status_out(&samples::report()).len();
        let mut earlier = samples::report();
        earlier.status.timing = None;
        let first = status_out(&earlier).len();
        assert_eq!(status_in(&bytes[..first]).expect("an earlier version"), earlier);
        let mut cut = (0..known).filter(|at| *at != first);
        assert!(cut.all(|at| status_in(&bytes[..at]).is_err()), "no part may be missing");
    }

    #[test]
    fn texts_of_a_peer_are_cut_at_a_bound() {
        let mut report = samples::report();
        report.status.waits_for = Some("ä".repeat(TEXT_BYTES_MAX));
        let back = status_in(&status_out(&report)).expect("it was just written");
        assert_eq!(back.status.waits_for, Some("ä".repeat(TEXT_BYTES_MAX / 2)));
    }
}
