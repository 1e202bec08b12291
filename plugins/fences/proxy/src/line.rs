//! One connection to the upstream, and the exchange that it carries.

use crate::exchange::{Cut, Exchange};
use crate::outgoing::Outgoing;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper::rt::{Read, Write};
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

/// Dropping it cuts it.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) sender: SendRequest<Outgoing>,
    driver: Option<AbortHandle>,
    carried: Arc<Carried>,
    pub(crate) idle_since: Instant,
}

#[derive(Debug, Default)]
struct Carried {
    exchange: Mutex<Option<Arc<Exchange>>>,
    changed: Notify,
}

impl Line {
    /// Speaks HTTP on a connection. Writes on it are cut when `cut` changes.
    pub(crate) async fn open<T>(
        stream: T,
        http: &Builder,
        mut cut: watch::Receiver<()>,
    ) -> hyper::Result<Self>
    where
        T: Read + Write + Unpin + Send + 'static,
    {
        let (sender, connection) = http.handshake(stream).await?;
        let carried = Arc::<Carried>::default();
        // Here, and not when the task first runs: the gate may close in between.
        cut.mark_unchanged();
        let driver = tokio::spawn(drive(connection, Arc::clone(&carried), cut)).abort_handle();
        Ok(Self { sender, driver: Some(driver), carried, idle_since: Instant::now() })
    }

    /// The exchange lives until it is over or this connection has ended.
    pub(crate) fn carry(&self, exchange: &Arc<Exchange>) {
        *self.carried.exchange.lock() = Some(Arc::clone(exchange));
        self.carried.changed.notify_one();
    }

    /// The exchange is over, or was not begun.
    pub(crate) fn unload(&self) {
        // Dropped outside of the lock.
        let exchange = self.carried.exchange.lock().take();
        drop(exchange);
        self.carried.changed.notify_one();
    }

    /// Lets what is under way come to its end, and nothing after it.
    pub(crate) fn let_finish(mut self) {
        self.driver = None;
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(driver) = &self.driver {
            driver.abort();
        }
    }
}

impl Carried {
    fn ends(&self) -> Option<Instant> {
        self.exchange.lock().as_ref()?.ends()
    }

    /// Whether there is a write to be cut.
    fn cut(&self, why: Cut) -> bool {
        let exchange = self.exchange.lock();
        let write = exchange.as_ref().filter(|exchange| exchange.is_write());
        write.map(|exchange| exchange.cut(why)).is_some()
    }
}

/// Whatever ends it, the exchange is let go only when the connection is gone.
async fn drive<T>(
    connection: Connection<T, Outgoing>,
    carried: Arc<Carried>,
    mut cut: watch::Receiver<()>,
) where
    T: Read + Write + Unpin + Send + 'static,
{
    let mut connection = Box::pin(connection);
    loop {
        let ends = carried.ends();
        tokio::select! {
            ended = &mut connection => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection to the upstream ended");
                }
                break;
            }
            () = carried.changed.notified() => {}
            Ok(()) = cut.changed() => if carried.cut(Cut::NotReady) { break },
            () = until(ends) => if carried.cut(Cut::TooLong) { break },
        }
    }
    drop(connection);
    carried.exchange.lock().take();
}

async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange;
    use crate::gate::{Gate, Tenure};
    use crate::metrics::Metrics;
    use crate::settings::Limits;
    use hyper_util::rt::TokioIo;
    use leasehold_client::fence::{Fence as _, Options, RedbFence, Usage};
    use std::time::Duration;
    use tokio::io::AsyncReadExt as _;
    use tokio::sync::Semaphore;
    use tokio::time::timeout;

    /// On one thread the task of the connection first runs when this waits, which is after the
    /// gate has closed.
    #[tokio::test]
    async fn a_gate_that_closes_before_the_connection_first_runs_cuts_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let fence = RedbFence::open(dir.path().join("fence.redb"), Options::new()).expect("opened");
        let gate = Gate::new(Duration::ZERO);
        let metrics = Metrics::new(&Limits::default()).expect("metrics");
        let seats = Arc::new(Semaphore::new(1));
        let write = exchange::Write {
            pass: fence.admit("r", 1, Usage::Many).await.expect("new"),
            settle: Duration::ZERO,
            tenure: Tenure::default(),
            seat: seats.try_acquire_owned().expect("free"),
            ends: Instant::now() + Duration::from_secs(600),
        };
        let exchange = Exchange::new(Some(write), &metrics);
        let (near, mut far) = tokio::io::duplex(1024);
        let line = Line::open(TokioIo::new(near), &Builder::new(), gate.cuts()).await;
        let line = line.expect("nothing is said yet");
        line.carry(&exchange);
        gate.close();
        let mut said = Vec::new();
        let closed = timeout(Duration::from_secs(60), far.read_to_end(&mut said)).await;
        closed.expect("it is cut").expect("it is closed");
        assert_eq!((said.len(), exchange.why_cut()), (0, Some(Cut::NotReady)));
        drop(line);
    }
}
