//! What the rim counts. All names stand in [`CATALOGUE`], and nowhere else.

use leasehold_wire::{Code, Latency};
use prometheus::core::Collector as _;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry,
};
use std::time::Instant;

/// A metric: its name, and what it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Named {
    /// Its name in Prometheus.
    pub name: &'static str,
    /// What it means.
    pub help: &'static str,
}

const REQUESTS: Named = Named {
    name: "leasehold_http_requests_total",
    help: "Requests by route and outcome: ok, the code of the problem, or hung_up if the client left before the answer.",
};
const SECONDS: Named = Named {
    name: "leasehold_http_request_seconds",
    help: "Time from the receipt of a request's head to its answer, waits for a lock included.",
};
const WAITING: Named =
    Named { name: "leasehold_http_waiting", help: "Requests that wait for a lock on this node." };
const CONNECTIONS: Named =
    Named { name: "leasehold_http_connections", help: "Open connections of clients." };
const PANICS: Named = Named {
    name: "leasehold_http_panics_total",
    help: "Handlers that panicked: each is a fault of the service.",
};

const FORWARDED: Named = Named {
    name: "leasehold_http_forwarded_total",
    help: "Requests that this node passed on to the leader, by outcome: answered, not_sent, no_answer if it is not known what became of it, or hung_up if the client left first.",
};
const FORWARDED_IN: Named = Named {
    name: "leasehold_http_forwarded_in_total",
    help: "Requests that other nodes passed on to this one. Their outcomes are counted where their clients are.",
};
const STREAMS: Named =
    Named { name: "leasehold_watch_streams", help: "Open streams of watchers on this node." };
const EVENTS: Named =
    Named { name: "leasehold_watch_events_total", help: "Events that were sent to watchers." };
const GAPS: Named = Named {
    name: "leasehold_watch_gaps_total",
    help: "Gaps that watchers were told of: they came back too late, or fell too far behind.",
};

/// Every metric of this crate.
pub const CATALOGUE: &[Named] = &[
    REQUESTS,
    SECONDS,
    WAITING,
    CONNECTIONS,
    PANICS,
    FORWARDED,
    FORWARDED_IN,
    STREAMS,
    EVENTS,
    GAPS,
];

/// The label of requests that no route takes.
pub const UNKNOWN_ROUTE: &str = "unknown";
/// The label of requests whose head could not be read.
pub const UNREADABLE: &str = "unreadable";

/// What can become of a request on its way to the leader.
const PASSED: [&str; 4] = ["answered", "not_sent", "no_answer", "hung_up"];

/// A hundredth of the fsync of a fast disk, up to the longest wait.
const BUCKETS: &[f64] = &[
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 30.0, 60.0,
];

/// The end of the last bucket.
const LONGEST: f64 = 60.0;

/// The metrics of one server.
#[derive(Debug)]
pub(crate) struct Metrics {
    requests: IntCounterVec,
    seconds: HistogramVec,
    waiting: IntGauge,
    connections: IntGauge,
    pub(crate) panics: IntCounter,
    forwarded: IntCounterVec,
    pub(crate) forwarded_in: IntCounter,
    streams: IntGauge,
    pub(crate) events: IntCounter,
    pub(crate) gaps: IntCounter,
}

impl Metrics {
    /// Registers everything, with every combination of labels: a counter that is born at one
    /// hides its first event.
    pub(crate) fn new(registry: &Registry) -> prometheus::Result<Self> {
        let opts = |named: Named| Opts::new(named.name, named.help);
        let seconds = HistogramOpts::new(SECONDS.name, SECONDS.help).buckets(BUCKETS.to_vec());
        let metrics = Self {
            requests: IntCounterVec::new(opts(REQUESTS), &["route", "outcome"])?,
            seconds: HistogramVec::new(seconds, &["route"])?,
            waiting: IntGauge::with_opts(opts(WAITING))?,
            connections: IntGauge::with_opts(opts(CONNECTIONS))?,
            panics: IntCounter::with_opts(opts(PANICS))?,
            forwarded: IntCounterVec::new(opts(FORWARDED), &["outcome"])?,
            forwarded_in: IntCounter::with_opts(opts(FORWARDED_IN))?,
            streams: IntGauge::with_opts(opts(STREAMS))?,
            events: IntCounter::with_opts(opts(EVENTS))?,
            gaps: IntCounter::with_opts(opts(GAPS))?,
        };
        registry.register(Box::new(metrics.requests.clone()))?;
        registry.register(Box::new(metrics.seconds.clone()))?;
        registry.register(Box::new(metrics.waiting.clone()))?;
        registry.register(Box::new(metrics.connections.clone()))?;
        registry.register(Box::new(metrics.panics.clone()))?;
        for outcome in PASSED {
            metrics.forwarded.with_label_values(&[outcome]);
        }
        registry.register(Box::new(metrics.forwarded.clone()))?;
        registry.register(Box::new(metrics.forwarded_in.clone()))?;
        registry.register(Box::new(metrics.streams.clone()))?;
        registry.register(Box::new(metrics.events.clone()))?;
        registry.register(Box::new(metrics.gaps.clone()))?;
        Ok(metrics)
    }

    /// The counters of one route, looked up once.
    pub(crate) fn route(&self, name: &str) -> RouteMetrics {
        let counter = |outcome: &str| self.requests.with_label_values(&[name, outcome]);
        RouteMetrics {
            ok: counter("ok"),
            hung_up: counter("hung_up"),
            codes: Code::ALL.iter().map(|code| counter(code.as_str())).collect(),
            seconds: self.seconds.with_label_values(&[name]),
        }
    }

    /// Counts a waiting request until the guard is dropped, however that comes about.
    pub(crate) fn waiting(&self) -> Raised {
        Raised::new(&self.waiting)
    }

    /// Counts a request on its way to the leader, once it has ended.
    pub(crate) fn passing_on(&self) -> Passing {
        Passing { counters: self.forwarded.clone(), outcome: "hung_up" }
    }

    /// Counts a watcher's stream until the guard is dropped.
    pub(crate) fn watching(&self) -> Raised {
        Raised::new(&self.streams)
    }

    pub(crate) fn streams_open(&self) -> i64 {
        self.streams.get()
    }

    pub(crate) fn connections_open(&self) -> i64 {
        self.connections.get()
    }

    /// How long the requests of each route took, of those routes that had any.
    pub(crate) fn latencies(&self) -> Vec<Latency<'static>> {
        let families = self.seconds.collect();
        let mut latencies: Vec<_> =
            families.iter().flat_map(|family| family.get_metric()).filter_map(latency).collect();
        latencies.sort_by(|a, b| a.route.cmp(&b.route));
        latencies
    }

    /// Counts a connection until the guard is dropped.
    pub(crate) fn connection(&self) -> Raised {
        Raised::new(&self.connections)
    }
}

/// Quantiles as their buckets tell them: the upper end of the one that holds it.
fn latency(metric: &prometheus::proto::Metric) -> Option<Latency<'static>> {
    let route = metric.get_label().iter().find(|label| label.name() == "route")?.value().to_owned();
    let histogram = metric.get_histogram();
    let count = histogram.get_sample_count();
    let quantile = |percent: u64| {
        let rank = (count * percent).div_ceil(100);
        let buckets = histogram.get_bucket().iter();
        let holding = buckets.filter(|bucket| bucket.cumulative_count() >= rank);
        let ends = holding.map(prometheus::proto::Bucket::upper_bound);
        // What is beyond the last bucket is only known to be that.
        ends.reduce(f64::min).filter(|end| end.is_finite()).unwrap_or(LONGEST) * 1_000.0
    };
    (count > 0).then(|| Latency {
        route: route.into(),
        count,
        p50_ms: quantile(50),
        p99_ms: quantile(99),
    })
}

/// The counters of one route.
#[derive(Debug)]
pub(crate) struct RouteMetrics {
    ok: IntCounter,
    hung_up: IntCounter,
    /// In the order of [`Code::ALL`], which is that of the variants.
    codes: Vec<IntCounter>,
    seconds: Histogram,
}

impl RouteMetrics {
    pub(crate) fn watch(&self, received: Instant) -> Watch<'_> {
        Watch { metrics: self, received, ended: false }
    }

    pub(crate) fn count(&self, code: Code) {
        self.codes[code as usize].inc();
    }
}

/// One request under way. Dropped without an end, it was abandoned by its client.
#[derive(Debug)]
pub(crate) struct Watch<'a> {
    metrics: &'a RouteMetrics,
    received: Instant,
    ended: bool,
}

impl Watch<'_> {
    /// The request has its answer: good, or a problem with this code.
    pub(crate) fn end(mut self, problem: Option<Code>) {
        self.ended = true;
        self.metrics.seconds.observe(self.received.elapsed().as_secs_f64());
        match problem {
            None => self.metrics.ok.inc(),
            Some(code) => self.metrics.count(code),
        }
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.metrics.hung_up.inc();
        }
    }
}

/// One request on its way to the leader. Dropped without an end, its client has left.
#[derive(Debug)]
pub(crate) struct Passing {
    counters: IntCounterVec,
    outcome: &'static str,
}

impl Passing {
    /// What became of it: one of [`PASSED`].
    pub(crate) fn ended(&mut self, outcome: &'static str) {
        debug_assert!(PASSED.contains(&outcome), "{outcome}");
        self.outcome = outcome;
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        self.counters.with_label_values(&[self.outcome]).inc();
    }
}

/// A gauge that goes down again when this is dropped.
#[derive(Debug)]
pub(crate) struct Raised(IntGauge);

impl Raised {
    /// How many there are now, this one included.
    pub(crate) fn count(&self) -> usize {
        usize::try_from(self.0.get()).unwrap_or(0)
    }

    fn new(gauge: &IntGauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_of_a_route_exists_from_the_start() {
        let registry = Registry::new();
        let metrics = Metrics::new(&registry).expect("names are legal and new");
        let route = metrics.route("acquire-lock");
        let families = registry.gather();
        let requests = families.iter().find(|family| family.name() == REQUESTS.name);
        assert_eq!(requests.expect("registered").get_metric().len(), Code::ALL.len() + 2);
        for (index, code) in Code::ALL.iter().enumerate() {
            assert_eq!(*code as usize, index);
            route.count(*code);
            let counter = metrics.requests.with_label_values(&["acquire-lock", code.as_str()]);
            assert_eq!(counter.get(), 1, "{code}");
        }
    }

    #[test]
    fn an_abandoned_request_is_counted_as_such() {
        let metrics = Metrics::new(&Registry::new()).expect("names are legal and new");
        let route = metrics.route("acquire-lock");
        drop(route.watch(Instant::now()));
        route.watch(Instant::now()).end(None);
        assert_eq!((route.hung_up.get(), route.ok.get()), (1, 1));
        let waiting = metrics.waiting();
        assert_eq!(metrics.waiting.get(), 1);
        drop(waiting);
        assert_eq!(metrics.waiting.get(), 0);
    }
}
