//! Where clients come in.

use crate::answer::Answerer;
use crate::patient::Patient;
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulConnection, GracefulShutdown};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

/// After a failure to accept, which is most often a lack of descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// Accepts until `stop` changes, then lets what is under way end. Returns whether all of it did.
pub(crate) async fn serve(
    listener: TcpListener,
    answerer: Arc<Answerer>,
    mut stop: watch::Receiver<bool>,
) -> bool {
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(answerer.limits.connections_max));
    let mut connections = JoinSet::new();
    loop {
        // Never closed.
        let place = tokio::select! {
            place = Arc::clone(&places).acquire_owned() => place,
            _ = stop.changed() => break,
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.changed() => break,
        };
        match accepted {
            Ok((stream, client)) => {
                let connection = graceful.watch(connection(stream, client, &answerer));
                let counted = answerer.metrics.connection();
                connections.spawn(async move {
                    if let Err(error) = connection.await {
                        tracing::debug!(%error, %client, "a connection ended");
                    }
                    drop((place, counted));
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
    drop(listener);
    let drained = tokio::time::timeout(answerer.limits.drain, graceful.shutdown()).await.is_ok();
    connections.shutdown().await;
    drained
}

fn connection(
    stream: TcpStream,
    client: SocketAddr,
    answerer: &Arc<Answerer>,
) -> impl GracefulConnection<Error = hyper::Error> + Send + use<> {
    // Small answers must not wait for company; without it they only arrive later.
    let _ = stream.set_nodelay(true);
    let limits = &answerer.limits;
    let stream = Patient::new(TokioIo::new(stream), limits.client_timeout);
    let answerer = Arc::clone(answerer);
    let mut http = Builder::new();
    // hyper panics below its own least size.
    http.timer(TokioTimer::new())
        .header_read_timeout(limits.head_timeout)
        .max_header_size(limits.head_max)
        .max_buf_size(limits.head_max.max(8 * 1024));
    http.serve_connection(
        stream,
        service_fn(move |request| {
            let answerer = Arc::clone(&answerer);
            async move { Ok::<_, Infallible>(answerer.answer(request, client.ip()).await) }
        }),
    )
}
