//! What the node measures. Names, units and help stand together here.

use crate::log::{LogObserver, LogSync};
use crate::runtime;
use crate::status::RaftState;
use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

/// 50 µs to 13 s in steps of two: from a quick disk to one that is about to fail.
fn seconds() -> Vec<f64> {
    (0..19).map(|step| 0.000_05 * f64::from(1 << step)).collect()
}

fn counts() -> Vec<f64> {
    (0..10).map(|step| f64::from(1 << step)).collect()
}

/// The node's metrics. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Metrics {
    pub(crate) queued: Histogram,
    pub(crate) committed: Histogram,
    pub(crate) batch_commands: Histogram,
    log_queue: Histogram,
    log_write: Histogram,
    sync: Histogram,
    sync_entries: Histogram,
    log_bytes: IntCounter,
    pub(crate) expired: IntCounter,
    pub(crate) passed_on: IntCounter,
    pub(crate) renewals: IntCounter,
    pub(crate) leader_changes: IntCounter,
    pub(crate) step_downs: IntCounter,
    pub(crate) passed_on_bytes: IntGauge,
    pub(crate) outage_seconds: prometheus::Counter,
    pub(crate) refusals: IntCounterVec,
    pub(crate) digests_compared: IntCounter,
    pub(crate) diverged: IntGauge,
    pub(crate) leading: IntGauge,
    pub(crate) locks: IntGauge,
    pub(crate) grants: IntGauge,
    pub(crate) waiters: IntGauge,
    pub(crate) leases: IntGauge,
    pub(crate) clients: IntGauge,
    pub(crate) remembered: IntGauge,
    pub(crate) metadata_bytes: IntGauge,
    pub(crate) proposals: IntGauge,
    pub(crate) history_records: IntGauge,
    pub(crate) snapshot_bytes: IntGauge,
    pub(crate) storage_full: IntGauge,
    pub(crate) storage_free_bytes: IntGauge,
    pub(crate) log_queue_operations: IntGauge,
    pub(crate) log_index: IntGauge,
    pub(crate) applied_index: IntGauge,
    pub(crate) history_durable_index: IntGauge,
    voters: IntGauge,
    learners: IntGauge,
    role: IntGaugeVec,
    answered_at: IntGaugeVec,
    unreachable: IntGauge,
    pub(crate) command_version: IntGauge,
    pub(crate) command_level: IntGauge,
}

/// What a node may be in Raft, so that each exists from the start.
const ROLES: [(RaftState, &str); 5] = [
    (RaftState::Learner, "learner"),
    (RaftState::Follower, "follower"),
    (RaftState::Candidate, "candidate"),
    (RaftState::Leader, "leader"),
    (RaftState::Stopped, "stopped"),
];

/// The bounds that a refusal may name, so that each exists from the start.
pub(crate) const BOUNDS: [&str; 12] = [
    "queue",
    "client_waiters",
    "waiters",
    "grants",
    "leases",
    "lease_grants",
    "metadata",
    "tokens",
    "domains",
    "proposals",
    "passed_on",
    "storage",
];

impl Metrics {
    /// Makes and registers them.
    ///
    /// # Errors
    /// If a name is registered already.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let make = Maker { registry };
        let metrics = Self {
            queued: make.histogram(
                "leasehold_propose_queue_seconds",
                "From queued to cut into a batch",
                seconds(),
            )?,
            committed: make.histogram(
                "leasehold_commit_seconds",
                "From cut to applied, a batch",
                seconds(),
            )?,
            batch_commands: make.histogram(
                "leasehold_batch_commands",
                "Commands in a batch",
                counts(),
            )?,
            log_queue: make.histogram(
                "leasehold_log_queue_seconds",
                "Oldest write of a group, before it is begun",
                seconds(),
            )?,
            log_write: make.histogram(
                "leasehold_log_write_seconds",
                "Encoding and inserting a group of log writes",
                seconds(),
            )?,
            sync: make.histogram(
                "leasehold_log_sync_seconds",
                "Making a group of log writes durable",
                seconds(),
            )?,
            sync_entries: make.histogram(
                "leasehold_log_sync_entries",
                "Log entries made durable together",
                counts(),
            )?,
            log_bytes: make
                .counter("leasehold_log_written_bytes_total", "Bytes of log entries written")?,
            expired: make
                .counter("leasehold_leases_expired_total", "Leases whose deadline passed")?,
            passed_on: make
                .counter("leasehold_grants_passed_on_total", "Grants that nobody claimed")?,
            renewals: make.counter(
                "leasehold_renewals_total",
                "Renewals answered from confirmed leadership",
            )?,
            digests_compared: make.counter(
                "leasehold_digests_compared_total",
                "Digests of the state that were as those of the other nodes",
            )?,
            diverged: make.gauge(
                "leasehold_state_diverged",
                "1 if the state of this node is not that of the others, and it stops",
            )?,
            leader_changes: make
                .counter("leasehold_leader_changes_total", "Times that this node took over")?,
            step_downs: make.counter(
                "leasehold_leader_step_downs_total",
                "Times that this node gave up leading because no quorum answered",
            )?,
            passed_on_bytes: make.gauge(
                "leasehold_peer_request_bytes",
                "Bytes of requests that other nodes pass on, arriving or being answered",
            )?,
            outage_seconds: make
                .seconds("leasehold_outage_seconds_total", "Time added to every deadline")?,
            refusals: make.counters(
                "leasehold_bound_refusals_total",
                "Refusals at a bound",
                "bound",
            )?,
            leading: make.gauge("leasehold_leading", "1 while this node leads")?,
            locks: make.gauge("leasehold_locks", "Resources held or waited for")?,
            grants: make.gauge("leasehold_grants", "Live grants")?,
            waiters: make.gauge("leasehold_waiters", "Places in lines")?,
            leases: make.gauge("leasehold_leases", "Live leases")?,
            clients: make
                .gauge("leasehold_clients", "Clients with a lease, ticket or remembered request")?,
            remembered: make
                .gauge("leasehold_remembered_requests", "Ended requests and leases remembered")?,
            metadata_bytes: make.gauge("leasehold_metadata_bytes", "Metadata of clients in all")?,
            proposals: make
                .gauge("leasehold_propose_queue_commands", "Commands that wait for a batch")?,
            history_records: make.gauge("leasehold_history_records", "Ended grants on record")?,
            snapshot_bytes: make
                .gauge("leasehold_snapshot_bytes", "Size of the newest snapshot")?,
            log_queue_operations: make
                .gauge("leasehold_log_queue_operations", "Log writes that have not begun")?,
            log_index: make.gauge("leasehold_log_index", "Newest log entry")?,
            applied_index: make.gauge("leasehold_applied_index", "Newest applied log entry")?,
            history_durable_index: make.gauge(
                "leasehold_history_durable_index",
                "Log entry up to which the history is durable",
            )?,
            command_version: make.gauge(
                "leasehold_command_version",
                "Highest version of commands that this node knows",
            )?,
            command_level: make.gauge(
                "leasehold_command_level",
                "Version of commands that the cluster uses, as every member knows it",
            )?,
            storage_free_bytes: make
                .gauge("leasehold_storage_free_bytes", "Free space on the disk of the data")?,
            storage_full: make.gauge(
                "leasehold_storage_full",
                "1 while only the reserve of disk space is left",
            )?,
            voters: make.gauge("leasehold_voters", "Members that count for a quorum")?,
            learners: make.gauge("leasehold_learners", "Members without a vote")?,
            role: make.gauges("leasehold_role", "1 for what this node is in Raft", "role")?,
            answered_at: make.gauges(
                "leasehold_member_answered_timestamp_seconds",
                "When another member last said how it is",
                "node",
            )?,
            unreachable: make.gauge(
                "leasehold_members_unreachable",
                "Other members that did not answer when they were last asked how they are",
            )?,
        };
        for (_, role) in ROLES {
            metrics.role.with_label_values(&[role]);
        }
        for bound in BOUNDS {
            metrics.refusals.with_label_values(&[bound]);
        }
        Ok(metrics)
    }
}

impl Metrics {
    /// Who belongs to the cluster, and what this node is in it.
    pub(crate) fn members(&self, voters: usize, learners: usize, state: RaftState) {
        self.voters.set(voters as i64);
        self.learners.set(learners as i64);
        for (one, role) in ROLES {
            self.role.with_label_values(&[role]).set(i64::from(one == state));
        }
    }

    /// Which other members answered just now, and which did not.
    pub(crate) fn answered(&self, members: &[(u64, bool)]) {
        let now = i64::try_from(runtime::wall_clock_ms() / 1_000).unwrap_or(i64::MAX);
        for (id, _) in members.iter().filter(|(_, answered)| *answered) {
            self.answered_at.with_label_values(&[&id.to_string()]).set(now);
        }
        let silent = members.iter().filter(|(_, answered)| !answered).count();
        self.unreachable.set(silent as i64);
    }

    pub(crate) fn members_unreachable(&self) -> u64 {
        u64::try_from(self.unreachable.get()).unwrap_or(0)
    }

    /// A node that is no member any more leaves no series behind.
    pub(crate) fn forget_member(&self, id: u64) {
        // It may have none: then there is nothing to forget.
        let _ = self.answered_at.remove_label_values(&[&id.to_string()]);
    }
}

impl LogObserver for Metrics {
    fn synced(&self, batch: &LogSync) {
        self.log_queue.observe(batch.queued.as_secs_f64());
        self.log_write.observe(batch.write.as_secs_f64());
        self.sync.observe(batch.sync.as_secs_f64());
        self.sync_entries.observe(batch.entries as f64);
        self.log_bytes.inc_by(batch.bytes as u64);
    }
}

struct Maker<'a> {
    registry: &'a Registry,
}

impl Maker<'_> {
    fn histogram(
        &self,
        name: &str,
        help: &str,
        buckets: Vec<f64>,
    ) -> Result<Histogram, prometheus::Error> {
        let metric = Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets))?;
        self.registry.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    fn counter(&self, name: &str, help: &str) -> Result<IntCounter, prometheus::Error> {
        let metric = IntCounter::new(name, help)?;
        self.registry.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    fn counters(
        &self,
        name: &str,
        help: &str,
        label: &str,
    ) -> Result<IntCounterVec, prometheus::Error> {
        let metric = IntCounterVec::new(Opts::new(name, help), &[label])?;
        self.registry.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    fn gauges(
        &self,
        name: &str,
        help: &str,
        label: &str,
    ) -> Result<IntGaugeVec, prometheus::Error> {
        let metric = IntGaugeVec::new(Opts::new(name, help), &[label])?;
        self.registry.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    fn seconds(&self, name: &str, help: &str) -> Result<prometheus::Counter, prometheus::Error> {
        let metric = prometheus::Counter::new(name, help)?;
        self.registry.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, prometheus::Error> {
        let metric = IntGauge::new(name, help)?;
        self.registry.register(Box::new(metric.clone()))?;
        Ok(metric)
    }
}
