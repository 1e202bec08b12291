//! What is passed on, what is decided here, and what becomes of both.

use super::*;
use crate::dispatch;
use crate::routes::{self, Serves, TABLE};
use crate::server;
use crate::testing::{Alone, Leader, News, alone, alone_with};
use actix_web::http::header::HeaderMap;
use actix_web::http::{Method, StatusCode};
use actix_web::test::{TestRequest, call_service, init_service, read_body};
use bytes::Bytes;
use leasehold_wire::{Code, Problem};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(20);

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Answer {
    fn header(&self, name: &str) -> Vec<&str> {
        self.headers.get_all(name).map(|value| value.to_str().expect("text")).collect()
    }

    fn problem(&self) -> Problem<'_> {
        serde_json::from_slice(&self.body).expect("a problem")
    }
}

async fn ask(alone: &Alone, request: TestRequest) -> Answer {
    let places = routes::places(Serves::Everything, &alone.app.metrics);
    let service = actix_web::App::new();
    let service = service.configure(|config| routes::configure(&alone.app, &places, config));
    let response = call_service(&init_service(service).await, request.to_request()).await;
    let (status, headers) = (response.status(), response.headers().clone());
    Answer { status, headers, body: read_body(response).await }
}

fn post(uri: &str, body: &'static str) -> TestRequest {
    TestRequest::post().uri(uri).set_payload(body)
}

fn answer(status: u16, body: &'static str) -> ForwardedAnswer {
    let headers = [("content-type", "application/json"), ("leasehold-revision", "9")];
    ForwardedAnswer {
        status,
        headers: headers.map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec())).into(),
        body: Bytes::from_static(body.as_bytes()),
    }
}

fn count(alone: &Alone, outcome: &str) -> u64 {
    let families = alone.app.registry.gather();
    let family = families.iter().find(|family| family.name() == "leasehold_http_forwarded_total");
    let metrics = family.expect("registered").get_metric();
    let of = metrics.iter().find(|metric| metric.get_label()[0].value() == outcome);
    of.expect("there from the start").get_counter().get_value() as u64
}

#[actix_web::test]
async fn the_leader_is_told_what_was_asked_and_its_answer_goes_back_as_it_is() {
    let mut alone = alone(Leader::Answers(7, answer(200, "{ \"any\" : 1}"))).await;
    let source = SocketAddr::from(([127, 0, 0, 9], 77));
    let request = post("/v1/domains?domain=a%2Fb&reason=x+y", "{\"no\": \"sense\"")
        .method(Method::PUT)
        .peer_addr(source)
        .insert_header(("If-Match", "\"3\""))
        .insert_header(("Idempotency-Key", "k"))
        .insert_header(("Leasehold-Timeout-Ms", "60000"))
        .insert_header(("X-Other", "1"));
    let told = ask(&alone, request).await;
    assert_eq!((told.status.as_u16(), &told.body[..]), (200, &b"{ \"any\" : 1}"[..]));
    assert_eq!(told.header("content-type"), ["application/json"]);
    assert_eq!(told.header("leasehold-revision"), ["9"]);
    assert_eq!(told.header("leasehold-leader"), ["7"]);

    let Some(News::Asked(mut asked)) = alone.news.recv().await else { panic!("nothing was sent") };
    let remaining = asked.remaining.take().expect("it has a deadline");
    assert!(remaining + asked.elapsed <= Duration::from_secs(60) && !remaining.is_zero());
    asked.headers.sort();
    let expected = Forwarded {
        method: "PUT".to_owned(),
        target: "/v1/domains?domain=a%2Fb&reason=x+y".to_owned(),
        headers: vec![
            ("idempotency-key".to_owned(), b"k".to_vec()),
            ("if-match".to_owned(), b"\"3\"".to_vec()),
        ],
        body: Bytes::from_static(b"{\"no\": \"sense\""),
        principal: "anonymous".to_owned(),
        role: "admin".to_owned(),
        source: Some(source),
        elapsed: asked.elapsed,
        remaining: None,
    };
    assert_eq!(*asked, expected);
    assert_eq!(count(&alone, "answered"), 1);
    alone.app.node.shutdown().await;
}

#[actix_web::test]
async fn what_the_head_and_the_size_decide_is_not_sent() {
    let mut alone = alone(Leader::Silent(7)).await;
    let refusals = [
        (post("/v1/nowhere", "{}"), 404),
        (TestRequest::with_uri("/v1/acquire-lock"), 405),
        (post("/v1/renew-lock", "{}").insert_header(("Accept", "text/html")), 406),
        (post("/v1/renew-lock", "{}").insert_header(("Content-Type", "text/xml")), 415),
        (post("/v1/renew-lock", "{}").insert_header(("Content-Length", "40000")), 413),
        (post("/v1/renew-lock", "{}").insert_header(("Host", "evil.example")), 403),
        (post("/v1/renew-lock", "{}").insert_header(("Origin", "http://evil.example")), 403),
        (post("/v1/renew-lock", "{}").insert_header(("Leasehold-Timeout-Ms", "0")), 400),
    ];
    for (request, status) in refusals {
        let told = ask(&alone, request).await;
        assert_eq!(told.status.as_u16(), status);
        assert!(told.header("leasehold-leader").is_empty());
    }
    alone.app.begin_stopping();
    let told = ask(&alone, post("/v1/acquire-lock", "{}")).await;
    assert_eq!(told.problem().code, Code::ShuttingDown);
    assert!(alone.news.try_recv().is_err(), "nothing was sent");
    alone.app.node.shutdown().await;
}

#[actix_web::test]
async fn each_route_is_answered_where_the_table_says() {
    let mut alone = alone(Leader::Answers(7, answer(200, "{}"))).await;
    for route in TABLE {
        let uri = route.path.replace("{id}", "0a");
        for query in ["", "?consistency=stale", "?consistency=linearizable"] {
            let uri = format!("{uri}{query}");
            let asked = TestRequest::with_uri(&uri).method(route.method.clone());
            // Its stream would have no end.
            let asked = if route.name == "watch" { asked.method(Method::HEAD) } else { asked };
            ask(&alone, asked).await;
            let sent = match route.answers {
                Answers::Here => false,
                Answers::Leader => true,
                Answers::Either => query != "?consistency=stale",
            };
            assert_eq!(alone.news.try_recv().is_ok(), sent, "{} {uri}", route.method);
        }
    }
    alone.app.node.shutdown().await;
}

#[actix_web::test]
async fn a_node_that_leads_asks_nobody() {
    let alone = alone(Leader::Here).await;
    let told = ask(&alone, TestRequest::with_uri("/v1/locks")).await;
    assert_eq!(told.status, StatusCode::OK);
    assert!(told.header("leasehold-leader").is_empty());
    alone.app.node.shutdown().await;
}

#[actix_web::test]
async fn a_stale_answer_is_never_younger_than_the_last_word_of_a_quorum() {
    let heard = Leader::Answers(7, answer(200, "{}"));
    for (leader, ages) in
        [(Leader::Here, Some(0..=0)), (heard, Some(71..=u64::MAX)), (Leader::Silent(7), None)]
    {
        let alone = alone(leader).await;
        let told = ask(&alone, TestRequest::with_uri("/v1/locks?consistency=stale")).await;
        assert_eq!(told.status, StatusCode::OK);
        let said: Vec<u64> = told
            .header("leasehold-age-ms")
            .iter()
            .map(|age| age.parse().expect("a number"))
            .collect();
        match ages {
            Some(ages) => assert!(ages.contains(&said[0]), "{said:?}"),
            None => assert_eq!(said, [0; 0]),
        }
        alone.app.node.shutdown().await;
    }
}

const ACQUIRE: &str = r#"{"resource":"r","request_id":"q1","x":[]}"#;

#[actix_web::test]
async fn a_request_without_an_answer_is_told_what_is_known_of_it() {
    let unknown = || Failure::OutcomeUnknown { request_id: None };
    let plain = r#"{"resource":"r","token":1}"#;
    let cases: [(Failure, TestRequest, Code, Option<&str>); 8] = [
        (Failure::NoLeader, post("/v1/acquire-lock", ACQUIRE), Code::NoLeader, None),
        (unknown(), post("/v1/acquire-lock", ACQUIRE), Code::OutcomeUnknown, Some("q1")),
        (unknown(), post("/v1/acquire-lock", "{\"request_id\":1}"), Code::OutcomeUnknown, None),
        (unknown(), post("/v1/renew-lock", plain), Code::OutcomeUnknown, None),
        (
            unknown(),
            post("/v1/acquire-lock", plain).insert_header(("Idempotency-Key", "q2")),
            Code::OutcomeUnknown,
            Some("q2"),
        ),
        (unknown(), post("/v1/fence/check", plain), Code::NoLeader, None),
        (unknown(), TestRequest::with_uri("/v1/lock?resource=r"), Code::NoLeader, None),
        (Failure::Overloaded, post("/v1/renew-lock", plain), Code::Overloaded, None),
    ];
    for (failure, request, code, request_id) in cases {
        let counted = if matches!(failure, Failure::OutcomeUnknown { .. }) {
            "no_answer"
        } else {
            "not_sent"
        };
        let mut alone = alone(Leader::Fails(7, failure)).await;
        let told = ask(&alone, request).await;
        let problem = told.problem();
        assert_eq!((told.status.as_u16(), problem.code), (503, code));
        assert_eq!(problem.request_id.as_deref(), request_id, "{code}");
        assert_eq!(told.header("retry-after"), ["1"]);
        let named = code != Code::Overloaded;
        assert_eq!(!told.header("leasehold-leader").is_empty(), named, "{code}");
        assert_eq!(count(&alone, counted), 1, "{code}");
        assert!(matches!(alone.news.try_recv(), Ok(News::Asked(_))));
        assert!(alone.news.try_recv().is_err(), "it was sent once");
        alone.app.node.shutdown().await;
    }
}

#[actix_web::test]
async fn nobody_waits_for_a_silent_leader_beyond_a_deadline() {
    let mut alone = alone(Leader::Silent(7)).await;
    let hasty = post("/v1/acquire-lock", ACQUIRE).insert_header(("Leasehold-Timeout-Ms", "50"));
    let told = timeout(PATIENCE, ask(&alone, hasty)).await.expect("in time");
    let problem = told.problem();
    let expected = (Code::OutcomeUnknown, Some("q1"));
    assert_eq!((problem.code, problem.request_id.as_deref()), expected);
    assert!(matches!(alone.news.recv().await, Some(News::Asked(_))));
    assert!(matches!(alone.news.recv().await, Some(News::Dropped)), "the leader is told");
    alone.app.node.shutdown().await;
}

fn lost(id: u64) -> Leader {
    Leader::Fails(id, Failure::OutcomeUnknown { request_id: None })
}

/// How often something was sent, and that it was the same each time.
fn sent(alone: &mut Alone) -> usize {
    let mut bodies = Vec::new();
    while let Ok(news) = alone.news.try_recv() {
        if let News::Asked(asked) = news {
            bodies.push((asked.method, asked.target, asked.headers, asked.body));
        }
    }
    assert!(bodies.windows(2).all(|pair| pair[0] == pair[1]), "{bodies:?}");
    bodies.len()
}

#[actix_web::test]
async fn what_only_looks_or_is_known_again_by_its_id_is_sent_to_the_next_leader() {
    let body = r#"{"resource":"r","token":1}"#;
    let repeated = [
        post("/v1/acquire-lock", ACQUIRE),
        post("/v1/acquire-lock", body).insert_header(("Idempotency-Key", "q")),
        post("/v1/fence/check", body),
        TestRequest::with_uri("/v1/lock?resource=r"),
        TestRequest::with_uri("/v1/audit"),
    ];
    for request in repeated {
        let unreached = Leader::Fails(6, Failure::NoLeader);
        let deposed = Leader::Answers(7, answer(503, r#"{"code":"no_leader"}"#));
        let next = Leader::Answers(8, answer(200, "{}"));
        let mut alone = alone_with([lost(5), unreached, deposed, next]).await;
        let told = ask(&alone, request).await;
        assert_eq!((told.status, told.header("leasehold-leader")), (StatusCode::OK, vec!["8"]));
        assert_eq!(sent(&mut alone), 4);
        alone.app.node.shutdown().await;
    }
}

#[actix_web::test]
async fn a_leader_that_was_lost_for_a_moment_is_asked_again() {
    let unreached = Leader::Fails(5, Failure::NoLeader);
    let mut alone = alone_with([lost(5), unreached, Leader::Answers(5, answer(200, "{}"))]).await;
    let told = ask(&alone, post("/v1/acquire-lock", ACQUIRE)).await;
    assert_eq!((told.status, told.header("leasehold-leader")), (StatusCode::OK, vec!["5"]));
    assert_eq!(sent(&mut alone), 3);
    alone.app.node.shutdown().await;
}

#[actix_web::test]
async fn everything_else_is_sent_once() {
    let body = r#"{"resource":"r","token":1}"#;
    let once = [
        post("/v1/acquire-lock", body),
        post("/v1/acquire-lock", "{\"request_id\":1}"),
        // Of a second one that found it done, the client would not know whose doing that was.
        post("/v1/release-lock", body),
        post("/v1/renew-lock", body),
        post("/v1/leases/0a/keep-alive", "{}"),
        post("/v1/leases/keep-alive", "{}"),
        post("/v1/cancel-wait", "{}"),
        post("/v1/leases", "{}"),
        post("/v1/lock/force-release", "{}"),
        post("/v1/batch", "{}"),
        post("/v1/cluster/remove", "{}"),
        post("/v1/domains?domain=d", "{}").method(Method::PUT),
        TestRequest::delete().uri("/v1/leases/0a"),
    ];
    for request in once {
        let mut alone = alone_with([lost(5), Leader::Answers(8, answer(200, "{}"))]).await;
        let told = ask(&alone, request).await;
        assert_eq!(told.problem().code, Code::OutcomeUnknown);
        assert_eq!(sent(&mut alone), 1);
        alone.app.node.shutdown().await;
    }
}

#[actix_web::test]
async fn one_who_cannot_serve_does_not_settle_what_another_may_have_done() {
    let deposed = || Leader::Answers(7, answer(503, r#"{"code":"no_leader"}"#));
    let mut alone = alone_with([lost(5), deposed()]).await;
    let told = ask(&alone, post("/v1/acquire-lock", ACQUIRE)).await;
    let problem = told.problem();
    let expected = (Code::OutcomeUnknown, Some("q1"));
    assert_eq!((problem.code, problem.request_id.as_deref()), expected);
    assert_eq!(sent(&mut alone), 2);
    alone.app.node.shutdown().await;

    // Nothing was sent before: it is as it says.
    let alone = self::alone(deposed()).await;
    let told = ask(&alone, post("/v1/acquire-lock", ACQUIRE)).await;
    assert_eq!((told.status.as_u16(), &told.body[..]), (503, &br#"{"code":"no_leader"}"#[..]));
    alone.app.node.shutdown().await;
}

#[actix_web::test]
async fn a_node_that_becomes_the_leader_answers_what_it_had_passed_on() {
    let mut alone = alone_with([lost(5), Leader::Here]).await;
    let body = r#"{"resource":"r","client_id":"c","ttl_ms":10000,"request_id":"q1"}"#;
    let told = ask(&alone, post("/v1/acquire-lock", body)).await;
    assert_eq!((told.status, told.header("leasehold-leader").len()), (StatusCode::OK, 0));
    assert_eq!(sent(&mut alone), 1);
    // Stopped, it cannot serve: that does not say that nothing was done.
    alone.app.node.shutdown().await;
    let mut alone = alone_with([lost(5), Leader::Here]).await;
    alone.app.node.shutdown().await;
    let told = ask(&alone, post("/v1/acquire-lock", body)).await;
    assert_eq!(told.problem().code, Code::OutcomeUnknown);
    assert_eq!(sent(&mut alone), 1);
}

#[actix_web::test]
async fn the_problems_of_the_leader_are_counted_by_their_code() {
    for (body, code) in [(r#"{"code":"held"}"#, Code::Held), ("?", Code::Internal)] {
        let alone = alone(Leader::Answers(7, answer(409, body))).await;
        let told = ask(&alone, post("/v1/acquire-lock", ACQUIRE)).await;
        assert_eq!((told.status.as_u16(), &told.body[..]), (409, body.as_bytes()));
        let families = alone.app.registry.gather();
        let family =
            families.iter().find(|family| family.name() == "leasehold_http_requests_total");
        let of = family.expect("registered").get_metric().iter().filter(|metric| {
            let labels = metric.get_label();
            let is = |value: &str| labels.iter().any(|label| label.value() == value);
            is("acquire-lock") && is(code.as_str())
        });
        assert_eq!(of.map(|metric| metric.get_counter().get_value() as u64).sum::<u64>(), 1);
        alone.app.node.shutdown().await;
    }
}

#[actix_web::test]
async fn a_client_that_hangs_up_is_gone_for_the_leader_too() {
    let mut alone = alone(Leader::Silent(7)).await;
    let sockets = server::Sockets::bind(&alone.app.settings).expect("a free port");
    let server = server::serve(Arc::clone(&alone.app), sockets).expect("it is bound");
    let mut client = TcpStream::connect(server.addresses()[0]).await.expect("somebody listens");
    let head = "POST /v1/acquire-lock HTTP/1.1\r\nHost: localhost\r\n";
    let request = format!("{head}Content-Length: {}\r\n\r\n{ACQUIRE}", ACQUIRE.len());
    client.write_all(request.as_bytes()).await.expect("the server reads");
    let asked = timeout(PATIENCE, alone.news.recv()).await.expect("in time");
    assert!(matches!(asked, Some(News::Asked(_))));
    drop(client);
    let dropped = timeout(PATIENCE, alone.news.recv()).await.expect("in time");
    assert_eq!(dropped, Some(News::Dropped));
    server.stop(Duration::from_secs(5)).await;
    assert_eq!(count(&alone, "hung_up"), 1);
    alone.app.node.shutdown().await;
}

#[actix_web::test]
async fn a_stopping_node_says_that_it_does_not_know() {
    let mut alone = alone(Leader::Silent(7)).await;
    let told = {
        let asking = ask(&alone, post("/v1/renew-lock", ACQUIRE));
        alone.app.begin_stopping();
        timeout(PATIENCE, asking).await.expect("in time")
    };
    assert_eq!(told.problem().code, Code::OutcomeUnknown);
    assert!(matches!(alone.news.try_recv(), Ok(News::Asked(_))));
    assert_eq!(alone.news.try_recv().ok(), Some(News::Dropped));
    alone.app.node.shutdown().await;
}

#[actix_web::test]
async fn a_panic_costs_one_answer() {
    let alone = alone(Leader::Here).await;
    let broken = async { if alone.app.node.id() == 1 { panic!("broken") } else { Ok(()) } };
    let fault = dispatch::guarded(&alone.app, broken).await.expect_err("it panicked");
    assert_eq!((fault.problem.status, fault.problem.code), (500, Code::Internal));
    assert!(fault.internal.expect("for the log").contains("broken"));
    assert_eq!(alone.app.metrics.panics.get(), 1);
    alone.app.node.shutdown().await;
}
