//! How long the other side may be silent.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Sleep, sleep};

/// A limit that starts anew with every move.
#[derive(Debug)]
pub(crate) struct Stall {
    limit: Duration,
    waiting: Option<Pin<Box<Sleep>>>,
}

impl Stall {
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, waiting: None }
    }

    /// The other side did something.
    pub(crate) fn moved(&mut self) {
        self.waiting = None;
    }

    /// Ready once it has done nothing for too long.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let limit = self.limit;
        self.waiting.get_or_insert_with(|| Box::pin(sleep(limit))).as_mut().poll(cx)
    }
}
