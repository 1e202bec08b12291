//! Health and metrics, on an address of their own.

use crate::answer::Answerer;
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper::{Method, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::sleep;

const CONNECTIONS_MAX: usize = 32;
const PATIENCE: Duration = Duration::from_secs(10);

/// Answers until it is dropped.
pub(crate) async fn serve(listener: TcpListener, answerer: Arc<Answerer>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        // Never closed.
        let place = Arc::clone(&places).acquire_owned().await;
        let Ok((stream, _)) = listener.accept().await else {
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        let answerer = Arc::clone(&answerer);
        drop(tokio::spawn(async move {
            let service = service_fn(|request: hyper::Request<hyper::body::Incoming>| {
                let answer = answer(&answerer, request.method(), request.uri().path());
                async move { Ok::<_, Infallible>(answer) }
            });
            let mut http = Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
            // Whoever asks may go away.
            let _ = http.serve_connection(TokioIo::new(stream), service).await;
            drop(place);
        }));
    }
}

fn answer(answerer: &Answerer, method: &Method, path: &str) -> Response<Full<Bytes>> {
    let ready = answerer.gate.is_open();
    let (status, body) = match path {
        _ if !matches!(*method, Method::GET | Method::HEAD) => (405, Bytes::new()),
        "/livez" | "/healthz" => (200, Bytes::from_static(b"alive\n")),
        "/readyz" if ready => (200, Bytes::from_static(b"ready\n")),
        "/readyz" => (503, Bytes::from_static(b"the lock on the upstream is not held\n")),
        "/metrics" => (200, answerer.metrics.text(ready, &answerer.fence.stats()).into()),
        _ => (404, Bytes::new()),
    };
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = StatusCode::from_u16(status).unwrap_or_default();
    let text = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, text);
    answer
}
