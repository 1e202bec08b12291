//! Random histories of sends, answers, doubts and ends, against a model that knows everything.

use super::*;
use proptest::prelude::*;

fn at(ms: u64) -> BootInstant {
    BootInstant::from_start(Duration::from_millis(ms))
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[derive(Debug, Clone)]
enum Step {
    Pass(u64),
    Send,
    /// To one of those sent, whichever, however late.
    Answer {
        which: usize,
        valid_for_ms: u64,
    },
    Doubt,
    Drain,
    End,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0_u64..400).prop_map(Step::Pass),
        3 => Just(Step::Send),
        4 => (any::<usize>(), 0_u64..1_500)
            .prop_map(|(which, valid_for_ms)| Step::Answer { which, valid_for_ms }),
        2 => Just(Step::Doubt),
        1 => Just(Step::Drain),
        1 => Just(Step::End),
    ]
}

proptest! {
    #[test]
    fn belief_never_outlives_what_was_confirmed_and_lost_is_final(
        first in 1_u64..1_500,
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let mut now = 1_000;
        let mut validity = Validity::new(at(now), ms(first));
        // When each request was sent, the latest end that an answer gave, and whether belief ended.
        let (mut sent, mut end, mut over) = (vec![now], now + first, false);
        let mut draining = false;
        let mut reason = None;
        for step in steps {
            match step {
                Step::Pass(span) => now += span,
                Step::Send => sent.push(now),
                Step::Answer { which, valid_for_ms } => {
                    let sent = sent[which % sent.len()];
                    validity.confirm(at(now), at(sent), ms(valid_for_ms));
                    if now < end && !over && !draining {
                        end = end.max(sent + valid_for_ms);
                    }
                }
                Step::Doubt => validity.doubt(at(now)),
                Step::Drain => {
                    validity.drain(at(now));
                    draining = true;
                }
                Step::End => validity.end(at(now), Lost::Released),
            }
            over |= now >= end || matches!(step, Step::End);
            let state = validity.state(at(now));
            prop_assert_eq!(state == State::Lost, over, "at {} of {}", now, end);
            prop_assert!(!draining || state != State::Held);
            prop_assert_eq!(validity.lost(at(now)).is_some(), over);
            prop_assert_eq!(validity.until(), at(end));
            let left = if over { 0 } else { end - now };
            prop_assert_eq!(validity.remaining(at(now)), ms(left));
            if over {
                // The first reason stays, and no clock reading undoes it.
                validity.settle(at(now));
                let why = validity.lost(at(0));
                prop_assert!(why.is_some());
                prop_assert_eq!(reason.get_or_insert(why.clone()), &why);
                prop_assert_eq!(validity.state(at(0)), State::Lost);
            }
        }
    }
}

#[test]
fn validity_counts_from_the_sending_and_not_from_the_answer() {
    let mut validity = Validity::new(at(0), ms(1_000));
    validity.confirm(at(900), at(300), ms(1_000));
    assert_eq!(validity.until(), at(1_300));
    // An earlier renewal that is answered later takes nothing away.
    validity.confirm(at(950), at(100), ms(1_000));
    assert_eq!(validity.until(), at(1_300));
    assert_eq!(validity.state(at(1_299)), State::Held);
    assert_eq!(validity.state(at(1_300)), State::Lost);
}

#[test]
fn doubt_lasts_until_the_next_confirmation() {
    let mut validity = Validity::new(at(0), ms(1_000));
    validity.doubt(at(10));
    assert_eq!(validity.state(at(10)), State::Uncertain);
    validity.confirm(at(30), at(20), ms(1_000));
    assert_eq!(validity.state(at(30)), State::Held);
}

#[test]
fn an_answer_after_the_end_is_too_late() {
    let mut validity = Validity::new(at(0), ms(1_000));
    validity.confirm(at(1_000), at(999), ms(1_000));
    assert_eq!(validity.lost(at(1_000)), Some(Lost::ValidityOver));
    assert_eq!(validity.state(at(1_001)), State::Lost);
}

#[test]
fn the_service_can_end_it_earlier_and_says_how() {
    let mut validity = Validity::new(at(0), ms(1_000));
    let forced = Lost::Ended { code: Code::GrantEnded, how: Some("forced".into()) };
    validity.end(at(10), forced.clone());
    validity.end(at(20), Lost::Released);
    assert_eq!(validity.lost(at(5_000)), Some(forced.clone()));
    assert_eq!(forced.to_string(), "the service ended it: forced");
}

#[test]
fn no_answer_makes_numbers_wrap() {
    let mut validity = Validity::new(at(1), Duration::MAX);
    validity.confirm(at(2), at(1), Duration::MAX);
    assert_eq!(validity.state(at(u64::MAX)), State::Held);
}
