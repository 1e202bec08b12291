//! Every setting once: key, default, meaning. Raw texts become resolved values in one step that
//! reports all mistakes together.

use clap::ArgMatches;
use leasehold_core::Limits;
use leasehold_node::{NodeConfig, PeerConfig, QueueSettings, Timing};
use leasehold_wire::Setting;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

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

    fn is_number(&self) -> bool {
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
        "Where other nodes are answered; without it the node stays alone",
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
        "Founders of a new cluster with their peer addresses, the same on each of them",
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
    key(
        "digest_every",
        "N",
        "16384",
        "Log entries after which nodes compare digests of their states; 0 never, same on each node",
    ),
    key("drain_ms", "MS", "10000", "How long a stop waits for answers"),
    key(
        "propose_queue_max",
        "N",
        "8192",
        "Commands that wait for a log entry before acquires are refused",
    ),
    key("batch_max", "N", "512", "Commands in one log entry"),
    key("batches_in_flight_max", "N", "2", "Log entries handed to Raft and not applied"),
    key("reserve_bytes", "BYTES", "67108864", "Disk space kept for releases and expiries"),
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

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Built in.
    Default,
    /// A file.
    File(PathBuf),
    /// The environment.
    Environment(String),
    /// A flag.
    Flag,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => write!(f, "default"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Environment(name) => write!(f, "{name}"),
            Self::Flag => write!(f, "flag"),
        }
    }
}

/// Texts as they were given, each with its origin.
#[derive(Debug)]
pub struct Raw {
    values: BTreeMap<&'static str, (String, Origin)>,
    mistakes: Vec<Mistake>,
}

/// A setting that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake(pub String);

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Raw {
    /// Gathers defaults, file, environment and flags, in this order. What cannot be read is a
    /// mistake that [`Raw::resolve`] reports with the others.
    #[must_use]
    pub fn gather(flags: &ArgMatches, environment: impl Iterator<Item = (String, String)>) -> Self {
        let defaults = KEYS.iter().map(|key| (key.name, (key.default.to_owned(), Origin::Default)));
        let mut raw = Self { values: defaults.collect(), mistakes: Vec::new() };
        let mut mistakes = Vec::new();
        if let Some(path) = flags.get_one::<PathBuf>("config") {
            raw.take_file(path, &mut mistakes);
        }
        raw.take_environment(environment, &mut mistakes);
        for key in KEYS {
            if let Some(value) = flags.get_one::<String>(key.name) {
                raw.values.insert(key.name, (value.clone(), Origin::Flag));
            }
        }
        raw.mistakes = mistakes;
        raw
    }

    fn take_file(&mut self, path: &Path, mistakes: &mut Vec<Mistake>) {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => return mistakes.push(Mistake(format!("{}: {error}", path.display()))),
        };
        let table = match text.parse::<toml::Table>() {
            Ok(table) => table,
            Err(error) => return mistakes.push(Mistake(format!("{}: {error}", path.display()))),
        };
        for (name, value) in table {
            let Some(key) = KEYS.iter().find(|key| key.name == name) else {
                mistakes.push(Mistake(format!("{}: unknown key `{name}`", path.display())));
                continue;
            };
            match plain(&value) {
                Some(text) => {
                    self.values.insert(key.name, (text, Origin::File(path.to_owned())));
                }
                None => mistakes.push(Mistake(format!(
                    "{}: `{name}` must be a string or a number",
                    path.display()
                ))),
            }
        }
    }

    fn take_environment(
        &mut self,
        environment: impl Iterator<Item = (String, String)>,
        mistakes: &mut Vec<Mistake>,
    ) {
        for (variable, value) in environment {
            let Some(name) = variable.strip_prefix("LEASEHOLD_") else { continue };
            // The client's own variables live under the same prefix, and those of the fence proxy.
            if matches!(name, "SERVER" | "CREDENTIAL" | "CREDENTIAL_FILE" | "LOG")
                || name.starts_with("FENCE_PROXY_")
            {
                continue;
            }
            match KEYS.iter().find(|key| key.name == name.to_ascii_lowercase()) {
                Some(key) => {
                    self.values.insert(key.name, (value, Origin::Environment(variable)));
                }
                None => mistakes.push(Mistake(format!("{variable}: there is no such setting"))),
            }
        }
    }

    /// Each setting with its value and origin, a line each.
    #[must_use]
    pub fn print(&self) -> String {
        let lines = KEYS.iter().map(|key| {
            let (value, origin) = &self.values[key.name];
            let number = value.parse::<i64>().ok().filter(|_| key.is_number());
            let value = number.map_or_else(|| toml::Value::from(&**value), toml::Value::from);
            // A path may hold anything, and a line of a comment ends where the line does.
            let origin = origin.to_string().replace(char::is_control, "?");
            format!("{} = {value}  # {origin}\n", key.name)
        });
        lines.collect()
    }

    /// Each setting as a running node tells it. Those that are replicated count as the cluster
    /// has them, whatever this node was given.
    #[must_use]
    pub fn shown(&self, in_force: &Limits) -> Vec<Setting<'static>> {
        let replicated = BTreeMap::from(replicated(in_force));
        let shown = KEYS.iter().map(|key| {
            let (given, origin) = &self.values[key.name];
            let cluster = replicated.get(key.name).map(ToString::to_string);
            let (value, origin) = match cluster.filter(|value| value != given.trim()) {
                Some(value) => (value, "cluster".to_owned()),
                None => (given.clone(), origin.to_string()),
            };
            Setting { name: key.name.into(), value: value.into(), origin: origin.into() }
        });
        shown.collect()
    }

    /// Checks every value.
    ///
    /// # Errors
    /// All mistakes, each with the setting's origin.
    pub fn resolve(&self) -> Result<Settings, Vec<Mistake>> {
        let mut read = Reader { raw: self, mistakes: self.mistakes.clone() };
        let settings = read.settings();
        if read.mistakes.is_empty() { Ok(settings) } else { Err(read.mistakes) }
    }
}

/// The settings that are part of the replicated state, by their keys.
fn replicated(limits: &Limits) -> [(&'static str, u64); 18] {
    [
        ("ttl_min_ms", limits.ttl_min_ms),
        ("ttl_max_ms", limits.ttl_max_ms),
        ("queue_max", u64::from(limits.queue_max)),
        ("client_waiters_max", u64::from(limits.client_tickets_max)),
        ("waiters_max", limits.tickets_max),
        ("grants_max", limits.grants_max),
        ("leases_max", limits.leases_max),
        ("lease_grants_max", u64::from(limits.lease_items_max)),
        ("metadata_max_bytes", limits.metadata_bytes_max),
        ("client_remembered_max", u64::from(limits.client_ended_max)),
        ("remembered_max", limits.ended_max),
        ("remember_ms", limits.remember_ms),
        ("claim_window_ms", limits.claim_window_ms),
        ("end_piece_max", u64::from(limits.piece_max)),
        ("deadlock_walk_max", u64::from(limits.walk_max)),
        ("overtaken_max", u64::from(limits.overtaken_max)),
        ("history_max", limits.history_max),
        ("history_ms", limits.history_ms),
    ]
}

fn plain(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Array(items) => {
            let items: Option<Vec<String>> =
                items.iter().map(|item| item.as_str().map(str::to_owned)).collect();
            items.map(|items| items.join(","))
        }
        _ => None,
    }
}

/// What `serve` needs to know.
#[derive(Debug, Clone)]
pub struct Settings {
    /// For the node.
    pub node: NodeConfig,
    /// For the listeners.
    pub http: leasehold_http::Settings,
    /// Log lines as JSON.
    pub json_log: bool,
    /// How long a stop waits for answers.
    pub drain: Duration,
}

struct Reader<'a> {
    raw: &'a Raw,
    mistakes: Vec<Mistake>,
}

impl Reader<'_> {
    fn settings(&mut self) -> Settings {
        if self.text("data_dir").is_empty() {
            self.wrong("data_dir", "it is empty");
        }
        let mut node =
            NodeConfig::new(self.at_least(1, "node_id"), PathBuf::from(self.text("data_dir")));
        node.limits = self.limits();
        node.http = self.advertised_http();
        node.peers = self.peers(node.id);
        node.queue = QueueSettings {
            queue_max: self.at_least(1, "propose_queue_max"),
            batch_max: self.at_least(1, "batch_max"),
            in_flight_max: self.at_least(1, "batches_in_flight_max"),
        };
        node.timing = self.timing();
        self.check_ttl_min(&mut node);
        node.reserve_bytes = self.at_least(0, "reserve_bytes");
        node.snapshot_log_bytes = self.at_least(1 << 20, "snapshot_log_bytes");
        node.events_max = self.at_least(1, "events_max");
        node.audit_max = self.at_least(1, "audit_max");
        node.digest_every = self.at_least(0, "digest_every");
        let json_log = match self.text("log_format").as_str() {
            "text" => false,
            "json" => true,
            other => {
                self.wrong("log_format", &format!("{other:?} is neither `text` nor `json`"));
                false
            }
        };
        let drain = Duration::from_millis(self.at_least(0, "drain_ms"));
        Settings { node, http: self.http(), json_log, drain }
    }

    fn timing(&mut self) -> Timing {
        match self.text("raft_profile").as_str() {
            "lan" => Timing::LAN,
            "wan" => Timing::WAN,
            other => {
                self.wrong("raft_profile", &format!("{other:?} is neither `lan` nor `wan`"));
                Timing::LAN
            }
        }
    }

    /// In a cluster no TTL is shorter than two elections: a change of leader would end it.
    fn check_ttl_min(&mut self, node: &mut NodeConfig) {
        if node.peers.is_none() {
            return;
        }
        let least = 2 * node.timing.election_max_ms;
        if node.limits.ttl_min_ms >= least {
            return;
        }
        if self.is_default("ttl_min_ms") {
            node.limits.ttl_min_ms = least;
        } else {
            let what = format!("{} is below {least}, twice an election", node.limits.ttl_min_ms);
            self.wrong("ttl_min_ms", &what);
        }
    }

    fn is_default(&self, name: &'static str) -> bool {
        matches!(self.raw.values.get(name), Some((_, Origin::Default)))
    }

    fn advertised_http(&self) -> String {
        let given = self.text("advertise_http");
        if given.is_empty() {
            self.list("listen").into_iter().next().unwrap_or_default()
        } else {
            given
        }
    }

    fn peers(&mut self, id: u64) -> Option<PeerConfig> {
        let founders = self.founders();
        let ours = founders.get(&id).cloned();
        if !founders.is_empty() && ours.is_none() {
            self.wrong("peers", &format!("node {id}, which this is, is not among them"));
        }
        let listen = self.list("peer_listen").into_iter().next().or_else(|| ours.clone())?;
        if listen.parse::<SocketAddr>().is_err() && ours.as_ref() != Some(&listen) {
            self.wrong("peer_listen", &format!("{listen:?} is not an address like 127.0.0.1:7071"));
        }
        let given = self.text("advertise_peer");
        let advertise =
            if given.is_empty() { ours.unwrap_or_else(|| listen.clone()) } else { given };
        Some(PeerConfig { listen, advertise, founders })
    }

    fn founders(&mut self) -> BTreeMap<u64, String> {
        let mut founders = BTreeMap::new();
        for item in self.list("peers") {
            let parts = item.split_once('=').map(|(id, at)| (id.trim().parse(), at.trim()));
            match parts {
                Some((Ok(id @ 1..), address)) if address.contains(':') => {
                    if founders.insert(id, address.to_owned()).is_some() {
                        self.wrong("peers", &format!("node {id} stands there twice"));
                    }
                }
                _ => self.wrong("peers", &format!("{item:?} is not like 1=10.0.0.1:7071")),
            }
        }
        founders
    }

    fn http(&mut self) -> leasehold_http::Settings {
        let default = leasehold_http::Settings::default();
        let workers: usize = self.at_least(0, "http_workers");
        if self.list("listen").is_empty() {
            self.wrong("listen", "there is no address in it");
        }
        leasehold_http::Settings {
            listen: self.addresses("listen"),
            ops_listen: self.addresses("ops_listen").into_iter().next(),
            hosts: self.list("hosts"),
            workers: if workers > 0 { workers } else { default.workers },
            connections_max: self.at_least(1, "connections_max"),
            body_max: self.at_least(1_024, "body_max_bytes"),
            bulk_body_max: self.at_least(1_024, "bulk_body_max_bytes"),
            head_max: self.at_least(1_024, "head_max_bytes"),
            body_timeout: Duration::from_millis(self.at_least(1, "body_timeout_ms")),
            idle_timeout: Duration::from_millis(self.at_least(1, "idle_timeout_ms")),
            write_timeout: Duration::from_millis(self.at_least(1, "write_timeout_ms")),
            watch_streams_max: self.at_least(0, "watch_streams_max"),
            ..default
        }
    }

    fn limits(&mut self) -> Limits {
        let limits = Limits {
            ttl_min_ms: self.at_least(100, "ttl_min_ms"),
            ttl_max_ms: self.at_least(100, "ttl_max_ms"),
            queue_max: self.at_least(0, "queue_max"),
            client_tickets_max: self.at_least(0, "client_waiters_max"),
            tickets_max: self.at_least(0, "waiters_max"),
            grants_max: self.at_least(1, "grants_max"),
            leases_max: self.at_least(1, "leases_max"),
            lease_items_max: self.at_least(1, "lease_grants_max"),
            metadata_bytes_max: self.at_least(0, "metadata_max_bytes"),
            client_ended_max: self.at_least(1, "client_remembered_max"),
            ended_max: self.at_least(1, "remembered_max"),
            remember_ms: self.at_least(1_000, "remember_ms"),
            claim_window_ms: self.at_least(0, "claim_window_ms"),
            piece_max: self.at_least(1, "end_piece_max"),
            walk_max: self.at_least(0, "deadlock_walk_max"),
            overtaken_max: self.at_least(1, "overtaken_max"),
            history_max: self.at_least(1, "history_max"),
            history_ms: self.at_least(1_000, "history_ms"),
        };
        if limits.ttl_min_ms > limits.ttl_max_ms {
            self.wrong("ttl_min_ms", "it is above ttl_max_ms");
        }
        limits
    }

    fn text(&self, name: &'static str) -> String {
        self.raw.values.get(name).map(|(value, _)| value.clone()).unwrap_or_default()
    }

    fn at_least<T: FromStr + PartialOrd + Default + fmt::Display>(
        &mut self,
        min: T,
        name: &'static str,
    ) -> T {
        let text = self.text(name);
        match text.trim().parse::<T>() {
            Ok(value) if value >= min => value,
            Ok(_) => {
                self.wrong(name, &format!("{text} is below {min}"));
                T::default()
            }
            Err(_) => {
                self.wrong(name, &format!("{text:?} is not a whole number from {min} on"));
                T::default()
            }
        }
    }

    fn list(&self, name: &'static str) -> Vec<String> {
        let text = self.text(name);
        text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
    }

    fn addresses(&mut self, name: &'static str) -> Vec<SocketAddr> {
        let mut addresses = Vec::new();
        for item in self.list(name) {
            match item.parse() {
                Ok(address) => addresses.push(address),
                Err(_) => self.wrong(
                    name,
                    &format!("{item:?} is not an address like 127.0.0.1:7070 or [::1]:7070"),
                ),
            }
        }
        addresses
    }

    fn wrong(&mut self, name: &'static str, what: &str) {
        let origin =
            self.raw.values.get(name).map_or(Origin::Default, |(_, origin)| origin.clone());
        self.mistakes.push(Mistake(format!("{name} ({origin}): {what}")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(args: &[&str], environment: &[(&str, &str)]) -> Raw {
        let args = ["leasehold", "serve"].iter().chain(args);
        let matches = crate::args::command().try_get_matches_from(args).expect("flags that exist");
        let given = matches.subcommand_matches("serve").expect("the serve command").clone();
        let environment = environment.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        Raw::gather(&given, environment)
    }

    #[test]
    fn defaults_are_complete_and_equal_to_those_of_the_parts() {
        let settings = raw(&[], &[]).resolve().expect("defaults are right");
        assert_eq!(settings.node.limits, Limits::default());
        let (queue, expected) = (settings.node.queue, QueueSettings::default());
        assert_eq!(
            (queue.queue_max, queue.batch_max, queue.in_flight_max),
            (expected.queue_max, expected.batch_max, expected.in_flight_max)
        );
        let node = NodeConfig::new(1, PathBuf::from("./leasehold-data"));
        assert_eq!(
            (settings.node.reserve_bytes, settings.node.snapshot_log_bytes),
            (node.reserve_bytes, node.snapshot_log_bytes)
        );
    }

    #[test]
    fn flags_go_before_the_environment_and_that_before_a_file() {
        let dir = std::env::temp_dir().join(format!("leasehold-settings-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let file = dir.join("leasehold.toml");
        std::fs::write(&file, "queue_max = 1\nwaiters_max = 2\ngrants_max = 3\n").expect("a file");
        let raw = raw(
            &["--config", file.to_str().expect("a plain path"), "--queue-max", "10"],
            &[
                ("LEASEHOLD_QUEUE_MAX", "20"),
                ("LEASEHOLD_WAITERS_MAX", "21"),
                ("LEASEHOLD_SERVER", "x"),
                ("LEASEHOLD_FENCE_PROXY_LISTEN", "x"),
            ],
        );
        let limits = raw.resolve().expect("no mistakes").node.limits;
        assert_eq!((limits.queue_max, limits.tickets_max, limits.grants_max), (10, 21, 3));
        std::fs::remove_dir_all(&dir).expect("the directory is ours");
    }

    #[test]
    fn all_mistakes_are_told_at_once_and_with_their_origin() {
        let mistakes =
            raw(&["--queue-max", "many", "--listen", "here"], &[("LEASEHOLD_TTL_MIN_MS", "5")])
                .resolve()
                .expect_err("three mistakes");
        let told: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(
            told.iter().any(|one| one.contains("ttl_min_ms (LEASEHOLD_TTL_MIN_MS)")),
            "{told:?}"
        );
    }

    #[test]
    fn what_the_cluster_has_counts_and_is_told_as_such() {
        let raw = raw(&["--queue-max", "10"], &[]);
        let shown = raw.shown(&Limits { queue_max: 10, tickets_max: 7, ..Limits::default() });
        let told = |name: &str| {
            let setting = shown.iter().find(|one| one.name == name).expect("it is shown");
            (setting.value.clone().into_owned(), setting.origin.clone().into_owned())
        };
        assert_eq!(told("queue_max"), ("10".to_owned(), "flag".to_owned()));
        assert_eq!(told("waiters_max"), ("7".to_owned(), "cluster".to_owned()));
        assert_eq!(told("drain_ms"), ("10000".to_owned(), "default".to_owned()));
        let marked = KEYS.iter().filter(|key| key.help.ends_with("(new cluster)"));
        let marked: std::collections::BTreeSet<_> = marked.map(|key| key.name).collect();
        assert_eq!(marked, replicated(&Limits::default()).map(|(name, _)| name).into());
    }

    #[test]
    fn unknown_keys_are_mistakes() {
        assert!(raw(&[], &[("LEASEHOLD_QUEUE_MAXX", "1")]).resolve().is_err());
    }
}
