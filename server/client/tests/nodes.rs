//! Several servers of which some fail: frozen, cut off, leaderless, stopping, or not the leader.

use leasehold_client::wire::{Code, Event, EventKind, Time};
use leasehold_client::{Client, Error, WatchFilter, WatchItem};
use leasehold_client_fake::{Closed, Fake, Received, Reply};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

/// So long that only what never comes exhausts it.
const PATIENCE: Duration = Duration::from_secs(60);
/// Short enough for a test that has to wait for it, and long enough for a busy machine.
const ATTEMPT: Duration = Duration::from_secs(2);
const FOREVER: Duration = Duration::from_secs(600);

async fn fake(handler: impl FnMut(&Received) -> Reply + Send + 'static) -> Fake {
    Fake::start(handler).await.expect("a port")
}

async fn granting() -> Fake {
    fake(|received| Reply::grant(received, 7, 60_000)).await
}

async fn frozen() -> Fake {
    fake(|_| Reply::Silence).await
}

fn client_of(servers: impl IntoIterator<Item = String>) -> Client {
    let client = Client::builder().servers(servers).client_id("c").attempt_timeout(ATTEMPT);
    client.build().expect("legal settings")
}

fn of(fake: &Fake, path: &str) -> Vec<Received> {
    fake.received().into_iter().filter(|received| received.path() == path).collect()
}

fn acquires(fake: &Fake) -> Vec<Received> {
    of(fake, "/v1/acquire-lock")
}

fn request_ids<'a>(fakes: impl IntoIterator<Item = &'a Fake>) -> BTreeSet<String> {
    let asked = fakes.into_iter().flat_map(acquires);
    asked.map(|asked| asked.json()["request_id"].to_string()).collect()
}

#[tokio::test]
async fn a_wait_at_a_frozen_server_goes_on_at_the_next_under_its_id() {
    let (frozen, living) = (frozen().await, granting().await);
    let client = client_of([frozen.url(), living.url()]);
    let waiting = client.acquire("r").wait(FOREVER).grant();
    let granted = timeout(PATIENCE, waiting).await.expect("not for the whole wait");
    assert_eq!(granted.expect("a grant").token, 7);
    assert_eq!((acquires(&frozen).len(), acquires(&living).len()), (1, 1));
    assert_eq!(request_ids([&frozen, &living]).len(), 1);
    // Whoever was silent is left alone for a while.
    client.acquire("r").grant().await.expect("a grant");
    assert_eq!(acquires(&frozen).len(), 1);
}

#[tokio::test]
async fn a_wait_that_is_long_because_the_lock_is_held_stays_where_it_is() {
    let (asked, mut answered) = (watch::Sender::new(0), None);
    let told = asked.subscribe();
    let patient = fake(move |received| {
        if received.path() != "/v1/acquire-lock" {
            asked.send_modify(|times| *times += 1);
            return Reply::code(404, Code::NotFound);
        }
        let grant = Reply::grant(received, 7, 60_000);
        let mut told = answered.take().unwrap_or_else(|| told.clone());
        Reply::Later(Box::pin(async move {
            // The server goes away only if the whole test does.
            let _ = told.wait_for(|times| *times >= 3).await;
            grant
        }))
    })
    .await;
    let other = granting().await;
    let client = client_of([patient.url(), other.url()]);
    let waiting = client.acquire("r").wait(FOREVER).grant();
    timeout(PATIENCE, waiting).await.expect("it is asked whether it is there").expect("a grant");
    assert_eq!((acquires(&patient).len(), acquires(&other).len()), (1, 0));
}

#[tokio::test]
async fn many_waits_at_one_server_ask_after_it_together() {
    let (frozen, living) = (frozen().await, granting().await);
    let client = client_of([frozen.url(), living.url()]);
    let waits = (0..20).map(|n| client.acquire(format!("r/{n}")).wait(FOREVER).grant());
    let granted = timeout(PATIENCE, futures_util::future::join_all(waits)).await;
    assert!(granted.expect("in time").iter().all(Result::is_ok));
    assert_eq!(of(&frozen, "/livez").len(), 1);
}

#[tokio::test]
async fn a_frozen_server_costs_a_call_a_part_of_its_time() {
    let (frozen, living) = (frozen().await, granting().await);
    let client = client_of([frozen.url(), living.url()]).with_budget(ATTEMPT);
    client.acquire("r").grant().await.expect("a grant within the time of one attempt");
    assert_eq!(request_ids([&frozen, &living]).len(), 1);
}

#[tokio::test]
async fn what_must_not_be_repeated_is_not_hurried() {
    let (answer, mut later) = mpsc::unbounded_channel::<()>();
    let slow = fake(move |_| {
        let (_, other) = mpsc::unbounded_channel();
        let mut later = std::mem::replace(&mut later, other);
        Reply::Later(Box::pin(async move {
            let _ = later.recv().await;
            Reply::code(403, Code::Forbidden)
        }))
    })
    .await;
    let client = client_of([slow.url(), granting().await.url()]);
    let opening = tokio::spawn(async move { client.open_lease(Duration::from_secs(9)).await });
    slow.until(|received| received.len() == 1).await;
    // Longer than a first attempt that may be repeated is given.
    tokio::time::sleep(ATTEMPT / 2).await;
    answer.send(()).expect("it is waited for");
    let error = opening.await.expect("no panic").expect_err("forbidden");
    assert!(matches!(error, Error::Denied(_)), "{error:?}");
}

#[tokio::test]
async fn a_request_goes_from_node_to_node_under_one_id_until_one_can() {
    let closed = Closed::new().expect("a port");
    let leaderless = fake(|_| Reply::code(503, Code::NoLeader)).await;
    let unsure = fake(|_| Reply::code(503, Code::OutcomeUnknown)).await;
    let cut = fake(|received| Reply::grant(received, 7, 60_000).cut(40)).await;
    let stopping = fake(|_| Reply::code(503, Code::ShuttingDown)).await;
    let living = granting().await;
    let failing = [&leaderless, &unsure, &cut, &stopping];
    let urls = failing.into_iter().chain([&living]).map(Fake::url);
    let client = client_of([closed.url().expect("an address")].into_iter().chain(urls));
    let granted = client.acquire("r").wait(FOREVER).grant().await.expect("a grant");
    assert_eq!(granted.token, 7);
    for fake in failing.into_iter().chain([&living]) {
        assert_eq!(acquires(fake).len(), 1);
    }
    assert_eq!(request_ids(failing.into_iter().chain([&living])).len(), 1);
}

#[tokio::test]
async fn an_asked_for_pause_is_kept_once_every_server_was_asked() {
    let refusing = || {
        let mut problem = leasehold_client::wire::Problem::new(503, Code::NoLeader, "nobody");
        problem.retry_after_ms = Some(3_600_000);
        fake(move |_| Reply::problem(&problem))
    };
    let (first, second) = (refusing().await, refusing().await);
    let client = client_of([first.url(), second.url()]);
    let error = client.acquire("r").grant().await.expect_err("no leader");
    assert_eq!(error.code(), Some(Code::NoLeader));
    assert_eq!((acquires(&first).len(), acquires(&second).len()), (1, 1));
}

fn node(id: u64, leader: u64) -> impl FnMut(&Received) -> Reply + Send + 'static {
    move |received| {
        if received.path() == "/v1/stats" {
            return Reply::json(200, &serde_json::json!({ "node_id": id, "later": [] }));
        }
        let granted = Reply::grant(received, 7, 60_000);
        if id == leader { granted } else { granted.with("Leasehold-Leader", leader.to_string()) }
    }
}

/// Asks until `server` was asked.
async fn until_asked(client: &Client, server: &Fake) {
    let asking = async {
        while acquires(server).is_empty() {
            client.acquire("r").grant().await.expect("any node answers");
        }
    };
    timeout(PATIENCE, asking).await.expect("the hint is taken");
}

#[tokio::test]
async fn the_leader_is_asked_without_a_detour_once_it_is_known() {
    let (follower, silent) = (fake(node(1, 3)).await, frozen().await);
    let leader = fake(node(3, 3)).await;
    let client = client_of([follower.url(), silent.url(), leader.url()]);
    until_asked(&client, &leader).await;
    let before = acquires(&follower).len();
    for _ in 0..5 {
        client.acquire("r").grant().await.expect("a grant");
    }
    assert_eq!((acquires(&follower).len(), acquires(&leader).len()), (before, 6));
    // Finding it out is nothing that a call has to do with.
    assert!(acquires(&silent).is_empty());
}

#[tokio::test]
async fn a_leader_that_nobody_named_is_not_asked_and_looked_for_once() {
    let (one, two) = (fake(node(1, 9)).await, fake(node(2, 9)).await);
    let client = client_of([one.url(), two.url()]);
    client.acquire("r").grant().await.expect("a grant");
    for fake in [&one, &two] {
        fake.until(|received| received.iter().any(|asked| asked.path() == "/v1/stats")).await;
    }
    for _ in 0..5 {
        client.acquire("r").grant().await.expect("a grant");
    }
    assert_eq!((acquires(&one).len(), acquires(&two).len()), (6, 0));
    assert_eq!((of(&one, "/v1/stats").len(), of(&two, "/v1/stats").len()), (1, 1));
}

fn granted_event(revision: u64) -> Vec<u8> {
    let event = Event::new(revision, EventKind::Granted, Time(0));
    let data = serde_json::to_string(&event).expect("it can be written");
    format!("id: {revision}\nevent: granted\ndata: {data}\n\n").into_bytes()
}

#[tokio::test]
async fn a_watch_at_a_server_that_freezes_goes_on_elsewhere_after_what_it_was_told() {
    let mut first = Some(granted_event(5));
    let (streaming, mut streams) = mpsc::unbounded_channel();
    let freezing = fake(move |_| match first.take() {
        Some(event) => {
            let (sender, pieces) = mpsc::unbounded_channel();
            let _ = sender.send(event);
            let _ = streaming.send(sender);
            Reply::stream(pieces)
        }
        None => Reply::Silence,
    })
    .await;
    let (others, mut other_streams) = mpsc::unbounded_channel();
    let living = fake(move |received| {
        let (sender, pieces) = mpsc::unbounded_channel();
        let from: u64 = received.parameter("from").and_then(|from| from.parse().ok()).unwrap_or(0);
        let _ = sender.send(granted_event(from + 1));
        let _ = others.send(sender);
        Reply::stream(pieces)
    })
    .await;
    let client = Client::builder()
        .servers([freezing.url(), living.url()])
        .attempt_timeout(ATTEMPT)
        // Nothing but a question that is not answered tells in time.
        .watch_silence(FOREVER)
        .build()
        .expect("legal settings");
    let mut watch = client.watch(WatchFilter::All, None);
    for expected in ["5", "6"] {
        let told = timeout(PATIENCE, watch.next()).await.expect("in time").expect("it goes on");
        let WatchItem::Event(event) = told.expect("an event") else { panic!("a gap") };
        assert_eq!(event.revision, expected);
    }
    assert_eq!(of(&living, "/v1/watch").len(), 1);
    // Both streams were open to the end.
    assert!(streams.try_recv().is_ok() && other_streams.try_recv().is_ok());
}

#[tokio::test]
async fn a_watch_is_not_delayed_by_servers_that_cannot_tell() {
    let refusing = || {
        let mut problem = leasehold_client::wire::Problem::new(503, Code::NoLeader, "nobody");
        problem.retry_after_ms = Some(3_600_000);
        fake(move |_| Reply::problem(&problem))
    };
    let (first, second) = (refusing().await, refusing().await);
    let (sender, pieces) = mpsc::unbounded_channel();
    sender.send(granted_event(1)).expect("the receiver is here");
    let mut pieces = Some(pieces);
    let telling = fake(move |_| match pieces.take() {
        Some(pieces) => Reply::stream(pieces),
        None => Reply::Silence,
    })
    .await;
    let client = client_of([first.url(), second.url(), telling.url()]);
    let mut watch = client.watch(WatchFilter::All, None);
    // The pause that they ask for is cut off at ten seconds for a watch; two would be twenty.
    let told = timeout(Duration::from_secs(15), watch.next()).await.expect("no pause in between");
    assert!(matches!(told, Some(Ok(WatchItem::Event(_)))), "{told:?}");
}
