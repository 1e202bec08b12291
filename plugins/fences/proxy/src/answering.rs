//! The upstream's answer on its way to the client, piece by piece as it comes.

use crate::exchange::Exchange;
use crate::line::Line;
use crate::stall::Stall;
use crate::upstream::Upstream;
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Dropped before its end, because the client is gone, it reads on if it answers a write: a newer
/// write would have to wait for one that was cut. The answer to a read is cut.
#[derive(Debug)]
pub(crate) struct Answering(Option<Reading>);

/// An answer that is being read.
#[derive(Debug)]
struct Reading {
    body: Incoming,
    /// Until the answer is complete.
    line: Option<Line>,
    exchange: Arc<Exchange>,
    upstream: Arc<Upstream>,
    stall: Stall,
}

/// The answer did not come to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    #[error("the upstream was silent in the middle of its answer")]
    Silent,
    #[error("the answer ended early: {0}")]
    Gone(#[from] hyper::Error),
}

impl Answering {
    pub(crate) fn new(
        body: Incoming,
        line: Line,
        exchange: &Arc<Exchange>,
        upstream: &Arc<Upstream>,
        patience: Duration,
    ) -> Self {
        let exchange = Arc::clone(exchange);
        let upstream = Arc::clone(upstream);
        let stall = Stall::new(patience);
        let mut reading = Reading { body, line: Some(line), exchange, upstream, stall };
        reading.look_for_the_end();
        Self(Some(reading))
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        if let Some(reading) = self.0.take()
            && reading.line.is_some()
            && reading.exchange.is_write()
        {
            let runtime = reading.exchange.runtime().clone();
            drop(runtime.spawn(reading.read_on()));
        }
    }
}

impl Reading {
    /// Nobody reads it any more. It ends with its upstream, or when the write has taken too long.
    async fn read_on(mut self) {
        while let Some(Ok(_)) = poll_fn(|cx| self.poll(cx)).await {}
    }

    fn look_for_the_end(&mut self) {
        if self.body.is_end_stream() {
            self.end();
        }
    }

    fn end(&mut self) {
        let Some(line) = self.line.take() else { return };
        self.exchange.answer_done();
        if self.exchange.is_body_done() {
            self.upstream.take_back(line);
        } else {
            // It answered early. What it still takes of the body it may take.
            line.let_finish();
        }
    }

    fn broken(&mut self, why: Broken) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        tracing::info!(error = %why, "an answer was cut");
        self.line = None;
        Poll::Ready(Some(Err(why)))
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        loop {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Pending => {
                    if self.stall.poll(cx).is_ready() {
                        return self.broken(Broken::Silent);
                    }
                    return Poll::Pending;
                }
                Poll::Ready(Some(Err(error))) => return self.broken(error.into()),
                Poll::Ready(None) => {
                    self.end();
                    return Poll::Ready(None);
                }
                Poll::Ready(Some(Ok(frame))) => {
                    self.stall.moved();
                    self.look_for_the_end();
                    if frame.is_data() {
                        return Poll::Ready(Some(Ok(frame)));
                    }
                }
            }
        }
    }
}

impl Body for Answering {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        self.0.as_mut().map_or(Poll::Ready(None), |reading| reading.poll(cx))
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|reading| reading.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or_else(SizeHint::default, |reading| reading.body.size_hint())
    }
}
