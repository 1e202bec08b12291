//! Connections to the upstream: made, kept for a moment, used again.

use crate::exchange::Exchange;
use crate::line::Line;
use crate::outgoing::Outgoing;
use crate::problem::Problem;
use crate::settings::Limits;
use crate::target::Target;
use crate::tls;
use hyper::body::Incoming;
use hyper::client::conn::http1::Builder;
use hyper::rt::{Read, Write};
use hyper::service::Service as _;
use hyper::{Request, Response};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// More are closed instead of kept.
const KEPT_MAX: usize = 256;

/// How long things may take.
#[derive(Debug, Clone, Copy)]
struct Times {
    /// A connection, TLS included.
    connect: Duration,
    /// Without a move of the upstream.
    silent: Duration,
    /// A connection that nobody uses.
    kept: Duration,
}

pub(crate) struct Upstream {
    target: Target,
    connector: TowerToHyperService<HttpsConnector<HttpConnector>>,
    http: Builder,
    times: Times,
    kept: Mutex<Vec<Line>>,
    cut: watch::Receiver<()>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Nothing was sent.
    Unreachable(String),
    /// Nothing was sent, because nothing may be.
    Closed(Problem),
    /// The connection ended.
    Broken(String),
    /// It did not move in time.
    Silent,
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upstream").field("target", &self.target).finish_non_exhaustive()
    }
}

impl Upstream {
    pub(crate) fn new(
        target: Target,
        tls: rustls::ClientConfig,
        limits: &Limits,
        cut: watch::Receiver<()>,
    ) -> Self {
        let mut http = Builder::new();
        // hyper panics below its own least size.
        http.max_header_size(limits.head_max).max_buf_size(limits.head_max.max(8 * 1024));
        let connector = TowerToHyperService::new(tls::connector(tls, limits.connect_timeout));
        let times = Times {
            connect: limits.connect_timeout,
            silent: limits.upstream_timeout,
            kept: limits.upstream_idle,
        };
        Self { target, connector, http, times, kept: Mutex::default(), cut }
    }

    /// Sends a request, unless the gate has closed by then. A kept connection may have been
    /// closed by the other side at the same moment; what was not sent on it is sent on a fresh
    /// one, once.
    pub(crate) async fn send(
        &self,
        mut request: Request<Outgoing>,
        exchange: &Arc<Exchange>,
    ) -> Result<(Response<Incoming>, Line), Failure> {
        let may_begin = || exchange.may_go_on().map_err(Failure::Closed);
        let mut kept = self.kept();
        loop {
            // No connection for what may not be sent.
            may_begin()?;
            let is_kept = kept.is_some();
            let mut line = match kept.take() {
                Some(line) => line,
                None => self.connect().await?,
            };
            line.carry(exchange);
            // Between here and sending nothing waits: whoever closes the gate later cuts the line.
            may_begin()?;
            exchange.begin();
            let sending = line.sender.try_send_request(request);
            tokio::select! {
                sent = sending => match sent {
                    Ok(answer) => return Ok((answer, line)),
                    Err(mut error) => match error.take_message() {
                        Some(unsent) => {
                            exchange.unsent();
                            line.unload();
                            if !is_kept {
                                let why = "it closes connections before it takes a request";
                                return Err(Failure::Unreachable(why.to_owned()));
                            }
                            request = unsent;
                        }
                        None => return Err(Failure::Broken(chain(error.error()))),
                    },
                },
                () = exchange.upstream_silent(self.times.silent) => return Err(Failure::Silent),
            }
        }
    }

    /// A connection whose exchange is over.
    pub(crate) fn take_back(&self, mut line: Line) {
        line.unload();
        line.idle_since = Instant::now();
        let mut kept = self.kept.lock();
        kept.retain(|line| !line.sender.is_closed());
        if kept.len() < KEPT_MAX {
            kept.push(line);
        }
    }

    /// The one that was used last, so that the others grow old.
    fn kept(&self) -> Option<Line> {
        let mut kept = self.kept.lock();
        kept.retain(|line| !line.sender.is_closed() && line.idle_since.elapsed() < self.times.kept);
        let ready = kept.iter().rposition(|line| line.sender.is_ready())?;
        Some(kept.swap_remove(ready))
    }

    async fn connect(&self) -> Result<Line, Failure> {
        let made = timeout(self.times.connect, async {
            let stream = self.connector.call(self.target.uri().clone()).await;
            let stream = stream.map_err(|error| chain(&*error))?;
            self.speak(stream).await
        });
        match made.await {
            Ok(made) => made.map_err(Failure::Unreachable),
            Err(_) => Err(Failure::Unreachable("no connection in time".to_owned())),
        }
    }

    async fn speak<T>(&self, stream: T) -> Result<Line, String>
    where
        T: Read + Write + Unpin + Send + 'static,
    {
        let line = Line::open(stream, &self.http, self.cut.clone()).await;
        line.map_err(|error| chain(&error))
    }
}

/// An error with its causes, each said once.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let said = next.to_string();
        if !text.ends_with(&said) {
            text = format!("{text}: {said}");
        }
        cause = next.source();
    }
    text
}
