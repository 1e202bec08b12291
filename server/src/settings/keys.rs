//! The table of all settings.

/// One setting.
#[derive(Debug)]
pub struct Key {
    /// Its name in files, and with `LEASEHOLD_` before it in the environment.
    pub name: &'static str,
    /// What stands for its value in the help.
    pub value: &'static str,
    /// Its default, as it would be written.
    pub default: &'static str,
    /// What it does, with its unit.
    pub help: &'static str,
}

impl Key {
    /// Its name as a flag.
    #[must_use]
    pub fn flag(&self) -> String {
        self.name.replace('_', "-")
    }

    /// It may be given several times; commas do the same.
    #[must_use]
    pub fn is_list(&self) -> bool {
        self.value.ends_with(",...")
    }

    pub(super) fn is_number(&self) -> bool {
        matches!(self.value, "N" | "MS" | "BYTES")
    }
}

const fn key(
    name: &'static str,
    value: &'static str,
    default: &'static str,
    help: &'static str,
) -> Key {
    Key { name, value, default, help }
}

/// All settings, in the order of the help.
///
/// Those marked (new cluster) are replicated: they seed a cluster when it is founded, and change
/// nothing later.
pub const KEYS: &[Key] = &[
    key("data_dir", "DIR", "./leasehold-data", "Where the node keeps its files"),
    key(
        "listen",
        "ADDR",
        "127.0.0.1:7070",
        "Address of the HTTP API; several with commas; port 0 takes a free one",
    ),
    key("ops_listen", "ADDR", "", "Move health and metrics to an address of their own"),
    key("node_id", "N", "1", "Which node of the cluster this is"),
    key(
        "advertise_http",
        "ADDR",
        "",
        "Address of the HTTP API as others are told [the first of listen]",
    ),
    key(
        "peer_listen",
        "ADDR",
        "",
        "Where other nodes are answered; without it, and without peers, the node stays alone",
    ),
    key(
        "advertise_peer",
        "ADDR",
        "",
        "Address for other nodes as they are told [its entry in peers, else peer_listen]",
    ),
    key(
        "peers",
        "ID=ADDR,...",
        "",
        "Founders of a new cluster with their peer addresses, the same on each; later where members may be",
    ),
    key(
        "join",
        "URL,...",
        "",
        "A running cluster that takes this empty node in; with data already there it changes nothing",
    ),
    key(
        "raft_profile",
        "lan|wan",
        "lan",
        "Timing between nodes in one building, or in several towns",
    ),
    key("hosts", "NAMES", "", "Host names under which browsers reach this node, with commas"),
    key("log_format", "text|json", "text", "How log lines are written to standard error"),
    key("http_workers", "N", "0", "Threads that speak HTTP; 0 is one a core"),
    key("connections_max", "N", "15000", "Open connections"),
    key("body_max_bytes", "BYTES", "32768", "Largest body of a single operation"),
    key("bulk_body_max_bytes", "BYTES", "262144", "Largest body of a batch"),
    key("head_max_bytes", "BYTES", "32768", "Largest head of a request"),
    key("body_timeout_ms", "MS", "5000", "How long a body may take to arrive"),
    key("idle_timeout_ms", "MS", "75000", "How long a connection may be idle"),
    key(
        "write_timeout_ms",
        "MS",
        "30000",
        "How long a client may take nothing of an answer that is being sent",
    ),
    key("watch_streams_max", "N", "1000", "Open streams of watchers"),
    key("events_max", "N", "262144", "Changes that watchers can still be told of"),
    key("audit_max", "N", "100000", "Records of the audit that are kept"),
    key("drain_ms", "MS", "10000", "How long a stop waits for answers"),
    key(
        "propose_queue_max",
        "N",
        "8192",
        "Commands that wait for a log entry before acquires are refused",
    ),
    key("batch_max", "N", "512", "Commands in one log entry"),
    key(
        "batches_in_flight_max",
        "N",
        "1",
        "Log entries handed to Raft and not applied; more suit nodes that are far from each other",
    ),
    key(
        "reserve_bytes",
        "BYTES",
        "67108864",
        "Disk space kept for releases and expiries; at least what is written in two seconds",
    ),
    key(
        "digest_every",
        "N",
        "16384",
        "Log entries after which nodes compare digests of their states; 0 never, same on each node",
    ),
    key(
        "snapshot_log_bytes",
        "BYTES",
        "33554432",
        "Log bytes after which a snapshot is written, at least",
    ),
    key("ttl_min_ms", "MS", "500", "Shortest TTL (new cluster)"),
    key("ttl_max_ms", "MS", "86400000", "Longest TTL (new cluster)"),
    key("queue_max", "N", "256", "Waiters for one resource (new cluster)"),
    key("client_waiters_max", "N", "10000", "Waiting requests of one client (new cluster)"),
    key("waiters_max", "N", "200000", "Waiting requests in all (new cluster)"),
    key("grants_max", "N", "2000000", "Grants in all (new cluster)"),
    key("leases_max", "N", "2500000", "Leases in all (new cluster)"),
    key("lease_grants_max", "N", "10000", "Grants and waiting requests of one lease (new cluster)"),
    key("metadata_max_bytes", "BYTES", "268435456", "Metadata of clients in all (new cluster)"),
    key(
        "client_remembered_max",
        "N",
        "64",
        "Ended requests remembered for one client (new cluster)",
    ),
    key("remembered_max", "N", "1000000", "Ended requests remembered in all (new cluster)"),
    key("remember_ms", "MS", "600000", "How long an ended request is remembered (new cluster)"),
    key(
        "claim_window_ms",
        "MS",
        "2000",
        "How long a lost connection keeps its place in line (new cluster)",
    ),
    key("end_piece_max", "N", "256", "Grants that one step of ending a lease ends (new cluster)"),
    key(
        "deadlock_walk_max",
        "N",
        "10000",
        "Edges that one search for a deadlock looks at (new cluster)",
    ),
    key(
        "overtaken_max",
        "N",
        "64",
        "How often a waiter is overtaken before it rises a step (new cluster)",
    ),
    key("history_max", "N", "1000000", "Ended grants on record (new cluster)"),
    key("history_ms", "MS", "7776000000", "How long ended grants stay on record (new cluster)"),
];
