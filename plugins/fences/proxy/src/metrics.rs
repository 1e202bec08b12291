//! What the proxy counts, for Prometheus.
//!
//! Every combination of labels is there from the start: a counter that is born at one hides its
//! first event. Times are in seconds and sizes in bytes. What the fence counts by itself is taken
//! over when somebody asks.

use crate::problem::Code;
use crate::settings::{Bound, Limits};
use leasehold_client::fence::Stats;
use parking_lot::Mutex;
use prometheus::{
    Encoder as _, Gauge, GaugeVec, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge,
    Opts, Registry, TextEncoder, core::Collector,
};
use std::sync::Arc;

/// From a millisecond to a minute.
const SECONDS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.5, 2.5, 10.0, 60.0];

/// The outcome of a request that is none of the codes.
const PASSED: &str = "passed";

/// What comes of a check.
const GOOD: &str = "good";
const VERDICTS: [&str; 4] =
    [GOOD, Code::StaleToken.as_str(), Code::UnknownToken.as_str(), Code::CheckUnavailable.as_str()];

#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    connections: IntGauge,
    settling: IntGauge,
    cut: IntCounter,
    checks: IntCounterVec,
    asking: IntGauge,
    durations: Histogram,
    ready: IntGauge,
    fence: FenceMetrics,
    /// One scrape at a time takes over what the fence has counted.
    scrape: Mutex<()>,
}

/// What the fence says of itself.
#[derive(Debug)]
struct FenceMetrics {
    in_flight: IntGauge,
    held: IntGauge,
    waiting: IntGauge,
    recording: IntGauge,
    resources: IntGauge,
    floor: IntGauge,
    refused: IntCounterVec,
    raises: IntCounter,
    commits: IntCounter,
    folded: IntCounter,
}

/// Counts for as long as it lives.
#[derive(Debug)]
pub(crate) struct Counted(IntGauge);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Makes metrics and keeps them.
struct Maker<'a>(&'a Registry);

impl Maker<'_> {
    fn keep<C: Collector + Clone + 'static>(
        &self,
        made: prometheus::Result<C>,
    ) -> prometheus::Result<C> {
        let made = made?;
        self.0.register(Box::new(made.clone()))?;
        Ok(made)
    }

    fn gauge(&self, name: &str, help: &str) -> prometheus::Result<IntGauge> {
        self.keep(IntGauge::with_opts(opts(name, help)))
    }

    fn counter(&self, name: &str, help: &str) -> prometheus::Result<IntCounter> {
        self.keep(IntCounter::with_opts(opts(name, help)))
    }

    /// With one label, and all of its values.
    fn counters<'a>(
        &self,
        name: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = &'a str>,
    ) -> prometheus::Result<IntCounterVec> {
        let counters = self.keep(IntCounterVec::new(opts(name, help), &[label]))?;
        for value in values {
            let _ = counters.get_metric_with_label_values(&[value])?;
        }
        Ok(counters)
    }
}

fn opts(name: &str, help: &str) -> Opts {
    Opts::new(format!("leasehold_fence_proxy_{name}"), help)
}

impl Metrics {
    /// # Errors
    /// None is known: the names are fixed.
    pub(crate) fn new(limits: &Limits) -> Result<Arc<Self>, prometheus::Error> {
        let registry = Registry::new();
        let make = Maker(&registry);
        bounds(&make, limits)?;
        let seconds =
            opts("request_seconds", "From the head of a request to the head of its answer.");
        let outcomes = Code::ALL.iter().map(|code| code.as_str());
        let metrics = Self {
            requests: make.counters(
                "requests_total",
                "Requests, by what came of them: passed, or the code of the refusal.",
                "outcome",
                outcomes.chain([PASSED]),
            )?,
            connections: make.gauge("connections", "Connections of clients.")?,
            settling: make.gauge(
                "settling",
                "Writes that ended without a complete answer and still count as in flight.",
            )?,
            cut: make.counter("cut_total", "Writes that ended without a complete answer.")?,
            checks: make.counters(
                "checks_total",
                "Tokens that the service was asked about: good, or the code of the refusal.",
                "verdict",
                VERDICTS,
            )?,
            asking: make
                .gauge("checks_in_flight", "Tokens that the service is being asked about.")?,
            durations: make.keep(Histogram::with_opts(
                HistogramOpts::from(seconds).buckets(SECONDS.to_vec()),
            ))?,
            ready: make.gauge("ready", "1 while writes may be begun.")?,
            fence: FenceMetrics::new(&make)?,
            scrape: Mutex::default(),
            registry: registry.clone(),
        };
        Ok(metrics.into())
    }

    pub(crate) fn passed(&self) {
        self.outcome(PASSED);
    }

    pub(crate) fn outcome(&self, outcome: &str) {
        self.requests.with_label_values(&[outcome]).inc();
    }

    /// What the service said of a token, or why it could not be asked.
    pub(crate) fn checked(&self, refused: Option<Code>) {
        let verdict = refused.map_or(GOOD, Code::as_str);
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

    /// Everything in the text format.
    pub(crate) fn text(&self, ready: bool, fence: &Stats) -> Vec<u8> {
        let _one = self.scrape.lock();
        self.ready.set(i64::from(ready));
        self.fence.take_over(fence);
        let mut text = Vec::new();
        // Writing to memory does not fail.
        let _ = TextEncoder::new().encode(&self.registry.gather(), &mut text);
        text
    }
}

impl FenceMetrics {
    fn new(make: &Maker<'_>) -> prometheus::Result<Self> {
        let none = Stats::default();
        Ok(Self {
            in_flight: make.gauge("writes_in_flight", "Writes let through that are not over.")?,
            held: make.gauge(
                "held_seconds",
                "How much longer newer tokens wait, as the upstream was not left in order.",
            )?,
            waiting: make.gauge("waiting", "Requests that wait for older writes in flight.")?,
            recording: make
                .gauge("recording", "Requests that wait for their token to be durable.")?,
            resources: make.gauge("resources", "Resources with a highest token of their own.")?,
            floor: make.gauge("floor_token", "The highest token of all other resources.")?,
            refused: make.counters(
                "fence_refused_total",
                "Requests that the fence itself refused, by why.",
                "reason",
                refusals(&none).map(|(reason, _)| reason),
            )?,
            raises: make.counter("raises_total", "Tokens that were made durable.")?,
            commits: make.counter("commits_total", "Syncs of the disk that this took.")?,
            folded: make.counter(
                "folded_total",
                "Resources that gave up their highest token for the common one.",
            )?,
        })
    }

    fn take_over(&self, stats: &Stats) {
        let gauge = |gauge: &IntGauge, now: u64| gauge.set(i64::try_from(now).unwrap_or(i64::MAX));
        gauge(&self.in_flight, stats.in_flight);
        // Not 0 before it is over.
        let begun = u64::from(stats.held_for.subsec_nanos() > 0);
        gauge(&self.held, stats.held_for.as_secs().saturating_add(begun));
        gauge(&self.waiting, stats.waiting);
        gauge(&self.recording, stats.recording);
        gauge(&self.resources, stats.resources);
        gauge(&self.floor, stats.floor);
        let counter = |counter: &IntCounter, now: u64| {
            counter.inc_by(now.saturating_sub(counter.get()));
        };
        counter(&self.raises, stats.raises);
        counter(&self.commits, stats.commits);
        counter(&self.folded, stats.folded);
        for (reason, now) in refusals(stats) {
            counter(&self.refused.with_label_values(&[reason]), now);
        }
    }
}

/// Why the fence refuses, by the code of the answer.
fn refusals(stats: &Stats) -> [(&'static str, u64); 5] {
    [
        (Code::StaleToken.as_str(), stats.stale),
        (Code::TokenUsed.as_str(), stats.used),
        (Code::OlderInFlight.as_str(), stats.timed_out),
        (Code::Overloaded.as_str(), stats.full),
        (Code::StorageFailed.as_str(), stats.failed),
    ]
}

/// How much is allowed. One metric for each unit, as nobody can add up seconds and bytes.
fn bounds(make: &Maker<'_>, limits: &Limits) -> prometheus::Result<()> {
    let of = |name: &str, help: &str| make.keep(GaugeVec::new(opts(name, help), &["of"]));
    let seconds = of("bound_seconds", "How long things may take.")?;
    let bytes = of("bound_bytes", "How large things may be.")?;
    let counts = of("bound_count", "How many things there may be.")?;
    let set = |all: &GaugeVec, of: &str, bound: f64| -> prometheus::Result<()> {
        let gauge: Gauge = all.get_metric_with_label_values(&[of])?;
        gauge.set(bound);
        Ok(())
    };
    for (of, bound) in limits.bounds() {
        match bound {
            Bound::Time(time) => set(&seconds, of, time.as_secs_f64())?,
            Bound::Bytes(size) => set(&bytes, of, size as f64)?,
            Bound::Count(count) => set(&counts, of, count as f64)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::time::Duration;

    fn scrape(metrics: &Metrics, stats: &Stats) -> String {
        String::from_utf8(metrics.text(true, stats)).expect("text")
    }

    /// Names with labels, without values.
    fn series(text: &str) -> BTreeSet<&str> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.filter_map(|line| line.rsplit_once(' ')).map(|(series, _)| series).collect()
    }

    fn stats(all: u64) -> Stats {
        let mut stats = Stats::default();
        (stats.stale, stats.used, stats.timed_out) = (all, all, all);
        (stats.full, stats.failed, stats.raises, stats.commits) = (all, all, all, all);
        (stats.folded, stats.waiting, stats.in_flight) = (all, all, all);
        stats
    }

    #[test]
    fn whatever_happens_no_series_is_born() {
        let metrics = Metrics::new(&Limits::default()).expect("metrics");
        let fresh = scrape(&metrics, &Stats::default());
        metrics.passed();
        for code in Code::ALL {
            metrics.outcome(code.as_str());
        }
        for refused in [None, Some(Code::StaleToken), Some(Code::UnknownToken)] {
            metrics.checked(refused);
        }
        metrics.checked(Some(Code::CheckUnavailable));
        drop((metrics.asking(), metrics.settling(), metrics.connection()));
        metrics.took(std::time::Instant::now());
        let used = scrape(&metrics, &stats(3));
        assert_eq!(series(&fresh), series(&used));
    }

    #[test]
    fn counters_only_rise_and_are_called_so() {
        let metrics = Metrics::new(&Limits::default()).expect("metrics");
        let value = |text: &str, name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
            line.expect(name).parse::<f64>().expect("a number")
        };
        let (raises, stale) = (
            "leasehold_fence_proxy_raises_total ",
            "leasehold_fence_proxy_fence_refused_total{reason=\"stale_token\"} ",
        );
        for (all, expected) in [(3, 3.0), (3, 3.0), (7, 7.0)] {
            let text = scrape(&metrics, &stats(all));
            assert_eq!((value(&text, raises), value(&text, stale)), (expected, expected));
        }
        let text = scrape(&metrics, &stats(7));
        for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            let (name, kind) = line.split_once(' ').expect("a name and a kind");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
        }
    }

    #[test]
    fn bounds_are_told_in_base_units() {
        let limits = Limits { wait_max: Duration::from_millis(1500), ..Limits::default() };
        let text = scrape(&Metrics::new(&limits).expect("metrics"), &Stats::default());
        for line in [
            "bound_seconds{of=\"wait_max\"} 1.5\n",
            "bound_bytes{of=\"head_max\"} 65536\n",
            "bound_count{of=\"connections_max\"} 10000\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }
}
