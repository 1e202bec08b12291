//! Lists page by page, batches, and the calls of operators: what is sent, and what is read.

use leasehold_client::wire::{
    self, BatchResults, ClientSummary, Code, Domain, DomainReset, ForceRelease, ForceReleased,
    ForceWhen, Page, Release, SetDomain, Time,
};
use leasehold_client::{Client, Error, GrantsFilter, LocksFilter};
use leasehold_client_fake::{Fake, Received, Reply};

async fn fake(handler: impl FnMut(&Received) -> Reply + Send + 'static) -> (Fake, Client) {
    let fake = Fake::start(handler).await.expect("a port");
    let client = Client::builder().server(fake.url()).client_id("c").build();
    (fake, client.expect("legal settings"))
}

fn targets(fake: &Fake) -> Vec<String> {
    fake.received().into_iter().map(|received| received.target).collect()
}

/// Three pages of one client each.
fn page(received: &Received) -> Reply {
    let at: u64 = received.parameter("cursor").map_or(0, |cursor| cursor.parse().expect("ours"));
    let item = ClientSummary {
        client_id: format!("c{at}").into(),
        principal: "p".into(),
        leases: at,
        grants: 0,
        waiting: 0,
    };
    let next_cursor = (at < 2).then(|| (at + 1).to_string().into());
    Reply::json(200, &Page { items: vec![item], next_cursor, total: None })
        .with("Leasehold-Revision", at.to_string())
}

#[tokio::test]
async fn a_list_is_read_page_by_page_to_its_end() {
    let (fake, client) = fake(page).await;
    let all = client.clients().all().await.expect("three pages");
    let names: Vec<_> = all.iter().map(|one| one.client_id.as_ref()).collect();
    assert_eq!(names, ["c0", "c1", "c2"]);
    assert_eq!(targets(&fake), ["/v1/clients", "/v1/clients?cursor=1", "/v1/clients?cursor=2"]);

    let mut pages = client.clients().from_cursor("2");
    let last = pages.next_page().await.expect("a page").expect("the last one");
    assert_eq!((last.items.len(), last.revision.as_deref()), (1, Some("2")));
    assert!(pages.next_page().await.expect("the end").is_none());
}

#[tokio::test]
async fn a_page_that_failed_is_asked_for_again() {
    let mut failed = false;
    let (_fake, client) = fake(move |received| {
        if received.parameter("cursor") == Some("1") && !std::mem::replace(&mut failed, true) {
            return Reply::code(403, Code::Forbidden);
        }
        page(received)
    })
    .await;
    let mut pages = client.clients();
    pages.next_page().await.expect("the first page");
    pages.next_page().await.expect_err("refused once");
    let second = pages.next_page().await.expect("a page").expect("the second one");
    assert_eq!(second.items[0].client_id, "c1");
}

#[tokio::test]
async fn filters_are_parameters() {
    let empty = |_: &Received| {
        Reply::json(200, &Page::<()> { items: vec![], next_cursor: None, total: None })
    };
    let (fake, client) = fake(empty).await;
    let locks = LocksFilter {
        prefix: Some("a b/".into()),
        state: Some("held".into()),
        limit: Some(7),
        stale: true,
        ..LocksFilter::default()
    };
    client.locks(locks).all().await.expect("a page");
    let grants = GrantsFilter { token: Some(34), at: Some(Time(0)), ..GrantsFilter::default() };
    client.grants(grants).all().await.expect("a page");
    assert_eq!(
        targets(&fake),
        [
            "/v1/locks?prefix=a%20b%2F&state=held&limit=7&consistency=stale",
            "/v1/grants?token=34&at=1970-01-01T00%3A00%3A00.000Z",
        ],
    );
}

#[tokio::test]
async fn every_acquire_of_a_batch_has_an_id_and_a_repeat_has_the_same() {
    let mut first = true;
    let (fake, client) = fake(move |_| match std::mem::take(&mut first) {
        true => Reply::code(503, Code::OutcomeUnknown),
        false => Reply::json(200, &BatchResults { results: Vec::new() }),
    })
    .await;
    let acquire = wire::Acquire {
        resource: "r".into(),
        client_id: "c".into(),
        ttl_ms: Some(10_000),
        lease_id: None,
        mode: wire::Mode::Exclusive,
        wait_ms: 0,
        request_id: None,
        claim_ms: None,
        keep_place: false,
        holding: Vec::new(),
        metadata: None,
    };
    let release = Release { resource: "s".into(), token: 3, client_id: None };
    let operations = vec![wire::Operation::Acquire(acquire), wire::Operation::Release(release)];
    client.batch(operations).await.expect("the repeat is answered");
    let received = fake.received();
    assert_eq!(received.len(), 2);
    assert_eq!(received[0].body, received[1].body);
    let batch: wire::Batch<'_> = wire::parse(&received[0].body).expect("the service reads it");
    let shaped = batch.operations.into_iter().map(|operation| operation.shaped().expect("legal"));
    let shaped: Vec<_> = shaped.collect();
    let wire::Operation::Acquire(acquire) = &shaped[0] else { panic!("{shaped:?}") };
    assert_eq!(acquire.request_id.as_ref().map(|id| id.len()), Some(32));
    assert!(matches!(&shaped[1], wire::Operation::Release(release) if release.token == 3));
}

#[tokio::test]
async fn operators_say_which_version_and_which_grant_they_mean() {
    let (fake, client) = fake(|received| match received.path() {
        "/v1/domains" => {
            let domain = Domain { domain: "d".into(), queue_max: Some(5), version: "8".into() };
            Reply::json(200, &domain)
        }
        _ => Reply::json(200, &ForceReleased { ended: true, expires_in_ms: 0, overlap: true }),
    })
    .await;
    let settings = SetDomain { queue_max: Some(5) };
    let changed = client.set_domain("d/é", &settings, "7", None).await.expect("changed");
    assert_eq!(changed.version, "8");
    let asked = ForceRelease {
        resource: "r".into(),
        token: 34,
        reason: "stuck".into(),
        when: ForceWhen::Now,
    };
    assert!(client.force_release(&asked).await.expect("ended").overlap);

    let received = fake.received();
    assert_eq!(
        (received[0].method.as_str(), received[0].header("if-match")),
        ("PUT", Some("\"7\""))
    );
    assert_eq!(received[0].target, "/v1/domains?domain=d%2F%C3%A9");
    let read: SetDomain = wire::parse(&received[0].body).expect("the service reads it");
    assert_eq!(read, settings);
    let read: ForceRelease<'_> = wire::parse(&received[1].body).expect("the service reads it");
    assert_eq!(read, asked);
}

#[tokio::test]
async fn operators_say_why_they_change_a_domain() {
    let (fake, client) = fake(|received| {
        let domain = Domain { domain: "d".into(), queue_max: None, version: "8".into() };
        match received.method.as_str() {
            "DELETE" => Reply::json(200, &DomainReset { domain: "d".into(), reset: true }),
            _ => Reply::json(200, &domain),
        }
    })
    .await;
    let settings = SetDomain { queue_max: None };
    client.create_domain("d", &settings, Some("a&b")).await.expect("set");
    client.set_domain("d", &settings, "8", Some("a b")).await.expect("changed");
    client.reset_domain("d", "8", Some("é")).await.expect("reset");
    client.reset_domain("d", "8", None).await.expect("reset");
    assert_eq!(
        targets(&fake),
        [
            "/v1/domains?domain=d&reason=a%26b",
            "/v1/domains?domain=d&reason=a%20b",
            "/v1/domains?domain=d&reason=%C3%A9",
            "/v1/domains?domain=d",
        ],
    );
}

#[tokio::test]
async fn what_an_operator_may_have_done_is_not_done_again() {
    // Whatever way the answer got lost; a second attempt would be told of the first one.
    for lost in [|| Reply::Bytes(Vec::new()), || Reply::code(503, Code::OutcomeUnknown)] {
        let mut first = true;
        let (fake, client) = fake(move |_| match std::mem::take(&mut first) {
            true => lost(),
            false => Reply::code(410, Code::GrantEnded),
        })
        .await;
        let asked = ForceRelease {
            resource: "r".into(),
            token: 34,
            reason: "stuck".into(),
            when: ForceWhen::Now,
        };
        let error = client.force_release(&asked).await.expect_err("nobody knows");
        assert!(matches!(error, Error::OutcomeUnknown { .. }), "{error:?}");
        assert_eq!(fake.received().len(), 1);
    }
}

#[tokio::test]
async fn an_operator_whose_call_was_surely_not_done_is_heard_again() {
    let mut first = true;
    let (fake, client) = fake(move |_| match std::mem::take(&mut first) {
        true => Reply::code(503, Code::NoLeader),
        false => Reply::json(200, &ForceReleased { ended: true, expires_in_ms: 0, overlap: false }),
    })
    .await;
    let asked = ForceRelease {
        resource: "r".into(),
        token: 34,
        reason: "stuck".into(),
        when: ForceWhen::Now,
    };
    client.force_release(&asked).await.expect("the second attempt");
    assert_eq!(fake.received().len(), 2);
}
