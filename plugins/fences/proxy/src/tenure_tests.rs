//! How an upstream was left, as the history of its lock tells it.

use super::*;
use crate::service::tests::stats;
use leasehold_client::wire::{Metadata, Mode, Time};
use leasehold_client_fake::{Fake, Reply};
use serde_json::json;
use tempfile::TempDir;

const LINGERS: Duration = Duration::from_secs(40);
const SETTLE: Duration = Duration::from_secs(30);
/// When the present grant was made; its token is 100.
const NOW_MS: u64 = 1_000_000;
const NOW: u64 = 100;

/// A directory whose last tenure was the grant with token 99.
fn tenure() -> (Tenure, TempDir) {
    let dir = TempDir::new().expect("a directory");
    let home = Home::open(dir.path(), "me").expect("a home");
    home.set_last_tenure(99).expect("written");
    (tenure_at("http://127.0.0.1:1", home), dir)
}

/// One that asks this service.
fn tenure_at(url: &str, home: Home) -> Tenure {
    let client = Client::builder().servers([url]).client_id(home.client_id());
    let client = client.build().expect("a client");
    let ttl = Duration::from_secs(10);
    let resource = "fence-proxy/http://a:80".to_owned();
    Tenure { client, home, resource, ttl, settle: SETTLE }
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

/// With what it says about itself.
fn saying(
    grant: GrantRecord<'static>,
    pairs: &[(&'static str, &'static str)],
) -> GrantRecord<'static> {
    let pairs = pairs.iter().map(|(name, text)| ((*name).into(), (*text).into()));
    GrantRecord { metadata: Some(Metadata(pairs.collect())), ..grant }
}

/// How the present grant finds the upstream; `before` are the others, newest first, and all that
/// were released were left in order.
fn left(tenure: &Tenure, before: Vec<GrantRecord<'static>>) -> Left {
    left_by(tenure, before, (0..NOW).collect())
}

/// The same, where only these are known to have been left in order.
fn left_by(tenure: &Tenure, before: Vec<GrantRecord<'static>>, vouched: BTreeSet<u64>) -> Left {
    let present = live(NOW, tenure.client.client_id());
    let grants: Vec<_> = [present].into_iter().chain(before).collect();
    tenure.left_by(&Record { grants, vouched, whole: true }, NOW, None)
}

#[test]
fn what_was_given_back_and_vouched_for_was_left_in_order() {
    let (tenure, _dir) = tenure();
    let me = tenure.client.client_id().to_owned();
    let released = ended(99, &me, EndedHow::Released, Duration::from_secs(1));
    assert_eq!(left(&tenure, vec![released.clone()]), Left::WELL);
    assert_eq!(Left::WELL.hold(&Limits::default()), None);
    let of_another = GrantRecord { client_id: "other".into(), ..released };
    assert_eq!(left(&tenure, vec![of_another]), Left { by_us: false, ..Left::WELL });
}

#[test]
fn what_was_given_back_alone_may_have_been_so_by_anybody() {
    let (tenure, _dir) = tenure();
    let limits = Limits::default();
    let me = tenure.client.client_id().to_owned();
    let ended = |how| ended(99, &me, how, Duration::from_secs(1));
    for vouched in [vec![], vec![98, 100]] {
        let left = left_by(&tenure, vec![ended(EndedHow::Released)], vouched.into_iter().collect());
        assert_eq!(left, Left { clean: false, late: true, ..Left::WELL });
        assert_eq!(left.hold(&limits), Some(limits.after_another() + limits.lock_ttl));
    }
    // Nor does a word for it make an order of another end.
    for how in [EndedHow::Forced, EndedHow::Expired] {
        assert!(!left_by(&tenure, vec![ended(how)], [99].into()).clean, "{how:?}");
    }
}

#[test]
fn a_witness_names_the_token_of_a_tenure() {
    let said = [
        saying(live(1, "a"), &[("token", "97")]),
        live(2, "a"),
        saying(live(3, "b"), &[("other", "98"), ("token", "99")]),
        saying(live(4, "b"), &[("token", "-1")]),
    ];
    let vouched = witness::vouched_for(&said);
    assert_eq!(vouched, BTreeSet::from([97, 99]));
}

#[test]
fn those_who_stood_before_the_upstream_say_how_long_they_may_go_on() {
    let (tenure, _dir) = tenure();
    let limits = Limits::default();
    let forced = |pairs| saying(ended(99, "other", EndedHow::Forced, LINGERS * 2), pairs);
    let hold = |pairs| left(&tenure, vec![forced(pairs)]).hold(&limits).map(|hold| hold.as_secs());
    let own = (limits.after_another() + limits.lock_ttl).as_secs();
    assert_eq!(hold(&[("ttl_ms", "600000"), ("settle_ms", "700000")]), Some(1300));
    // Of what is shorter, absent or no number the own counts, and nothing is longer than a day.
    for pairs in [&[("ttl_ms", "1"), ("settle_ms", "1")][..], &[], &[("ttl_ms", "-1")]] {
        assert_eq!(hold(pairs), Some(own), "{pairs:?}");
    }
    let endless = [("ttl_ms", "18446744073709551615")];
    assert_eq!(hold(&endless), Some(limits.after_another().as_secs() + 24 * 60 * 60));
    // One that settles for longer stays in sight for longer.
    let released = || ended(99, "other", EndedHow::Released, Duration::from_secs(1));
    let expired = |pairs| saying(ended(98, "other", EndedHow::Expired, LINGERS * 2), pairs);
    assert!(left(&tenure, vec![released(), expired(&[])]).clean);
    let long = left(&tenure, vec![released(), expired(&[("settle_ms", "100000")])]);
    assert_eq!((long.clean, long.settle), (false, Duration::from_secs(100)));
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
        let expected = Left { clean: false, late, ..Left::WELL };
        assert_eq!(left(&tenure, vec![short(), recent]), expected, "{how:?}");
        let settled = ended(98, "other", how, LINGERS + Duration::from_millis(1));
        assert_eq!(left(&tenure, vec![short(), settled]), Left::WELL, "{how:?}");
    }
}

#[test]
fn what_the_directory_says_counts_as_well() {
    let in_flight = Left { clean: false, ..Left::WELL };
    let late = Left { late: true, ..in_flight };
    assert_eq!(Left::WELL.on(true, None), Left::WELL);
    // Its grant was still live: whoever has it is not told of its end.
    let ttl = Duration::from_secs(600);
    let found = Left { ttl, ..late };
    assert_eq!(Left::WELL.on(true, Some(ttl)), found);
    assert_eq!(in_flight.on(false, Some(ttl)), found);
    assert_eq!(in_flight.on(false, None), in_flight);
    // Of the TTLs of the two that may be meant the longer one counts, whichever that is.
    let limits = Limits::default();
    let hold = |ttl| Left::WELL.on(true, Some(ttl)).hold(&limits);
    assert_eq!(hold(ttl), Some(limits.after_another() + ttl));
    assert_eq!(hold(Duration::ZERO), Some(limits.after_another() + limits.lock_ttl));
    assert_eq!(found.believed_for(&limits), ttl);
    // In order, but not of the one that had writes in flight.
    assert_eq!(Left::WELL.on(false, None), late);
    // The directory of a successor says nothing of another one.
    let another = Left { by_us: false, ..Left::WELL };
    assert_eq!(another.on(false, None), Left { clean: false, ..another });
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

#[test]
fn what_the_service_has_forgotten_counts_as_the_worst() {
    let (tenure, _dir) = tenure();
    let left = |before: Vec<GrantRecord<'static>>| {
        let present = live(NOW, tenure.client.client_id());
        let grants: Vec<_> = [present].into_iter().chain(before).collect();
        tenure.left_by(&Record { grants, vouched: (0..NOW).collect(), whole: false }, NOW, None)
    };
    let known = ended(99, tenure.client.client_id(), EndedHow::Released, Duration::ZERO);
    for left in [left(Vec::new()), left(vec![known])] {
        assert!(!left.clean && left.late, "{left:?}");
    }
}

#[test]
fn what_another_service_tells_proves_nothing() {
    let (tenure, _dir) = tenure();
    let me = tenure.client.client_id().to_owned();
    let released = saying(
        ended(99, &me, EndedHow::Released, Duration::from_secs(1)),
        &[("ttl_ms", "600000"), ("settle_ms", "700000")],
    );
    let told = left(&tenure, vec![released]);
    let (cluster, home) = (Some("one".to_owned()), &tenure.home);
    let same = Estate::of(told, NOW, Service::Same(cluster.clone())).on(true, None);
    assert!(same.left.clean && same.left.by_us && same.left.hold(&Limits::default()).is_none());
    same.keep_in(home).expect("written");
    assert_eq!((home.last_tenure().expect("read"), home.cluster().expect("read")), (NOW, cluster));
    // Its word on how long others may go on counts nevertheless.
    let other = Estate::of(told, NOW, Service::compare(Some("two".to_owned()), home));
    let other = other.on(true, None);
    assert!(!other.left.clean && !other.left.by_us);
    assert_eq!(other.left.hold(&Limits::default()), Some(Duration::from_secs(1300)));
    other.keep_in(home).expect("written");
    assert_eq!(Service::compare(Some("two".to_owned()), home), Service::Same(Some("two".into())));
}

#[test]
fn the_numbers_of_another_service_do_not_clear_what_was_seen_here() {
    let (tenure, _dir) = tenure();
    let told = left(&tenure, Vec::new());
    let below = |token, seen| {
        let estate = Estate::of(told, token, Service::compare(None, &tenure.home));
        estate.unknown_below(seen)
    };
    assert_eq!((below(4, 8), below(8, 8), below(9, 8), below(100, 8)), (9, 9, 9, 100));
    assert_eq!((below(4, 0), below(4, u64::MAX)), (4, u64::MAX));
}

#[tokio::test]
async fn a_grant_of_another_service_is_not_an_own_one_of_the_same_number() {
    let (told, _dir) = tenure();
    told.home.set_cluster("another").expect("written");
    let of_another = saying(
        ended(99, "other", EndedHow::Expired, Duration::from_secs(1)),
        &[("ttl_ms", "600000"), ("settle_ms", "700000")],
    );
    let page = json!({ "items": [live(NOW, "me"), of_another], "next_cursor": null });
    let service = Fake::start(move |asked| match asked.path() {
        "/v1/stats" => Reply::json(200, &stats("one")),
        "/v1/grants" => Reply::json(200, &page),
        _ => Reply::code(503, Code::NoLeader),
    });
    let service = service.await.expect("a port");
    let tenure = tenure_at(&service.url(), told.home.clone());
    let estate = tenure.estate(NOW, Some(99)).await;
    assert!(matches!(estate.service, Service::Other { .. }), "{estate:?}");
    assert_eq!(estate.left.hold(&Limits::default()), Some(Duration::from_secs(1300)));
    // Of the same service it is what this very process has left.
    tenure.home.set_cluster("one").expect("written");
    assert_eq!(tenure.estate(NOW, Some(99)).await.left, Left::WELL);
}

#[test]
fn as_long_as_an_answer_may_take_is_waited_for_and_as_long_as_it_settles() {
    let (tenure, _dir) = tenure();
    let seconds = Duration::from_secs;
    let expired = ended(99, "other", EndedHow::Expired, seconds(1));
    for (settle, timeout) in [(1, 6), (6, 1)] {
        let limits = Limits {
            upstream_settle: seconds(settle),
            upstream_timeout: seconds(timeout),
            ..Limits::default()
        };
        let left = left(&tenure, vec![expired.clone()]);
        assert_eq!(left.hold(&limits), Some(seconds(6)), "{settle} {timeout}");
    }
}

/// A service with one lock, which somebody holds or nobody, and which it gives to whoever asks.
async fn lock_service(holder: Option<&str>) -> Fake {
    let holders: Vec<_> = holder
        .iter()
        .map(|holder| {
            json!({
                "client_id": holder, "token": 7, "mode": "exclusive",
                "granted_at": "2026-01-02T03:04:05.678Z", "expires_in_ms": 9_000
            })
        })
        .collect();
    let state = if holders.is_empty() { "free" } else { "held" };
    let lock = json!({
        "resource": "fence-proxy/http://a:80", "state": state, "holders": holders,
        "queue": [], "queue_length": 0, "last_token": 7
    });
    let service = Fake::start(move |asked| match asked.path() {
        "/v1/lock" => Reply::json(200, &lock),
        "/v1/acquire-lock" => Reply::grant(asked, 7, 10_000),
        "/v1/release-lock" => Reply::json(200, &json!({ "released": true })),
        _ => Reply::code(503, Code::NoLeader),
    });
    service.await.expect("a port")
}

/// The ids of the requests for the lock.
fn asked(service: &Fake) -> Vec<String> {
    let received = service.received();
    let asked = received.iter().filter(|one| one.path() == "/v1/acquire-lock");
    asked.map(|one| one.json()["request_id"].as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test]
async fn the_last_request_is_repeated_only_while_we_hold_the_lock() {
    for (held_by_us, unused) in [(false, false), (false, true), (true, false), (true, true)] {
        let dir = TempDir::new().expect("a directory");
        let home = Home::open(dir.path(), "me").expect("a home");
        let holder = if held_by_us { home.client_id().to_owned() } else { "another".to_owned() };
        let service = lock_service(Some(&holder)).await;
        let (id, ttl) = ("the-last-one".to_owned(), Duration::from_secs(10));
        let last = LastRequest { id: id.clone(), ttl, settle: Some(SETTLE), unused };
        home.set_last_request(&last).expect("written");
        let begun = tenure_at(&service.url(), home.clone()).begin().await.expect("it is granted");
        // What nobody has used was not left behind by anybody.
        let expected = (held_by_us && !unused).then_some(ttl);
        assert_eq!(begun.found, expected, "{held_by_us} {unused}");
        let asked = asked(&service);
        assert_eq!(asked.len(), 1 + usize::from(held_by_us), "{asked:?}");
        assert_eq!(asked.contains(&id), held_by_us, "{asked:?}");
        let present = home.last_request().expect("read").expect("it is there");
        assert!(!present.unused && Some(&present.id) == asked.last());
    }
}

#[tokio::test]
async fn a_start_that_is_not_answered_leaves_a_request_that_nobody_uses() {
    let dir = TempDir::new().expect("a directory");
    let home = Home::open(dir.path(), "me").expect("a home");
    let away = Fake::start(|_| Reply::code(503, Code::NoLeader)).await.expect("a port");
    let mut tenure = tenure_at(&away.url(), home.clone());
    tenure.client = tenure.client.with_budget(Duration::from_millis(300));
    tenure.begin().await.expect_err("nobody leads");
    let left = home.last_request().expect("read").expect("it is there");
    assert!(left.unused);
    let service = lock_service(None).await;
    let begun = tenure_at(&service.url(), home).begin().await.expect("it is granted");
    assert_eq!(begun.found, None);
    assert!(!asked(&service).contains(&left.id));
}

#[test]
fn a_directory_without_a_token_goes_to_whatever_upstream_it_is_given() {
    let dir = TempDir::new().expect("a directory");
    let open = || {
        let home = Home::open(dir.path(), "me").expect("a home");
        home.set_lock("fence-proxy/another").expect("written");
        tenure_at("http://127.0.0.1:1", home)
    };
    std::fs::write(dir.path().join("fence.redb"), "").expect("written");
    open().home.settle_in().expect("written");
    let new = open();
    new.check_home().expect("nothing is in it");
    assert_eq!(new.home.lock().expect("read").as_ref(), Some(&new.resource));
    new.home.set_last_tenure(7).expect("written");
    drop(new);
    open().check_home().expect_err("the tokens of another upstream");
}
