//! The ceiling: the HTTP stack that Leasehold uses, with as many workers, reading the same bodies
//! and answering from memory.

use std::net::SocketAddr;

use actix_web::http::header::ContentType;
use actix_web::{App, HttpResponse, HttpServer, web};
use bytes::Bytes;
use serde::Deserialize;

/// What a real grant looks like, so that as many bytes travel.
const GRANT: &[u8] = br#"{"resource":"bench/1234-5/17","token":1048576,"lease_id":"6f1c0a52d93b4e87a0c4f51b7d2e9836","client_id":"w17","mode":"exclusive","ttl_ms":60000,"expires_in_ms":60000,"valid_for_ms":59940,"granted_at":"2026-01-01T00:00:00.000Z","waited_ms":0,"policies":[]}"#;

const RELEASED: &[u8] = br#"{"released":true}"#;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Acquire<'a> {
    resource: &'a str,
    client_id: &'a str,
    ttl_ms: u64,
    wait_ms: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Release<'a> {
    resource: &'a str,
    token: u64,
}

async fn acquire(body: Bytes) -> HttpResponse {
    match serde_json::from_slice::<Acquire<'_>>(&body) {
        // What was read must be used, or the compiler may leave the reading out.
        Ok(ask)
            if ask.ttl_ms > ask.wait_ms.unwrap_or(0) / 1_000 && ask.resource != ask.client_id =>
        {
            answer(GRANT, Some("1048576"))
        }
        _ => HttpResponse::BadRequest().finish(),
    }
}

async fn release(body: Bytes) -> HttpResponse {
    match serde_json::from_slice::<Release<'_>>(&body) {
        Ok(ask) if ask.token > 0 && !ask.resource.is_empty() => answer(RELEASED, None),
        _ => HttpResponse::BadRequest().finish(),
    }
}

fn answer(body: &'static [u8], token: Option<&'static str>) -> HttpResponse {
    let mut answer = HttpResponse::Ok();
    answer.insert_header(ContentType::json()).insert_header(("Leasehold-Revision", "2097152"));
    if let Some(token) = token {
        answer.insert_header(("Fencing-Token", token));
    }
    answer.body(Bytes::from_static(body))
}

/// Serves until it is killed, after saying where.
pub(crate) fn serve(listen: SocketAddr) -> anyhow::Result<()> {
    actix_web::rt::System::new().block_on(async {
        let server = HttpServer::new(|| {
            App::new()
                .route("/v1/acquire-lock", web::post().to(acquire))
                .route("/v1/release-lock", web::post().to(release))
                // Whoever starts this asks whether it is ready in the way it asks Leasehold.
                .route("/readyz", web::get().to(|| async { HttpResponse::Ok().finish() }))
        })
        .bind(listen)?;
        for addr in server.addrs() {
            println!("constant answers on http://{addr} ");
        }
        server.run().await?;
        Ok(())
    })
}
