//! What the proxy counts, for Prometheus.

use prometheus::{
    Encoder as _, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, Registry,
    TextEncoder,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// From a millisecond to a minute.
const SECONDS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.5, 2.5, 10.0, 60.0];

#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    pub(crate) connections: IntGauge,
    in_flight: IntGauge,
    settling: IntGauge,
    pub(crate) checks: IntCounterVec,
    pub(crate) durations: Histogram,
    pub(crate) open: IntGauge,
    pub(crate) reused: IntCounter,
    /// The same as the gauge, for whoever decides by it.
    settling_now: Arc<AtomicUsize>,
}

/// Counts for as long as it lives.
#[derive(Debug)]
pub(crate) struct Counted {
    gauge: IntGauge,
    now: Option<Arc<AtomicUsize>>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.gauge.dec();
        if let Some(now) = &self.now {
            now.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
