//! One connection to the upstream, and the exchange that it carries.

use crate::exchange::{Cut, Exchange};
use crate::outgoing::Outgoing;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper::rt::{Read, Write};
use parking_lot::Mutex;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
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

    /// Resolves at once or not at all: whoever closes the gate later says so.
    fn closed(&self) -> Poll<()> {
        let exchange = self.exchange.lock();
        let closed = exchange.as_ref().is_some_and(|exchange| exchange.may_go_on().is_err());
        if closed { Poll::Ready(()) } else { Poll::Pending }
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
            // A process that was frozen finds all of this due at once: the cut comes first, and
            // by the clock, as whoever would close the gate may not have run yet.
            biased;
            Ok(()) = cut.changed() => if carried.cut(Cut::NotReady) { break },
            () = poll_fn(|_| carried.closed()) => if carried.cut(Cut::NotReady) { break },
            () = until(ends) => if carried.cut(Cut::TooLong) { break },
            () = carried.changed.notified() => {}
            ended = &mut connection => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection to the upstream ended");
                }
                break;
            }
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
    use crate::exchange::tests as exchanges;
    use crate::gate::Gate;
    use hyper_util::rt::TokioIo;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt as _, DuplexStream};
    use tokio::time::timeout;

    /// A line that carries a write, and the other end of it.
    async fn line(gate: &Arc<Gate>, exchange: &Arc<Exchange>) -> (Line, DuplexStream) {
        let (near, far) = tokio::io::duplex(1024);
        let line = Line::open(TokioIo::new(near), &Builder::new(), gate.cuts()).await;
        let line = line.expect("nothing is said yet");
        line.carry(exchange);
        (line, far)
    }

    async fn assert_cut(mut far: DuplexStream, exchange: &Exchange) {
        let mut said = Vec::new();
        let closed = timeout(Duration::from_secs(60), far.read_to_end(&mut said)).await;
        closed.expect("it is cut").expect("it is closed");
        assert_eq!((said.len(), exchange.why_cut()), (0, Some(Cut::NotReady)));
    }

    /// On one thread the task of the connection first runs when this waits, which is after the
    /// gate has closed.
    #[tokio::test]
    async fn a_gate_that_closes_before_the_connection_first_runs_cuts_it() {
        let gate = Arc::new(Gate::new(Duration::ZERO));
        let (exchange, _dir) = exchanges::write(&gate).await;
        let (line, far) = line(&gate, &exchange).await;
        gate.close();
        assert_cut(far, &exchange).await;
        drop(line);
    }

    #[tokio::test]
    async fn a_gate_that_nobody_has_closed_yet_cuts_it_when_its_time_is_over() {
        let gate = Arc::new(Gate::new(Duration::ZERO));
        let (exchange, _dir) = exchanges::write(&gate).await;
        assert!(exchange.may_go_on().is_err(), "a gate is closed until somebody opens it");
        let (line, far) = line(&gate, &exchange).await;
        assert_cut(far, &exchange).await;
        drop(line);
    }
}
