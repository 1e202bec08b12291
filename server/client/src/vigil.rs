//! Whether a server is still there that is silent for a good reason.
//!
//! A request that stands in line and a watch with nothing to tell hear nothing for a minute, and a
//! server whose process is frozen looks the same: the kernel keeps its connections alive. So while
//! one of them waits, the server is asked something that it answers at once. Only where there is
//! another server to turn to.

use crate::client::Client;
use crate::servers::{Fault, Turn};
use crate::transport::Cut;
use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use std::future::pending;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout};

/// A server that says nothing is asked this often, as a part of an attempt. With [`FIRST_SHARE`]
/// it sums up to less than a place in line outlives the node through which it was asked for: a
/// second until the leader misses that node, and the two of the claim window.
const EVERY_SHARE: f64 = 0.3;
/// The patience with a first attempt, as a part of the whole of it.
pub(crate) const FIRST_SHARE: f64 = 0.25;

impl Client {
    /// Returns once the server of this turn left a question without an answer for `patience`, and
    /// has it left alone from then on.
    pub(crate) async fn silence(&self, turn: Turn, patience: Duration) {
        let servers = &self.inner.servers;
        if servers.count() == 1 {
            return pending().await;
        }
        let begun = Instant::now();
        let every = self.inner.times.attempt.mul_f64(EVERY_SHARE);
        loop {
            let heard = servers.last_heard(turn).map_or(begun, |heard| heard.max(begun));
            sleep_until(heard + every).await;
            let _one = servers.asking(turn).await;
            if servers.is_silent_since(turn, begun) {
                return;
            }
            // Somebody else may have asked, or was served, in the meantime.
            if servers.last_heard(turn).is_some_and(|heard| heard.elapsed() < every) {
                continue;
            }
            if timeout(patience, self.is_there(turn)).await.unwrap_or(false) {
                servers.heard(turn);
            } else {
                servers.move_on(turn, Fault::Silent);
                return;
            }
        }
    }

    /// Any answer is a sign of life, also that there is no such route, or a connection that ends.
    async fn is_there(&self, turn: Turn) -> bool {
        let mut request = Request::new(Full::<Bytes>::default());
        match format!("{}/livez", self.inner.servers.base(turn)).parse() {
            Ok(uri) => *request.uri_mut() = uri,
            Err(_) => return true,
        }
        !matches!(self.inner.transport.send(request).await, Err(Cut::NotSent(_)))
    }
}
