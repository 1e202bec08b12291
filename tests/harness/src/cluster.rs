//! Several real nodes that form one cluster, each a process of its own.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use crate::{Book, Client, Network, Server, free_ports, json, within};

/// An election takes two seconds at most on an idle machine.
const LEADER_PATIENCE: Duration = Duration::from_secs(60);
/// A node that says nothing for this long is not asked again before the others.
const WORD_PATIENCE: Duration = Duration::from_secs(2);

/// Nodes with the ids from 1 on, running or not.
#[derive(Debug)]
pub struct Cluster {
    nodes: BTreeMap<u64, Server>,
    down: BTreeMap<u64, bool>,
    binary: PathBuf,
    peers: String,
    book: Book,
}

/// How to start a cluster.
#[derive(Debug, Clone)]
pub struct Nodes {
    binary: PathBuf,
    flags: Vec<(String, String)>,
    environment: Vec<(u64, String, PathBuf)>,
    roots: BTreeMap<u64, PathBuf>,
    places: BTreeMap<u64, Place>,
    root: Option<PathBuf>,
}

/// Where a node is, if not beside the test.
#[derive(Debug, Clone)]
struct Place {
    listen: String,
    peer: String,
    through: Vec<String>,
}

impl Nodes {
    /// Nodes run from `binary`.
    pub fn of(binary: impl Into<PathBuf>) -> Self {
        Self {
            binary: binary.into(),
            flags: Vec::new(),
            environment: Vec::new(),
            roots: BTreeMap::new(),
            places: BTreeMap::new(),
            root: None,
        }
    }

    /// Makes the directories of all of them inside `root`, when the disk under it matters.
    #[must_use]
    pub fn all_inside(mut self, root: &Path) -> Self {
        self.root = Some(root.to_owned());
        self
    }

    /// Adds a flag with its value to each of them, or gives it another value.
    #[must_use]
    pub fn flag(mut self, name: &str, value: impl ToString) -> Self {
        self.flags.retain(|(known, _)| known != name);
        self.flags.push((name.to_owned(), value.to_string()));
        self
    }

    /// Starts one of them with a variable in its environment.
    #[must_use]
    pub fn with(mut self, id: u64, variable: &str, value: &Path) -> Self {
        self.environment.push((id, variable.to_owned(), value.to_owned()));
        self
    }

    /// Keeps the data of one of them inside `root`, when the disk under it matters.
    #[must_use]
    pub fn inside(mut self, id: u64, root: &Path) -> Self {
        self.roots.insert(id, root.to_owned());
        self
    }

    /// Puts as many of them as it has places for into a network of their own.
    #[must_use]
    pub fn on(mut self, network: &Network) -> Self {
        for id in network.ids() {
            let (listen, peer) = (network.listen(id), network.peer(id));
            self.places.insert(id, Place { listen, peer, through: network.inside(id) });
        }
        self
    }

    /// Starts `size` founders and waits until one of them leads.
    #[track_caller]
    pub fn start(self, size: u64) -> Cluster {
        let peer = |(id, free): (u64, SocketAddr)| match self.places.get(&id) {
            Some(place) => format!("{id}={}", place.peer),
            None => format!("{id}={free}"),
        };
        let peers: Vec<String> = (1..=size).zip(free_ports(size)).map(peer).collect();
        let peers = peers.join(",");
        // Each waits for the others before it is ready.
        let nodes: BTreeMap<u64, Server> = std::thread::scope(|scope| {
            let start = |id| {
                let builder = self.builder(id, &peers);
                scope.spawn(move || builder.start())
            };
            let starting: Vec<_> = (1..=size).map(|id| (id, start(id))).collect();
            let joined = starting.into_iter().map(|(id, node)| (id, node.join()));
            joined.map(|(id, node)| (id, node.expect("every founder starts"))).collect()
        });
        let book = Book::default();
        let cluster = Cluster { nodes, down: BTreeMap::new(), binary: self.binary, peers, book };
        cluster.note_addresses();
        cluster.leader();
        cluster
    }

    fn builder(&self, id: u64, peers: &str) -> crate::Builder {
        let builder = Server::builder(&self.binary).flag("--node-id", id).flag("--peers", peers);
        let flags = self.flags.iter();
        let builder = flags.fold(builder, |builder, (name, value)| builder.flag(name, value));
        let ours = self.environment.iter().filter(|(node, ..)| *node == id);
        let mut builder = ours.fold(builder, |builder, (_, name, value)| builder.env(name, value));
        if let Some(root) = self.roots.get(&id).or(self.root.as_ref()) {
            builder = builder.inside(root);
        }
        match self.places.get(&id) {
            Some(place) => builder.flag("--listen", &place.listen).through(place.through.clone()),
            None => builder,
        }
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

    /// The same, in a book that follows them: a node that is started again has another address.
    pub fn book(&self) -> Book {
        self.book.clone()
    }

    /// Kills one of them without a chance to write or say anything.
    #[track_caller]
    pub fn kill9(&mut self, id: u64) {
        self.down.insert(id, true);
        // First, as another process may take its port.
        self.note_addresses();
        self.node_mut(id).kill9();
    }

    /// Asks one of them to stop, and waits until it has.
    #[track_caller]
    pub fn stop(&mut self, id: u64, patience: Duration) -> ExitStatus {
        self.node(id).begin_stop();
        self.ended(id, patience)
    }

    /// Waits until one of them has ended by itself.
    #[track_caller]
    pub fn ended(&mut self, id: u64, patience: Duration) -> ExitStatus {
        let status = self.node_mut(id).finish_stop(patience);
        self.down.insert(id, true);
        self.note_addresses();
        status
    }

    /// Starts one again on its data, and waits until it is ready.
    #[track_caller]
    pub fn restart(&mut self, id: u64) {
        self.node_mut(id).restart();
        self.down.remove(&id);
        self.note_addresses();
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
        self.note_addresses();
    }

    /// Puts a node that runs in the place of one that is gone for good.
    #[track_caller]
    pub fn exchange(&mut self, gone: u64, id: u64, new: Server) {
        self.nodes.remove(&gone).expect("the node is one of the cluster");
        self.down.remove(&gone);
        self.nodes.insert(id, new);
        self.note_addresses();
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

    /// Lets another node lead, this one if it is named, while the one that led goes on.
    #[track_caller]
    pub fn hand_over(&self, to: Option<u64>) {
        let before = self.leader();
        let is_done = |leader| to.map_or(leader != before, |to| leader == to);
        let body = to.map_or_else(|| json!({}), |to| json!({ "to": to }));
        within(LEADER_PATIENCE, "leadership is handed over", || {
            let leader = self.leader();
            if is_done(leader) {
                return Some(());
            }
            // Whether it came about shows; the answer may say that nobody knows.
            let client = Client::try_new(self.node(leader).addr());
            let _ = client.and_then(|mut to| to.try_post("/v1/cluster/transfer", &body));
            None
        });
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

    fn note_addresses(&self) {
        self.book.write(self.addresses());
    }

    fn is_down(&self, id: u64) -> bool {
        self.down.contains_key(&id)
    }

    fn leads(&self, id: u64) -> bool {
        let client = Client::try_new(self.node(id).addr());
        let client = client.and_then(|client| client.patient_for(WORD_PATIENCE));
        let answer = client.and_then(|mut client| client.try_call("GET", "/metrics", &[], b""));
        answer.is_ok_and(|answer| {
            String::from_utf8_lossy(&answer.body).contains("\nleasehold_leading 1\n")
        })
    }
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
