//! Guards and leases: what is believed, for how long, and how it ends.

use leasehold_client::wire::{
    Code, DrainingGrant, EndedGrant, HexId, KeptAlive, LeaseEnded, LeaseOpened, Problem, Released,
    Renewed, Time,
};
use leasehold_client::{Belief, BootInstant, Client, Error, Guard, Lost, State};
use leasehold_client_fake::{Fake, Received, Reply};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

const LONG_MS: u64 = 60_000;

/// Grants for `valid_for_ms`, answers renewals as told and then always well, and releases.
async fn service(valid_for_ms: u64, renewals: impl IntoIterator<Item = Reply>) -> (Fake, Client) {
    let mut renewals = VecDeque::from_iter(renewals);
    let fake = Fake::start(move |received| match received.path() {
        "/v1/acquire-lock" => Reply::grant(received, 34, valid_for_ms),
        "/v1/renew-lock" => renewals.pop_front().unwrap_or_else(|| Reply::renewed(LONG_MS)),
        _ => Reply::json(200, &Released { released: true, reason: None }),
    });
    let fake = fake.await.expect("a port");
    let client = Client::builder().server(fake.url()).client_id("c").build();
    (fake, client.expect("legal settings"))
}

/// A guard that is renewed at once.
async fn claimed(client: &Client) -> Guard {
    let asked = client.acquire("a/é").ttl(Duration::from_secs(60)).claim(Duration::from_secs(2));
    asked.await.expect("a grant")
}

fn count(received: &[Received], path: &str) -> usize {
    received.iter().filter(|received| received.path() == path).count()
}

#[tokio::test]
async fn a_renewal_that_is_not_confirmed_makes_it_uncertain_until_one_is() {
    let (fake, client) = service(LONG_MS, [Reply::code(503, Code::NoLeader)]).await;
    let guard = claimed(&client).await;
    // Whoever asks too late for the first change finds it held again, and that is right as well.
    let belief = guard.belief();
    let seen = tokio::spawn(async move { belief.changed(State::Held).await });
    assert_eq!(seen.await.expect("no panic"), State::Uncertain);
    assert_eq!(guard.changed(State::Uncertain).await, State::Held);
    let renewals = fake.until(|received| count(received, "/v1/renew-lock") == 2).await;
    assert_eq!(renewals[1].body, renewals[2].body);
    assert_eq!(renewals[1].json()["token"], 34);
    assert_eq!(renewals[1].json()["client_id"], "c");
}

#[tokio::test]
async fn silence_loses_it_when_the_validity_is_over_and_never_before() {
    let silence = std::iter::repeat_with(|| Reply::Silence).take(50);
    let (_fake, client) = service(700, silence).await;
    let guard = claimed(&client).await;
    let until = guard.valid_until();
    guard.closing(Duration::from_millis(300)).await;
    let closing = BootInstant::now();
    assert!(closing >= until.saturating_sub(Duration::from_millis(300)));
    assert_eq!(guard.lost().await, Lost::ValidityOver);
    assert!(BootInstant::now() >= until);
    assert_eq!((guard.state(), guard.remaining()), (State::Lost, Duration::ZERO));
    // Nothing moved it meanwhile.
    assert_eq!(guard.valid_until(), until);
}

#[tokio::test]
async fn an_answer_that_comes_late_counts_from_the_sending() {
    let (answer, later) = oneshot::channel();
    let late = async { later.await.unwrap_or(Reply::Silence) };
    let (fake, client) = service(20_000, [Reply::Later(Box::pin(late))]).await;
    let guard = claimed(&client).await;
    let first = guard.valid_until();
    fake.until(|received| count(received, "/v1/renew-lock") == 1).await;
    let received_at = BootInstant::now();
    let answered_at = BootInstant::now();
    answer.send(Reply::renewed(LONG_MS)).expect("the server waits for it");
    let belief = guard.belief();
    belief.closing(Duration::from_secs(3_600)).await;
    while guard.valid_until() == first {
        tokio::task::yield_now().await;
    }
    assert!(guard.valid_until() <= received_at.saturating_add(Duration::from_millis(LONG_MS)));
    assert!(guard.valid_until() < answered_at.saturating_add(Duration::from_millis(LONG_MS)));
}

#[tokio::test]
async fn what_the_service_ended_is_lost_at_once() {
    for code in [Code::GrantEnded, Code::LeaseEnded, Code::NotHolder] {
        let mut problem = Problem::new(410, code, "over");
        problem.how = Some("forced".into());
        let (fake, client) = service(LONG_MS, [Reply::problem(&problem)]).await;
        let guard = claimed(&client).await;
        let how = Some("forced".to_owned());
        assert_eq!(guard.lost().await, Lost::Ended { code, how });
        assert_eq!(guard.state(), State::Lost);
        // There is nothing to give back; the next call would come after the release.
        drop(guard);
        client.acquire("other").grant().await.expect("a grant");
        assert_eq!(count(&fake.received(), "/v1/release-lock"), 0, "{code}");
    }
}

#[tokio::test]
async fn a_drained_grant_stands_until_its_validity_is_over() {
    let mut problem = Problem::new(409, Code::Conflict, "an operator asked for its end");
    problem.reason = Some("draining".into());
    let (fake, client) = service(600, [Reply::problem(&problem)]).await;
    let guard = claimed(&client).await;
    assert_eq!(guard.changed(State::Held).await, State::Uncertain);
    assert_eq!(guard.lost().await, Lost::ValidityOver);
    assert_eq!(count(&fake.received(), "/v1/renew-lock"), 1);
}

#[tokio::test]
async fn belief_ends_before_the_release_arrives() {
    let belief: Arc<Mutex<Option<Belief>>> = Arc::default();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (watched, states) = (Arc::clone(&belief), Arc::clone(&seen));
    let fake = Fake::start(move |received| match received.path() {
        "/v1/acquire-lock" => Reply::grant(received, 34, LONG_MS),
        _ => {
            states.lock().push(watched.lock().as_ref().map(Belief::state));
            Reply::code(503, Code::OutcomeUnknown)
        }
    });
    let fake = fake.await.expect("a port");
    let client = Client::new(fake.url()).expect("a URL").with_budget(Duration::from_millis(200));

    let guard = client.acquire("r").await.expect("a grant");
    *belief.lock() = Some(guard.belief());
    let error = guard.release().await.expect_err("the outcome is not known");
    assert!(matches!(error, Error::OutcomeUnknown { .. }), "{error:?}");
    assert!(!seen.lock().is_empty());
    assert!(seen.lock().iter().all(|state| *state == Some(State::Lost)), "{:?}", seen.lock());
    let belief = belief.lock().clone().expect("it was set");
    assert_eq!(belief.lost().await, Lost::Released);
}

#[tokio::test]
async fn a_dropped_guard_is_released_in_the_background() {
    let (fake, client) = service(LONG_MS, []).await;
    let guard = client.acquire("a/é").await.expect("a grant");
    let belief = guard.belief();
    // Also from where no runtime is.
    std::thread::spawn(move || drop(guard)).join().expect("no panic");
    assert_eq!(belief.state(), State::Lost);
    let received = fake.until(|received| count(received, "/v1/release-lock") == 1).await;
    let release = received.last().expect("it").json();
    assert_eq!((&release["resource"], &release["token"]), (&"a/é".into(), &34.into()));
}

#[tokio::test]
async fn a_release_that_is_dropped_on_the_way_goes_on() {
    let mut releases = 0;
    let fake = Fake::start(move |received| match received.path() {
        "/v1/acquire-lock" => Reply::grant(received, 34, LONG_MS),
        _ => {
            releases += 1;
            if releases == 1 { Reply::Silence } else { Reply::code(410, Code::GrantEnded) }
        }
    });
    let fake = fake.await.expect("a port");
    let client = Client::new(fake.url()).expect("a URL");
    let releasing = tokio::spawn(client.acquire("r").await.expect("a grant").release());
    fake.until(|received| count(received, "/v1/release-lock") == 1).await;
    releasing.abort();
    fake.until(|received| count(received, "/v1/release-lock") == 2).await;
}

#[tokio::test]
async fn a_grant_that_is_taken_out_is_left_alone() {
    let (fake, client) = service(LONG_MS, []).await;
    let guard = client.acquire("r").await.expect("a grant");
    let belief = guard.belief();
    let grant = guard.into_grant();
    assert_eq!((grant.token, belief.state()), (34, State::Lost));
    client.release(&grant.resource, grant.token).await.expect("released");
    assert_eq!(fake.received().len(), 2);
}

#[tokio::test]
async fn renewal_goes_on_for_as_long_as_it_is_held() {
    // Granted for so short a time that a renewal is always due, and paced by a tenth of the TTL.
    let renewals = std::iter::repeat_with(|| Reply::renewed(4_000)).take(1_000);
    let (fake, client) = service(4_000, renewals).await;
    let guard = client.acquire("r").ttl(Duration::from_secs(6)).await.expect("a grant");
    let first = guard.valid_until();
    fake.until(|received| count(received, "/v1/renew-lock") >= 8).await;
    assert_eq!(guard.state(), State::Held);
    assert!(guard.valid_until() > first);
    assert!(BootInstant::now() >= first, "eight renewals cannot have come sooner");
    let belief = guard.belief();
    drop(guard);
    fake.until(|received| count(received, "/v1/release-lock") == 1).await;
    assert_eq!(belief.lost().await, Lost::Released);
}

/// A service of one lease, whose keep-alives are answered as told.
async fn lease_service(
    valid_for_ms: u64,
    mut kept: impl FnMut() -> Reply + Send + 'static,
) -> (Fake, Client) {
    let mut token = 0;
    let fake = Fake::start(move |received| match (received.method.as_str(), received.path()) {
        ("POST", "/v1/leases") => {
            let client_id = "c".into();
            let (lease_id, ttl_ms, expires_in_ms) = (HexId(7), 120_000, valid_for_ms);
            Reply::json(
                200,
                &LeaseOpened { lease_id, client_id, ttl_ms, expires_in_ms, valid_for_ms },
            )
        }
        ("POST", "/v1/acquire-lock") => {
            token += 1;
            Reply::grant(received, token, valid_for_ms)
        }
        ("DELETE", _) => Reply::json(200, &LeaseEnded { ended: true }),
        (_, path) if path.ends_with("/keep-alive") => kept(),
        _ => Reply::json(200, &Released { released: true, reason: None }),
    });
    let fake = fake.await.expect("a port");
    let client = Client::builder().server(fake.url()).client_id("c").build();
    (fake, client.expect("legal settings"))
}

/// A renewal that keeps all but these.
fn kept_alive(
    ended_grants: Vec<EndedGrant<'static>>,
    draining_grants: Vec<DrainingGrant<'static>>,
) -> Reply {
    let kept = KeptAlive {
        lease_id: HexId(7),
        expires_in_ms: Some(LONG_MS),
        valid_for_ms: Some(LONG_MS),
        code: None,
        ended_grants,
        draining_grants,
    };
    Reply::json(200, &kept)
}

fn ended(resource: &'static str, token: u64) -> EndedGrant<'static> {
    EndedGrant { resource: resource.into(), token, how: "forced".into(), ended_at: Time(0) }
}

fn draining(resource: &'static str, token: u64) -> DrainingGrant<'static> {
    DrainingGrant { resource: resource.into(), token, expires_in_ms: 900, valid_for_ms: 800 }
}

/// The first renewal of a lease is answered when the sender says how, every later one well.
fn told_later(answer: oneshot::Receiver<Reply>) -> impl FnMut() -> Reply + Send + 'static {
    let mut answer = Some(answer);
    move || match answer.take() {
        Some(later) => Reply::Later(Box::pin(async { later.await.unwrap_or(Reply::Silence) })),
        None => kept_alive(Vec::new(), Vec::new()),
    }
}

#[tokio::test]
async fn one_renewal_keeps_every_grant_of_a_lease_but_those_that_ended() {
    let (answer, later) = oneshot::channel();
    let (fake, client) = lease_service(20_000, told_later(later)).await;
    let lease = client.open_lease(Duration::from_secs(120)).await.expect("a lease");
    let first = lease.acquire("a").await.expect("a grant");
    let second = lease.acquire("b").await.expect("a grant");
    let before = second.valid_until();
    fake.until(|received| received.iter().any(|one| one.path().ends_with("/keep-alive"))).await;
    let told = kept_alive(vec![ended("a", first.token())], Vec::new());
    answer.send(told).expect("the server waits for it");
    let how = Some("forced".to_owned());
    assert_eq!(first.lost().await, Lost::Ended { code: Code::GrantEnded, how });
    while second.valid_until() == before {
        tokio::task::yield_now().await;
    }
    assert_eq!((second.state(), lease.state()), (State::Held, State::Held));
    let asked = fake.received().into_iter().find(|one| one.path() == "/v1/acquire-lock");
    assert_eq!(asked.expect("it").json()["lease_id"], lease.id().to_string());
}

#[tokio::test]
async fn a_renewal_does_not_extend_a_draining_grant_of_the_lease() {
    let (answer, later) = oneshot::channel();
    let (_fake, client) = lease_service(2_000, told_later(later)).await;
    let lease = client.open_lease(Duration::from_secs(120)).await.expect("a lease");
    let first = lease.acquire("a").await.expect("a grant");
    let second = lease.acquire("b").await.expect("a grant");
    let (until, before) = (first.valid_until(), second.valid_until());
    answer.send(kept_alive(Vec::new(), vec![draining("a", first.token())])).expect("it waits");
    while second.valid_until() == before {
        tokio::task::yield_now().await;
    }
    assert_eq!((first.state(), first.valid_until()), (State::Uncertain, until));
    assert_eq!((second.state(), lease.state()), (State::Held, State::Held));
    assert_eq!(first.lost().await, Lost::ValidityOver);
    assert!(BootInstant::now() >= until);
    assert_eq!((second.state(), lease.state()), (State::Held, State::Held));
}

#[tokio::test]
async fn what_is_told_of_a_grant_before_its_guard_is_there_counts() {
    let (answer, later) = oneshot::channel();
    let (_fake, client) = lease_service(20_000, told_later(later)).await;
    let lease = client.open_lease(Duration::from_secs(120)).await.expect("a lease");
    let before = lease.valid_until();
    answer.send(kept_alive(vec![ended("a", 1)], vec![draining("b", 2)])).expect("it waits");
    while lease.valid_until() == before {
        tokio::task::yield_now().await;
    }
    let first = lease.acquire("a").await.expect("a grant");
    let second = lease.acquire("b").await.expect("a grant");
    let third = lease.acquire("c").await.expect("a grant");
    let how = Some("forced".to_owned());
    assert_eq!(first.lost().await, Lost::Ended { code: Code::GrantEnded, how });
    assert_eq!((second.state(), third.state()), (State::Uncertain, State::Held));
}

#[tokio::test]
async fn a_renewal_that_calls_its_own_grant_draining_does_not_extend_it() {
    let renewed = Renewed {
        expires_in_ms: LONG_MS,
        valid_for_ms: LONG_MS,
        ended_grants: Vec::new(),
        draining_grants: vec![draining("a/é", 34)],
    };
    let (_fake, client) = service(20_000, [Reply::json(200, &renewed)]).await;
    let guard = claimed(&client).await;
    let until = guard.valid_until();
    let told = timeout(Duration::from_secs(60), guard.changed(State::Held)).await;
    assert_eq!(told, Ok(State::Uncertain));
    assert_eq!(guard.valid_until(), until);
}

#[tokio::test]
async fn a_lease_that_ended_takes_its_grants_with_it() {
    let (fake, client) = lease_service(LONG_MS, || Reply::code(410, Code::LeaseEnded)).await;
    let lease = client.open_lease(Duration::from_secs(120)).await.expect("a lease");
    // Before or after the renewal that tells: it is lost either way.
    let guard = lease.acquire("a").await.expect("a grant");
    let lost = Lost::Ended { code: Code::LeaseEnded, how: None };
    assert_eq!((guard.lost().await, lease.lost().await), (lost.clone(), lost));
    let later = lease.acquire("b").await.expect("the fake grants everything");
    assert_eq!(later.state(), State::Lost);
    drop((guard, later, lease));
    client.acquire("other").grant().await.expect("a grant");
    assert_eq!(fake.received().iter().filter(|one| one.method == "DELETE").count(), 0);
}

#[tokio::test]
async fn a_dropped_lease_is_ended_in_the_background_with_everything_on_it() {
    let (fake, client) = lease_service(LONG_MS, || kept_alive(Vec::new(), Vec::new())).await;
    let lease = client.open_lease(Duration::from_secs(120)).await.expect("a lease");
    let guard = lease.acquire("a").await.expect("a grant");
    drop(lease);
    assert_eq!(guard.lost().await, Lost::Released);
    let received = fake.until(|received| received.iter().any(|one| one.method == "DELETE")).await;
    let ended = received.iter().find(|one| one.method == "DELETE").expect("it");
    assert_eq!(ended.target, format!("/v1/leases/{}?client_id=c", HexId(7)));
}

#[tokio::test]
async fn raw_renewals_say_when_they_were_sent() {
    let (_fake, client) = service(LONG_MS, []).await;
    let before = BootInstant::now();
    let renewed = client.renew("r", 34, None).await.expect("renewed");
    assert!(renewed.sent >= before && renewed.sent <= BootInstant::now());
    assert_eq!(renewed.valid_for_ms, LONG_MS);
    let _: &Renewed<'_> = &renewed;
}
