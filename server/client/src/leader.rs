//! Which of the servers leads, so that requests go there without a detour.
//!
//! A node that does not lead passes requests on and says to whom: with an id. Which server has that
//! id, each of them says itself when it is asked, beside the calls and never in their way.

use crate::client::{Client, Inner};
use crate::servers::{Hint, Turn};
use crate::transport::Whole;
use bytes::Bytes;
use futures_util::future::join_all;
use http_body_util::Full;
use hyper::Request;
use serde::Deserialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::timeout;

const HEADER: &str = "leasehold-leader";
/// How long all servers together have to say who they are.
const PATIENCE: Duration = Duration::from_secs(2);
/// A leader that none of the servers is, is not looked for again before.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

/// Whether somebody looks for the leader.
#[derive(Debug, Default)]
pub(crate) struct Search(AtomicBool);

/// The one thing that is read of what a server says about itself.
#[derive(Deserialize)]
struct About {
    node_id: u64,
}

impl Client {
    /// Takes the hint of an answer, if there is one in it.
    pub(crate) fn take_hint(&self, turn: Turn, answer: &Whole) {
        // Whoever could not serve may still believe in a leader that is gone.
        if answer.status.as_u16() == 503 {
            return;
        }
        let named = answer.headers.get(HEADER).and_then(|value| value.to_str().ok()?.parse().ok());
        let Some(leader) = named else { return };
        let unknown = self.inner.servers.passed_on(turn, leader) == Hint::Unknown;
        if unknown && !self.inner.search.0.swap(true, Ordering::Relaxed) {
            drop(tokio::spawn(search(Arc::clone(&self.inner), leader)));
        }
    }
}

async fn search(inner: Arc<Inner>, leader: u64) {
    let asked = inner.servers.bases().iter().map(|base| node(&inner, base));
    let nodes = join_all(asked).await;
    inner.servers.learn(&nodes, leader);
    // A client that nobody has any more is not kept for this.
    let inner_left = Arc::downgrade(&inner);
    drop(inner);
    tokio::time::sleep(AGAIN_AFTER).await;
    if let Some(inner) = inner_left.upgrade() {
        inner.search.0.store(false, Ordering::Relaxed);
    }
}

/// Which node a server is, if it says so in time.
async fn node(inner: &Inner, base: &str) -> Option<u64> {
    let mut request = Request::new(Full::<Bytes>::default());
    *request.uri_mut() = format!("{base}/v1/stats").parse().ok()?;
    let whole = timeout(PATIENCE, inner.transport.send(request)).await.ok()?.ok()?;
    Some(serde_json::from_slice::<About>(&whole.body).ok()?.node_id)
}
