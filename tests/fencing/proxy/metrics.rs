//! What a scrape finds: all of it from the first one on.

use super::process::Proxy;
use super::scripted::Scripted;
use super::{begin_put, service, trusting};
use leasehold_harness::eventually;
use std::collections::{BTreeMap, BTreeSet};

fn scrape(proxy: &Proxy) -> String {
    let answer = proxy.ops("/metrics");
    assert!(answer.header("content-type").is_some_and(|kind| kind.starts_with("text/plain")));
    String::from_utf8(answer.body).expect("metrics are text")
}

/// Names with labels, and their values.
fn series(text: &str) -> BTreeMap<&str, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.map(|line| line.rsplit_once(' ').expect("a value"));
    pairs.map(|(series, value)| (series, value.parse().expect("a number"))).collect()
}

/// What kind each metric is of.
fn kinds(text: &str) -> BTreeMap<&str, &str> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    lines.map(|line| line.split_once(' ').expect("a name and a kind")).collect()
}

#[test]
fn a_fresh_proxy_shows_every_series_that_it_will_ever_have() {
    let (service, upstream) = (service(), Scripted::start());
    let proxy = trusting(&service, &upstream.url())
        .flag("--wait-max", "100ms")
        .flag("--upstream-settle", "1ms")
        .start();
    let fresh = scrape(&proxy);
    let mut older = begin_put(&proxy, "/a", "r", 33);
    let mut link = upstream.accept();
    link.request();
    begin_put(&proxy, "/a", "r", 34).finish().problem(503, "older_in_flight");
    begin_put(&proxy, "/a", "r", 32).finish().problem(412, "stale_token");
    drop(link);
    older.finish().problem(502, "upstream_failed");
    eventually("it is over", || proxy.metric("settling") == 0.0);
    let used = scrape(&proxy);

    let names = |text| series(text).into_keys().map(str::to_owned).collect::<BTreeSet<_>>();
    assert_eq!(names(&fresh), names(&used));
    let (before, after) = (series(&fresh), series(&used));
    for (name, value) in [
        ("requests_total{outcome=\"upstream_failed\"}", 1.0),
        ("requests_total{outcome=\"older_in_flight\"}", 1.0),
        ("requests_total{outcome=\"passed\"}", 0.0),
        ("fence_refused_total{reason=\"stale_token\"}", 1.0),
        ("fence_refused_total{reason=\"older_in_flight\"}", 1.0),
        ("checks_total{verdict=\"good\"}", 0.0),
        ("raises_total", 2.0),
        ("cut_total", 1.0),
        ("writes_in_flight", 0.0),
    ] {
        let name = format!("leasehold_fence_proxy_{name}");
        assert_eq!((before[&*name], after[&*name]), (0.0, value), "{name}");
    }
}

#[test]
fn what_is_counted_and_in_which_unit_is_told_by_the_name() {
    let (service, upstream) = (service(), Scripted::start());
    let proxy = trusting(&service, &upstream.url()).start();
    let _client = begin_put(&proxy, "/a", "secret/resource", 33);
    upstream.accept().request();
    let text = scrape(&proxy);
    let kinds = kinds(&text);
    for (name, kind) in &kinds {
        assert!(name.starts_with("leasehold_fence_proxy_"), "{name}");
        assert_eq!(*kind == "counter", name.ends_with("_total"), "{name} is a {kind}");
        assert!(!name.ends_with("_ms") && !name.ends_with("_millis"), "{name}");
    }
    for name in series(&text).into_keys() {
        let family = name.split('{').next().unwrap_or(name);
        let part = ["_bucket", "_sum", "_count"].iter().find_map(|end| family.strip_suffix(end));
        let known = kinds.contains_key(family) || part.is_some_and(|part| kinds.contains_key(part));
        assert!(known, "{name} has no kind");
        assert!(!name.contains("secret"), "a resource became a label: {name}");
    }
}
