//! The proxy's own lock: one proxy before one upstream.
//!
//! T_max is kept in one data directory, and what is in flight in one process. Two proxies before
//! one upstream would each let through what the other has refused, so each holds a lock on it.

use crate::answer::Answerer;
use crate::gate::Gate;
use crate::home::{Home, LastRequest};
use crate::service::Service;
use crate::settings::{Limits, TIME_MAX};
use crate::start_error::StartError;
use crate::witness;
use leasehold_client::wire::{Code, EndedHow, GrantRecord, GrantState, Time};
use leasehold_client::{Client, Error, GrantsFilter, Guard, State};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Before the name of the upstream in that of its lock.
pub(crate) const LOCK_PREFIX: &str = "fence-proxy/";

/// How long to stand in line for a lock that was lost, again and again.
const WAIT: Duration = Duration::from_secs(60);
/// How many grants of the lock are looked at.
const HISTORY: usize = 64;
/// What a grant tells its successors: the TTL of its holder, and how long its writes may settle.
const TTL_MS: &str = "ttl_ms";
const SETTLE_MS: &str = "settle_ms";
const PAUSE: Duration = Duration::from_secs(1);
/// How often to look whether a late renewal has arrived after all.
const RECHECK: Duration = Duration::from_millis(50);

type History = Vec<GrantRecord<'static>>;

/// What the service tells of the grants of a lock.
#[derive(Debug)]
struct Record {
    /// The latest, newest first.
    grants: History,
    /// The tokens of those that were left in order.
    vouched: BTreeSet<u64>,
    /// None that may still count has been forgotten.
    whole: bool,
}

/// What has to be known to hold the lock.
#[derive(Debug, Clone)]
pub(crate) struct Tenure {
    pub(crate) client: Client,
    pub(crate) home: Home,
    pub(crate) resource: String,
    pub(crate) ttl: Duration,
    /// How long after the end of its grant a proxy with these settings may have a write in flight.
    pub(crate) settle: Duration,
}

/// The lock, newly got.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) guard: Guard,
    /// The TTL of the grant of the process before, if that was still live.
    pub(crate) found: Option<Duration>,
}

/// How the upstream was left by whoever stood before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Left {
    /// Nothing was in flight any more.
    pub(crate) clean: bool,
    /// It was a proxy on this very data directory, so that the fence knows what it let through.
    pub(crate) by_us: bool,
    /// Somebody may go on for a TTL, because its grant was ended by others.
    pub(crate) late: bool,
    /// The longest that those who stood before it said of their writes.
    pub(crate) settle: Duration,
    /// The longest TTL of their grants.
    pub(crate) ttl: Duration,
}

/// What a grant of the lock takes over.
#[derive(Debug)]
pub(crate) struct Estate {
    pub(crate) left: Left,
    /// Of the grant.
    pub(crate) token: u64,
    /// Who gave it, and tells of those before it.
    pub(crate) service: Service,
}

impl Estate {
    /// What the history of another service tells is not all that happened.
    fn of(told: Left, token: u64, service: Service) -> Self {
        let left = match service {
            Service::Same(_) => told,
            Service::Other { .. } => Left { clean: false, by_us: false, late: true, ..told },
        };
        Self { left, token, service }
    }

    /// See [`Left::on`].
    pub(crate) fn on(self, closed_cleanly: bool, found: Option<Duration>) -> Self {
        Self { left: self.left.on(closed_cleanly, found), ..self }
    }

    /// Below which token something may have happened that is not known here. `seen` is the highest
    /// that was: the number of this grant says nothing about it if another service gave it out, nor
    /// if this one has lost its data since.
    pub(crate) fn unknown_below(&self, seen: u64) -> u64 {
        self.token.max(seen.saturating_add(1))
    }

    /// From here on the directory goes by this grant.
    pub(crate) fn keep_in(&self, home: &Home) -> io::Result<()> {
        if let Some(cluster) = self.service.cluster() {
            home.set_cluster(cluster)?;
        }
        home.set_last_tenure(self.token)
    }
}

impl Left {
    /// What is assumed where nothing is known.
    const WORST: Self = Self { clean: false, by_us: false, late: true, ..Self::WELL };
    const WELL: Self =
        Self { clean: true, by_us: true, late: false, settle: Duration::ZERO, ttl: Duration::ZERO };

    /// With what the data directory says of it. `found` is the TTL of the grant of the process
    /// before, if that was still live.
    pub(crate) fn on(self, closed_cleanly: bool, found: Option<Duration>) -> Self {
        // In order although writes were in flight: not of the one that had them, but of a copy.
        // Whoever had them learns of its end when it renews.
        let other = self.clean && self.by_us && !closed_cleanly;
        let clean = self.clean && closed_cleanly && found.is_none();
        let ttl = self.ttl.max(found.unwrap_or_default());
        Self { clean, late: self.late || found.is_some() || other, ttl, ..self }
    }

    /// How long newer tokens wait for what may still be in flight; nothing if nothing is.
    pub(crate) fn hold(&self, limits: &Limits) -> Option<Duration> {
        let late = if self.late { self.believed_for(limits) } else { Duration::ZERO };
        (!self.clean).then(|| limits.after_another().max(self.settle) + late)
    }

    /// How long somebody whose grant was ended by others may go on.
    pub(crate) fn believed_for(&self, limits: &Limits) -> Duration {
        limits.lock_ttl.max(self.ttl)
    }
}

impl Tenure {
    /// Gets the lock at once or not at all. A process that died on the same data directory is the
    /// same holder: its grant is ended first.
    pub(crate) async fn begin(&self) -> Result<Begun, StartError> {
        self.check_home()?;
        let found = self.end_last_grant().await?;
        Ok(Begun { guard: self.ask_anew(Duration::ZERO).await?, found })
    }

    /// Gives back what is still held under the last request from this directory, and says for how
    /// long its holder may believe in it. Nobody goes on under it: if this directory is a copy to
    /// the last bit, its holder is alive, and both would go on under one grant.
    async fn end_last_grant(&self) -> Result<Option<Duration>, StartError> {
        let Some(last) = self.home.last_request().map_err(StartError::Home)? else {
            return Ok(None);
        };
        // Repeated while we hold nothing it would make the grant that it is to find.
        if !self.is_held_by_us().await? {
            return Ok(None);
        }
        let grant = match self.ask(&last, Duration::ZERO).await {
            Ok(guard) => guard.into_grant(),
            // The request was answered with a grant that has ended since.
            Err(Error::Ended(_)) => return Ok(None),
            // The service knows this id from another request than ours.
            Err(error) if error.code() == Some(Code::RequestIdReused) => return Ok(None),
            Err(error) => return Err(self.refused(error)),
        };
        match self.client.release(&self.resource, grant.token).await {
            Ok(_) | Err(Error::Ended(_)) => {}
            Err(error) => return Err(StartError::Service(Box::new(error))),
        }
        if last.unused {
            return Ok(None);
        }
        tracing::warn!(
            token = grant.token,
            lock = %self.resource,
            "the process before this one did not give the lock back: its grant is ended, and a new \
             one is taken"
        );
        Ok(Some(Duration::from_millis(grant.ttl_ms)))
    }

    async fn is_held_by_us(&self) -> Result<bool, StartError> {
        let seen = self.client.lock(&self.resource).await;
        let seen = seen.map_err(|error| StartError::Service(Box::new(error)))?;
        let us = self.client.client_id();
        Ok(seen.value.holders.iter().any(|holder| holder.client_id == us))
    }

    /// The tokens of one upstream say nothing about another one.
    fn check_home(&self) -> Result<(), StartError> {
        match self.home.lock().map_err(StartError::Home)? {
            Some(lock) if lock == self.resource => Ok(()),
            // There is no token in it yet.
            Some(_) if self.home.is_new() => {
                self.home.set_lock(&self.resource).map_err(StartError::Home)
            }
            Some(lock) => Err(StartError::OtherUpstream {
                dir: self.home.dir().to_owned(),
                upstream: lock.strip_prefix(LOCK_PREFIX).unwrap_or(&lock).to_owned(),
            }),
            None => self.home.set_lock(&self.resource).map_err(StartError::Home),
        }
    }

    async fn ask_anew(&self, wait: Duration) -> Result<Guard, StartError> {
        let id = leasehold_client::new_request_id();
        let id = id.map_err(|error| StartError::Service(Box::new(error)))?;
        let request = LastRequest { id, ttl: self.ttl, settle: Some(self.settle), unused: false };
        self.home.set_last_request(&request).map_err(StartError::Home)?;
        self.ask(&request, wait).await.map_err(|error| {
            if !matches!(error, Error::Held(_)) {
                // If it is granted all the same, nobody writes under it.
                self.home.disown(request);
            }
            self.refused(error)
        })
    }

    async fn ask(&self, request: &LastRequest, wait: Duration) -> Result<Guard, Error> {
        let mut asked = self.client.acquire(&self.resource).ttl(request.ttl).wait(wait);
        if let Some(settle) = request.settle {
            asked = asked.metadata(TTL_MS, request.ttl.as_millis().to_string());
            asked = asked.metadata(SETTLE_MS, settle.as_millis().to_string());
        }
        let guard = asked.request_id(&request.id).guard().await;
        if let Err(Error::Held(_)) = &guard {
            // It came to nothing: a later start that repeated it would take what it gets for the
            // grant of a process before.
            self.home.forget();
        }
        guard
    }

    /// Says that nothing is in flight any more of the tenure with this token.
    pub(crate) async fn vouch(&self, token: u64) -> Result<(), Error> {
        witness::vouch(&self.client, &self.witness(), self.ttl, token).await
    }

    fn witness(&self) -> String {
        witness::lock_of(self.resource.strip_prefix(LOCK_PREFIX).unwrap_or(&self.resource))
    }

    fn refused(&self, error: Error) -> StartError {
        let Error::Held(problem) = &error else { return StartError::Service(Box::new(error)) };
        let holder = problem.holders.iter().flatten().next();
        let holder = holder.map_or("somebody", |holder| &*holder.client_id);
        let detail = format!(
            "another proxy stands before this upstream: {holder} holds {}. Send clients to that \
             one, or stop it: it gives the lock back, or the lock ends by itself",
            self.resource
        );
        StartError::Held { detail }
    }

    /// Looks at what this grant takes over; `own` is a grant of this very process.
    pub(crate) async fn estate(&self, token: u64, own: Option<u64>) -> Estate {
        let service = Service::of(&self.client, &self.home).await;
        // Another service may give out the same number to somebody else.
        let own = own.filter(|_| matches!(service, Service::Same(_)));
        Estate::of(self.left_before(token, own).await, token, service)
    }

    /// Looks at how the grant before this one ended. What the service does not tell counts as the
    /// worst; `own` is a grant of this very process, which knows what it left in flight.
    async fn left_before(&self, token: u64, own: Option<u64>) -> Left {
        match self.record(token).await {
            Ok(record) => self.left_by(&record, token, own),
            Err(error) => {
                tracing::warn!(%error, "the history of the lock cannot be read: the worst is assumed");
                Left::WORST
            }
        }
    }

    /// What the service tells of the lock, and of the one that vouches for it.
    async fn record(&self, token: u64) -> Result<Record, Error> {
        let grants = self.history(&self.resource).await?;
        let present = grants.iter().find(|grant| grant.token == token);
        let reaches_back = match present.map(|grant| grant.granted_at) {
            Some(now) => self.is_whole_since(self.earliest_that_counts(now)).await?,
            None => false,
        };
        if !reaches_back {
            tracing::warn!(
                lock = %self.resource,
                "the service does not know of all grants that may still count: it was restored or \
                 recovered not long ago, or has forgotten them (--history-max, --history-ms). The \
                 worst is assumed of them"
            );
        }
        let vouched = witness::vouched_for(&self.history(&self.witness()).await?);
        Ok(Record { grants, vouched, whole: reaches_back })
    }

    /// Whether the service still knows of every grant that was valid at that time or later. It
    /// keeps only so many, and others may have taken as many since.
    async fn is_whole_since(&self, at: Time) -> Result<bool, Error> {
        let resource = Some(self.resource.clone());
        let filter =
            GrantsFilter { resource, at: Some(at), limit: Some(1), ..GrantsFilter::default() };
        match self.client.grants(filter).next_page().await {
            Ok(_) => Ok(true),
            Err(error) if error.code() == Some(Code::NotFound) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// What had ended by then has settled.
    fn earliest_that_counts(&self, now: Time) -> Time {
        let lingers = (self.settle + self.ttl).as_millis();
        Time(now.0.saturating_sub(u64::try_from(lingers).unwrap_or(u64::MAX)))
    }

    /// The latest grants of a lock, newest first.
    async fn history(&self, lock: &str) -> Result<History, Error> {
        let resource = Some(lock.to_owned());
        let filter = GrantsFilter { resource, limit: Some(HISTORY), ..GrantsFilter::default() };
        let page = self.client.grants(filter).next_page().await?;
        Ok(page.map(|page| page.value.items).unwrap_or_default())
    }

    /// `token` is that of the present grant.
    fn left_by(&self, record: &Record, token: u64, own: Option<u64>) -> Left {
        let Record { grants, vouched, whole } = record;
        let now = grants.iter().find(|grant| grant.token == token).map(|grant| grant.granted_at);
        let before: Vec<_> = grants.iter().filter(|grant| grant.token < token).collect();
        let Some(last) = before.first() else {
            // Long ago, or never: somebody may have been here, but nothing of theirs is in flight,
            // if so much can still be known.
            let left = if *whole { Left::WELL } else { Left::WORST };
            return Left { by_us: self.home.is_new(), ..left };
        };
        if Some(last.token) == own {
            return Left::WELL;
        }
        // Not only the last one: a short one may have come between it and what is in flight.
        let is_recent = |grant: &GrantRecord<'_>| match (grant.ended_at, now) {
            (Some(ended), Some(now)) => ended.0.saturating_add(self.lingers_ms(grant)) >= now.0,
            _ => true,
        };
        let full = before.len() + 1 >= HISTORY && before.iter().all(|g| is_recent(g));
        let partial = full || !*whole;
        let count = |grant: &GrantRecord<'_>| grant.token == last.token || is_recent(grant);
        let counted = || before.iter().filter(|grant| count(grant));
        let longest = |name| counted().filter_map(|grant| said(grant, name)).max();
        let last_tenure = self.home.last_tenure().unwrap_or_default();
        let ours = last.client_id == self.client.client_id() && last.token == last_tenure;
        Left {
            clean: !partial && counted().all(|grant| was_left_in_order(grant, vouched)),
            by_us: ours || token == last_tenure,
            late: partial || counted().any(|grant| may_go_on(grant, vouched)),
            settle: longest(SETTLE_MS).unwrap_or_default(),
            ttl: longest(TTL_MS).unwrap_or_default(),
        }
    }

    /// How long after its end a write under this grant may be in flight.
    fn lingers_ms(&self, grant: &GrantRecord<'_>) -> u64 {
        let longest = |own: Duration, name| own.max(said(grant, name).unwrap_or_default());
        let lingers = longest(self.settle, SETTLE_MS) + longest(self.ttl, TTL_MS);
        u64::try_from(lingers.as_millis()).unwrap_or(u64::MAX)
    }

    /// Keeps the gate open while the lock is held, and gets the lock again when it is lost, until
    /// `part` says otherwise. Returns what it holds then.
    pub(crate) async fn keep(
        self,
        mut guard: Guard,
        heir: Arc<Answerer>,
        mut part: oneshot::Receiver<()>,
    ) -> Option<Guard> {
        loop {
            tokio::select! {
                () = hold(&guard, &heir.gate) => {}
                _ = &mut part => return Some(guard),
            }
            let own = guard.token();
            let why = guard.lost().await;
            tracing::error!(%why, lock = %self.resource, "the lock on the upstream is lost: no more writes");
            heir.gate.end_tenure();
            drop(guard);
            guard = tokio::select! {
                guard = self.regain() => guard,
                _ = &mut part => return None,
            };
            let estate = self.estate(guard.token(), Some(own)).await;
            heir.inherit(&estate, &self.home).await;
            tracing::warn!(token = guard.token(), lock = %self.resource, "the lock on the upstream is held again");
        }
    }

    async fn regain(&self) -> Guard {
        loop {
            match self.ask_anew(WAIT).await {
                Ok(guard) => return guard,
                Err(error) => tracing::warn!(%error, "the lock on the upstream is not back yet"),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// That it was released says nothing alone: that may have been anybody.
fn was_left_in_order(grant: &GrantRecord<'_>, vouched: &BTreeSet<u64>) -> bool {
    grant.state == GrantState::Ended
        && grant.how == Some(EndedHow::Released)
        && vouched.contains(&grant.token)
}

/// Its holder may learn of its end only when it next renews.
fn may_go_on(grant: &GrantRecord<'_>, vouched: &BTreeSet<u64>) -> bool {
    !was_left_in_order(grant, vouched) && grant.how != Some(EndedHow::Expired)
}

/// What a proxy has attached to its grant about itself.
fn said(grant: &GrantRecord<'_>, name: &str) -> Option<Duration> {
    let mut pairs = grant.metadata.iter().flat_map(|metadata| &metadata.0);
    let (_, text) = pairs.find(|(known, _)| known == name)?;
    text.parse().ok().map(|ms| Duration::from_millis(ms).min(TIME_MAX))
}

/// Returns once the lock is lost. The gate closes when so little of the validity is left that
/// writes have to be cut, and opens again if a renewal arrives after all.
async fn hold(guard: &Guard, gate: &Gate) {
    loop {
        gate.open(guard.belief());
        guard.closing(gate.margin()).await;
        gate.close();
        if guard.state() == State::Lost {
            return;
        }
        tracing::warn!("the lock on the upstream was not renewed in time: writes are cut");
        while guard.remaining() <= gate.margin() {
            tokio::select! {
                _ = guard.lost() => return,
                () = tokio::time::sleep(RECHECK) => {}
            }
        }
    }
}

#[cfg(test)]
#[path = "tenure_tests.rs"]
mod tests;
