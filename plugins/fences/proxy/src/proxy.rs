//! A whole life: starts the parts in order, waits, and stops them in the other order.

use crate::answer::Answerer;
use crate::checks::Checks;
use crate::gate::Gate;
use crate::home::Home;
use crate::metrics::Metrics;
use crate::service::Service;
use crate::settings::{Limits, Settings};
use crate::start_error::StartError;
use crate::tenure::{Begun, Estate, LOCK_PREFIX, Tenure};
use crate::upstream::{Upstream, chain};
use crate::{door, ops, tls, witness};
use leasehold_client::fence::redb::{CloseError, OpenError};
use leasehold_client::fence::{Options, RedbFence, Usage};
use leasehold_client::{Client, Guard};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

/// The longest name of a resource.
const RESOURCE_BYTES_MAX: usize = 512;

/// How much of its lock's TTL a proxy needs to cut what is under way.
const MARGIN_SHARE: u32 = 5;

/// A proxy that answers.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    tenure: Tenure,
    ops_address: Option<SocketAddr>,
    answerer: Arc<Answerer>,
    stop: watch::Sender<bool>,
    door: JoinHandle<bool>,
    ops: Option<JoinHandle<()>>,
    part: oneshot::Sender<()>,
    keeper: JoinHandle<Option<Guard>>,
}

impl Proxy {
    /// Looks at what can be wrong with the settings, so that a start with such leaves nothing
    /// behind.
    ///
    /// # Errors
    /// [`StartError::Setting`] says what to change.
    pub fn check(settings: &Settings) -> Result<(), StartError> {
        lock_of(settings)?;
        tls::config(settings.upstream_ca.as_deref()).map_err(StartError::Setting)?;
        settings.limits.check().map_err(StartError::Setting)
    }

    /// Starts it on a data directory, under the name that the directory has. `client` speaks to
    /// the service under that name.
    ///
    /// # Errors
    /// [`StartError::Held`] if another proxy stands before the upstream.
    pub async fn start(settings: Settings, home: Home, client: Client) -> Result<Self, StartError> {
        let limits = settings.limits.clone();
        let lock = lock_of(&settings)?;
        let tls = tls::config(settings.upstream_ca.as_deref()).map_err(StartError::Setting)?;
        let metrics = Metrics::new(&limits);
        let metrics = metrics.map_err(|error| StartError::Setting(error.to_string()))?;
        // Whoever has the file is the only process on this directory.
        let fence = open(&home, &limits)?;
        home.settle_in().map_err(StartError::Home)?;
        let (listener, ops) = match listen_all(&settings).await {
            Ok(listeners) => listeners,
            Err(error) => {
                close_unused(&fence).await;
                return Err(error);
            }
        };
        let tenure = Tenure {
            client: client.clone(),
            home: home.clone(),
            resource: lock,
            ttl: limits.lock_ttl,
            settle: limits.after_another(),
        };
        let Begun { guard, found } = match tenure.begin().await {
            Ok(begun) => begun,
            Err(error) => {
                close_unused(&fence).await;
                return Err(error);
            }
        };
        warn_of(&settings);
        let checks = Checks::new(&client, settings.check_tokens, &limits, &metrics);
        checks.suspect_below(home.suspect_below().map_err(StartError::Home)?);
        let ttl = limits.lock_ttl.min(Duration::from_millis(guard.grant().ttl_ms));
        let gate = Arc::new(Gate::new(ttl / MARGIN_SHARE));
        let upstream = Upstream::new(settings.upstream.clone(), tls, &limits, gate.cuts());
        let answerer = Arc::new(Answerer {
            rules: settings.rules,
            usage: if settings.strict { Usage::Once } else { Usage::Many },
            fence,
            checks,
            gate,
            upstream: Arc::new(upstream),
            seats: Arc::new(Semaphore::new(limits.connections_max)),
            authority: settings.upstream.authority(),
            metrics,
            limits,
        });
        let clean = answerer.fence.was_closed_cleanly();
        let estate = tenure.estate(guard.token(), None).await.on(clean, found);
        answerer.inherit(&estate, &home).await;
        Ok(Self::run(answerer, tenure, guard, listener, ops))
    }

    fn run(
        answerer: Arc<Answerer>,
        tenure: Tenure,
        guard: Guard,
        listener: TcpListener,
        ops: Option<TcpListener>,
    ) -> Self {
        let (stop, stopping) = watch::channel(false);
        let (part, parting) = oneshot::channel();
        // Before the door opens, so that the first request is not refused.
        answerer.gate.open(guard.belief());
        let bound = |listener: &TcpListener| listener.local_addr().ok();
        let keeper = tenure.clone().keep(guard, Arc::clone(&answerer), parting);
        Self {
            address: bound(&listener).unwrap_or(SocketAddr::from(([0; 4], 0))),
            tenure,
            ops_address: ops.as_ref().and_then(bound),
            ops: ops
                .map(|ops_listener| tokio::spawn(ops::serve(ops_listener, Arc::clone(&answerer)))),
            door: tokio::spawn(door::serve(listener, Arc::clone(&answerer), stopping)),
            keeper: tokio::spawn(keeper),
            answerer,
            stop,
            part,
        }
    }
}

impl Proxy {
    /// Where clients come in.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where health and metrics are.
    #[must_use]
    pub fn ops_address(&self) -> Option<SocketAddr> {
        self.ops_address
    }

    /// The lock that it holds on the upstream.
    #[must_use]
    pub fn lock(&self) -> &str {
        &self.tenure.resource
    }

    /// Lets what is under way end, and gives the lock back. What does not end in time makes this
    /// stop an unclean one: the lock ends by itself, and whoever comes next waits before a newer
    /// token passes.
    pub async fn stop(self) -> Stopped {
        let ends = Instant::now() + self.answerer.limits.drain;
        self.stop.send_replace(true);
        let drained = self.door.await.unwrap_or(false);
        // Their clients are gone, and they are not. What this does not see the end of, the fence
        // tells of when it is closed.
        let _ = timeout_at(ends, self.answerer.all_over()).await;
        drop(self.part);
        let guard = self.keeper.await.ok().flatten();
        if let Some(ops) = self.ops {
            ops.abort();
        }
        let closed = self.answerer.fence.close().await;
        match (closed, guard) {
            (Ok(()), Some(guard)) if drained => give_back(&self.tenure, guard).await,
            (Ok(()), None) if drained => {
                tracing::warn!("the lock on the upstream was lost before: nobody can be told");
                Stopped::Untold
            }
            (closed, guard) => {
                // Given back, it would say that nothing is in flight.
                drop(guard.map(Guard::into_grant));
                unclean(closed)
            }
        }
    }
}

/// Gives the lock back, with nothing in flight any more. It is said before: whoever waits for the
/// lock looks at once.
async fn give_back(tenure: &Tenure, guard: Guard) -> Stopped {
    let vouched = tenure.vouch(guard.token()).await;
    // The guard is taken apart, as its own release tries for longer than a stop may take.
    let grant = guard.into_grant();
    let client = tenure.client.with_budget(witness::WITHIN);
    match client.release(&tenure.resource, grant.token).await {
        Ok(_) => tenure.home.forget(),
        Err(error) => tracing::warn!(%error, "the lock on the upstream ends by itself"),
    }
    match vouched {
        Ok(()) => Stopped::Clean,
        Err(error) => {
            tracing::warn!(%error, "the service was not told that nothing is in flight");
            Stopped::Untold
        }
    }
}

/// What the fence says of a stop that was none in order.
fn unclean(closed: Result<(), CloseError>) -> Stopped {
    match closed {
        Err(CloseError::Unclean { in_flight: 0 }) => Stopped::Settling,
        Err(CloseError::Storage(error)) => {
            tracing::error!(%error, "the file of the fence could not be closed in order");
            Stopped::Unclean
        }
        _ => Stopped::Unclean,
    }
}

/// How a proxy has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// Nothing is in flight.
    Clean,
    /// Of this process nothing is in flight, but what was before it had not settled yet. The next
    /// proxy waits out the settle time.
    Settling,
    /// Nothing is in flight, and the service does not know it. The next proxy waits out the settle
    /// time, since the end of the lock alone does not say it.
    Untold,
    /// The next proxy waits out the settle time.
    Unclean,
}

impl Answerer {
    /// Takes the upstream over as it was left.
    pub(crate) async fn inherit(&self, estate: &Estate, home: &Home) {
        let left = &estate.left;
        if let Some(wait) = left.hold(&self.limits) {
            tracing::warn!(?wait, "the upstream was not left in order: newer tokens wait first");
            self.fence.hold_newer_for(wait);
        }
        if left.late {
            self.checks.distrust_for(left.believed_for(&self.limits));
        }
        let seen = match self.fence.highest_of_all().await {
            Ok(seen) => seen.unwrap_or_default(),
            Err(error) => {
                tracing::error!(%error, "which tokens were here cannot be read: none is trusted");
                self.checks.suspect_below(u64::MAX);
                return;
            }
        };
        self.warn_of_what_is_not_known(estate, seen, home);
        // Without an end in order the directory may have been turned back to any moment of its
        // last tenure, and look as it does after a crash.
        if !(left.by_us && left.clean) {
            let below = estate.unknown_below(seen);
            self.checks.suspect_below(below);
            if let Err(error) = home.suspect_also_below(below) {
                tracing::error!(%error, "the next start will not know which tokens to ask about");
                return;
            }
        }
        if let Err(error) = estate.keep_in(home) {
            tracing::error!(%error, "the next start will take this directory for another one");
        }
    }

    /// `seen` is the highest token that was here.
    fn warn_of_what_is_not_known(&self, estate: &Estate, seen: u64, home: &Home) {
        let why = match &estate.service {
            Service::Other { before, now } => format!(
                "this data directory was used with {before}, and the service is {now}: it was \
                 restored, recovered, began anew, or is another one. Nothing that is on record \
                 here or there tells how the upstream was left"
            ),
            Service::Same(_) if !estate.left.by_us => {
                "the proxy that stood before this upstream last had another data directory, and \
                 what it refused is not known here"
                    .to_owned()
            }
            Service::Same(_) => return,
        };
        let lower = matches!(estate.service, Service::Other { .. }) && estate.token <= seen;
        let action = match (self.checks.are_on(), lower) {
            (true, false) => "the service is asked about every token below: nothing is to be done",
            (true, true) => "the service is asked about every token below",
            (false, _) => {
                "stale tokens below may pass here: start with --check-tokens on, or, if there is \
                 one, with the data directory that was used last"
            }
        };
        let below = estate.unknown_below(seen);
        tracing::warn!(data_dir = %home.dir().display(), below, "{why}; {action}");
        if lower {
            tracing::error!(
                token = estate.token,
                seen,
                "the service gives out lower tokens than were seen here, and may give out the same \
                 ones again. Where a higher one was here they are refused: restore the service with \
                 a --token-floor that is not below what was seen"
            );
        }
    }
}

/// What an operator may have meant, and should know the price of.
fn warn_of(settings: &Settings) {
    if !settings.check_tokens {
        tracing::warn!("tokens are not checked with the service: whoever writes can invent one");
    }
    if settings.limits.upstream_settle.is_zero() {
        tracing::warn!(
            "--upstream-settle is 0s: a write whose connection broke counts as over at once, and \
             the upstream may finish it after a newer one"
        );
    }
}

/// The lock on the upstream; the one that vouches for it has a longer name, which has to fit too.
fn lock_of(settings: &Settings) -> Result<String, StartError> {
    let address = settings.upstream.to_string();
    let name = settings.upstream_name.as_deref().unwrap_or(&address);
    let most = RESOURCE_BYTES_MAX - witness::lock_of("").len();
    if name.len() > most {
        let detail = format!(
            "the name of the upstream has {} bytes, and at most {most} fit into that of its lock: \
             give it a shorter one with --upstream-name",
            name.len()
        );
        return Err(StartError::Setting(detail));
    }
    Ok(format!("{LOCK_PREFIX}{name}"))
}

fn open(home: &Home, limits: &Limits) -> Result<RedbFence, StartError> {
    let options = Options::new()
        .wait_max(limits.wait_max)
        .waiting_max(limits.waiting_max)
        // A connection has one request at a time, so that this is never reached.
        .recording_max(limits.connections_max)
        .resources_max(limits.resources_max);
    RedbFence::open(home.fence(), options).map_err(|error| match error {
        OpenError::InUse { .. } => StartError::in_use(Some(home.client_id()), home.dir()),
        error => StartError::Fence(chain(&error)),
    })
}

/// Nothing was let through, so what the file said of the last end still holds.
async fn close_unused(fence: &RedbFence) {
    if fence.was_closed_cleanly()
        && let Err(error) = fence.close().await
    {
        tracing::warn!(%error, "the next start waits before a newer token passes");
    }
}

async fn listen_all(settings: &Settings) -> Result<(TcpListener, Option<TcpListener>), StartError> {
    let listener = listen(settings.listen).await?;
    let ops = match settings.ops_listen {
        Some(address) => Some(listen(address).await?),
        None => None,
    };
    Ok((listener, ops))
}

async fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|error| StartError::Listen(address, error))
}
