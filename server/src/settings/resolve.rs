//! What the texts mean.

use super::{Mistake, Origin, Raw};
use leasehold_core::Limits;
use leasehold_node::{NodeConfig, PeerConfig, QueueSettings, Timing};
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// What `serve` needs to know.
#[derive(Debug, Clone)]
pub struct Settings {
    /// For the node.
    pub node: NodeConfig,
    /// For the listeners.
    pub http: leasehold_http::Settings,
    /// The address for clients is that of the first listener, once its port is known.
    pub http_as_bound: bool,
    /// Running nodes that are asked to take this one in, by their base addresses.
    pub join: Vec<String>,
    /// Log lines as JSON.
    pub json_log: bool,
    /// How long a stop waits for answers.
    pub drain: Duration,
}

/// All values, or all mistakes together with those that are known already.
pub(super) fn resolve(raw: &Raw, mistakes: Vec<Mistake>) -> Result<Settings, Vec<Mistake>> {
    let mut read = Reader { raw, mistakes };
    let settings = read.settings();
    if read.mistakes.is_empty() { Ok(settings) } else { Err(read.mistakes) }
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
        node.commit = option_env!("BUILD_COMMIT").unwrap_or_default().to_owned();
        node.http = self.advertised_http();
        node.peers = self.peers(node.id);
        let join = self.join(node.peers.as_ref());
        node.queue = QueueSettings {
            queue_max: self.at_least(1, "propose_queue_max"),
            batch_max: self.at_least(1, "batch_max"),
            in_flight_max: self.at_least(1, "batches_in_flight_max"),
        };
        node.timing = self.timing();
        self.check_ttl_min(&mut node);
        node.reserve_bytes = self.at_least(0, "reserve_bytes");
        node.snapshot_log_bytes = self.at_least(1 << 20, "snapshot_log_bytes");
        node.digest_every = self.at_least(0, "digest_every");
        node.events_max = self.at_least(1, "events_max");
        node.audit_max = self.at_least(1, "audit_max");
        let json_log = match self.text("log_format").as_str() {
            "text" => false,
            "json" => true,
            other => {
                self.wrong("log_format", &format!("{other:?} is neither `text` nor `json`"));
                false
            }
        };
        let drain = Duration::from_millis(self.at_least(0, "drain_ms"));
        let http_as_bound = self.text("advertise_http").is_empty();
        Settings { node, http: self.http(), http_as_bound, join, json_log, drain }
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
        let least = node.timing.ttl_min_ms();
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
        self.check_advertised(&advertise);
        Some(PeerConfig { listen, advertise, founders })
    }

    /// Others are told of it: an address that only this machine understands leads them astray.
    fn check_advertised(&mut self, advertise: &str) {
        let Ok(address) = advertise.parse::<SocketAddr>() else { return };
        if address.ip().is_unspecified() || address.port() == 0 {
            let what = format!("{advertise} is no address at which others reach this node");
            self.wrong("advertise_peer", &what);
        }
    }

    /// Whom to ask for a place in a running cluster.
    fn join(&mut self, peers: Option<&PeerConfig>) -> Vec<String> {
        let urls = self.list("join");
        if urls.is_empty() {
            return urls;
        }
        match peers {
            None => self.wrong("join", "others have to reach this node: it needs peer_listen"),
            Some(peers) if !peers.founders.is_empty() => {
                self.wrong("join", "a node joins a cluster or founds one with its peers, not both");
            }
            Some(_) => {}
        }
        for url in &urls {
            if !(url.starts_with("http://") || url.starts_with("https://")) {
                self.wrong("join", &format!("{url:?} is not like http://10.0.0.1:7070"));
            }
        }
        urls
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
