//! Counting and summing up.

use std::fmt;
use std::time::Duration;

/// What one run showed.
#[derive(Debug, Clone)]
pub(crate) struct Figures {
    pub(crate) per_second: f64,
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
}

impl Figures {
    /// From the time that each cycle took, of all that fell into `time`.
    pub(crate) fn new(mut cycles: Vec<Duration>, time: Duration) -> Self {
        cycles.sort_unstable();
        let at = |share: f64| {
            let index = (cycles.len() as f64 * share) as usize;
            cycles.get(index.min(cycles.len().saturating_sub(1))).copied().unwrap_or_default()
        };
        Self { per_second: cycles.len() as f64 / time.as_secs_f64(), p50: at(0.5), p99: at(0.99) }
    }

    /// The middle of several runs, each figure by itself.
    pub(crate) fn middle(runs: &[Self]) -> Self {
        let duration = |pick: fn(&Self) -> Duration| {
            Duration::from_secs_f64(median(runs.iter().map(|run| pick(run).as_secs_f64())))
        };
        Self {
            per_second: median(runs.iter().map(|run| run.per_second)),
            p50: duration(|run| run.p50),
            p99: duration(|run| run.p99),
        }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |duration: Duration| duration.as_secs_f64() * 1_000.0;
        let (p50, p99) = (ms(self.p50), ms(self.p99));
        write!(f, "{:>9.0} cycles/s   P50 {p50:>8.3} ms   P99 {p99:>8.3} ms", self.per_second)
    }
}

/// The middle of the values; 0 of none.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

/// The middle of the ratios of runs that stood side by side: what slowed the machine down for a
/// while slowed both of a pair.
pub(crate) fn ratio(ours: &[Figures], theirs: &[Figures]) -> f64 {
    median(ours.iter().zip(theirs).map(|(our, their)| our.per_second / their.per_second))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_an_even_number_lies_between_two() {
        assert_eq!(median([4.0, 1.0, 3.0, 2.0].into_iter()), 2.5);
        assert_eq!(median([9.0, 1.0, 3.0].into_iter()), 3.0);
    }

    #[test]
    fn percentiles_come_from_the_sorted_times() {
        let figures = Figures::new(
            (1..=100).rev().map(Duration::from_millis).collect(),
            Duration::from_secs(2),
        );
        assert_eq!(figures.per_second, 50.0);
        assert_eq!(
            (figures.p50, figures.p99),
            (Duration::from_millis(51), Duration::from_millis(100))
        );
    }
}
