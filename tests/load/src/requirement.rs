//! A ratio that a comparison must reach.

use std::str::FromStr;

use anyhow::Context as _;

/// `etcd@64=3`: at 64 connections at least 3 times etcd. `hot=3`: at least 3 times etcd's handovers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Requirement {
    /// What stands before the `=`, and what the comparison calls the ratio.
    pub(crate) what: String,
    pub(crate) at_least: f64,
}

impl FromStr for Requirement {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (what, ratio) = text.split_once('=').context("it has the form WHAT=RATIO")?;
        let at_least = ratio.parse().with_context(|| format!("{ratio} is no ratio"))?;
        Ok(Self { what: what.to_owned(), at_least })
    }
}

/// Says for each requirement whether it is met; an error if one is not, or if nothing measured it.
pub(crate) fn judge(required: &[Requirement], measured: &[(String, f64)]) -> anyhow::Result<()> {
    let mut missed = 0;
    for one in required {
        let found = measured.iter().find(|(what, _)| *what == one.what).map(|(_, ratio)| *ratio);
        let met = found.is_some_and(|ratio| ratio >= one.at_least);
        missed += usize::from(!met);
        let verdict = if met { "met" } else { "MISSED" };
        let found = found.map_or("not measured".to_owned(), |ratio| format!("{ratio:.2}"));
        println!("{:<14} at least {:>5.2}: {found} {verdict}", one.what, one.at_least);
    }
    anyhow::ensure!(missed == 0, "{missed} of {} requirements missed", required.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_is_not_met() {
        let required = ["hot=3".parse().expect("a requirement")];
        assert!(judge(&required, &[("hot".to_owned(), 3.0)]).is_ok());
        assert!(judge(&required, &[("hot".to_owned(), 2.9)]).is_err());
        assert!(judge(&required, &[("cold".to_owned(), 9.0)]).is_err());
    }
}
