//! Places to listen at.

use std::hash::{BuildHasher as _, RandomState};
use std::net::{SocketAddr, TcpListener};

/// Addresses that were free a moment ago, and are not among those that the system gives to whoever
/// connects: until a server listens there, another test may have made many connections.
pub fn free_ports(count: u64) -> Vec<SocketAddr> {
    let free = || {
        let tried = (0..1_000).map(|_| u16::try_from(random_below(12_000)).unwrap_or(0) + 20_000);
        let mut bound = tried.filter_map(|port| TcpListener::bind(("127.0.0.1", port)).ok());
        bound.next().expect("a free port")
    };
    let held: Vec<TcpListener> = (0..count).map(|_| free()).collect();
    held.iter().map(|port| port.local_addr().expect("it is bound")).collect()
}

/// One of them.
pub(crate) fn free_port() -> u16 {
    free_ports(1)[0].port()
}

fn random_below(bound: u64) -> u64 {
    RandomState::new().hash_one(std::process::id()) % bound
}
