//! HTTP over TCP: the one file that knows the HTTP library.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use hyper::{Request, Response, StatusCode};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::error::Error as _;
use std::fmt::Write as _;
use std::time::Duration;

/// More than any page can have.
const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Shorter than servers keep idle connections, so that few requests meet one that just closed.
const IDLE_MAX: Duration = Duration::from_secs(20);

const PROBE_AFTER: Duration = Duration::from_secs(10);
const PROBE_EVERY: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;

/// Connections to all servers. A TLS connector would stand in place of [`HttpConnector`].
pub(crate) struct Transport {
    pool: Pool<HttpConnector, Full<Bytes>>,
    credential: Option<HeaderValue>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Cut {
    /// Nothing of the request left: no connection.
    NotSent(String),
    /// The request may have arrived.
    Sent(String),
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Transport {
    pub(crate) fn new(connect: Duration, credential: Option<HeaderValue>) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(connect));
        connector.set_nodelay(true);
        // A request that stands in line is silent for a minute; whether its server is still there
        // only the kernel can ask.
        connector.set_keepalive(Some(PROBE_AFTER));
        connector.set_keepalive_interval(Some(PROBE_EVERY));
        connector.set_keepalive_retries(Some(PROBES));
        let pool = Pool::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_MAX)
            .build(connector);
        Self { pool, credential }
    }

    /// Sends a request and reads the head of the answer.
    pub(crate) async fn open(
        &self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, Cut> {
        if let Some(credential) = &self.credential {
            request.headers_mut().insert(AUTHORIZATION, credential.clone());
        }
        let server = request.uri().authority().map(ToString::to_string).unwrap_or_default();
        self.pool.request(request).await.map_err(|error| {
            let told = format!("{server}: {}", chain(&error));
            if error.is_connect() { Cut::NotSent(told) } else { Cut::Sent(told) }
        })
    }

    /// Sends a request and reads the whole answer.
    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Result<Whole, Cut> {
        let (head, body) = self.open(request).await?.into_parts();
        let body = whole(body).await.map_err(Cut::Sent)?;
        Ok(Whole { status: head.status, headers: head.headers, body })
    }
}

/// A whole body, within the bound.
pub(crate) async fn whole(body: Incoming) -> Result<Bytes, String> {
    let collected = Limited::new(body, BODY_BYTES_MAX).collect().await;
    collected.map(http_body_util::Collected::to_bytes).map_err(|error| error.to_string())
}

/// What happened, with every cause: the library's own first line says next to nothing.
fn chain(error: &hyper_util::client::legacy::Error) -> String {
    let mut told = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        // Writing to a string cannot fail.
        let _ = write!(told, ": {error}");
        cause = error.source();
    }
    told
}
