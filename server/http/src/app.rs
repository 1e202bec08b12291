//! What all handlers share.

use crate::caller::Caller;
use crate::metrics::Metrics;
use crate::settings::Settings;
use leasehold_node::Node;
use prometheus::Registry;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

/// One a server, shared by its workers.
pub(crate) struct App {
    pub(crate) node: Node,
    pub(crate) settings: Settings,
    pub(crate) metrics: Metrics,
    pub(crate) registry: Registry,
    /// Who everybody is while authentication is off.
    pub(crate) anonymous: Caller,
    stopping: AtomicBool,
}

impl App {
    pub(crate) fn new(
        settings: Settings,
        node: Node,
        registry: Registry,
        metrics: Metrics,
    ) -> Self {
        let anonymous = Caller::anonymous();
        Self { node, settings, metrics, registry, anonymous, stopping: AtomicBool::new(false) }
    }

    pub(crate) fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    pub(crate) fn begin_stopping(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").field("settings", &self.settings).finish_non_exhaustive()
    }
}
