//! What the count of a race tells about the schema, and what to do about it.

use super::Race;
use super::count::Count;
use crate::report::{Finding, Severity, Weight};

/// The words of one store for the way out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Words {
    /// How a write compares the token in the same atomic step.
    pub(crate) guard: &'static str,
    /// How check and write become one step.
    pub(crate) one_step: &'static str,
    /// How a seal is written.
    pub(crate) seal: &'static str,
}

/// What was tried, as far as the advice depends on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tried<'a> {
    pub(crate) schema: &'a str,
    pub(crate) isolation: Option<&'static str>,
    pub(crate) race: Race,
    pub(crate) weight: Weight,
    pub(crate) has_seal: bool,
    /// Whether a paused holder was kept out before: then the write does compare the token.
    pub(crate) compares: bool,
    /// Whether an older seal was seen to take the place of a newer one.
    pub(crate) sinks: bool,
}

/// The findings of one race.
pub(crate) fn of(tried: Tried<'_>, count: &Count, words: &Words) -> Vec<Finding> {
    if tried.weight == Weight::Control {
        return tame(tried, count).into_iter().collect();
    }
    if let Some(crossing) = narrow(tried, count) {
        return vec![crossing];
    }
    let mut found = Vec::new();
    if !tried.has_seal && count.unchecked > 0 {
        // Worse than a missing seal: it would not help.
        found.push(unchecked(tried, count, words));
    }
    if count.through > 0 {
        found.push(hole(tried, count, words));
    }
    if count.denied > 0 {
        found.push(denied(tried, count));
    }
    found
}

/// Tokens of some widths are compared, and those of others are not.
fn narrow(tried: Tried<'_>, count: &Count) -> Option<Finding> {
    let (older, newer) = count.crossing?;
    let always = count.wrong >= count.rounds && count.through == 0;
    if always || count.through >= count.rounds {
        // The same goes wrong whatever the width.
        return None;
    }
    let mut what = Vec::new();
    if count.through > 0 {
        what.push(format!("{} stale writes got through", count.through));
    }
    if count.denied > 0 {
        let example = count.refusal.as_deref().unwrap_or("without a reason");
        what.push(format!("the current holder was refused {} times: {example}", count.denied));
    }
    let detail = format!(
        "{}, {}: where tokens grow, first with token {newer} after {older}, {}",
        tried.schema,
        tried.race.name(),
        what.join(", and "),
    );
    let advice = "keep tokens as whole numbers up to 9007199254740991 (bigint in SQL) and compare \
                  them as such: not as text, an integer of 32 bits, or a real";
    Some(Finding::new(Severity::Hole, "token_width", detail, advice))
}

fn hole(tried: Tried<'_>, count: &Count, words: &Words) -> Finding {
    let (code, why, advice) = match tried.race {
        Race::Once => (
            "not_once",
            "one token passed more than once",
            "record the token that was used in the same step as the write, and refuse it again",
        ),
        Race::Equal => (
            "lost_write",
            "a write was accepted, and the read does not find it",
            "check that --read answers what --write wrote, and that --setup makes it as 0",
        ),
        _ if tried.sinks || (tried.race == Race::Seals && tried.compares) => {
            ("token_sinks", "an older token was accepted after a newer one had sealed", words.seal)
        }
        _ if !tried.has_seal => (
            "no_seal",
            "a new holder reads before its token is known, so an older one can still overwrite",
            words.seal,
        ),
        Race::Paused | Race::Widths => (
            "no_check",
            "the write does not compare its token, or the seal does not record it",
            words.guard,
        ),
        _ if tried.compares => (
            "two_steps",
            "the token is compared, but not in one atomic step with the write",
            words.one_step,
        ),
        _ => ("no_check", "stale writes are accepted", words.guard),
    };
    let level = tried.isolation.map(|level| format!(" under {level}")).unwrap_or_default();
    let detail = format!(
        "{}{level}, {}: {} of {} writes got through in {} rounds: {why}",
        tried.schema,
        tried.race.name(),
        count.through,
        count.writes,
        count.rounds,
    );
    Finding::new(Severity::Hole, code, detail, advice)
}

fn unchecked(tried: Tried<'_>, count: &Count, words: &Words) -> Finding {
    let detail = format!(
        "{}, {}: {} stale writes were accepted after the write of a newer holder: the write does \
         not compare its token",
        tried.schema,
        tried.race.name(),
        count.unchecked,
    );
    Finding::new(Severity::Hole, "no_check", detail, words.guard)
}

fn denied(tried: Tried<'_>, count: &Count) -> Finding {
    let advice = match tried.race {
        Race::Equal => {
            "let an equal token pass (`<=`, not `<`), or say --once if each token is meant to \
             write once"
        }
        _ => {
            "check the statements; if the resource was used before, its tokens must go on above \
             the highest seen: --token-from"
        }
    };
    let example = count.refusal.as_deref().unwrap_or("without a reason");
    let detail = format!(
        "{}, {}: the current holder was refused {} times: {example}",
        tried.schema,
        tried.race.name(),
        count.denied,
    );
    Finding::new(Severity::Hole, "holder_refused", detail, advice)
}

fn tame(tried: Tried<'_>, count: &Count) -> Option<Finding> {
    (count.through == 0 && count.rounds > 0).then(|| {
        let detail = format!(
            "{}, {}: nothing was lost in {} rounds, though something has to be",
            tried.schema,
            tried.race.name(),
            count.rounds,
        );
        let advice = "raise --rounds; a pooler or a cache in between may keep the races apart";
        Finding::new(Severity::Warning, "tame_race", detail, advice)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: Words = Words { guard: "guard", one_step: "one step", seal: "seal" };

    fn found(race: Race, has_seal: bool, compares: bool, count: &Count) -> Vec<&'static str> {
        let weight = if race == Race::ReadFirst { Weight::Control } else { Weight::Judged };
        let tried = Tried {
            schema: "own",
            isolation: None,
            race,
            weight,
            has_seal,
            compares,
            sinks: false,
        };
        of(tried, count, &WORDS).iter().map(|finding| finding.code).collect()
    }

    #[test]
    fn a_hole_is_named_by_what_else_is_known() {
        let through = Count { rounds: 9, through: 1, ..Count::default() };
        assert_eq!(found(Race::Paused, true, false, &through), ["no_check"]);
        assert_eq!(found(Race::Paused, false, false, &through), ["no_seal"]);
        let blind = Count { rounds: 9, through: 9, unchecked: 4, ..Count::default() };
        assert_eq!(found(Race::Paused, false, false, &blind), ["no_check", "no_seal"]);
        assert_eq!(found(Race::Paused, true, false, &blind), ["no_check"]);
        assert_eq!(found(Race::OnTheWire, true, true, &through), ["two_steps"]);
        assert_eq!(found(Race::Updates, true, false, &through), ["no_check"]);
        assert_eq!(found(Race::Seals, true, true, &through), ["token_sinks"]);
        assert_eq!(found(Race::Seals, true, false, &through), ["no_check"]);
        assert_eq!(found(Race::Equal, true, true, &through), ["lost_write"]);
        assert_eq!(found(Race::Once, true, true, &through), ["not_once"]);
        assert_eq!(found(Race::ReadFirst, true, true, &through), [""; 0]);
    }

    #[test]
    fn a_width_is_at_fault_only_where_another_one_holds() {
        let of_widths = |through, denied, wrong| {
            let crossing = Some((9, 10));
            let count = Count { rounds: 9, through, denied, wrong, crossing, ..Count::default() };
            found(Race::Widths, true, true, &count)
        };
        assert_eq!(of_widths(3, 0, 3), ["token_width"]);
        assert_eq!(of_widths(0, 3, 3), ["token_width"]);
        assert_eq!(of_widths(3, 9, 9), ["token_width"]);
        assert_eq!(of_widths(9, 0, 9), ["no_check"]);
        assert_eq!(of_widths(0, 9, 9), ["holder_refused"]);
    }

    #[test]
    fn sound_races_find_nothing_and_tame_ones_say_so() {
        let nothing = Count { rounds: 9, ..Count::default() };
        assert_eq!(found(Race::Paused, true, false, &nothing), [""; 0]);
        assert_eq!(found(Race::ReadFirst, true, false, &nothing), ["tame_race"]);
        let denied = Count { rounds: 9, denied: 2, ..Count::default() };
        assert_eq!(found(Race::Equal, true, true, &denied), ["holder_refused"]);
    }
}
