//! How an upstream was left, as the history of its lock tells it.

use super::*;
use leasehold_client::wire::{Mode, Time};
use tempfile::TempDir;

const LINGERS: Duration = Duration::from_secs(40);
/// When the present grant was made; its token is 100.
const NOW_MS: u64 = 1_000_000;
const NOW: u64 = 100;

/// A directory whose last tenure was the grant with token 99.
fn tenure() -> (Tenure, TempDir) {
    let dir = TempDir::new().expect("a directory");
    let home = Home::open(dir.path(), "me").expect("a home");
    home.set_last_tenure(99).expect("written");
    let client = Client::builder().servers(["http://127.0.0.1:1"]).client_id(home.client_id());
    let client = client.build().expect("a client");
    let ttl = Duration::from_secs(10);
    let resource = "fence-proxy/http://a:80".to_owned();
    (Tenure { client, home, resource, ttl, lingers: LINGERS }, dir)
}

/// A grant that ended so long before the present one.
fn ended(token: u64, by: &str, how: EndedHow, ago: Duration) -> GrantRecord<'static> {
    let ago = u64::try_from(ago.as_millis()).expect("a time");
    GrantRecord {
        state: GrantState::Ended,
        how: Some(how),
        ended_at: Some(Time(NOW_MS - ago)),
        granted_at: Time(NOW_MS - ago),
        ..live(token, by)
    }
}

fn live(token: u64, by: &str) -> GrantRecord<'static> {
    GrantRecord {
        resource: "fence-proxy/http://a:80".into(),
        token,
        client_id: by.to_owned().into(),
        principal: "".into(),
        mode: Mode::Exclusive,
        state: GrantState::Live,
        asked_at: Time(NOW_MS),
        granted_at: Time(NOW_MS),
        ended_at: None,
        how: None,
        expires_in_ms: None,
        valid: None,
        policies: Vec::new(),
        metadata: None,
    }
}

/// How the present grant finds the upstream; `before` are the others, newest first.
fn left(tenure: &Tenure, before: Vec<GrantRecord<'static>>) -> Left {
    let present = live(NOW, tenure.client.client_id());
    let all: Vec<_> = [present].into_iter().chain(before).collect();
    tenure.left_by(&all.iter().collect::<Vec<_>>(), NOW, None)
}

#[test]
fn what_was_given_back_was_left_in_order() {
    let (tenure, _dir) = tenure();
    let me = tenure.client.client_id().to_owned();
    let released = ended(99, &me, EndedHow::Released, Duration::from_secs(1));
    assert_eq!(left(&tenure, vec![released.clone()]), Left::WELL);
    assert_eq!(Left::WELL.hold(&Limits::default()), None);
    let of_another = GrantRecord { client_id: "other".into(), ..released };
    assert_eq!(left(&tenure, vec![of_another]), Left { by_us: false, ..Left::WELL });
}

#[test]
fn a_holder_that_was_forced_out_may_go_on_for_a_ttl() {
    let (tenure, _dir) = tenure();
    let limits = Limits::default();
    let hold = |how| {
        let before = ended(99, "other", how, Duration::from_secs(1));
        left(&tenure, vec![before]).hold(&limits)
    };
    let settle = limits.after_another();
    assert_eq!(hold(EndedHow::Expired), Some(settle));
    for how in [EndedHow::Forced, EndedHow::Revoked, EndedHow::PassedOn, EndedHow::Restored] {
        assert_eq!(hold(how), Some(settle + limits.lock_ttl), "{how:?}");
    }
    // It learns of it when it next renews, however long ago that looks from here.
    let long_ago = ended(99, "other", EndedHow::Forced, LINGERS * 2);
    assert!(left(&tenure, vec![long_ago]).late);
}

#[test]
fn a_short_tenure_does_not_hide_the_one_before_it() {
    let (tenure, _dir) = tenure();
    let me = tenure.client.client_id().to_owned();
    let short = || ended(99, &me, EndedHow::Released, Duration::from_secs(1));
    for (how, late) in [(EndedHow::Expired, false), (EndedHow::Forced, true)] {
        let recent = ended(98, "other", how, LINGERS);
        let expected = Left { clean: false, by_us: true, late };
        assert_eq!(left(&tenure, vec![short(), recent]), expected, "{how:?}");
        let settled = ended(98, "other", how, LINGERS + Duration::from_millis(1));
        assert_eq!(left(&tenure, vec![short(), settled]), Left::WELL, "{how:?}");
    }
}

#[test]
fn what_the_directory_says_counts_as_well() {
    let in_flight = Left { clean: false, ..Left::WELL };
    let late = Left { late: true, ..in_flight };
    assert_eq!(Left::WELL.on(true, false), Left::WELL);
    // Its grant was still live: whoever has it is not told of its end.
    assert_eq!(Left::WELL.on(true, true), late);
    assert_eq!(in_flight.on(false, true), late);
    assert_eq!(in_flight.on(false, false), in_flight);
    // Given back, but not by the one that had writes in flight.
    assert_eq!(Left::WELL.on(false, false), late);
    // The directory of a successor says nothing of another one.
    let another = Left { by_us: false, ..Left::WELL };
    assert_eq!(another.on(false, false), Left { clean: false, ..another });
}

#[test]
fn a_history_that_is_too_long_to_be_seen_is_taken_for_the_worst() {
    let (tenure, _dir) = tenure();
    let me = tenure.client.client_id().to_owned();
    let released = |token| ended(token, &me, EndedHow::Released, Duration::from_secs(1));
    let tokens = |count: u64| (100 - count..100).rev().map(released).collect::<Vec<_>>();
    let full = left(&tenure, tokens(HISTORY as u64 - 1));
    assert!(!full.clean && full.late);
    assert_eq!(left(&tenure, tokens(HISTORY as u64 - 2)), Left::WELL);
}
