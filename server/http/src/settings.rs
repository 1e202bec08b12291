//! What an operator may choose about the rim.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::time::Duration;

/// Settings of the listeners. [`Settings::default`] needs no tuning.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where the API listens. Port 0 takes a free one.
    pub listen: Vec<SocketAddr>,
    /// Moves health and metrics to an address of their own.
    pub ops_listen: Option<SocketAddr>,
    /// Threads that speak HTTP.
    pub workers: usize,
    /// Open connections in all; further ones wait in the kernel.
    pub connections_max: usize,
    /// Host names under which clients reach this node, beside `localhost` and IP addresses.
    /// Without authentication any other name is refused, because a name that an attacker owns
    /// can be made to point here (DNS rebinding).
    pub hosts: Vec<String>,
    /// Largest head of a request: address, and names and values of headers, in bytes. Above it
    /// stand the bounds of the HTTP layer, 96 headers and 128 KiB, which are not to be chosen.
    pub head_max: usize,
    /// Largest body of a single operation, in bytes.
    pub body_max: usize,
    /// Largest body of a batch or of a keep-alive of many leases, in bytes.
    pub bulk_body_max: usize,
    /// How long a body may take to arrive.
    pub body_timeout: Duration,
    /// How long the head of a request may take to arrive.
    pub head_timeout: Duration,
    /// How long a client may take nothing of an answer that is being sent.
    pub write_timeout: Duration,
    /// Streams of watchers on this node.
    pub watch_streams_max: usize,
    /// How long a connection may be idle between requests.
    pub idle_timeout: Duration,
    /// How long a stopping server goes on listening, so that load balancers see that it is not
    /// ready any more before connections are refused.
    pub linger: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 7070))],
            ops_listen: None,
            workers: std::thread::available_parallelism().map_or(2, NonZeroUsize::get),
            connections_max: 15_000,
            hosts: Vec::new(),
            head_max: 32 << 10,
            body_max: 32 << 10,
            bulk_body_max: 256 << 10,
            body_timeout: Duration::from_secs(5),
            head_timeout: Duration::from_secs(5),
            write_timeout: Duration::from_secs(30),
            watch_streams_max: 1_000,
            idle_timeout: Duration::from_secs(75),
            linger: Duration::from_millis(500),
        }
    }
}
