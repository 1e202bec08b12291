//! Starts the listeners, and stops them without losing anybody's answer.

use crate::app::{App, Shown};
use crate::metrics::{Metrics, RouteMetrics, UNREADABLE};
use crate::rim::{Patience, Rim};
use crate::routes::{self, Serves};
use crate::settings::Settings;
use crate::{
    dispatch::Place,
    forwarded,
    listen::{self, Bound},
};
use actix_http::HttpService;
use actix_http::error::DispatchError;
use actix_service::{
    IntoServiceFactory as _, ServiceFactory, ServiceFactoryExt as _, fn_service, map_config,
};
use actix_web::dev::{AppConfig, Server as HttpServer, ServerHandle};
use actix_web::rt::{System, net::TcpStream};
use leasehold_node::Node;
use prometheus::Registry;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

/// Why the listeners did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be listened at.
    #[error("cannot listen at {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        #[source]
        cause: io::Error,
    },
    /// There is no address to listen at.
    #[error("no address to listen at is configured")]
    NoAddress,
    /// The metrics are in the registry already.
    #[error("cannot register the metrics of the HTTP API")]
    Metrics(#[source] prometheus::Error),
    /// The workers cannot be started.
    #[error("cannot start the threads of the HTTP API")]
    Threads(#[source] io::Error),
}

/// How long a stop waits, beyond the time to drain, for workers that do not end.
const FORCED_MAX: Duration = Duration::from_secs(2);

/// Listeners that serve.
#[derive(Debug)]
pub struct Server {
    addresses: Vec<SocketAddr>,
    ops_address: Option<SocketAddr>,
    app: Arc<App>,
    handle: ServerHandle,
    thread: JoinHandle<()>,
    /// Dropped to end the workers at once.
    force: oneshot::Sender<()>,
    ended: oneshot::Receiver<()>,
}

impl Server {
    /// Where the API listens, in the order of the settings, with the real ports.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Where health and metrics listen, if they have an address of their own.
    #[must_use]
    pub fn ops_address(&self) -> Option<SocketAddr> {
        self.ops_address
    }

    /// From now on the node says that it is not ready, and refuses to grant.
    ///
    /// The first step of [`Server::stop`], for a caller that has more to do in between.
    pub fn drain(&self) {
        self.app.begin_stopping();
    }

    /// Stops: not ready, nothing new, every request answered, then the workers end.
    ///
    /// Requests that wait for a lock end when the node is shut down, so that belongs beside this
    /// (`join!`) or between [`Server::drain`] and this. What is not answered within `drain` is cut.
    pub async fn stop(mut self, drain: Duration) {
        self.drain();
        let deadline = Instant::now() + drain;
        tokio::time::sleep(self.app.settings.linger.min(drain)).await;
        // Only the request is awaited here, not its effect: `ended` tells of that.
        drop(self.handle.stop(true));
        if timeout_at(deadline, &mut self.ended).await.is_err() {
            tracing::warn!("requests were cut because they did not end in time");
            drop(self.force);
            let _ = tokio::time::timeout(FORCED_MAX, &mut self.ended).await;
        }
        // The thread has nothing left to do but return.
        let _ = tokio::task::spawn_blocking(move || self.thread.join()).await;
    }
}

/// Addresses that are this process's own, before it serves anybody.
#[derive(Debug)]
pub struct Sockets {
    api: Vec<Bound>,
    ops: Option<Bound>,
}

impl Sockets {
    /// Takes the addresses of the settings. Who connects is refused until [`start`].
    ///
    /// # Errors
    /// [`StartError`] if there is none, or one is taken.
    pub fn bind(settings: &Settings) -> Result<Self, StartError> {
        if settings.listen.is_empty() {
            return Err(StartError::NoAddress);
        }
        let api = settings.listen.iter().map(|address| bind(*address));
        let api = api.collect::<Result<Vec<_>, _>>()?;
        Ok(Self { api, ops: settings.ops_listen.map(bind).transpose()? })
    }

    /// Where clients will be served.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.api.iter().map(|bound| bound.address).collect()
    }
}

fn bind(address: SocketAddr) -> Result<Bound, StartError> {
    Bound::to(address).map_err(|cause| StartError::Listen { address, cause })
}

fn listen(bound: Bound) -> Result<TcpListener, StartError> {
    let address = bound.address;
    bound.listen().map_err(|cause| StartError::Listen { address, cause })
}

/// Starts to serve.
///
/// Until the node has its place in a cluster, health alone is told of; everything else is refused
/// with what it waits for. `shown` answers `GET /v1/config`.
/// May be called from any runtime: the workers are threads with runtimes of their own.
///
/// # Errors
/// [`StartError`] if an address is taken after all, or threads or metrics cannot be had.
pub fn start(
    sockets: Sockets,
    settings: Settings,
    node: Node,
    registry: Registry,
    shown: Shown,
) -> Result<Server, StartError> {
    let metrics = Metrics::new(&registry).map_err(StartError::Metrics)?;
    let app = Arc::new(App::new(settings, node, registry, metrics, shown));
    let server = serve(Arc::clone(&app), sockets)?;
    app.node.answer_forwarded_with(forwarded::answer_forwarded(&app));
    Ok(server)
}

/// Starts the listeners of an application.
pub(crate) fn serve(app: Arc<App>, sockets: Sockets) -> Result<Server, StartError> {
    let addresses = sockets.addresses();
    let ops_address = sockets.ops.as_ref().map(|bound| bound.address);
    let api_serves = if ops_address.is_some() { Serves::OnlyApi } else { Serves::Everything };
    let api = sockets.api.into_iter().map(|bound| (bound, api_serves));
    let ops = sockets.ops.map(|bound| (bound, Serves::OnlyOps));
    let listeners = api.chain(ops).map(|(bound, serves)| Ok((listen(bound)?, serves)));
    let listeners = listeners.collect::<Result<Vec<_>, StartError>>()?;
    let (force, forced) = oneshot::channel();
    let (end, ended) = oneshot::channel();
    let (started, starting) = std::sync::mpsc::channel();
    let shared = Arc::clone(&app);
    let thread = std::thread::Builder::new()
        .name("http".to_owned())
        .spawn(move || run(&shared, listeners, &started, forced, end))
        .map_err(StartError::Threads)?;
    let handle = starting
        .recv()
        .unwrap_or_else(|_| Err(io::Error::other("the thread ended at once")))
        .map_err(StartError::Threads)?;
    Ok(Server { addresses, ops_address, app, handle, thread, force, ended })
}

/// The body of the thread that the workers hang on.
fn run(
    app: &Arc<App>,
    listeners: Vec<(TcpListener, Serves)>,
    started: &std::sync::mpsc::Sender<io::Result<ServerHandle>>,
    forced: oneshot::Receiver<()>,
    end: oneshot::Sender<()>,
) {
    System::new().block_on(async move {
        match build(app, listeners) {
            Ok(server) => {
                let _ = started.send(Ok(server.handle()));
                // Dropping the server ends its workers without waiting for them.
                tokio::select! {
                    ended = server => if let Err(cause) = ended {
                        tracing::error!(%cause, "http workers ended");
                    },
                    _ = forced => {}
                }
            }
            Err(cause) => drop(started.send(Err(cause))),
        }
    });
    let _ = end.send(());
}

fn build(app: &Arc<App>, listeners: Vec<(TcpListener, Serves)>) -> io::Result<HttpServer> {
    let settings = &app.settings;
    let workers = settings.workers.clamp(1, 512);
    let mut builder = HttpServer::build()
        .workers(workers)
        .max_concurrent_connections(settings.connections_max.div_ceil(workers))
        .shutdown_timeout(u64::from(u32::MAX))
        .disable_signals();
    let unreadable = Arc::new(app.metrics.route(UNREADABLE));
    for (listener, serves) in listeners {
        let app = Arc::clone(app);
        let places = routes::places(serves, &app.metrics);
        let unreadable = Arc::clone(&unreadable);
        let stopping = builder.graceful_shutdown_signal();
        builder = builder.listen("http", listener, move || {
            let (counted, unreadable) = (Arc::clone(&app), Arc::clone(&unreadable));
            let stopping = stopping.clone();
            fn_service(move |socket: TcpStream| {
                let connection = connect(socket, &counted, &unreadable);
                async move { Ok::<_, DispatchError>(connection) }
            })
            .and_then(http(&app, &places, move || {
                let stopping = stopping.clone();
                async move { stopping.notified().await }
            }))
        })?;
    }
    Ok(builder.run())
}

fn connect(socket: TcpStream, app: &App, unreadable: &Arc<RouteMetrics>) -> Connection {
    let peer = socket.peer_addr().ok();
    // A socket that cannot be tuned is one that its client has already closed.
    if let Err(cause) = listen::tune(&socket) {
        tracing::debug!(%cause, "connection not tuned");
    }
    let counted = app.metrics.connection();
    let patience = Patience { head: app.settings.head_timeout, write: app.settings.write_timeout };
    (Rim::new(socket, patience, Arc::clone(unreadable), counted), peer)
}

/// How long a connection that is being closed may take to read its last answer.
const CLOSE_MAX: Duration = Duration::from_secs(1);

/// What speaks HTTP/1.1 on one connection.
fn http<F, Fut>(
    app: &Arc<App>,
    places: &[Arc<Place>],
    stopping: F,
) -> impl ServiceFactory<Connection, Config = (), Response = (), Error = DispatchError, InitError = ()>
+ use<F, Fut>
where
    F: Fn() -> Fut + 'static,
    Fut: Future<Output = ()> + 'static,
{
    let settings = &app.settings;
    let service = actix_web::App::new()
        .configure(|config| routes::configure(app, places, config))
        .into_factory()
        .map_err(|fault: actix_web::Error| fault.error_response());
    HttpService::build()
        .keep_alive(settings.idle_timeout)
        // Heads are timed at the rim: this timer would see only the first one.
        .client_request_timeout(Duration::ZERO)
        .client_disconnect_timeout(CLOSE_MAX)
        // A client that closes its side has hung up: its handler, and with it whatever it waits
        // for, is dropped. The read side is polled all the while, so this is seen at once.
        .h1_allow_half_closed(false)
        .on_connect_ext(|rim: &Rim, shared| drop(shared.insert(rim.link())))
        .graceful_shutdown_signal(stopping)
        .h1(map_config(service, |()| AppConfig::default()))
}

/// A connection, and where it comes from.
type Connection = (Rim, Option<SocketAddr>);
