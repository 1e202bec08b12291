//! What the proxy counts, for Prometheus.

use crate::settings::Limits;
use leasehold_client::fence::Stats;
use prometheus::{
    Encoder as _, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder, core::Collector,
};
use std::sync::Arc;

/// From a millisecond to a minute.
const SECONDS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.5, 2.5, 10.0, 60.0];

#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    connections: IntGauge,
    settling: IntGauge,
    checks: IntCounterVec,
    asking: IntGauge,
    durations: Histogram,
    ready: IntGauge,
    fence: IntGaugeVec,
    bounds: IntGaugeVec,
    cut: IntCounter,
}

/// Counts for as long as it lives.
#[derive(Debug)]
pub(crate) struct Counted(IntGauge);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Metrics {
    /// # Errors
    /// None is known: the names are fixed.
    pub(crate) fn new(limits: &Limits) -> Result<Arc<Self>, prometheus::Error> {
        let registry = Registry::new();
        let of = |name: &str, help: &str| Opts::new(format!("leasehold_fence_proxy_{name}"), help);
        let seconds = HistogramOpts::from(of(
            "seconds",
            "From the head of a request to the head of its answer.",
        ))
        .buckets(SECONDS.to_vec());
        let metrics = Self {
            requests: kept(
                &registry,
                IntCounterVec::new(
                    of(
                        "requests_total",
                        "Requests, by what came of them: passed, or the code of the refusal.",
                    ),
                    &["outcome"],
                ),
            )?,
            connections: kept(
                &registry,
                IntGauge::with_opts(of("connections", "Connections of clients.")),
            )?,
            settling: kept(
                &registry,
                IntGauge::with_opts(of(
                    "settling",
                    "Writes that ended without a complete answer and still count as in flight.",
                )),
            )?,
            checks: kept(
                &registry,
                IntCounterVec::new(
                    of("checks_total", "Tokens that the service was asked about, by what it said."),
                    &["verdict"],
                ),
            )?,
            asking: kept(
                &registry,
                IntGauge::with_opts(of(
                    "checks_in_flight",
                    "Tokens that the service is being asked about.",
                )),
            )?,
            durations: kept(&registry, Histogram::with_opts(seconds))?,
            ready: kept(
                &registry,
                IntGauge::with_opts(of("ready", "1 while writes may be begun.")),
            )?,
            fence: kept(
                &registry,
                IntGaugeVec::new(of("fence", "What the fence counts."), &["what"]),
            )?,
            bounds: kept(
                &registry,
                IntGaugeVec::new(
                    of("bound", "How much is allowed; times in milliseconds."),
                    &["of"],
                ),
            )?,
            cut: kept(
                &registry,
                IntCounter::with_opts(of(
                    "cut_total",
                    "Writes that ended without a complete answer.",
                )),
            )?,
            registry,
        };
        for (of, bound) in limits.bounds() {
            metrics.bounds.with_label_values(&[of]).set(bound);
        }
        Ok(metrics.into())
    }

    pub(crate) fn passed(&self) {
        self.outcome("passed");
    }

    pub(crate) fn outcome(&self, outcome: &str) {
        self.requests.with_label_values(&[outcome]).inc();
    }

    pub(crate) fn checked(&self, verdict: &str) {
        self.checks.with_label_values(&[verdict]).inc();
    }

    pub(crate) fn asking(&self) -> Counted {
        self.asking.inc();
        Counted(self.asking.clone())
    }

    pub(crate) fn took(&self, since: std::time::Instant) {
        self.durations.observe(since.elapsed().as_secs_f64());
    }

    pub(crate) fn connection(&self) -> Counted {
        self.connections.inc();
        Counted(self.connections.clone())
    }

    pub(crate) fn settling(&self) -> Counted {
        self.cut.inc();
        self.settling.inc();
        Counted(self.settling.clone())
    }

    /// How many writes settle at this moment.
    pub(crate) fn settling_now(&self) -> u64 {
        u64::try_from(self.settling.get()).unwrap_or_default()
    }

    /// Everything in the text format.
    pub(crate) fn text(&self, ready: bool, fence: &Stats) -> Vec<u8> {
        self.ready.set(i64::from(ready));
        for (what, count) in [
            ("in_flight", fence.in_flight),
            ("waiting", fence.waiting),
            ("resources", fence.resources),
            ("floor", fence.floor),
            ("folded", fence.folded),
            ("stale_refused", fence.stale),
            ("timed_out", fence.timed_out),
            ("full", fence.full),
            ("failed", fence.failed),
            ("raises", fence.raises),
            ("commits", fence.commits),
        ] {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.fence.with_label_values(&[what]).set(count);
        }
        let mut text = Vec::new();
        // Writing to memory does not fail.
        let _ = TextEncoder::new().encode(&self.registry.gather(), &mut text);
        text
    }
}

fn kept<C: Collector + Clone + 'static>(
    registry: &Registry,
    made: prometheus::Result<C>,
) -> prometheus::Result<C> {
    let made = made?;
    registry.register(Box::new(made.clone()))?;
    Ok(made)
}
