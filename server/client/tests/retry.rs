//! Repeats: the same request, within the budget, on the next server, and only where that is safe.

use leasehold_client::wire::{Code, Health, HexId, LeaseOpened, Lock, LockState, Problem};
use leasehold_client::{Client, Error};
use leasehold_client_fake::{Closed, Fake, Received, Reply};
use std::collections::VecDeque;
use std::time::Duration;

/// Answers in this order, and with a grant afterwards.
async fn scripted(replies: impl IntoIterator<Item = Reply>) -> Fake {
    let mut replies = VecDeque::from_iter(replies);
    let granting = move |received: &Received| match replies.pop_front() {
        Some(reply) if received.path() == "/v1/acquire-lock" => reply,
        _ => Reply::grant(received, 34, 60_000),
    };
    Fake::start(granting).await.expect("a port")
}

fn client(server: &Fake) -> Client {
    Client::builder().server(server.url()).client_id("c").build().expect("legal settings")
}

/// Two names for the same server, so that a repeat comes without a pause.
fn hurried(server: &Fake) -> Client {
    let urls = [server.url(), server.url()];
    Client::builder().servers(urls).client_id("c").build().expect("legal settings")
}

fn acquires(fake: &Fake) -> Vec<Received> {
    let received = fake.received().into_iter();
    received.filter(|received| received.path() == "/v1/acquire-lock").collect()
}

fn assert_all_same(requests: &[Received]) {
    let id = requests[0].json()["request_id"].as_str().map(str::to_owned).expect("an id");
    assert_eq!(id.len(), 32, "{id}");
    for request in requests {
        assert_eq!(request.body, requests[0].body);
        assert_eq!(request.target, requests[0].target);
    }
}

#[tokio::test]
async fn what_may_pass_is_repeated_with_the_same_id_and_body() {
    let fake = scripted([
        Reply::code(503, Code::Overloaded),
        Reply::code(503, Code::OutcomeUnknown),
        Reply::Bytes(Vec::new()),
        Reply::Answer { status: 502, headers: Vec::new(), body: b"<html>".to_vec() },
    ])
    .await;
    let granted = client(&fake).acquire("r").grant().await.expect("a grant in the end");
    assert_eq!(granted.token, 34);
    let requests = acquires(&fake);
    assert_eq!(requests.len(), 5);
    assert_all_same(&requests);
}

#[tokio::test]
async fn two_calls_have_two_ids() {
    let fake = scripted([]).await;
    let client = client(&fake);
    client.acquire("r").grant().await.expect("a grant");
    client.acquire("r").grant().await.expect("a grant");
    let ids: Vec<_> =
        acquires(&fake).iter().map(|request| request.json()["request_id"].clone()).collect();
    assert_ne!(ids[0], ids[1]);
}

#[tokio::test]
async fn an_answer_cut_anywhere_is_asked_for_again() {
    let first = Received {
        method: "POST".into(),
        target: "/v1/acquire-lock".into(),
        headers: Vec::new(),
        body: br#"{"resource":"r","client_id":"c","ttl_ms":10000}"#.to_vec(),
    };
    let whole = Reply::grant(&first, 34, 60_000);
    for cut in 0..whole.wire().len() {
        let fake = scripted([whole.cut(cut)]).await;
        let granted = hurried(&fake).acquire("r").grant().await;
        assert_eq!(granted.map(|granted| granted.token), Ok(34), "cut after {cut} bytes");
        let requests = acquires(&fake);
        assert_eq!(requests.len(), 2, "cut after {cut} bytes");
        assert_all_same(&requests);
    }
}

#[tokio::test]
async fn a_refusal_is_final_at_once() {
    for (status, code) in [
        (400, Code::InvalidRequest),
        (403, Code::PolicyDenied),
        (404, Code::NotFound),
        (409, Code::Held),
        (409, Code::WouldDeadlock),
        (410, Code::GrantEnded),
        (422, Code::RequestIdReused),
        (429, Code::Shed),
        (500, Code::Internal),
    ] {
        let fake = scripted([Reply::code(status, code)]).await;
        let error = client(&fake).acquire("r").grant().await.expect_err("a refusal");
        assert_eq!(error.code(), Some(code));
        assert_eq!(fake.received().len(), 1, "{code}");
    }
}

#[tokio::test]
async fn something_else_on_the_port_is_no_service() {
    let html = Reply::Answer { status: 200, headers: Vec::new(), body: b"<html>".to_vec() };
    let fake = scripted([html]).await;
    let error = client(&fake).acquire("r").grant().await.expect_err("no grant");
    assert!(matches!(error, Error::Transport { .. }), "{error:?}");
}

#[tokio::test]
async fn the_budget_is_told_and_kept() {
    let fake = Fake::start(|_| Reply::code(503, Code::NoLeader)).await.expect("a port");
    let budget = Duration::from_millis(400);
    let client = client(&fake).with_budget(budget);
    let error = client.acquire("r").grant().await.expect_err("no grant");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert_eq!(error.code(), Some(Code::NoLeader));
    let requests = acquires(&fake);
    assert!(requests.len() >= 2, "{} attempts", requests.len());
    let told = |request: &Received| -> u64 {
        let header = request.header("leasehold-timeout-ms").expect("the header");
        header.parse().expect("a number")
    };
    let told: Vec<_> = requests.iter().map(told).collect();
    assert!(told.iter().all(|left| (1..=400).contains(left)), "{told:?}");
    assert!(told.is_sorted_by(|earlier, later| earlier >= later), "{told:?}");
}

#[tokio::test]
async fn a_pause_that_the_budget_does_not_allow_ends_the_call() {
    let mut problem = Problem::new(503, Code::Overloaded, "later");
    problem.retry_after_ms = Some(3_600_000);
    let fake = scripted([Reply::problem(&problem)]).await;
    let error = client(&fake).acquire("r").grant().await.expect_err("no grant");
    assert_eq!(error.retry_after(), Some(Duration::from_secs(3_600)));
    assert_eq!(acquires(&fake).len(), 1);
}

#[tokio::test]
async fn without_a_budget_nothing_is_sent() {
    let fake = scripted([]).await;
    let client = client(&fake).with_budget(Duration::ZERO);
    let error = client.lock("r").await.expect_err("no time");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert_eq!(fake.received(), []);
}

#[tokio::test]
async fn an_outcome_that_stays_unknown_is_told_with_the_id_to_repeat() {
    let fake = Fake::start(|_| Reply::Bytes(Vec::new())).await.expect("a port");
    let client = client(&fake).with_budget(Duration::from_millis(200));
    let error = client.acquire("r").request_id("mine").grant().await.expect_err("no grant");
    let Error::OutcomeUnknown { request_id, .. } = error else { panic!("{error:?}") };
    assert_eq!(request_id.as_deref(), Some("mine"));
}

#[tokio::test]
async fn the_next_server_serves_when_this_one_is_gone_and_is_asked_first_from_then_on() {
    let fake = scripted([]).await;
    let closed = Closed::new().expect("a port");
    let gone = closed.url().expect("an address");
    let client = Client::builder().server(gone).server(fake.url());
    let client = client.build().expect("legal settings");
    client.acquire("r").grant().await.expect("a grant");
    client.acquire("r").grant().await.expect("a grant");
    assert_eq!(acquires(&fake).len(), 2);
}

#[tokio::test]
async fn the_next_server_serves_when_this_one_cannot() {
    for code in [Code::NoLeader, Code::ShuttingDown, Code::NotReady] {
        let first = Fake::start(move |_| Reply::code(503, code)).await.expect("a port");
        let second = scripted([]).await;
        let client = Client::builder().servers([first.url(), second.url()]);
        let client = client.build().expect("legal settings");
        client.acquire("r").grant().await.expect("a grant");
        client.acquire("r").grant().await.expect("a grant");
        let (first, second) = (acquires(&first), acquires(&second));
        assert_eq!((first.len(), second.len()), (1, 2), "{code}");
        assert_all_same(&[first[0].clone(), second[0].clone()]);
    }
}

#[tokio::test]
async fn a_server_that_says_nothing_does_not_use_up_the_budget() {
    let silent = Fake::start(|_| Reply::Silence).await.expect("a port");
    let fake = scripted([]).await;
    let client = Client::builder().servers([silent.url(), fake.url()]);
    let client = client.attempt_timeout(Duration::from_millis(100)).build().expect("settings");
    client.acquire("r").grant().await.expect("a grant");
    assert_all_same(&[acquires(&silent)[0].clone(), acquires(&fake)[0].clone()]);
}

#[tokio::test]
async fn nobody_there_is_unavailable() {
    let closed = Closed::new().expect("a port");
    let client = Client::new(closed.url().expect("an address"))
        .expect("a URL")
        .with_budget(Duration::from_millis(150));
    let error = client.acquire("r").grant().await.expect_err("nobody there");
    assert!(matches!(error, Error::Unavailable { problem: None, .. }), "{error:?}");
}

fn opened() -> Reply {
    let (ttl_ms, expires_in_ms, valid_for_ms) = (60_000, 60_000, 60_000);
    let client_id = "c".into();
    let lease_id = HexId(7);
    Reply::json(200, &LeaseOpened { lease_id, client_id, ttl_ms, expires_in_ms, valid_for_ms })
}

#[tokio::test]
async fn a_lease_is_not_opened_twice() {
    for lost in [Reply::Bytes(Vec::new()), opened().cut(40), Reply::code(503, Code::OutcomeUnknown)]
    {
        let mut lost = Some(lost);
        let fake = Fake::start(move |_| lost.take().unwrap_or_else(opened)).await.expect("a port");
        let error = client(&fake).open_lease(Duration::from_secs(60)).await.expect_err("in doubt");
        assert!(matches!(error, Error::OutcomeUnknown { .. }), "{error:?}");
        assert_eq!(fake.received().len(), 1);
    }
}

#[tokio::test]
async fn a_lease_that_was_certainly_not_opened_is_asked_for_again() {
    let mut refused = Some(Reply::code(503, Code::NoLeader));
    let fake = Fake::start(move |_| refused.take().unwrap_or_else(opened)).await.expect("a port");
    let lease = client(&fake).open_lease(Duration::from_secs(60)).await.expect("a lease");
    assert_eq!(lease.id(), HexId(7));
}

#[tokio::test]
async fn reads_say_what_stands_beside_the_answer_and_carry_the_credential() {
    let lock = Lock {
        resource: "a b/é".into(),
        state: LockState::Free,
        holders: Vec::new(),
        queue: Vec::new(),
        queue_length: 0,
        last_token: None,
    };
    let reply = move |_: &Received| Reply::json(200, &lock).with("Leasehold-Revision", "17");
    let fake = Fake::start(reply).await.expect("a port");
    let client = Client::builder().server(fake.url()).credential("s3cret").build().expect("legal");
    let lock = client.lock("a b/é").await.expect("a lock");
    assert_eq!((lock.revision.as_deref(), lock.resource.as_ref()), (Some("17"), "a b/é"));
    let received = &fake.received()[0];
    assert_eq!(received.target, "/v1/lock?resource=a%20b%2F%C3%A9");
    assert_eq!(received.header("authorization"), Some("Bearer s3cret"));
    assert!(!format!("{client:?}").contains("s3cret"));
    assert!(!format!("{:?}", Client::builder().credential("s3cret")).contains("s3cret"));
}

#[tokio::test]
async fn health_is_what_the_server_says_of_itself() {
    let healthy =
        Reply::json(200, &Health { status: leasehold_client::wire::health::HealthStatus::Ok });
    let mut replies = VecDeque::from([healthy]);
    let not_ready = || Reply::code(503, Code::NotReady);
    let fake = Fake::start(move |_| replies.pop_front().unwrap_or_else(not_ready));
    let fake = fake.await.expect("a port");
    let client = client(&fake).with_budget(Duration::from_millis(50));
    client.health().await.expect("ready");
    let error = client.health().await.expect_err("not ready");
    assert_eq!(error.code(), Some(Code::NotReady));
}
