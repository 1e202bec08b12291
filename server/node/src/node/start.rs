//! How a node starts: its files, its tasks, and its place in a cluster.

use super::{Inner, Node};
use crate::backup::Turn;
use crate::batcher::Batcher;
use crate::config::NodeConfig;
use crate::confirm::Confirmer;
use crate::contact::Contact;
use crate::fatal::{Fatal, StorageFault};
use crate::follower_reads::FollowerReads;
use crate::forward::Answers;
use crate::hub::Hub;
use crate::keeper::Keeper;
use crate::leadership::Leadership;
use crate::log::LogStore;
use crate::membership::{OnItsWay, Upkeep};
use crate::metrics::Metrics;
use crate::open::{OpenError, Opened, Setup, Sizes, open};
use crate::peers::{Forwarder, Host, Identity, PeerListener, Peers};
use crate::place::Place;
use crate::propose::Proposals;
use crate::reserve::Reserve;
use crate::runtime;
use crate::state::StateMachine;
use crate::status::{Reporter, Survey};
use crate::types::CommittedLeader;
use futures_util::FutureExt as _;
use leasehold_core::Limits;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use tokio::sync::watch;

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
    /// Its peers know of a life of it that this data is not from.
    #[error(
        "node {id} was a member of this cluster and has lost its data: what it had promised is \
         gone, so it can never come back under this id. Remove node {id} from the cluster, and \
         join under a new id"
    )]
    LostData {
        /// Its id.
        id: u64,
    },
    /// Its peers have a cluster, and it is not in it.
    #[error(
        "the node at {address} belongs to cluster {cluster} already, and this node is empty and \
         not a member: no other cluster is founded. Join that one, or empty all of its nodes"
    )]
    OtherCluster {
        /// Where that peer is.
        address: String,
        /// Its cluster.
        cluster: String,
    },
    /// Peers refuse to talk to it, for a reason that does not pass.
    #[error(transparent)]
    Unwelcome(Box<dyn std::error::Error + Send + Sync>),
    /// The log could not be applied.
    #[error("the log was not applied: {cause}")]
    Recovery {
        /// What Raft says.
        cause: String,
    },
    /// A task of the runtime was lost.
    #[error("the task that opens the files was lost")]
    Lost,
}

impl Node {
    /// [`Node::open`] and [`Node::take_part`] in one.
    ///
    /// # Errors
    /// [`StartError`] says what stands in the way; files are left as they were.
    pub async fn start(config: NodeConfig, metrics: Metrics) -> Result<Self, StartError> {
        let node = Self::open(&config, metrics).await?;
        match node.take_part(&config).await {
            Ok(()) => Ok(node),
            Err(error) => {
                node.shutdown().await;
                Err(error)
            }
        }
    }

    /// Opens or creates the node's files and starts its tasks. It answers peers from here on, and
    /// nobody else before [`Node::take_part`] has returned.
    ///
    /// # Errors
    /// [`StartError`] says what stands in the way; files are left as they were.
    pub async fn open(config: &NodeConfig, metrics: Metrics) -> Result<Self, StartError> {
        let hub = Hub::new();
        let fatal = Fatal::new();
        let setup = Setup {
            dir: config.dir.clone(),
            node: config.id,
            commands: config.commands,
            // The same on every node and in every version: the founder's own limits follow as
            // the first log entry.
            seed: Limits::default(),
            sink: hub.clone(),
            observer: Arc::new(metrics.clone()),
            fatal: fatal.clone(),
            sizes: Sizes::default(),
            keep_changes: config.events_max,
            keep_audits: config.audit_max,
            digest_every: config.digest_every,
        };
        let opened = runtime::blocking(move || open(setup)).await.ok_or(StartError::Lost)??;
        let identity = Arc::new(Identity::new(
            config,
            opened.incarnation,
            opened.shared.clone(),
            opened.log.clone(),
        ));
        let listener = listen(config).await?;
        let answers = Answers::default();
        let raft_config =
            config.raft().validate().map_err(|cause| StartError::Settings(cause.to_string()))?;
        let contact = Arc::new(Contact::new());
        let raft = crate::Raft::new(
            config.id,
            Arc::new(raft_config),
            Peers::new(identity.clone(), contact.clone()),
            opened.log.clone(),
            opened.machine.clone(),
        )
        .await
        .map_err(|cause| StartError::Raft(cause.to_string()))?;
        identity.follow(raft.server_metrics());
        contact.follow(raft.data_metrics());
        // Only after this it has told who the members are, without whom nobody can be judged.
        raft.with_raft_state(|_| ()).await.map_err(|cause| StartError::Raft(cause.to_string()))?;
        let stop_peers = watch::Sender::new(false);
        let confirmer = Confirmer::start(raft.clone());
        let reporter = Reporter {
            raft: raft.clone(),
            shared: opened.shared.clone(),
            reserve: Reserve::new(config.dir.clone(), config.reserve_bytes, metrics.clone()),
            metrics: metrics.clone(),
            place: Place::new(),
            started: runtime::now(),
            version: config.version.clone(),
            commit: config.commit.clone(),
            commands: config.commands,
            timing: config.timing,
        };
        if let Some(listener) = listener {
            let host = Host {
                us: identity.clone(),
                raft: raft.clone(),
                dir: config.dir.clone(),
                confirmer: confirmer.clone(),
                shared: opened.shared.clone(),
                contact: contact.clone(),
                metrics: metrics.clone(),
                answers: answers.clone(),
                reporter: reporter.clone(),
            };
            listener.start(host, stop_peers.subscribe());
        }
        let (leading, led) = watch::channel(None);
        let running = Running {
            raft,
            identity,
            confirmer,
            contact,
            answers,
            reporter,
            leading: led,
            stop_peers,
        };
        let node = Self::assemble(config, hub, fatal, opened, metrics, running);
        node.start_tasks(config, leading);
        Ok(node)
    }

    /// Founds a cluster, waits until one takes the node in, or applies what was committed before
    /// it stopped. Nothing is served before that.
    ///
    /// # Errors
    /// [`StartError`] says why the node has no place in the cluster.
    pub async fn take_part(&self, config: &NodeConfig) -> Result<(), StartError> {
        self.found_or_recover(config).await?;
        self.note_membership();
        self.inner.place.take();
        self.tell_state(config);
        Ok(())
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
        let in_force = Limits::clone(table.limits());
        // The cluster raises it by itself when it grows.
        let ttl_min_ms = in_force.ttl_min_ms;
        if in_force != (Limits { ttl_min_ms, ..config.limits.clone() }) {
            tracing::warn!(
                ?in_force,
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
        let Running { raft, identity, confirmer, contact, answers, reporter, leading, stop_peers } =
            running;
        let batcher = Batcher::new(
            Proposals::new(config.queue),
            hub.clone(),
            raft.clone(),
            metrics.clone(),
            opened.shared.clone(),
            leading.clone(),
        );
        let inner = Inner {
            id: config.id,
            hub,
            shared: opened.shared.clone(),
            batcher,
            confirmer,
            answers,
            forwarder: Forwarder::new(identity.clone()),
            follower_reads: FollowerReads::start(identity.clone()),
            history: opened.history.clone(),
            metrics,
            contact,
            timing: config.timing,
            place: reporter.place.clone(),
            reserve: reporter.reserve.clone(),
            survey: Survey::new(identity.clone(), raft.clone()),
            changes: OnItsWay::default(),
            reporter,
            raft,
            identity,
            leading,
            backups: Turn::default(),
            stop_peers,
            fatal,
            opened: parking_lot::Mutex::new(Some(opened)),
            ready: parking_lot::Mutex::new(None),
        };
        Self { inner: Arc::new(inner) }
    }

    fn start_tasks(&self, config: &NodeConfig, leading: watch::Sender<Option<CommittedLeader>>) {
        let inner = &self.inner;
        inner.metrics.command_version.set(i64::from(config.commands));
        let leadership = Leadership {
            id: inner.id,
            raft: inner.raft.clone(),
            hub: inner.hub.clone(),
            shared: inner.shared.clone(),
            confirmer: inner.confirmer.clone(),
            contact: inner.contact.clone(),
            metrics: inner.metrics.clone(),
            leading,
            batcher: inner.batcher.clone(),
            timing: inner.timing,
            identity: inner.identity.clone(),
            history: inner.history.clone(),
            seed: config.limits.clone(),
        };
        self.spawn_vital("leadership", leadership.run());
        self.spawn_vital("digests", self.clone().compare_digests(config.dir.clone()));
        self.spawn_vital("batcher", inner.batcher.clone().run());
        let (upkeep, mut stop) = (Upkeep::new(self.clone()).run(), inner.stop_peers.subscribe());
        self.spawn_vital("upkeep", async move {
            // It has the whole node: ended first, so that its files can be closed.
            tokio::select! {
                () = upkeep => {}
                _ = stop.wait_for(|stop| *stop) => {}
            }
        });
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
}

async fn listen(config: &NodeConfig) -> Result<Option<PeerListener>, StartError> {
    let Some(peers) = &config.peers else { return Ok(None) };
    let bound = PeerListener::bind(&peers.listen).await;
    let failed = |cause| StartError::Listen { address: peers.listen.clone(), cause };
    bound.map(Some).map_err(failed)
}

/// Raft, and what is told to and by those around it.
struct Running {
    raft: crate::Raft,
    identity: Arc<Identity>,
    confirmer: Confirmer,
    contact: Arc<Contact>,
    answers: Answers,
    reporter: Reporter,
    leading: watch::Receiver<Option<CommittedLeader>>,
    stop_peers: watch::Sender<bool>,
}
