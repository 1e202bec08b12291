//! What another node passes on is answered as if its client had come here.

use super::*;
use crate::testing::{Alone, Leader, alone, starting};
use actix_web::test::{TestRequest, call_service, init_service, read_body};
use actix_web::{HttpRequest, web};
use bytes::Bytes;
use leasehold_node::{ChangeKind, Watch, WatchFilter, Watched};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(20);

fn request(method: &str, target: &str, body: &'static str) -> Forwarded {
    Forwarded {
        method: method.to_owned(),
        target: target.to_owned(),
        headers: Vec::new(),
        body: Bytes::from_static(body.as_bytes()),
        principal: "anonymous".to_owned(),
        role: "client".to_owned(),
        source: None,
        elapsed: Duration::ZERO,
        remaining: None,
    }
}

fn acquire() -> Forwarded {
    request("POST", "/v1/acquire-lock", r#"{"resource":"r","client_id":"c","ttl_ms":60000}"#)
}

async fn told(alone: &Alone, request: Forwarded) -> (u16, Value) {
    let answer = answer_forwarded(&alone.app).answer(request).await;
    (answer.status, serde_json::from_slice(&answer.body).expect("JSON"))
}

fn is_problem(told: &(u16, Value), status: u16, code: &str) {
    assert_eq!((told.0, told.1["code"].as_str()), (status, Some(code)), "{told:?}");
}

/// Paths of the table, and what becomes of them by mistake or on purpose.
fn targets() -> BTreeSet<String> {
    let mut targets: BTreeSet<String> =
        ["/", "//", "/v1", "/v1/", "/v1/leases//keep-alive", "/v1/leases/a/b", "/v1/leases/%2F"]
            .map(str::to_owned)
            .into();
    for route in routes::TABLE {
        for id in ["0a", "a%2Fb", "%61", "%25", "a%2fb%2Fkeep-alive", "a+b", "é%C3%A9", "..", "%zz"]
        {
            let path = route.path.replace("{id}", id);
            let encoded = path.replacen("lo", "%6Co", 1).replacen("lease", "%6cease", 1);
            let upper = path.to_ascii_uppercase();
            targets.extend([
                format!("{path}/"),
                format!("{path}//"),
                format!("/{path}"),
                format!("{path}?id=x"),
                format!("{path};a"),
                path.replace("/v1/", "/v1//"),
                path,
                encoded,
                upper,
            ]);
        }
    }
    targets
}

#[actix_web::test]
async fn paths_are_matched_as_the_workers_match_them() {
    let alone = alone(Leader::Here).await;
    let paths = Paths::new(&alone.app);
    let mut workers = actix_web::App::new();
    for place in routes::places(Serves::OnlyApi, &alone.app.metrics) {
        let path = place.path();
        let name = move |http: HttpRequest| async move {
            format!("{path} {:?}", http.match_info().get("id"))
        };
        workers = workers.service(web::resource(path).to(name));
    }
    let workers = init_service(workers).await;
    let mut found = BTreeSet::new();
    for target in targets() {
        let Ok(uri) = Uri::try_from(&*target) else { continue };
        let response = call_service(&workers, TestRequest::with_uri(&target).to_request()).await;
        let theirs = response.status().is_success().then_some(response);
        let theirs = match theirs {
            Some(response) => Some(read_body(response).await),
            None => None,
        };
        let methods = [Method::GET, Method::POST, Method::PUT, Method::DELETE];
        let ours = methods.iter().find_map(|method| paths.find(method, &uri).ok());
        let ours = ours.map(|(route, id)| {
            found.insert(route.path);
            Bytes::from(format!("{} {id:?}", route.path))
        });
        assert_eq!(ours, theirs, "{target}");
    }
    let api = routes::TABLE.iter().filter(|route| route.class != routes::Class::Ops);
    assert_eq!(found, api.map(|route| route.path).collect(), "every path was found");
    alone.app.node.shutdown().await;
}

#[actix_web::test]
async fn a_method_that_the_path_does_not_take_is_told() {
    let alone = alone(Leader::Here).await;
    let answer = answer_forwarded(&alone.app).answer(request("GET", "/v1/batch", "")).await;
    assert_eq!(answer.status, 405);
    assert!(answer.headers.contains(&("allow".to_owned(), b"POST".to_vec())));
    is_problem(&told(&alone, request("GET", "/livez", "")).await, 404, "not_found");
    is_problem(&told(&alone, request("GET", "/v1/watch", "")).await, 404, "not_found");
    alone.app.node.shutdown().await;
}

#[actix_web::test]
async fn what_another_node_passes_on_is_answered_as_here() {
    let alone = alone(Leader::Here).await;
    let mut asked = acquire();
    asked.headers = vec![("idempotency-key".to_owned(), b"k1".to_vec())];
    let first = answer_forwarded(&alone.app).answer(asked.clone()).await;
    let shape: Value = serde_json::from_slice(&first.body).expect("JSON");
    assert_eq!(first.status, 200);
    let token = ("fencing-token".to_owned(), shape["token"].to_string().into_bytes());
    assert!(first.headers.contains(&token), "{:?}", first.headers);
    let again = told(&alone, asked).await;
    assert_eq!((again.0, &again.1["token"]), (200, &shape["token"]), "the key was read");
    let held = told(&alone, acquire()).await;
    is_problem(&held, 409, "held");
    let lease = format!("/v1/leases/{}", shape["lease_id"].as_str().expect("an id"));
    let (status, shown) = told(&alone, request("GET", &lease, "")).await;
    assert_eq!((status, &shown["lease_id"]), (200, &shape["lease_id"]));
    let families = alone.app.registry.gather();
    let count = families.iter().find(|family| family.name() == "leasehold_http_forwarded_in_total");
    let count = count.expect("registered").get_metric()[0].get_counter().get_value();
    assert_eq!(count as u64, 4);
    alone.app.node.shutdown().await;
}

#[actix_web::test]
async fn what_is_promised_counts_from_the_first_receipt() {
    let alone = alone(Leader::Here).await;
    let elapsed = Duration::from_secs(10);
    let (status, grant) = told(&alone, Forwarded { elapsed, ..acquire() }).await;
    assert_eq!(status, 200);
    // 70 s from the sending, less 1 % and 20 ms.
    let valid = grant["valid_for_ms"].as_u64().expect("a number");
    assert!(valid >= 69_280, "{valid}");
    assert!(grant["waited_ms"].as_u64().expect("a number") >= 10_000);
    assert!(grant["expires_in_ms"].as_u64().expect("a number") <= 60_000);
    let late = Forwarded {
        remaining: Some(Duration::ZERO),
        body: Bytes::from_static(br#"{"resource":"s","client_id":"c","ttl_ms":60000}"#),
        ..acquire()
    };
    is_problem(&told(&alone, late).await, 408, "request_timeout");
    alone.app.node.shutdown().await;
}

#[actix_web::test]
async fn the_role_counts_here_as_well() {
    let alone = alone(Leader::Here).await;
    let viewer = Forwarded { role: "viewer".to_owned(), ..acquire() };
    is_problem(&told(&alone, viewer).await, 403, "forbidden");
    is_problem(&told(&alone, request("GET", "/v1/audit", "")).await, 403, "forbidden");
    for garbled in [
        Forwarded { role: "root".to_owned(), ..acquire() },
        Forwarded { principal: String::new(), ..acquire() },
        Forwarded { method: "G T".to_owned(), ..acquire() },
        Forwarded { target: "no path".to_owned(), ..acquire() },
        Forwarded { headers: vec![("a b".to_owned(), Vec::new())], ..acquire() },
    ] {
        is_problem(&told(&alone, garbled).await, 500, "internal");
    }
    alone.app.begin_stopping();
    is_problem(&told(&alone, acquire()).await, 503, "shutting_down");
    alone.app.node.shutdown().await;
}

#[actix_web::test]
async fn nothing_is_passed_on_a_second_time() {
    let mut alone = alone(Leader::Silent(7)).await;
    let answer = answer_forwarded(&alone.app).answer(acquire()).await;
    assert_eq!(answer.status, 503);
    let shape: Value = serde_json::from_slice(&answer.body).expect("JSON");
    assert_eq!(shape["code"], "no_leader");
    assert!(answer.headers.contains(&("leasehold-leader".to_owned(), b"7".to_vec())));
    assert_eq!(alone.news.try_recv().ok(), None);
    alone.app.node.shutdown().await;
}

/// Its peer may have been ready for long, and has another client to answer.
#[actix_web::test]
async fn a_node_that_is_not_ready_is_one_that_does_not_lead() {
    let alone = starting([Leader::Here]).await;
    is_problem(&told(&alone, acquire()).await, 503, "no_leader");
    alone.app.node.shutdown().await;
}

#[actix_web::test]
async fn nobody_answers_for_an_application_that_is_gone() {
    let alone = alone(Leader::Here).await;
    let (node, answering) = (alone.app.node.clone(), answer_forwarded(&alone.app));
    drop(alone);
    assert_eq!(answering.answer(acquire()).await.status, 503);
    node.shutdown().await;
}

/// Waits for a change of a kind.
async fn until(watch: &mut Watch, wanted: impl Fn(&ChangeKind) -> bool) {
    loop {
        let told = timeout(PATIENCE, watch.next()).await.expect("in time").expect("it is read");
        let Watched::Changes(changes) = told else { panic!("no gap") };
        if changes.iter().any(|change| wanted(&change.kind)) {
            return;
        }
    }
}

#[actix_web::test]
async fn a_waiter_whose_client_is_gone_leaves_the_line() {
    let alone = alone(Leader::Here).await;
    let (status, _) = told(&alone, acquire()).await;
    assert_eq!(status, 200);
    let node = &alone.app.node;
    let mut watch = node.watch(Call::now(), WatchFilter::All, None).await.expect("it leads");
    let body = r#"{"resource":"r","client_id":"d","ttl_ms":60000,"wait_ms":60000}"#;
    let waiting = answer_forwarded(&alone.app).answer(request("POST", "/v1/acquire-lock", body));
    let waiting = tokio::spawn(waiting);
    until(&mut watch, |kind| matches!(kind, ChangeKind::Queued { .. })).await;
    waiting.abort();
    until(&mut watch, |kind| matches!(kind, ChangeKind::Left { .. })).await;
    node.shutdown().await;
}
