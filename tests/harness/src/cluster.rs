//! Several real nodes that form one cluster, each a process of its own.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::{Answer, Client, Server, within};

/// An election takes two seconds at most on an idle machine.
const LEADER_PATIENCE: Duration = Duration::from_secs(60);

/// Nodes with the ids from 1 on, running or not.
#[derive(Debug)]
pub struct Cluster {
    nodes: BTreeMap<u64, Server>,
    down: BTreeMap<u64, bool>,
    binary: PathBuf,
    peers: String,
}

/// How to start a cluster.
#[derive(Debug, Clone)]
pub struct Nodes {
    binary: PathBuf,
    flags: Vec<(String, String)>,
    environment: Vec<(u64, String, PathBuf)>,
    root: Option<PathBuf>,
}

impl Nodes {
    /// Nodes run from `binary`.
    pub fn of(binary: impl Into<PathBuf>) -> Self {
        Self { binary: binary.into(), flags: Vec::new(), environment: Vec::new(), root: None }
    }

    /// Makes the directories of all of them inside `root`, when the disk under it matters.
    #[must_use]
    pub fn inside(mut self, root: &Path) -> Self {
        self.root = Some(root.to_owned());
        self
    }

    /// Adds a flag with its value to each of them.
    #[must_use]
    pub fn flag(mut self, name: &str, value: impl ToString) -> Self {
        self.flags.push((name.to_owned(), value.to_string()));
        self
    }

    /// Starts one of them with a variable in its environment.
    #[must_use]
    pub fn with(mut self, id: u64, variable: &str, value: &Path) -> Self {
        self.environment.push((id, variable.to_owned(), value.to_owned()));
        self
    }

    /// Starts `size` founders and waits until one of them leads.
    #[track_caller]
    pub fn start(self, size: u64) -> Cluster {
        let peers: Vec<String> =
            (1..=size).zip(free_ports(size)).map(|(id, at)| format!("{id}={at}")).collect();
        let peers = peers.join(",");
        let start = |id: u64| {
            let builder = Server::builder(&self.binary).flag("--node-id", id);
            let builder = builder.flag("--peers", &peers);
            let root = self.root.iter();
            let builder = root.fold(builder, |builder, root| builder.inside(root));
            let flags = self.flags.iter();
            let builder = flags.fold(builder, |builder, (name, value)| builder.flag(name, value));
            let ours = self.environment.iter().filter(|(node, ..)| *node == id);
            ours.fold(builder, |builder, (_, name, value)| builder.env(name, value)).start()
        };
        // Each waits for the others before it is ready.
        let nodes = std::thread::scope(|scope| {
            let starting: Vec<_> =
                (1..=size).map(|id| (id, scope.spawn(move || start(id)))).collect();
            let joined = starting.into_iter().map(|(id, node)| (id, node.join()));
            joined.map(|(id, node)| (id, node.expect("every founder starts"))).collect()
        });
        let cluster = Cluster { nodes, down: BTreeMap::new(), binary: self.binary, peers };
        cluster.leader();
        cluster
    }
}

impl Cluster {
    /// One of the nodes.
    #[track_caller]
    pub fn node(&self, id: u64) -> &Server {
        &self.nodes[&id]
    }

    /// The same, to start or stop it.
    #[track_caller]
    pub fn node_mut(&mut self, id: u64) -> &mut Server {
        self.nodes.get_mut(&id).expect("the node is one of the cluster")
    }

    /// A new connection to one of them.
    #[track_caller]
    pub fn client(&self, id: u64) -> Client {
        self.node(id).client()
    }

    /// The ids of those that run.
    pub fn up(&self) -> Vec<u64> {
        self.nodes.keys().copied().filter(|id| !self.is_down(*id)).collect()
    }

    /// Where those that run are reached.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.up().into_iter().map(|id| self.node(id).addr()).collect()
    }

    /// Kills one of them without a chance to write or say anything.
    #[track_caller]
    pub fn kill9(&mut self, id: u64) {
        self.node_mut(id).kill9();
        self.down.insert(id, true);
    }

    /// Starts one again on its data, and waits until it is ready.
    #[track_caller]
    pub fn restart(&mut self, id: u64) {
        self.node_mut(id).restart();
        self.down.remove(&id);
    }

    /// Starts all that are down at once: alone none of them may become ready.
    #[track_caller]
    pub fn restart_all(&mut self) {
        let down = &self.down;
        std::thread::scope(|scope| {
            for (id, node) in &mut self.nodes {
                if down.contains_key(id) {
                    scope.spawn(move || node.restart());
                }
            }
        });
        self.down.clear();
    }

    /// The node that leads, once one of those that run says so of itself.
    #[track_caller]
    pub fn leader(&self) -> u64 {
        self.leader_among(&self.up())
    }

    /// The same among some of them.
    #[track_caller]
    pub fn leader_among(&self, ids: &[u64]) -> u64 {
        within(LEADER_PATIENCE, "a node leads", || ids.iter().copied().find(|id| self.leads(*id)))
    }

    /// An empty node that was told of the same founders, and of itself as one more.
    pub fn stranger(&self, id: u64) -> crate::Builder {
        let at = free_ports(1)[0];
        let peers = format!("{},{id}={at}", self.peers);
        Server::builder(&self.binary).flag("--node-id", id).flag("--peers", peers)
    }

    /// One that runs and does not lead.
    #[track_caller]
    pub fn follower(&self) -> u64 {
        let leader = self.leader();
        self.up().into_iter().find(|id| *id != leader).expect("more than one node runs")
    }

    fn is_down(&self, id: u64) -> bool {
        self.down.contains_key(&id)
    }

    fn leads(&self, id: u64) -> bool {
        let client = Client::try_new(self.node(id).addr());
        let answer = client.and_then(|mut client| client.try_call("GET", "/metrics", &[], b""));
        answer.is_ok_and(|answer| {
            String::from_utf8_lossy(&answer.body).contains("\nleasehold_leading 1\n")
        })
    }
}

/// A client of a cluster: when a node does not answer, or cannot, it asks the next one.
#[derive(Debug)]
pub struct Roaming {
    addresses: Vec<SocketAddr>,
    at: usize,
    client: Option<Client>,
}

impl Roaming {
    /// Knows these nodes.
    pub fn new(addresses: Vec<SocketAddr>) -> Self {
        Self { addresses, at: 0, client: None }
    }

    /// Posts until a node answers with something else than that it cannot, or `patience` is over.
    /// The request must be one that may be repeated.
    pub fn post(&mut self, path: &str, body: &Value, patience: Duration) -> Option<Answer> {
        let give_up_at = Instant::now() + patience;
        while Instant::now() < give_up_at {
            match self.try_post(path, body) {
                Ok(answer) if answer.status != 503 => return Some(answer),
                _ => self.go_on(),
            }
        }
        None
    }

    fn try_post(&mut self, path: &str, body: &Value) -> std::io::Result<Answer> {
        let client = match self.client.take() {
            Some(client) => client,
            None => Client::try_new(self.addresses[self.at])?,
        };
        let mut client = client;
        let answer = client.try_post(path, body)?;
        self.client = Some(client);
        Ok(answer)
    }

    fn go_on(&mut self) {
        self.client = None;
        self.at = (self.at + 1) % self.addresses.len();
        // Nothing tells when a node can answer again; this only keeps the loop from spinning.
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Addresses that were free a moment ago.
fn free_ports(count: u64) -> Vec<SocketAddr> {
    let held: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port")).collect();
    held.iter().map(|port| port.local_addr().expect("it is bound")).collect()
}

/// A library that makes every sync of whoever is started with it take longer, built with the C
/// compiler that the Rust toolchain needs as well. The delay is read from a file at each sync.
pub fn slow_sync(dir: &Path) -> PathBuf {
    const SOURCE: &str = include_str!("slow_sync.c");
    let (source, library) = (dir.join("slow_sync.c"), dir.join("slow_sync.so"));
    std::fs::write(&source, SOURCE).expect("the source can be written");
    let built = std::process::Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&library)
        .arg(&source)
        .arg("-ldl")
        .status();
    assert!(built.is_ok_and(|status| status.success()), "the C compiler builds the library");
    library
}
