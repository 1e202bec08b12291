//! The handle that the rest of the service talks to.

use crate::answer::Failure;
use crate::batcher::Batcher;
use crate::config::NodeConfig;
use crate::confirm::Confirmer;
use crate::fatal::{Fatal, StorageFault};
use crate::forward::AnswerForwarded;
use crate::history::History;
use crate::hub::Hub;
use crate::hub::cell::{Answer, ReplyTo};
use crate::keeper::Keeper;
use crate::leadership::Leadership;
use crate::log::LogStore;
use crate::metrics::Metrics;
use crate::open::{OpenError, Opened, Setup, Sizes, open};
use crate::peers::{Identity, PeerListener, Peers};
use crate::propose::{Class, Proposal, Proposals};
use crate::reserve::Reserve;
use crate::runtime;
use crate::state::{Shared, StateMachine};
use crate::types::{CommittedLeader, Member};
use futures_util::FutureExt as _;
use leasehold_core::{Command, LeaseId, Limits, Outcome};
use openraft::async_runtime::WatchReceiver as _;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::{oneshot, watch};

/// An outcome that is not known after this is answered as exactly that.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// The version of the commands that this binary applies, as its peers are told.
const COMMANDS: u16 = 1;
/// Recovery applies what was committed before the node stopped; a million locks take seconds.
const RECOVER_WITHIN: Duration = Duration::from_secs(600);
/// A node that has been ready stays so for this long without a leader: an election must not
/// empty a load balancer.
const READY_WITHOUT_LEADER: Duration = Duration::from_secs(30);

/// One node. Cheap to clone; all clones are the same node.
#[derive(Clone)]
pub struct Node {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) id: u64,
    pub(crate) hub: Arc<Hub>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) batcher: Arc<Batcher>,
    pub(crate) confirmer: Confirmer,
    pub(crate) history: History,
    pub(crate) metrics: Metrics,
    pub(crate) election_max_ms: u64,
    /// Answers what other nodes pass on.
    pub(crate) answering: OnceLock<Arc<dyn AnswerForwarded>>,
    raft: crate::Raft,
    leading: watch::Receiver<Option<CommittedLeader>>,
    stop_peers: watch::Sender<bool>,
    pub(crate) reserve: Reserve,
    fatal: Fatal,
    opened: parking_lot::Mutex<Option<Opened>>,
    ready: parking_lot::Mutex<Option<Instant>>,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("id", &self.inner.id).finish_non_exhaustive()
    }
}

/// Why a node did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its files could not be opened. They are as they were.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Peers could not reach it.
    #[error("{address}: peers cannot be answered there")]
    Listen {
        /// The address.
        address: String,
        /// What the system says.
        #[source]
        cause: std::io::Error,
    },
    /// The timing is inconsistent.
    #[error("raft refuses its settings: {0}")]
    Settings(String),
    /// Raft did not start.
    #[error("raft did not start: {0}")]
    Raft(String),
    /// The log could not be applied.
    #[error("the log was not applied within {} s: {cause}", RECOVER_WITHIN.as_secs())]
    Recovery {
        /// What Raft says.
        cause: String,
    },
    /// A task of the runtime was lost.
    #[error("the task that opens the files was lost")]
    Lost,
}

impl Node {
    /// Opens or creates the node's files, applies its log and starts its tasks.
    ///
    /// # Errors
    /// [`StartError`] says what stands in the way; files are left as they were.
    pub async fn start(config: NodeConfig, metrics: Metrics) -> Result<Self, StartError> {
        let hub = Hub::new();
        let fatal = Fatal::new();
        let setup = Setup {
            dir: config.dir.clone(),
            // The same on every node and in every version: the founder's own limits follow as
            // the first log entry.
            seed: Limits::default(),
            sink: hub.clone(),
            observer: Arc::new(metrics.clone()),
            fatal: fatal.clone(),
            sizes: Sizes::default(),
            keep_changes: config.events_max,
            keep_audits: config.audit_max,
        };
        let opened = runtime::blocking(move || open(setup)).await.ok_or(StartError::Lost)??;
        let identity = Arc::new(Identity::new(config.id, COMMANDS, None));
        let listener = listen(&config).await?;
        let raft_config =
            config.raft().validate().map_err(|cause| StartError::Settings(cause.to_string()))?;
        let raft = crate::Raft::new(
            config.id,
            Arc::new(raft_config),
            Peers::new(identity.clone()),
            opened.log.clone(),
            opened.machine.clone(),
        )
        .await
        .map_err(|cause| StartError::Raft(cause.to_string()))?;
        let stop_peers = watch::Sender::new(false);
        if let Some(listener) = listener {
            listener.start(identity, raft.clone(), config.dir.clone(), stop_peers.subscribe());
        }
        let (leading, led) = watch::channel(None);
        let running = Running { raft, leading: led, stop_peers };
        let node = Self::assemble(&config, hub, fatal, opened, metrics, running);
        node.start_tasks(&config, leading);
        node.found_or_recover(&config).await?;
        node.tell_state(&config);
        Ok(node)
    }

    fn tell_state(&self, config: &NodeConfig) {
        let table = self.inner.shared.table.read();
        let counts = table.counts();
        tracing::info!(
            locks = counts.locks,
            leases = counts.leases,
            waiters = counts.tickets,
            last_token = table.last_token().0,
            "the state is complete"
        );
        if **table.limits() != config.limits {
            tracing::warn!(
                in_force = ?table.limits(),
                "limits in the settings differ from those of the cluster, which count"
            );
        }
    }

    fn assemble(
        config: &NodeConfig,
        hub: Arc<Hub>,
        fatal: Fatal,
        opened: Opened,
        metrics: Metrics,
        running: Running,
    ) -> Self {
        let Running { raft, leading, stop_peers } = running;
        let reserve = Reserve::new(config.dir.clone(), config.reserve_bytes, metrics.clone());
        let batcher = Batcher::new(
            Proposals::new(config.queue),
            hub.clone(),
            raft.clone(),
            metrics.clone(),
            leading.clone(),
        );
        let inner = Inner {
            id: config.id,
            hub,
            shared: opened.shared.clone(),
            batcher,
            confirmer: Confirmer::start(raft.clone()),
            history: opened.history.clone(),
            metrics,
            election_max_ms: config.timing.election_max_ms,
            answering: OnceLock::new(),
            raft,
            leading,
            stop_peers,
            reserve,
            fatal,
            opened: parking_lot::Mutex::new(Some(opened)),
            ready: parking_lot::Mutex::new(None),
        };
        Self { inner: Arc::new(inner) }
    }

    fn start_tasks(&self, config: &NodeConfig, leading: watch::Sender<Option<CommittedLeader>>) {
        let inner = &self.inner;
        let leadership = Leadership {
            raft: inner.raft.clone(),
            hub: inner.hub.clone(),
            shared: inner.shared.clone(),
            confirmer: inner.confirmer.clone(),
            metrics: inner.metrics.clone(),
            leading,
        };
        self.spawn_vital("leadership", leadership.run());
        self.spawn_vital("batcher", inner.batcher.clone().run());
        if let Some((log, machine)) = self.stores() {
            self.spawn_vital("keeper", self.keeper(config, log, machine).run());
        }
    }

    /// Runs a task that the node cannot do without: if it ends while the node does not, so must
    /// the node, since nothing would expire or be answered any more.
    fn spawn_vital(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let (hub, fatal) = (self.inner.hub.clone(), self.inner.fatal.clone());
        runtime::spawn(async move {
            let ended = AssertUnwindSafe(task).catch_unwind().await;
            if !hub.is_stopped() {
                let what = if ended.is_ok() { "it ended" } else { "it panicked" };
                fatal.report(&StorageFault::new(name, "keep the task running", what));
            }
        });
    }

    fn stores(&self) -> Option<(LogStore, StateMachine)> {
        let opened = self.inner.opened.lock();
        opened.as_ref().map(|opened| (opened.log.clone(), opened.machine.clone()))
    }

    fn keeper(&self, config: &NodeConfig, log: LogStore, machine: StateMachine) -> Keeper {
        let inner = &self.inner;
        Keeper {
            hub: inner.hub.clone(),
            batcher: inner.batcher.clone(),
            confirmer: inner.confirmer.clone(),
            shared: inner.shared.clone(),
            metrics: inner.metrics.clone(),
            raft: inner.raft.clone(),
            log,
            machine,
            history: inner.history.clone(),
            reserve: inner.reserve.clone(),
            snapshot_log_bytes: config.snapshot_log_bytes,
        }
    }

    async fn found_or_recover(&self, config: &NodeConfig) -> Result<(), StartError> {
        let initialized = self.inner.raft.is_initialized().await;
        match initialized.map_err(|cause| StartError::Raft(cause.to_string()))? {
            true => self.recover(config).await,
            false => self.found(config).await,
        }
    }

    /// Applies what was committed before the node stopped. Nothing is served before that.
    async fn recover(&self, config: &NodeConfig) -> Result<(), StartError> {
        let raft = &self.inner.raft;
        if raft.voter_ids().eq([self.inner.id]) {
            // Nobody else could be leading: there is no reason to wait for an election time-out.
            raft.trigger()
                .elect(false)
                .await
                .map_err(|cause| StartError::Raft(cause.to_string()))?;
        }
        let recovered = raft.wait_for_recovery(Some(RECOVER_WITHIN)).await;
        recovered.map_err(|cause| StartError::Recovery { cause: cause.to_string() })?;
        // It may have stopped between founding a cluster and its first entry.
        let untouched = self.inner.shared.table.read().revision() == 0;
        if untouched && raft.voter_ids().eq([self.inner.id]) {
            self.seed(config).await
        } else {
            Ok(())
        }
    }

    /// Founds a cluster, with the limits of this node's settings. Of several founders the one
    /// with the lowest id does it, and the others learn from it.
    async fn found(&self, config: &NodeConfig) -> Result<(), StartError> {
        let raft = &self.inner.raft;
        let members = founders(config);
        if members.keys().next() != Some(&config.id) {
            return self.recover(config).await;
        }
        raft.initialize(members).await.map_err(|cause| StartError::Raft(cause.to_string()))?;
        self.seed(config).await
    }

    /// The limits of this node's settings become those of the cluster.
    async fn seed(&self, config: &NodeConfig) -> Result<(), StartError> {
        let (reply, answer) = oneshot::channel();
        let command = Command::SetLimits(Box::new(config.limits.clone()));
        self.led_by_itself().await;
        let proposal = Proposal::new(command, ReplyTo::Once(reply), None);
        let pushed = self.push(Class::End, proposal).is_ok();
        self.inner.batcher.kick();
        match answer.await {
            Ok(Answer::Outcome { .. }) if pushed => Ok(()),
            _ => Err(StartError::Raft("the first entry was not committed".to_owned())),
        }
    }

    async fn led_by_itself(&self) {
        let mut leading = self.inner.leading.clone();
        // An error means that the node is stopping; the caller finds that out by itself.
        let _ = leading.wait_for(Option::is_some).await;
    }

    /// Which node this is.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.inner.id
    }

    /// The node that leads, as far as this one knows.
    #[must_use]
    pub fn leader(&self) -> Option<u64> {
        self.inner.raft.server_metrics().borrow_watched().current_leader
    }

    /// The log is applied, and somebody leads or did so a moment ago.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        if self.inner.hub.is_refusing() {
            return false;
        }
        let mut ready = self.inner.ready.lock();
        let led = self.inner.leading.borrow().is_some();
        if led || self.leader().is_some_and(|leader| leader != self.inner.id) {
            *ready = Some(runtime::now());
            return true;
        }
        ready.is_some_and(|last| runtime::since(last) < READY_WITHOUT_LEADER)
    }

    /// The limits in force.
    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits::clone(self.inner.shared.table.read().limits())
    }

    /// 128 random bits for a new lease.
    #[must_use]
    pub fn new_lease_id(&self) -> LeaseId {
        LeaseId(runtime::random())
    }

    /// The newest change.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.inner.shared.table.read().revision()
    }

    /// For display only.
    #[must_use]
    pub fn wall_clock_ms(&self) -> u64 {
        runtime::wall_clock_ms()
    }

    /// Returns when the storage has failed for good, with what happened. The process must end:
    /// nothing that was not durable was acknowledged, and nothing may be from here on.
    pub async fn storage_failed(&self) -> StorageFault {
        let mut fatal = self.inner.fatal.subscribe();
        loop {
            if let Some(fault) = self.inner.fatal.get() {
                return fault;
            }
            if fatal.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Answers everybody who waits, so that they come back to another node or later. New
    /// requests are refused from here on.
    pub fn refuse(&self) {
        self.inner.hub.refuse();
    }

    /// A number that two nodes have in common if they are at the same revision and healthy.
    #[must_use]
    pub fn digest(&self) -> u128 {
        self.inner.shared.table.read().freeze().digest()
    }

    #[cfg(test)]
    pub(crate) fn inner_raft(&self) -> &crate::Raft {
        &self.inner.raft
    }

    /// Stops Raft and closes the files.
    pub async fn shutdown(&self) {
        self.refuse();
        self.inner.hub.stop();
        if let Err(error) = self.inner.raft.shutdown().await {
            tracing::warn!(%error, "raft did not stop in order");
        }
        self.inner.stop_peers.send_replace(true);
        for proposal in self.inner.batcher.drain() {
            proposal.reply.fail(Failure::ShuttingDown);
        }
        let opened = self.inner.opened.lock().take();
        if let Some(opened) = opened {
            let closed = runtime::blocking(move || opened.close()).await;
            if let Some(Err(error)) = closed {
                tracing::warn!(%error, "files were not closed in order");
            }
        }
    }

    /// Whether something new may be begun.
    pub(crate) fn check_open(&self) -> Result<(), Failure> {
        if self.inner.hub.is_refusing() {
            return Err(Failure::ShuttingDown);
        }
        self.check_leading()
    }

    /// Whether anything can be answered: what is held is renewed and given back to the last.
    pub(crate) fn check_leading(&self) -> Result<(), Failure> {
        if self.inner.hub.is_stopped() {
            return Err(Failure::ShuttingDown);
        }
        if self.inner.leading.borrow().is_none() {
            return Err(Failure::NoLeader);
        }
        Ok(())
    }

    pub(crate) fn check_storage(&self) -> Result<(), Failure> {
        if self.inner.reserve.is_needed() {
            self.inner.metrics.refusals.with_label_values(&["storage"]).inc();
            return Err(Failure::StorageFull);
        }
        Ok(())
    }

    /// Puts a command into the log and waits for its outcome.
    pub(crate) async fn ask(
        &self,
        class: Class,
        command: Command,
        deadline: Option<Instant>,
    ) -> Result<Told, Failure> {
        let (reply, answer) = oneshot::channel();
        self.push(class, Proposal::new(command, ReplyTo::Once(reply), deadline))?;
        self.inner.batcher.kick();
        self.told(answer, deadline).await
    }

    pub(crate) fn push(&self, class: Class, proposal: Proposal) -> Result<(), Failure> {
        self.inner.batcher.push(class, proposal).map_err(|_| {
            self.inner.metrics.refusals.with_label_values(&["proposals"]).inc();
            Failure::Overloaded
        })
    }

    pub(crate) async fn told(
        &self,
        answer: oneshot::Receiver<Answer>,
        deadline: Option<Instant>,
    ) -> Result<Told, Failure> {
        let give_up_at = deadline.unwrap_or_else(|| runtime::now() + ANSWER_WITHIN);
        match runtime::timeout_at(give_up_at, answer).await {
            Some(Ok(Answer::Outcome { outcome, handed, revision })) => {
                Ok(Told { outcome, handed, revision })
            }
            Some(Ok(Answer::Failed(failure))) => Err(failure),
            Some(Ok(Answer::Granted(_))) => {
                Err(Failure::Internal("a grant answered another question".to_owned()))
            }
            Some(Err(_)) | None => Err(Failure::OutcomeUnknown { request_id: None }),
        }
    }
}

async fn listen(config: &NodeConfig) -> Result<Option<PeerListener>, StartError> {
    let Some(peers) = &config.peers else { return Ok(None) };
    let bound = PeerListener::bind(&peers.listen).await;
    let failed = |cause| StartError::Listen { address: peers.listen.clone(), cause };
    bound.map(Some).map_err(failed)
}

fn founders(config: &NodeConfig) -> BTreeMap<u64, Member> {
    let Some(peers) = &config.peers else {
        return BTreeMap::from([(
            config.id,
            Member { http: config.http.clone(), ..Member::default() },
        )]);
    };
    let member =
        |(id, peer): (&u64, &String)| (*id, Member { http: String::new(), peer: peer.clone() });
    peers.founders.iter().map(member).collect()
}

/// Raft, and what is told to and by those around it.
struct Running {
    raft: crate::Raft,
    leading: watch::Receiver<Option<CommittedLeader>>,
    stop_peers: watch::Sender<bool>,
}

/// The outcome of a command.
pub(crate) struct Told {
    pub(crate) outcome: Outcome,
    pub(crate) handed: Instant,
    pub(crate) revision: u64,
}

#[cfg(test)]
#[path = "node_tests.rs"]
mod tests;
