//! A network of a test's own: every node in a namespace, every two of them joined by a wire, and
//! each joined to the test as well. A wire can be cut in either direction while the nodes run.
//!
//! What is cut is lost in silence, as in a switch that has failed: frames go to a station that does
//! not exist. Nobody is told, so that nodes find out by their own clocks alone.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};

/// The test's own end of the wires is numbered like a node, beyond all of them.
const TEST: u64 = 254;
/// No station of any network has it.
const NOBODY: &str = "02:ff:ff:ff:ff:ff";
/// The port of the HTTP API, and the one for other nodes: each node has an address of its own.
const PORTS: (u16, u16) = (7070, 7071);

/// Wires between some nodes. They go when this is dropped, so the nodes must be dropped before.
#[derive(Debug)]
pub struct Network {
    name: String,
    /// Two tests at once have different ones, and so different networks.
    number: u32,
    size: u64,
    cut: Mutex<BTreeSet<(u64, u64)>>,
}

impl Network {
    /// Lays the wires between nodes with the ids from 1 on. Fails, with the reason, only where the
    /// kernel has no namespaces for us.
    #[track_caller]
    pub fn between(size: u64) -> Result<Self, String> {
        assert!(
            rustix::process::geteuid().is_root(),
            "this test makes network namespaces, for which it needs to run as root"
        );
        static MADE: AtomicU32 = AtomicU32::new(0);
        let (process, nth) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let name = format!("lh{process}t{}", nth % 100);
        let number = process.wrapping_add(nth << 10);
        let network = Self { name, number, size, cut: Mutex::default() };
        let named = |id| run(&["netns", "add", &network.namespace(id)], "");
        match network.ids().try_for_each(named).and_then(|()| network.wire()) {
            Ok(()) => Ok(network),
            Err(said) if is_refusal(&said) => Err(said),
            Err(said) => panic!("the wires cannot be laid: {said}"),
        }
    }

    /// The nodes that it has places for.
    pub fn ids(&self) -> std::ops::RangeInclusive<u64> {
        1..=self.size
    }

    /// The address of a node.
    pub fn address(&self, id: u64) -> Ipv4Addr {
        let [.., high, low] = self.number.to_be_bytes();
        Ipv4Addr::new(10, 64 + high % 128, low, u8::try_from(id).expect("few nodes"))
    }

    /// Where its HTTP API is, for `--listen`.
    pub fn listen(&self, id: u64) -> String {
        format!("{}:{}", self.address(id), PORTS.0)
    }

    /// Where other nodes reach it, for `--peers`.
    pub fn peer(&self, id: u64) -> String {
        format!("{}:{}", self.address(id), PORTS.1)
    }

    /// The command that starts another one inside the namespace of a node.
    pub fn inside(&self, id: u64) -> Vec<String> {
        ["ip", "netns", "exec", &self.namespace(id)].map(str::to_owned).to_vec()
    }

    /// From now on nothing that one sends reaches the other.
    #[track_caller]
    pub fn cut(&self, from: u64, to: u64) {
        self.neighbour(from, to, NOBODY);
        self.cuts().insert((from, to));
    }

    /// From now on it does again.
    #[track_caller]
    pub fn mend(&self, from: u64, to: u64) {
        self.neighbour(from, to, &station(to, from));
        self.cuts().remove(&(from, to));
    }

    /// Cuts a node off from all others, in both directions. The test still reaches it.
    #[track_caller]
    pub fn isolate(&self, id: u64) {
        for other in self.ids().filter(|other| *other != id) {
            self.cut(id, other);
            self.cut(other, id);
        }
    }

    /// Mends all that is cut.
    #[track_caller]
    pub fn heal(&self) {
        let cut: Vec<_> = self.cuts().iter().copied().collect();
        for (from, to) in cut {
            self.mend(from, to);
        }
    }

    fn cuts(&self) -> MutexGuard<'_, BTreeSet<(u64, u64)>> {
        self.cut.lock().expect("no test thread panicked")
    }

    #[track_caller]
    fn neighbour(&self, from: u64, to: u64, station: &str) {
        let line = neighbour(&self.address(to).to_string(), &wire(to), station);
        let told = run(&["-n", &self.namespace(from), "-batch", "-"], &line);
        told.unwrap_or_else(|said| panic!("the wire from {from} to {to}: {said}"));
    }

    fn namespace(&self, id: u64) -> String {
        format!("{}n{id}", self.name)
    }

    /// The test's end of its wire to a node.
    fn own_end(&self, id: u64) -> String {
        format!("{}w{id}", self.name)
    }

    fn wire(&self) -> Result<(), String> {
        for id in self.ids() {
            let mut lines = format!("link set lo up\naddr add {}/32 dev lo\n", self.address(id));
            for other in id + 1..=self.size {
                let there = format!("{} netns {}", wire(id), self.namespace(other));
                pair(&mut lines, (id, other), &wire(other), &there);
            }
            // The test's own namespace is the one of this process.
            let there = format!("{} netns {}", self.own_end(id), std::process::id());
            pair(&mut lines, (id, TEST), &wire(TEST), &there);
            run(&["-n", &self.namespace(id), "-batch", "-"], &lines)?;
        }
        for id in self.ids() {
            let mut lines = String::new();
            for other in self.ids().chain([TEST]).filter(|other| *other != id) {
                self.reach(&mut lines, (id, other), &wire(other));
            }
            run(&["-n", &self.namespace(id), "-batch", "-"], &lines)?;
            let end = self.own_end(id);
            let mut lines = format!("addr add {}/32 dev {end}\n", self.address(TEST));
            self.reach(&mut lines, (TEST, id), &end);
            run(&["-batch", "-"], &lines)?;
        }
        Ok(())
    }

    /// Makes one find the other at the end of a wire.
    fn reach(&self, lines: &mut String, (from, to): (u64, u64), device: &str) {
        let (ours, theirs) = (self.address(from), self.address(to).to_string());
        let _ = writeln!(lines, "link set {device} up");
        let _ = writeln!(lines, "route add {theirs}/32 dev {device} src {ours}");
        lines.push_str(&neighbour(&theirs, device, &station(to, from)));
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // Wires go with either of their ends. What was never made cannot be removed.
        for id in self.ids() {
            let _ = run(&["netns", "del", &self.namespace(id)], "");
            let _ = run(&["link", "del", &self.own_end(id)], "");
        }
    }
}

/// The end of a wire, in the namespace of a node, that leads to another one.
fn wire(to: u64) -> String {
    format!("to{to}")
}

/// The hardware address of the end at `id` of the wire to `other`.
fn station(id: u64, other: u64) -> String {
    format!("02:4c:48:00:{id:02x}:{other:02x}")
}

fn pair(lines: &mut String, (here, there): (u64, u64), device: &str, far_end: &str) {
    let (near, far) = (station(here, there), station(there, here));
    let _ = writeln!(
        lines,
        "link add {device} address {near} type veth peer name {far_end} address {far}"
    );
}

fn neighbour(address: &str, device: &str, station: &str) -> String {
    format!("neigh replace {address} lladdr {station} dev {device} nud permanent\n")
}

/// Runs `ip` with these lines as its input.
fn run(args: &[&str], lines: &str) -> Result<(), String> {
    let child = Command::new("ip")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.unwrap_or_else(|error| panic!("`ip` of iproute2 cannot run: {error}"));
    let mut input = child.stdin.take().expect("it has an input");
    // When it does not read them, it says why.
    let _ = input.write_all(lines.as_bytes());
    drop(input);
    let output = child.wait_with_output().expect("the process is ours");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(format!("ip {args:?}: {said}\n{lines}")) }
}

/// Whether it is the kernel, or who runs it for us, that has no such thing as a namespace.
fn is_refusal(said: &str) -> bool {
    ["Operation not permitted", "Unknown device type", "not supported"]
        .iter()
        .any(|reason| said.contains(reason))
}
