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
/// to continue either. Trailers are left out: what they say could contradict the head.
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
