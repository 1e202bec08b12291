//! A client of a whole cluster: when a node does not answer, or cannot, it asks the next one.

use std::net::SocketAddr;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::{Answer, Client};

/// Where the nodes of a cluster are reached just now. Whoever reads it has a share of it, so that a
/// node that was started again is found at its new address.
#[derive(Debug, Clone, Default)]
pub struct Book(Arc<RwLock<Vec<SocketAddr>>>);

impl Book {
    /// The addresses. There are none while no node runs.
    pub fn read(&self) -> Vec<SocketAddr> {
        self.0.read().expect("no test thread panicked").clone()
    }

    /// The `n`th address, counted round and round.
    pub fn nth(&self, n: usize) -> Option<SocketAddr> {
        let addresses = self.0.read().expect("no test thread panicked");
        addresses.get(n % addresses.len().max(1)).copied()
    }

    pub(crate) fn write(&self, addresses: Vec<SocketAddr>) {
        *self.0.write().expect("no test thread panicked") = addresses;
    }
}

impl From<Vec<SocketAddr>> for Book {
    fn from(addresses: Vec<SocketAddr>) -> Self {
        Self(Arc::new(RwLock::new(addresses)))
    }
}

/// One client.
#[derive(Debug)]
pub struct Roaming {
    book: Book,
    at: usize,
    client: Option<Client>,
    each: Duration,
    tries: usize,
}

impl Roaming {
    /// Knows these nodes.
    pub fn new(addresses: Vec<SocketAddr>) -> Self {
        Self::by(addresses.into())
    }

    /// Knows the nodes that are in a book, whenever it looks.
    pub fn by(book: Book) -> Self {
        // As long as a client alone has patience: above the longest wait.
        let each = Duration::from_secs(90);
        Self { book, at: 0, client: None, each, tries: 0 }
    }

    /// Begins with the `n`th node.
    #[must_use]
    pub fn from_node(mut self, n: usize) -> Self {
        self.at = n;
        self
    }

    /// From now on waits this long for the answer of one node before it asks the next.
    pub fn try_for(&mut self, each: Duration) {
        self.each = each;
        self.client = self.client.take().and_then(|client| client.patient_for(each).ok());
    }

    /// How often the last request was sent until it was answered.
    pub fn tries(&self) -> usize {
        self.tries
    }

    /// Goes to the next node, which the next request is sent to.
    pub fn go_on(&mut self) {
        self.client = None;
        self.at = self.at.wrapping_add(1);
    }

    /// Posts until a node answers with something else than that it cannot, or `patience` is over.
    /// The request must be one that may be repeated.
    pub fn post(&mut self, path: &str, body: &Value, patience: Duration) -> Option<Answer> {
        let give_up_at = Instant::now() + patience;
        self.tries = 0;
        while Instant::now() < give_up_at {
            self.tries += 1;
            match self.try_post(path, body) {
                Ok(answer) if answer.status != 503 => return Some(answer),
                _ => self.go_on(),
            }
            // Nothing tells when a node can answer again; this only keeps the loop from spinning.
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    }

    fn try_post(&mut self, path: &str, body: &Value) -> std::io::Result<Answer> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => {
                let address = self.book.nth(self.at).ok_or(std::io::ErrorKind::NotConnected)?;
                Client::try_new(address)?.patient_for(self.each)?
            }
        };
        let answer = client.try_post(path, body)?;
        self.client = Some(client);
        Ok(answer)
    }
}
