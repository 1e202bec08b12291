//! The body of a request on its way to the upstream, piece by piece as it comes.

use crate::exchange::{Cut, Exchange};
use crate::stall::Stall;
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Nothing of it is read before the upstream's connection asks for it, so the client is not told
/// to continue either. Each piece, and the end, is handed over only while the gate is open: the
/// process may have been frozen between one and the next. Trailers are left out: what they say could contradict the head.
#[derive(Debug)]
pub(crate) struct Outgoing {
    body: Incoming,
    exchange: Arc<Exchange>,
    stall: Stall,
}

/// The body did not come to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    #[error("the client was silent in the middle of its body")]
    Silent,
    #[error("the proxy may not write any more")]
    Closed,
    #[error("the body ended early: {0}")]
    Gone(#[from] hyper::Error),
}

impl Outgoing {
    pub(crate) fn new(body: Incoming, exchange: &Arc<Exchange>, patience: Duration) -> Self {
        if body.is_end_stream() {
            exchange.body_done();
        }
        Self { body, exchange: Arc::clone(exchange), stall: Stall::new(patience) }
    }

    fn end(&self, why: Cut, error: Broken) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        self.exchange.cut(why);
        Poll::Ready(Some(Err(error)))
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        loop {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Pending => {
                    self.exchange.client_moves();
                    if self.stall.poll(cx).is_ready() {
                        return self.end(Cut::ClientSilent, Broken::Silent);
                    }
                    return Poll::Pending;
                }
                Poll::Ready(Some(Err(error))) => return self.end(Cut::ClientGone, error.into()),
                Poll::Ready(_) if self.exchange.may_go_on().is_err() => {
                    return self.end(Cut::NotReady, Broken::Closed);
                }
                Poll::Ready(None) => {
                    self.exchange.body_done();
                    return Poll::Ready(None);
                }
                Poll::Ready(Some(Ok(frame))) => {
                    self.stall.moved();
                    self.exchange.upstream_moves();
                    if self.body.is_end_stream() {
                        self.exchange.body_done();
                    }
                    if frame.is_data() {
                        return Poll::Ready(Some(Ok(frame)));
                    }
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::tests as exchanges;
    use crate::gate::Gate;
    use hyper::server::conn::http1::Builder;
    use hyper::service::service_fn;
    use hyper::{Request, Response};
    use hyper_util::rt::TokioIo;
    use std::convert::Infallible;
    use std::future::{pending, poll_fn};
    use tokio::io::{AsyncWriteExt as _, DuplexStream};
    use tokio::sync::mpsc;

    /// The body of a request that has arrived as a whole, and the connection it came on.
    async fn arrived() -> (Incoming, DuplexStream) {
        let (mut near, far) = tokio::io::duplex(1024);
        let request = b"PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nbody";
        near.write_all(request).await.expect("there is room");
        let (give, mut given) = mpsc::unbounded_channel();
        let service = service_fn(move |request: Request<Incoming>| {
            give.send(request.into_body()).expect("the test waits");
            pending::<Result<Response<String>, Infallible>>()
        });
        drop(tokio::spawn(Builder::new().serve_connection(TokioIo::new(far), service)));
        (given.recv().await.expect("a request"), near)
    }

    async fn first(exchange: &Arc<Exchange>) -> Option<Result<Frame<Bytes>, Broken>> {
        let (body, _near) = arrived().await;
        let mut outgoing = Outgoing::new(body, exchange, Duration::from_secs(60));
        poll_fn(|cx| Pin::new(&mut outgoing).poll_frame(cx)).await
    }

    #[tokio::test]
    async fn nothing_of_a_write_is_handed_over_while_the_gate_is_closed() {
        let gate = Arc::new(Gate::new(Duration::ZERO));
        let (exchange, _dir) = exchanges::write(&gate).await;
        assert!(matches!(first(&exchange).await, Some(Err(Broken::Closed))));
        assert_eq!(exchange.why_cut(), Some(Cut::NotReady));
        // A read changes nothing.
        assert!(matches!(first(&exchanges::read()).await, Some(Ok(_))));
    }
}
