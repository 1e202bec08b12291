//! The Rust client and the real service: what each promises the other.

use std::future::IntoFuture as _;
use std::time::Duration;

use leasehold_client::{Client, Error, GrantsFilter, LocksFilter, State, WatchFilter, WatchItem};
use leasehold_harness::{Server, eventually};

use crate::server;

fn client(server: &Server, id: &str) -> Client {
    let url = format!("http://{}", server.addr());
    Client::builder().server(url).client_id(id).build().expect("the address is right")
}

const TTL: Duration = Duration::from_millis(1_500);

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_holds_for_longer_than_its_ttl_and_hands_over_at_once() {
    let server = server();
    let (first, second) = (client(&server, "a"), client(&server, "b"));
    let guard = first.acquire("r").ttl(TTL).await.expect("a grant");
    let waiting = tokio::spawn(async move { second.acquire("r").ttl(TTL).wait(TTL * 20).await });
    // It is renewed in the background, so nobody else gets it.
    tokio::time::sleep(TTL * 2).await;
    assert!(!waiting.is_finished());
    assert_eq!(guard.state(), State::Held);
    let token = guard.token();
    guard.release().await.expect("it is given back");
    let next = waiting.await.expect("the task ends").expect("a grant");
    assert!(next.token() > token);
}

#[tokio::test(flavor = "multi_thread")]
async fn belief_ends_before_a_silent_service_could_grant_to_somebody_else() {
    let server = server();
    let client = client(&server, "a");
    let guard = client.acquire("r").ttl(TTL).await.expect("a grant");
    server.freeze();
    assert_eq!(guard.changed(State::Held).await, State::Uncertain);
    let left = guard.remaining();
    assert!(left > Duration::ZERO && left < TTL, "{left:?}");
    guard.lost().await;
    assert_eq!((guard.state(), guard.remaining()), (State::Lost, Duration::ZERO));
    server.thaw();
    // Lost is final, whatever the service says now.
    tokio::time::sleep(TTL / 2).await;
    assert_eq!(guard.state(), State::Lost);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_survives_a_crash_of_the_service() {
    let mut server = server();
    let id = client(&server, "a");
    let guard = id.acquire("r").ttl(Duration::from_secs(60)).await.expect("a grant");
    let address = server.addr();
    server.kill9();
    server.set_flag("--listen", address);
    // It asks again and again while nobody listens there.
    let status = tokio::spawn(async move { id.lock("r").await });
    server.restart();
    let lock = status.await.expect("the task ends").expect("an answer");
    assert_eq!(lock.holders[0].token, guard.token());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_acquire_leaves_neither_place_nor_lock_behind() {
    let server = server();
    let (first, second) = (client(&server, "a"), client(&server, "b"));
    let guard = first.acquire("r").ttl(Duration::from_secs(60)).await.expect("a grant");
    let waiting = second.acquire("r").ttl(Duration::from_secs(60)).wait(Duration::from_secs(60));
    let waiting = tokio::spawn(waiting.into_future());
    let mut reader = server.client();
    eventually("it waits", || reader.queue_length("r") == 1);
    waiting.abort();
    tokio::task::spawn_blocking(move || {
        eventually("its place is given up", || reader.queue_length("r") == 0);
    })
    .await
    .expect("the task ends");
    let refused = second.try_acquire("r").ttl(TTL).await;
    assert!(matches!(refused, Err(Error::Held(_))), "{refused:?}");
    drop(guard);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_goes_on_over_restarts_and_tells_each_change_once() {
    let mut server = server();
    let address = server.addr();
    let client = client(&server, "a");
    let mut watch = client.watch(WatchFilter::Prefix("r/".to_owned()), Some("0".to_owned()));
    let mut told = Vec::new();
    let mut expected = Vec::new();
    for round in 0..4 {
        for i in 0..10 {
            let guard = client.acquire(format!("r/{i}")).ttl(TTL).await.expect("a grant");
            expected.push(guard.token());
            guard.release().await.expect("it is given back");
        }
        while told.len() < expected.len() * 2 {
            match watch.next().await.expect("it never ends").expect("it can be read") {
                WatchItem::Event(event) => told.push((event.token, event.event)),
                WatchItem::Gap(gap) => panic!("{gap:?}"),
            }
        }
        if round < 3 {
            server.kill9();
            server.set_flag("--listen", address);
            server.restart();
        }
    }
    let tokens: Vec<u64> = told.iter().step_by(2).filter_map(|(token, _)| *token).collect();
    assert_eq!(tokens, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_go_through_all_their_pages() {
    let server = server();
    let client = client(&server, "a");
    let lease = client.open_lease(Duration::from_secs(60)).await.expect("a lease");
    let mut guards = Vec::new();
    for i in 0..250 {
        guards.push(lease.acquire(format!("r/{i:03}")).await.expect("a grant"));
    }
    let locks = client.locks(LocksFilter::default()).all().await.expect("all pages");
    let names: Vec<_> = locks.iter().map(|lock| lock.resource.to_string()).collect();
    assert_eq!(names, (0..250).map(|i| format!("r/{i:03}")).collect::<Vec<_>>());
    let grants = client.grants(GrantsFilter::default()).all().await.expect("all pages");
    let mut tokens: Vec<u64> = grants.iter().map(|grant| grant.token).collect();
    tokens.sort_unstable();
    assert_eq!(tokens, guards.iter().map(|guard| guard.token()).collect::<Vec<_>>());
    lease.end().await.expect("it ends");
    assert!(guards.iter().all(|guard| guard.state() == State::Lost), "all that was on it");
}
