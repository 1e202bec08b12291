//! The one way in which storage tells the node that it must stop.

use std::error::Error;
use std::io;
use std::sync::Arc;
use tokio::sync::watch;

const DIVERGED: &str = "hold the same state as the other nodes";

/// A step of storage that failed, after which nothing about the file is certain.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{file}: could not {doing}")]
pub struct StorageFault {
    pub(crate) file: &'static str,
    pub(crate) doing: &'static str,
    #[source]
    cause: Arc<dyn Error + Send + Sync>,
}

impl StorageFault {
    pub(crate) fn new(
        file: &'static str,
        doing: &'static str,
        cause: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { file, doing, cause: Arc::from(cause.into()) }
    }

    /// The state of this node is not the one that its log should have given.
    pub(crate) fn diverged(why: String) -> Self {
        Self::new(crate::state::FILE, DIVERGED, why)
    }

    /// Whether the node stops because its state has diverged from that of the others.
    #[must_use]
    pub fn is_divergence(&self) -> bool {
        self.doing == DIVERGED
    }

    /// For the interfaces of openraft, which speak `io::Error`.
    pub(crate) fn to_io(&self) -> io::Error {
        io::Error::other(self.clone())
    }
}

/// Holds the first fault. A node that sees one ends: after a failed sync the kernel may have
/// dropped the very pages that it could not write, so a second try would succeed without them.
#[derive(Debug, Clone)]
pub(crate) struct Fatal {
    first: watch::Sender<Option<StorageFault>>,
}

impl Fatal {
    pub(crate) fn new() -> Self {
        Self { first: watch::Sender::new(None) }
    }

    /// Keeps the first fault; later ones are usually its echoes.
    pub(crate) fn report(&self, fault: &StorageFault) {
        let is_first = self.first.send_if_modified(|first| {
            let empty = first.is_none();
            first.get_or_insert_with(|| fault.clone());
            empty
        });
        if is_first {
            let cause = fault.source().map(ToString::to_string).unwrap_or_default();
            tracing::error!(file = fault.file, doing = fault.doing, cause, "storage failed");
        }
    }

    pub(crate) fn get(&self) -> Option<StorageFault> {
        self.first.borrow().clone()
    }

    /// Changes once, from `None` to the fault.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Option<StorageFault>> {
        self.first.subscribe()
    }
}

/// Reports the end by panic of a thread that others wait for: without it they would wait for ever.
#[derive(Debug)]
pub(crate) struct Sentinel {
    pub(crate) fatal: Fatal,
    pub(crate) file: &'static str,
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.fatal.report(&StorageFault::new(self.file, "go on", "the writer thread panicked"));
        }
    }
}
