//! One small node that behaves: enough for examples to be true.

use crate::fake::{Fake, Received, Reply};
use leasehold_wire::{
    Acquire, Code, Event, EventKind, Grant, HexId, Holder, KeptAlive, LeaseEnded, LeaseOpened,
    Lock, LockState, Mode, NotReleased, OpenLease, Problem, Release, Released, Renew, Renewed,
    Time,
};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use tokio::sync::mpsc;

const VALID_FOR_MS: u64 = 60_000;

/// A server whose locks never expire, and in which nobody waits.
#[derive(Debug)]
pub struct Service {
    fake: Fake,
}

#[derive(Default)]
struct Table {
    held: BTreeMap<String, Grant<'static>>,
    released: BTreeMap<u64, ()>,
    tokens: u64,
    leases: u128,
    events: Vec<Event<'static>>,
    watchers: Vec<mpsc::UnboundedSender<Vec<u8>>>,
}

impl Service {
    /// Listens on a port of its own.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn start() -> io::Result<Self> {
        let table = Arc::new(Mutex::new(Table::default()));
        let fake = Fake::start(move |received| table.lock().answer(received)).await?;
        Ok(Self { fake })
    }

    /// Where it listens.
    #[must_use]
    pub fn url(&self) -> String {
        self.fake.url()
    }
}

impl Table {
    fn answer(&mut self, received: &Received) -> Reply {
        let body = &received.body;
        let reply = match (received.method.as_str(), received.path()) {
            ("POST", "/v1/acquire-lock") => {
                leasehold_wire::parse(body).map(|asked| self.acquire(&asked))
            }
            ("POST", "/v1/renew-lock") => {
                leasehold_wire::parse(body).map(|asked| self.renew(&asked))
            }
            ("POST", "/v1/release-lock") => {
                leasehold_wire::parse(body).map(|asked| self.release(&asked))
            }
            ("POST", "/v1/leases") => leasehold_wire::parse(body).map(|asked| self.open(&asked)),
            ("GET", "/v1/lock") => {
                Ok(self.lock(received.parameter("resource").unwrap_or_default()))
            }
            ("GET", "/v1/watch") => Ok(self.watch(received.parameter("from"))),
            (_, path) if path.starts_with("/v1/leases/") => Ok(self.lease(&received.method, path)),
            _ => Ok(Reply::code(404, Code::NotFound)),
        };
        let reply = reply.unwrap_or_else(|_| Reply::code(400, Code::InvalidRequest));
        reply.with("Leasehold-Revision", self.events.len().to_string())
    }

    fn acquire(&mut self, asked: &Acquire<'_>) -> Reply {
        if let Some(held) = self.held.get(&*asked.resource) {
            let problem =
                Problem::new(409, Code::Held, format!("the lock is held by {}", held.client_id));
            return Reply::problem(&problem);
        }
        let lease_id = match &asked.lease_id {
            Some(text) => HexId::parse(text).unwrap_or(HexId(0)),
            None => self.new_lease(),
        };
        self.tokens += 1;
        let grant = Grant {
            resource: asked.resource.clone().into_owned().into(),
            token: self.tokens,
            lease_id,
            client_id: asked.client_id.clone().into_owned().into(),
            mode: asked.mode,
            ttl_ms: asked.ttl_ms.unwrap_or(VALID_FOR_MS),
            expires_in_ms: VALID_FOR_MS,
            valid_for_ms: VALID_FOR_MS,
            granted_at: Time(0),
            waited_ms: 0,
            policies: Vec::new(),
        };
        self.happened(EventKind::Granted, &grant);
        self.held.insert(asked.resource.to_string(), grant.clone());
        Reply::json(200, &grant)
    }

    fn new_lease(&mut self) -> HexId {
        self.leases += 1;
        HexId(self.leases)
    }

    fn holds(&self, resource: &str, token: u64) -> bool {
        self.held.get(resource).is_some_and(|grant| grant.token == token)
    }

    fn renew(&self, asked: &Renew<'_>) -> Reply {
        if !self.holds(&asked.resource, asked.token) {
            return Reply::code(410, Code::GrantEnded);
        }
        let renewed = Renewed {
            expires_in_ms: VALID_FOR_MS,
            valid_for_ms: VALID_FOR_MS,
            ended_grants: Vec::new(),
            draining_grants: Vec::new(),
        };
        Reply::json(200, &renewed)
    }

    fn release(&mut self, asked: &Release<'_>) -> Reply {
        if self.holds(&asked.resource, asked.token) {
            self.end(&asked.resource);
            return Reply::json(200, &Released { released: true, reason: None });
        }
        if !self.released.contains_key(&asked.token) {
            return Reply::code(409, Code::NotHolder);
        }
        let reason = Some(NotReleased::AlreadyReleased);
        Reply::json(200, &Released { released: false, reason })
    }

    fn end(&mut self, resource: &str) {
        if let Some(grant) = self.held.remove(resource) {
            self.released.insert(grant.token, ());
            self.happened(EventKind::Released, &grant);
        }
    }

    fn open(&mut self, asked: &OpenLease<'_>) -> Reply {
        let opened = LeaseOpened {
            lease_id: self.new_lease(),
            client_id: asked.client_id.clone(),
            ttl_ms: asked.ttl_ms,
            expires_in_ms: VALID_FOR_MS,
            valid_for_ms: VALID_FOR_MS,
        };
        Reply::json(200, &opened)
    }

    fn lease(&mut self, method: &str, path: &str) -> Reply {
        let id = path.trim_start_matches("/v1/leases/").split('/').next();
        let Some(lease_id) = id.and_then(HexId::parse) else {
            return Reply::code(404, Code::NotFound);
        };
        if method == "DELETE" {
            let held = self.held.values().filter(|grant| grant.lease_id == lease_id);
            let resources: Vec<_> = held.map(|grant| grant.resource.to_string()).collect();
            resources.iter().for_each(|resource| self.end(resource));
            return Reply::json(200, &LeaseEnded { ended: true });
        }
        let kept = KeptAlive {
            lease_id,
            expires_in_ms: Some(VALID_FOR_MS),
            valid_for_ms: Some(VALID_FOR_MS),
            code: None,
            ended_grants: Vec::new(),
            draining_grants: Vec::new(),
        };
        Reply::json(200, &kept)
    }

    fn lock(&self, resource: &str) -> Reply {
        let resource = resource.replace("%2F", "/");
        let holder = self.held.get(&resource).map(|grant| Holder {
            client_id: grant.client_id.clone(),
            token: grant.token,
            mode: Mode::Exclusive,
            granted_at: grant.granted_at,
            expires_in_ms: Some(VALID_FOR_MS),
            draining: false,
            metadata: None,
        });
        let lock = Lock {
            resource: resource.into(),
            state: if holder.is_some() { LockState::Held } else { LockState::Free },
            holders: holder.into_iter().collect(),
            queue: Vec::new(),
            queue_length: 0,
            last_token: Some(self.tokens),
        };
        Reply::json(200, &lock)
    }

    fn watch(&mut self, from: Option<&str>) -> Reply {
        let from = from.and_then(|from| from.parse().ok()).unwrap_or(self.events.len());
        let (sender, pieces) = mpsc::unbounded_channel();
        for event in self.events.iter().skip(from) {
            // The receiver is in this function.
            let _ = sender.send(block(event));
        }
        self.watchers.push(sender);
        Reply::stream(pieces)
    }

    fn happened(&mut self, event: EventKind, grant: &Grant<'static>) {
        let revision = self.events.len() as u64 + 1;
        let event = Event {
            resource: Some(grant.resource.clone()),
            client_id: Some(grant.client_id.clone()),
            token: Some(grant.token),
            mode: Some(grant.mode),
            ..Event::new(revision, event, Time(0))
        };
        self.watchers.retain(|watcher| watcher.send(block(&event)).is_ok());
        self.events.push(event);
    }
}

fn block(event: &Event<'_>) -> Vec<u8> {
    let data = serde_json::to_string(event).unwrap_or_default();
    format!("id: {}\nevent: {}\ndata: {data}\n\n", event.revision, event.event.as_str())
        .into_bytes()
}
