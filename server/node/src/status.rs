//! How the nodes of a cluster are: each asked by each over the lines between peers.
//!
//! One round asks all members at once and waits no longer than a second for any of them. Whoever
//! asks while a round is running waits for the next one and shares it, so a crowd that looks at a
//! cluster costs it no more than one.

use crate::codec::{self, Report, Told};
use crate::config::Timing;
use crate::membership::Members;
use crate::metrics::Metrics;
use crate::node::Node;
use crate::peers::{Identity, Line};
use crate::place::Place;
use crate::reserve::Reserve;
use crate::runtime;
use crate::state::Shared;
use crate::types::Member;
use futures_util::future::join_all;
use leasehold_core::ClusterId;
use openraft::ServerState;
use openraft::async_runtime::WatchReceiver as _;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// A node that says nothing for so long is unreachable.
const ANSWERED_WITHIN: Duration = Duration::from_secs(1);

/// The cluster as one of its nodes sees it.
#[derive(Debug, Clone)]
pub struct ClusterView {
    /// Which cluster; nothing before it is founded.
    pub cluster: Option<ClusterId>,
    /// Who leads, by what the nodes that answered say.
    pub leader: Option<u64>,
    /// The newest term that one of them knows.
    pub term: u64,
    /// The node that looked.
    pub this_node: u64,
    /// All members, by id.
    pub nodes: Vec<NodeView>,
}

/// One member.
#[derive(Debug, Clone)]
pub struct NodeView {
    /// Its id.
    pub id: u64,
    /// The address that other members use.
    pub peer_addr: String,
    /// The base address that clients use.
    pub http_addr: String,
    /// What it does.
    pub role: NodeRole,
    /// It counts for a quorum.
    pub voter: bool,
    /// Its newest log entry.
    pub log_index: Option<u64>,
    /// Its newest applied log entry.
    pub applied_index: Option<u64>,
    /// The version of its binary.
    pub version: Option<String>,
    /// All that it says of itself; nothing if it did not answer.
    pub status: Option<NodeStatus>,
    /// How far its wall clock is ahead of that of the node that looked, in milliseconds, give or
    /// take half of the time that the question took. For display only: nothing counts on it.
    pub clock_ahead_ms: Option<i64>,
    /// Why it did not answer.
    pub unreachable: Option<String>,
}

/// What a member does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeRole {
    /// It leads.
    Leader,
    /// It follows and votes.
    Follower,
    /// It follows without a vote.
    Learner,
    /// It does not answer.
    Unreachable,
}

/// A node in its own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeStatus {
    /// The version of its binary.
    pub version: String,
    /// The commit that it is built from; empty if that is not known.
    pub commit: String,
    /// The highest version of commands that it applies.
    pub commands: u16,
    /// For how long it has been running, in milliseconds.
    pub uptime_ms: u64,
    /// How it stands in Raft.
    pub state: RaftState,
    /// The newest term that it knows.
    pub term: u64,
    /// Whom it follows.
    pub leader: Option<u64>,
    /// Its newest log entry.
    pub log_index: Option<u64>,
    /// The newest one that it knows to be committed.
    pub committed_index: Option<u64>,
    /// The newest one that it has applied.
    pub applied_index: Option<u64>,
    /// The newest one that its snapshot covers.
    pub snapshot_index: Option<u64>,
    /// The newest change.
    pub revision: u64,
    /// Free space on the disk of its data.
    pub disk_free_bytes: u64,
    /// Disk space that it keeps for releases and expiries.
    pub reserve_bytes: u64,
    /// Only that reserve is left.
    pub storage_full: bool,
    /// Its wall clock.
    pub wall_clock_ms: u64,
    /// What it waits for before it serves; nothing once it does.
    pub waits_for: Option<String>,
    /// Its Raft timing; nothing from a release that does not tell it.
    pub timing: Option<Timing>,
}

/// How a node stands in Raft.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RaftState {
    /// It has no vote.
    Learner,
    /// It follows a leader.
    Follower,
    /// It stands for election.
    Candidate,
    /// It leads.
    Leader,
    /// It takes no part any more.
    Stopped,
}

impl From<ServerState> for RaftState {
    fn from(state: ServerState) -> Self {
        match state {
            ServerState::Learner => Self::Learner,
            ServerState::Follower => Self::Follower,
            ServerState::Candidate => Self::Candidate,
            ServerState::Leader => Self::Leader,
            ServerState::Shutdown => Self::Stopped,
        }
    }
}

/// What a node needs to know for telling how it is.
#[derive(Clone)]
pub(crate) struct Reporter {
    pub(crate) raft: crate::Raft,
    pub(crate) shared: Arc<Shared>,
    pub(crate) reserve: Reserve,
    pub(crate) metrics: Metrics,
    pub(crate) place: Place,
    pub(crate) started: Instant,
    pub(crate) version: String,
    pub(crate) commit: String,
    /// The highest version of commands that it applies.
    pub(crate) commands: u16,
    pub(crate) timing: Timing,
}

impl Reporter {
    pub(crate) fn report(&self) -> Report {
        let raft = self.raft.metrics().borrow_watched().clone();
        let status = NodeStatus {
            version: self.version.clone(),
            commit: self.commit.clone(),
            commands: self.commands,
            uptime_ms: runtime::ms(runtime::since(self.started)),
            state: raft.state.into(),
            term: raft.current_term,
            leader: raft.current_leader,
            log_index: raft.last_log_index,
            committed_index: raft.cluster_committed.map(|id| id.index),
            applied_index: self.shared.applied().map(|id| id.index),
            snapshot_index: raft.snapshot.map(|id| id.index),
            revision: self.shared.table.read().revision(),
            disk_free_bytes: u64::try_from(self.metrics.storage_free_bytes.get()).unwrap_or(0),
            reserve_bytes: self.reserve.bytes(),
            storage_full: self.reserve.is_needed(),
            wall_clock_ms: runtime::wall_clock_ms(),
            waits_for: self.place.waits_for(),
            timing: Some(self.timing),
        };
        let settled = raft.membership_config.log_id() == raft.committed_membership_config.log_id();
        // While a change is not committed nobody can tell who belongs here.
        let members = settled.then(|| Members::of(&raft.membership_config));
        Report { status, members: members.unwrap_or_default() }
    }
}

/// What one member answered, and how far its wall clock was ahead then, in milliseconds.
#[derive(Debug, Clone)]
pub(crate) struct Answered {
    pub(crate) member: Member,
    pub(crate) voter: bool,
    pub(crate) told: Result<(Report, i64), String>,
}

/// One round: all members but this node.
type Round = BTreeMap<u64, Answered>;

/// The lines on which other members are asked.
pub(crate) struct Survey {
    us: Arc<Identity>,
    raft: crate::Raft,
    asking: Mutex<Asking>,
}

#[derive(Default)]
struct Asking {
    lines: BTreeMap<u64, (Member, Line)>,
    last: Option<(Instant, Arc<Round>)>,
}

impl Survey {
    pub(crate) fn new(us: Arc<Identity>, raft: crate::Raft) -> Self {
        Self { us, raft, asking: Mutex::new(Asking::default()) }
    }

    /// Asks all other members. The round that answers began after this call.
    pub(crate) async fn round(&self) -> Arc<Round> {
        let asked = runtime::now();
        let mut asking = self.asking.lock().await;
        if let Some((_, round)) = asking.last.as_ref().filter(|(began, _)| *began >= asked) {
            return Arc::clone(round);
        }
        let began = runtime::now();
        let round = Arc::new(self.ask_all(&mut asking.lines).await);
        asking.last = Some((began, Arc::clone(&round)));
        round
    }

    async fn ask_all(&self, lines: &mut BTreeMap<u64, (Member, Line)>) -> Round {
        let members = self.raft.server_metrics().borrow_watched().membership_config.clone();
        let voters: Vec<u64> = members.voter_ids().collect();
        let others: BTreeMap<u64, Member> = members
            .nodes()
            .filter(|(id, _)| **id != self.us.id())
            .map(|(id, member)| (*id, member.clone()))
            .collect();
        lines.retain(|id, (member, _)| others.get(id) == Some(member));
        for (id, member) in &others {
            let line = || (member.clone(), Line::new(self.us.clone(), *id, member));
            lines.entry(*id).or_insert_with(line);
        }
        let ask = codec::encode_status_ask(&self.us.status_ask());
        let asked = lines.iter_mut().map(|(id, (member, line))| {
            let (ask, voter) = (ask.clone(), voters.contains(id));
            async move {
                let told = ask_one(line, ask).await;
                (*id, Answered { member: member.clone(), voter, told })
            }
        });
        join_all(asked).await.into_iter().collect()
    }
}

async fn ask_one(line: &mut Line, ask: Vec<u8>) -> Result<(Report, i64), String> {
    let began = runtime::now();
    let call = line.call(ask, ANSWERED_WITHIN);
    match runtime::timeout_at(began + ANSWERED_WITHIN, call).await {
        None => Err(format!("no answer within {} ms", ANSWERED_WITHIN.as_millis())),
        Some(Ok(Told::Status(report))) => {
            let ahead = clock_ahead_ms(report.status.wall_clock_ms, runtime::since(began));
            Ok((*report, ahead))
        }
        Some(Ok(_)) => Err("it answered another question".to_owned()),
        Some(Err(cause)) => Err(cause.with_causes()),
    }
}

/// How far a clock is ahead that was read half of the question's time ago.
fn clock_ahead_ms(theirs: u64, took: Duration) -> i64 {
    let theirs = i128::from(theirs) + took.as_millis() as i128 / 2;
    let ahead = theirs - i128::from(runtime::wall_clock_ms());
    i64::try_from(ahead).unwrap_or(if ahead < 0 { i64::MIN } else { i64::MAX })
}

impl Node {
    /// The cluster as this node sees it now. All members are asked at once; one that does not
    /// answer within a second is unreachable.
    pub async fn cluster_view(&self) -> ClusterView {
        let round = self.inner.survey.round().await;
        let own = self.inner.reporter.report().status;
        let mut nodes: Vec<NodeView> = round.iter().map(|(id, told)| other(*id, told)).collect();
        nodes.push(self.own_view(&own));
        nodes.sort_by_key(|node| node.id);
        let statuses = || nodes.iter().filter_map(|node| Some((node.id, node.status.as_ref()?)));
        // A leader that was deposed and does not know it yet has the lower term.
        let leading = statuses().filter(|(_, status)| status.state == RaftState::Leader);
        let leader = leading.max_by_key(|(_, status)| status.term).map(|(id, _)| id);
        let term = statuses().map(|(_, status)| status.term).max().unwrap_or(own.term);
        for node in &mut nodes {
            if node.role == NodeRole::Leader && Some(node.id) != leader {
                node.role = follows(node.voter);
            }
        }
        ClusterView { cluster: self.cluster(), leader, term, this_node: self.inner.id, nodes }
    }

    fn own_view(&self, own: &NodeStatus) -> NodeView {
        let members = self.inner.raft.server_metrics().borrow_watched().membership_config.clone();
        let voter = members.voter_ids().any(|id| id == self.inner.id);
        let member = self.inner.identity.member();
        view(self.inner.id, &member, voter, own.clone())
    }
}

fn other(id: u64, answered: &Answered) -> NodeView {
    let Answered { member, voter, told } = answered;
    match told {
        Ok((report, ahead)) => {
            let seen = view(id, member, *voter, report.status.clone());
            NodeView { clock_ahead_ms: Some(*ahead), ..seen }
        }
        Err(why) => NodeView {
            id,
            peer_addr: member.peer.clone(),
            http_addr: member.http.clone(),
            role: NodeRole::Unreachable,
            voter: *voter,
            log_index: None,
            applied_index: None,
            version: None,
            status: None,
            clock_ahead_ms: None,
            unreachable: Some(why.clone()),
        },
    }
}

fn view(id: u64, member: &Member, voter: bool, status: NodeStatus) -> NodeView {
    let leads = status.state == RaftState::Leader;
    NodeView {
        id,
        peer_addr: member.peer.clone(),
        http_addr: member.http.clone(),
        role: if leads { NodeRole::Leader } else { follows(voter) },
        voter,
        log_index: status.log_index,
        applied_index: status.applied_index,
        version: Some(status.version.clone()),
        status: Some(status),
        clock_ahead_ms: None,
        unreachable: None,
    }
}

fn follows(voter: bool) -> NodeRole {
    if voter { NodeRole::Follower } else { NodeRole::Learner }
}
