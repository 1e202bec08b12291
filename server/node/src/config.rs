//! What a node is told when it starts.

use crate::propose::QueueSettings;
use leasehold_core::{Command, Limits};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Settings of one node.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// Which node of the cluster this is.
    pub id: u64,
    /// Where its files are.
    pub dir: PathBuf,
    /// The limits that a new cluster starts with. With data already there they change nothing:
    /// limits are replicated, and later changes are log entries.
    pub limits: Limits,
    /// The address for clients, as others are told.
    pub http: String,
    /// The version of the binary, as others are told.
    pub version: String,
    /// The commit that it is built from; empty if that is not known.
    pub commit: String,
    /// Other nodes, and the way to them; nothing for a node alone.
    pub peers: Option<PeerConfig>,
    /// How much is queued and batched.
    pub queue: QueueSettings,
    /// Raft's timing.
    pub timing: Timing,
    /// Disk space that is kept for releases and expiries, in bytes.
    pub reserve_bytes: u64,
    /// A snapshot is written when the log since the last one is at least this long, in bytes, and
    /// at least as long as that snapshot.
    pub snapshot_log_bytes: u64,
    /// Changes that watchers can still be told of, after which there is a gap.
    pub events_max: u64,
    /// Records of the audit that are kept.
    pub audit_max: u64,
    /// The highest version of commands that the node says it knows. What the build knows, but in
    /// tests of upgrades.
    #[doc(hidden)]
    pub commands: u16,
    /// Log entries from one digest of the state to the next, at which nodes compare; 0 for none.
    pub digest_every: u64,
}

/// Other nodes, and the way to them.
#[derive(Debug, Clone)]
pub struct PeerConfig {
    /// Where peers are answered.
    pub listen: String,
    /// The address at which this node is reached, as others are told.
    pub advertise: String,
    /// The members of a new cluster, this node among them: their peer addresses by id. With data
    /// already there they found nothing, and are further places at which members are looked for.
    pub founders: BTreeMap<u64, String>,
}

/// Raft's timing, in milliseconds. All of it goes together, so it is chosen by profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Between two heartbeats of the leader.
    pub heartbeat_ms: u64,
    /// A follower waits at least this long before it stands for election.
    pub election_min_ms: u64,
    /// And at most this long.
    pub election_max_ms: u64,
}

impl Timing {
    /// Nodes in one building.
    pub const LAN: Self = Self { heartbeat_ms: 150, election_min_ms: 500, election_max_ms: 800 };
    /// Nodes in several towns: a round trip may take a tenth of a second.
    pub const WAN: Self =
        Self { heartbeat_ms: 500, election_min_ms: 2_000, election_max_ms: 3_000 };

    /// The shortest TTL in a cluster, in ms: a change of leader would end a shorter one.
    #[must_use]
    pub const fn ttl_min_ms(&self) -> u64 {
        2 * self.election_max_ms
    }

    /// What these limits have to become in a cluster, if they are too short for it. Leases that
    /// live keep what they have.
    pub(crate) fn raised(&self, limits: &Limits) -> Option<Limits> {
        let least = self.ttl_min_ms();
        let raise = || Limits {
            ttl_min_ms: least,
            ttl_max_ms: limits.ttl_max_ms.max(least),
            ..limits.clone()
        };
        (limits.ttl_min_ms < least).then(raise)
    }

    /// The profile that this is, as it stands in the settings.
    #[must_use]
    pub fn profile(self) -> Option<&'static str> {
        match self {
            Self::LAN => Some("lan"),
            Self::WAN => Some("wan"),
            _ => None,
        }
    }
}

impl NodeConfig {
    /// A node with default settings.
    #[must_use]
    pub fn new(id: u64, dir: PathBuf) -> Self {
        Self {
            id,
            dir,
            limits: Limits::default(),
            http: String::new(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: String::new(),
            peers: None,
            queue: QueueSettings::default(),
            timing: Timing::LAN,
            reserve_bytes: 64 << 20,
            snapshot_log_bytes: 32 << 20,
            events_max: 262_144,
            audit_max: 100_000,
            commands: Command::NEWEST,
            digest_every: 16_384,
        }
    }

    pub(crate) fn raft(&self) -> openraft::Config {
        openraft::Config {
            cluster_name: "leasehold".to_owned(),
            heartbeat_interval: self.timing.heartbeat_ms,
            election_timeout_min: self.timing.election_min_ms,
            election_timeout_max: self.timing.election_max_ms,
            // Followers may commit entries that a leader had not flushed before it crashed. A
            // leader that resumed its term without an election would reuse their log ids for
            // other commands: acknowledged grants lost, tokens issued twice.
            enable_leader_restore: Some(false),
            enable_pre_vote: Some(true),
            snapshot_policy: openraft::SnapshotPolicy::Never,
            max_in_snapshot_log_to_keep: 1_000,
            purge_batch_size: 500,
            max_payload_entries: 1_024,
            install_snapshot_timeout: 60_000,
            api_batch_linger_ms: 0,
            ..openraft::Config::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What openraft does by default loses acknowledged grants and issues tokens twice.
    #[test]
    fn a_crashed_leader_never_resumes_its_term_without_an_election() {
        let raft = NodeConfig::new(1, PathBuf::new()).raft();
        assert_eq!(raft.enable_leader_restore, Some(false));
        assert_eq!(
            openraft::Config::default().enable_leader_restore,
            None,
            "the default has changed: look again"
        );
    }

    #[test]
    fn the_timing_is_consistent() {
        for timing in [Timing::LAN, Timing::WAN] {
            let raft = NodeConfig { timing, ..NodeConfig::new(1, PathBuf::new()) }.raft();
            assert!(raft.enable_pre_vote == Some(true) && raft.validate().is_ok());
        }
    }
}
