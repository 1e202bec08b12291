//! `leasehold fence-proxy` before a real nginx, and before an upstream that does what it is told.

mod bounds;
mod crash;
mod forwarding;
mod load;
mod lock;
mod metrics;
mod order;
pub(crate) mod process;
mod restored;
mod rule;
mod scripted;
mod succession;
mod tokens;
mod upstreams;

use leasehold_harness::{Client, Server};
use process::Proxy;

const BINARY: &str = env!("CARGO_BIN_EXE_leasehold");

/// A lock service to hold the proxy's own lock.
fn service() -> Server {
    Server::builder(BINARY).start()
}

/// A proxy that takes any token for real: for tests in which tokens are made up.
fn trusting(service: &Server, upstream: &str) -> process::Builder {
    Proxy::builder(service, upstream).flag("--check-tokens", "off")
}

/// The headers that a write is made under.
fn under(resource: &str, token: u64) -> [(String, String); 2] {
    [
        ("Fencing-Resource".to_owned(), resource.to_owned()),
        ("Fencing-Token".to_owned(), token.to_string()),
    ]
}

/// The head and body of a PUT, as bytes.
fn put(path: &str, resource: &str, token: u64, body: &str) -> Vec<u8> {
    let headers = under(resource, token).map(|(name, value)| format!("{name}: {value}\r\n"));
    format!(
        "PUT {path} HTTP/1.1\r\nHost: store\r\n{}Content-Length: {}\r\n\r\n{body}",
        headers.concat(),
        body.len()
    )
    .into_bytes()
}

/// Sends a PUT on a connection of its own, and leaves the answer for later.
fn begin_put(proxy: &Proxy, path: &str, resource: &str, token: u64) -> Client {
    let mut client = proxy.client();
    client.send(&put(path, resource, token, "body")).expect("the proxy reads");
    client
}
