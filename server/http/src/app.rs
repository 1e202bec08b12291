//! What all handlers share.

use crate::caller::Caller;
use crate::forward::Onward;
use crate::metrics::Metrics;
use crate::settings::Settings;
use leasehold_core::Limits;
use leasehold_node::Node;
use leasehold_wire::Setting;
use prometheus::Registry;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::watch;

/// The settings of the whole node with the limits in force, without secrets.
pub type Shown = Arc<dyn Fn(&Limits) -> Vec<Setting<'static>> + Send + Sync>;

/// One a server, shared by its workers.
pub(crate) struct App {
    pub(crate) node: Node,
    /// The way to the other nodes.
    pub(crate) onward: Arc<dyn Onward>,
    pub(crate) settings: Settings,
    pub(crate) metrics: Metrics,
    pub(crate) registry: Registry,
    /// Who everybody is while authentication is off.
    pub(crate) anonymous: Caller,
    /// The settings of the whole node, for those who ask.
    pub(crate) shown: Shown,
    pub(crate) started: Instant,
    stopping: watch::Sender<bool>,
}

impl App {
    pub(crate) fn new(
        settings: Settings,
        node: Node,
        registry: Registry,
        metrics: Metrics,
        shown: Shown,
    ) -> Self {
        let (anonymous, onward) = (Caller::anonymous(), Arc::new(node.clone()));
        let (stopping, started) = (watch::Sender::new(false), Instant::now());
        Self { node, onward, settings, metrics, registry, anonymous, shown, started, stopping }
    }

    pub(crate) fn stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Turns true when the node begins to stop.
    pub(crate) fn stop_signal(&self) -> watch::Receiver<bool> {
        self.stopping.subscribe()
    }

    pub(crate) fn begin_stopping(&self) {
        self.stopping.send_replace(true);
    }
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").field("settings", &self.settings).finish_non_exhaustive()
    }
}
