//! Standing in line: parts of a long wait, and nothing left behind by who gave up.

use leasehold_client::wire::{Code, Release, Released, WaitCancelled};
use leasehold_client::{Client, Error};
use leasehold_client_fake::{Fake, Received, Reply};
use std::time::Duration;

async fn fake(handler: impl FnMut(&Received) -> Reply + Send + 'static) -> (Fake, Client) {
    let fake = Fake::start(handler).await.expect("a port");
    let client = Client::builder().server(fake.url()).client_id("c").build();
    (fake, client.expect("legal settings"))
}

fn count(received: &[Received], path: &str) -> usize {
    received.iter().filter(|received| received.path() == path).count()
}

#[tokio::test]
async fn a_long_wait_is_several_requests_that_keep_the_place() {
    let (fake, client) = fake(|_| Reply::code(409, Code::WaitTimeout)).await;
    let wait = Duration::from_millis(60_200);
    let error = client.acquire("r").wait(wait).grant().await.expect_err("no grant");
    assert!(matches!(error, Error::WaitTimeout(_)), "{error:?}");

    let asked: Vec<_> = fake.received().iter().map(Received::json).collect();
    let (last, parts) = asked.split_last().expect("some requests");
    assert!(!parts.is_empty());
    for part in parts {
        assert_eq!((&part["wait_ms"], &part["keep_place"]), (&60_000.into(), &true.into()));
        assert_eq!(part["request_id"], last["request_id"]);
    }
    // The last one leaves the line before it is answered.
    assert_eq!(last.get("keep_place"), None);
    let last_wait = last["wait_ms"].as_u64().expect("a wait");
    assert!((1..=60_000).contains(&last_wait), "{last_wait}");
    // What the server is told is the end of the wait, not of the client's patience.
    for request in fake.received() {
        let told: u64 =
            request.header("leasehold-timeout-ms").expect("it").parse().expect("a number");
        assert!(told <= 60_250, "{told}");
    }
    assert_eq!(count(&fake.received(), "/v1/cancel-wait"), 0);
}

#[tokio::test]
async fn a_short_wait_is_one_request() {
    let (fake, client) = fake(|_| Reply::code(409, Code::WaitTimeout)).await;
    let error = client.acquire("r").wait(Duration::from_secs(60)).grant().await;
    assert!(matches!(error, Err(Error::WaitTimeout(_))), "{error:?}");
    let asked: Vec<_> = fake.received().iter().map(Received::json).collect();
    assert_eq!(asked.len(), 1);
    assert_eq!((&asked[0]["wait_ms"], asked[0].get("keep_place")), (&60_000.into(), None));
}

#[tokio::test]
async fn the_longest_wait_there_is_does_not_overflow() {
    let (fake, client) = fake(|received| Reply::grant(received, 1, 60_000)).await;
    let client = client.with_budget(Duration::MAX);
    client.acquire("r").wait(Duration::MAX).ttl(Duration::MAX).grant().await.expect("a grant");
    assert_eq!(fake.received().len(), 1);
}

#[tokio::test]
async fn whoever_stops_waiting_leaves_the_line() {
    let (fake, client) = fake(|received| match received.path() {
        "/v1/acquire-lock" => Reply::Silence,
        _ => Reply::json(200, &WaitCancelled { cancelled: true }),
    })
    .await;
    let waiting = tokio::spawn(client.acquire("r").wait(Duration::from_secs(600)).grant());
    let asked = fake.until(|received| count(received, "/v1/acquire-lock") == 1).await;
    waiting.abort();
    let received = fake.until(|received| count(received, "/v1/cancel-wait") == 1).await;
    let cancelled = received.last().expect("the cancel").json();
    assert_eq!(cancelled["request_id"], asked[0].json()["request_id"]);
    assert_eq!(cancelled["client_id"], "c");
}

#[tokio::test]
async fn whoever_stops_waiting_gives_back_what_was_granted_meanwhile() {
    let mut acquires = 0;
    let (fake, client) = fake(move |received| match received.path() {
        "/v1/acquire-lock" => {
            acquires += 1;
            if acquires == 1 { Reply::Silence } else { Reply::grant(received, 34, 60_000) }
        }
        "/v1/cancel-wait" => Reply::code(404, Code::NotFound),
        _ => Reply::json(200, &Released { released: true, reason: None }),
    })
    .await;
    let waiting = tokio::spawn(client.acquire("r").wait(Duration::from_secs(600)).guard());
    fake.until(|received| count(received, "/v1/acquire-lock") == 1).await;
    waiting.abort();
    let received = fake.until(|received| count(received, "/v1/release-lock") == 1).await;
    let found = &received[2];
    assert_eq!(found.json()["request_id"], received[0].json()["request_id"]);
    assert_eq!(found.json().get("wait_ms"), None, "it must not stand in line again");
    let release: Release<'_> = leasehold_client::wire::parse(&received[3].body).expect("a release");
    assert_eq!((release.resource.as_ref(), release.token), ("r", 34));
}

#[tokio::test]
async fn a_call_out_of_time_is_tidied_up_behind() {
    let (fake, client) = fake(|received| match received.path() {
        "/v1/acquire-lock" => Reply::Bytes(Vec::new()),
        _ => Reply::json(200, &WaitCancelled { cancelled: true }),
    })
    .await;
    let client = client.with_budget(Duration::from_millis(100));
    let error = client.acquire("r").grant().await.expect_err("no answer");
    assert!(matches!(error, Error::OutcomeUnknown { .. }), "{error:?}");
    fake.until(|received| count(received, "/v1/cancel-wait") == 1).await;
}

#[tokio::test]
async fn a_fault_of_the_service_is_tidied_up_behind() {
    let mut acquires = 0;
    let (fake, client) = fake(move |received| match received.path() {
        "/v1/acquire-lock" => {
            acquires += 1;
            if acquires > 1 {
                return Reply::grant(received, 34, 60_000);
            }
            Reply::code(500, Code::Internal)
        }
        "/v1/cancel-wait" => Reply::code(404, Code::NotFound),
        _ => Reply::json(200, &Released { released: true, reason: None }),
    })
    .await;
    let error = client.acquire("r").request_id("mine").grant().await.expect_err("a fault");
    assert_eq!(error.code(), Some(Code::Internal));
    let received = fake.until(|received| count(received, "/v1/release-lock") == 1).await;
    assert_eq!(received[2].json()["request_id"], "mine");
    assert_eq!(received[3].json()["token"], 34);
}

#[tokio::test]
async fn a_grant_that_comes_too_late_is_confirmed_or_not_believed() {
    let mut answers = [0, 60_000].into_iter();
    let (fake, client) =
        fake(move |received| Reply::grant(received, 34, answers.next().unwrap_or(0))).await;
    let granted = client.acquire("r").grant().await.expect("the repeat confirmed it");
    assert_eq!(granted.valid_for_ms, 60_000);
    let ids: Vec<_> =
        fake.received().iter().map(|asked| asked.json()["request_id"].clone()).collect();
    assert_eq!(ids.len(), 2);
    assert_eq!(ids[0], ids[1]);

    let client = client.with_budget(Duration::from_millis(200));
    let error = client.acquire("r").grant().await.expect_err("never valid");
    assert!(matches!(error, Error::OutcomeUnknown { .. }), "{error:?}");
    fake.until(|received| count(received, "/v1/cancel-wait") == 1).await;
}

#[tokio::test]
async fn all_that_can_be_asked_for_is_sent() {
    let (fake, client) = fake(|received| Reply::grant(received, 34, 60_000)).await;
    client
        .acquire("r")
        .ttl(Duration::from_micros(1_500_001))
        .shared()
        .wait(Duration::from_secs(1))
        .metadata("build", "7")
        .holding_token("other", 33)
        .claim(Duration::from_millis(500))
        .request_id("mine")
        .grant()
        .await
        .expect("a grant");
    let asked = fake.received()[0].json();
    for (field, value) in [
        ("resource", serde_json::json!("r")),
        ("client_id", "c".into()),
        ("ttl_ms", 1_501.into()),
        ("mode", "shared".into()),
        ("wait_ms", 1_000.into()),
        ("metadata", serde_json::json!({"build": "7"})),
        ("holding", serde_json::json!([{"resource": "other", "token": 33}])),
        ("claim_ms", 500.into()),
        ("request_id", "mine".into()),
    ] {
        assert_eq!(asked[field], value, "{field}");
    }
}
