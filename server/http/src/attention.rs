//! What needs somebody now: a pure function of what is seen.

use leasehold_node::Usage;
use leasehold_wire::{Concern, Severity};

/// What there is to judge.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen<'a> {
    pub(crate) leader: bool,
    pub(crate) storage_full: bool,
    pub(crate) hold_ms: u64,
    /// Other members that do not answer.
    pub(crate) unreachable: u64,
    pub(crate) panics: u64,
    pub(crate) usage: &'a [Usage],
}

/// Percent of a bound from which on it is worth a look.
const NEAR: u64 = 80;

/// Bounds that are meant to be reached: what is above them is dropped, oldest first.
const ROLLING: &[&str] = &["history_max", "remembered_max"];

/// The worst first.
pub(crate) fn concerns(seen: &Seen<'_>) -> Vec<Concern<'static>> {
    let one_each =
        [no_leader(seen), storage_full(seen), on_hold(seen), unreachable(seen), panicked(seen)];
    let mut concerns: Vec<_> =
        one_each.into_iter().flatten().chain(seen.usage.iter().filter_map(near)).collect();
    concerns.sort_by(|a, b| (a.severity, &a.code).cmp(&(b.severity, &b.code)));
    concerns
}

fn no_leader(seen: &Seen<'_>) -> Option<Concern<'static>> {
    (!seen.leader).then(|| Concern {
        severity: Severity::Critical,
        code: "no_leader".into(),
        message: "Nobody leads: nothing is granted, renewed or released. Look whether most nodes \
                  of the cluster run and reach each other."
            .into(),
        value: 0,
        threshold: 1,
    })
}

fn storage_full(seen: &Seen<'_>) -> Option<Concern<'static>> {
    seen.storage_full.then(|| Concern {
        severity: Severity::Critical,
        code: "storage_full".into(),
        message: "The disk of this node, or of so many that no quorum would be left, has only its \
                  reserve left: acquires are refused, releases still work. Free some space: \
                  `leasehold cluster status` says where."
            .into(),
        value: 1,
        threshold: 0,
    })
}

fn on_hold(seen: &Seen<'_>) -> Option<Concern<'static>> {
    (seen.hold_ms > 0).then(|| Concern {
        severity: Severity::Warning,
        code: "on_hold".into(),
        message: "The service was restored, and nothing is granted while somebody may still \
                  believe in a lock from before. It ends by itself."
            .into(),
        value: seen.hold_ms,
        threshold: 0,
    })
}

fn unreachable(seen: &Seen<'_>) -> Option<Concern<'static>> {
    let one = seen.unreachable == 1;
    (seen.unreachable > 0).then(|| Concern {
        severity: Severity::Warning,
        code: "members_unreachable".into(),
        message: format!(
            "{} other member{} not answer this node: `leasehold cluster status` says which, and how \
             many more may fail.",
            seen.unreachable,
            if one { " does" } else { "s do" }
        )
        .into(),
        value: seen.unreachable,
        threshold: 0,
    })
}

fn panicked(seen: &Seen<'_>) -> Option<Concern<'static>> {
    (seen.panics > 0).then(|| Concern {
        severity: Severity::Warning,
        code: "handler_panicked".into(),
        message: "A request was answered with 500 because of a fault of the service. Its log has \
                  the trace; please report it."
            .into(),
        value: seen.panics,
        threshold: 0,
    })
}

fn near(usage: &Usage) -> Option<Concern<'static>> {
    let percent = u128::from(usage.used) * 100 / u128::from(usage.max.max(1));
    if percent < u128::from(NEAR) || ROLLING.contains(&usage.name) {
        return None;
    }
    let (severity, state) = if usage.used >= usage.max {
        (Severity::Critical, "is reached: what would go beyond it is refused")
    } else {
        (Severity::Warning, "is nearly reached: what goes beyond it will be refused")
    };
    let Usage { name, used, max } = usage;
    Some(Concern {
        severity,
        code: (*name).into(),
        message: format!("{used} of {max}: the bound {name} {state}.").into(),
        value: *used,
        threshold: *max,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(seen: &Seen<'_>) -> Vec<(Severity, String)> {
        concerns(seen).into_iter().map(|one| (one.severity, one.code.into_owned())).collect()
    }

    const WELL: Seen<'_> = Seen {
        leader: true,
        storage_full: false,
        hold_ms: 0,
        unreachable: 0,
        panics: 0,
        usage: &[],
    };

    #[test]
    fn all_is_well_until_something_is_not() {
        assert_eq!(codes(&WELL), []);
        assert_eq!(
            codes(&Seen {
                leader: false,
                storage_full: true,
                hold_ms: 9,
                unreachable: 1,
                panics: 2,
                usage: &[],
            }),
            [
                (Severity::Critical, "no_leader".to_owned()),
                (Severity::Critical, "storage_full".to_owned()),
                (Severity::Warning, "handler_panicked".to_owned()),
                (Severity::Warning, "members_unreachable".to_owned()),
                (Severity::Warning, "on_hold".to_owned()),
            ]
        );
    }

    #[test]
    fn bounds_count_from_four_fifths_on_except_those_that_roll() {
        let one = |name, used| Usage { name, used, max: 10 };
        let usage = [
            one("a_max", 7),
            one("b_max", 8),
            one("c_max", 10),
            one("history_max", 10),
            Usage { name: "tokens", used: u64::MAX, max: u64::MAX },
        ];
        assert_eq!(
            codes(&Seen { usage: &usage, ..WELL }),
            [
                (Severity::Critical, "c_max".to_owned()),
                (Severity::Critical, "tokens".to_owned()),
                (Severity::Warning, "b_max".to_owned()),
            ]
        );
    }
}
