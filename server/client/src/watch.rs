//! Everything that happens, in order and once, over any number of connections.

use crate::backoff;
use crate::client::Client;
use crate::encode::with_query;
use crate::error::Error;
use crate::failure::{Failure, stream_of};
use crate::servers::{Fault, Turn};
use crate::sse::{Block, Parser};
use crate::wire::{Event, Gap};
use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt as _};
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, HeaderValue};
use serde::de::DeserializeOwned;
use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Whatever a server asks for: somebody wants to hear of events.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// A connection that lasted this long was a good one, also if there was nothing to tell.
const GOOD: Duration = Duration::from_secs(5);

/// What is watched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum WatchFilter {
    /// Everything.
    #[default]
    All,
    /// One resource.
    Resource(String),
    /// The resources whose names start with this.
    Prefix(String),
    /// The resources of one domain, and its settings.
    Domain(String),
}

/// What a watch yields.
#[allow(clippy::large_enum_variant, reason = "nearly all of them are events")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchItem {
    /// A change.
    Event(Event<'static>),
    /// Changes that cannot be told any more, or a place that the service does not know, because
    /// it was restored to an earlier state: read the present state anew. The watch goes on after
    /// [`Gap::to`], also if that is earlier than what was told before.
    Gap(Gap<'static>),
}

impl WatchItem {
    /// The revision to watch from to get what follows this.
    #[must_use]
    pub fn revision(&self) -> &str {
        match self {
            Self::Event(event) => &event.revision,
            Self::Gap(gap) => &gap.to,
        }
    }
}

/// A stream of what happens. It reconnects by itself, for as long as it takes, and goes on where
/// it was cut: every event comes once and in order, and what cannot be told comes as a
/// [`WatchItem::Gap`].
///
/// It ends after the first error: when the service refuses it, or when no server could be reached
/// within the client's budget at the very start.
///
/// To list and then watch without a hole, watch from the revision of the list:
///
/// ```
/// # use leasehold_client::{Client, WatchFilter, WatchItem, wire::EventKind};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = leasehold_client_fake::Service::start().await?;
/// # let client = Client::new(server.url())?;
/// let lock = client.lock("builds/main").await?;
/// let filter = WatchFilter::Resource("builds/main".into());
/// let mut watch = client.watch(filter, lock.revision.clone());
///
/// let guard = client.acquire("builds/main").await?;
/// match watch.next().await {
///     Some(Ok(WatchItem::Event(event))) => {
///         assert_eq!(event.event, EventKind::Granted);
///         assert_eq!(event.token, Some(guard.token()));
///     }
///     Some(Ok(WatchItem::Gap(gap))) => println!("read anew: nothing is told up to {}", gap.to),
///     Some(Err(error)) => return Err(error.into()),
///     None => println!("refused before"),
/// }
/// # Ok(())
/// # }
/// ```
pub struct Watch {
    items: BoxStream<'static, Result<WatchItem, Error>>,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

impl Stream for Watch {
    type Item = Result<WatchItem, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.items.poll_next_unpin(context)
    }
}

impl Watch {
    pub(crate) fn new(client: &Client, filter: WatchFilter, from: Option<String>) -> Self {
        let reader = Reader {
            client: client.clone(),
            filter,
            position: from,
            link: None,
            ready: VecDeque::new(),
            broken: None,
            failures: 0,
            connected: false,
            begun: Instant::now(),
        };
        let items = stream::unfold(Some(reader), |reader| async {
            let mut reader = reader?;
            match reader.next().await {
                Ok(item) => Some((Ok(item), Some(reader))),
                Err(error) => Some((Err(error), None)),
            }
        });
        Self { items: items.boxed() }
    }

    /// What happens next; `None` after an error. Nothing is missed if the future is dropped.
    pub async fn next(&mut self) -> Option<Result<WatchItem, Error>> {
        self.items.next().await
    }
}

/// The watch between two items.
struct Reader {
    client: Client,
    filter: WatchFilter,
    /// Everything up to here was told.
    position: Option<String>,
    link: Option<Link>,
    ready: VecDeque<WatchItem>,
    /// What ends the watch once everything that is ready was told.
    broken: Option<Error>,
    /// Connections in a row that brought nothing and did not last.
    failures: u32,
    /// Some connection was made.
    connected: bool,
    begun: Instant,
}

struct Link {
    turn: Turn,
    opened: Instant,
    body: Incoming,
    parser: Parser,
}

/// How a connection came to its end.
struct Ended {
    why: String,
    fault: Fault,
}

impl Ended {
    fn silent(why: impl Into<String>) -> Self {
        Self { why: why.into(), fault: Fault::Silent }
    }

    fn cut(why: impl Into<String>) -> Self {
        Self { why: why.into(), fault: Fault::Unable }
    }
}

impl Reader {
    async fn next(&mut self) -> Result<WatchItem, Error> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Ok(item);
            }
            if let Some(error) = self.broken.take() {
                return Err(error);
            }
            let Some(link) = &mut self.link else {
                self.connect().await?;
                continue;
            };
            let turn = link.turn;
            let told = tokio::select! {
                told = piece(link, self.client.inner.times.silence) => told,
                () = self.client.silence(turn, self.client.brief(self.failures)) => {
                    Err(Ended::silent("the server is silent"))
                }
            };
            match told {
                Ok(bytes) => self.broken = self.take(&bytes).err(),
                Err(cut) => self.cut(cut),
            }
        }
    }

    /// Whatever ended the connection, another server may fare better.
    fn cut(&mut self, cut: Ended) {
        let Ended { why, fault } = cut;
        tracing::debug!(why, position = ?self.position, "a watch was cut and reconnects");
        let mut lasted = Duration::ZERO;
        if let Some(link) = self.link.take() {
            lasted = link.opened.elapsed();
            self.client.inner.servers.move_on(link.turn, fault);
        }
        self.failures = failures_after(self.failures, lasted);
    }

    /// One connection, or a pause before the next try: none while there is a server that was not
    /// asked.
    async fn connect(&mut self) -> Result<(), Error> {
        let count = self.client.servers();
        if self.failures > 0 && self.failures.is_multiple_of(count) {
            sleep(backoff::pause(self.failures / count - 1, None)).await;
        }
        let servers = &self.client.inner.servers;
        let turn = servers.turn();
        let patience = self.client.brief(self.failures);
        let request = self.request(servers.base(turn))?;
        let failure = match timeout(patience, self.open(request, turn)).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(failure)) => failure,
            Err(_) => Failure::Silent(format!("no answer within {patience:?}")),
        };
        self.failures = self.failures.saturating_add(1);
        let fault = failure.of_the_server().unwrap_or(Fault::Unable);
        self.client.inner.servers.move_on(turn, fault);
        let too_late = !self.connected && self.begun.elapsed() >= self.client.budget;
        if !(failure.may_pass() || failure.is_shed()) || too_late {
            return Err(failure.of_reading());
        }
        let asked_all = self.failures.is_multiple_of(count);
        if let Some(pause) = failure.retry_after().filter(|_| asked_all) {
            sleep(pause.min(PAUSE_MAX)).await;
        }
        Ok(())
    }

    fn request(&self, base: &str) -> Result<Request<Full<Bytes>>, Error> {
        let filter = match &self.filter {
            WatchFilter::All => None,
            WatchFilter::Resource(name) => Some(("resource", name.as_str())),
            WatchFilter::Prefix(prefix) => Some(("prefix", prefix.as_str())),
            WatchFilter::Domain(domain) => Some(("domain", domain.as_str())),
        };
        let from = self.position.as_deref().map(|position| ("from", position));
        let target = with_query("/v1/watch", filter.into_iter().chain(from));
        let mut request = Request::new(Full::default());
        *request.uri_mut() = format!("{base}{target}").parse().map_err(Error::transport)?;
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        Ok(request)
    }

    async fn open(&mut self, request: Request<Full<Bytes>>, turn: Turn) -> Result<(), Failure> {
        let (head, body) = stream_of(self.client.inner.transport.open(request).await?).await?;
        let text = |name| head.headers.get(name)?.to_str().ok();
        if !text("content-type").is_some_and(|kind| kind.starts_with("text/event-stream")) {
            return Err(Failure::Nonsense("the answer is no stream of events".to_owned()));
        }
        // Where "now" was, so that a cut before the first event leaves no hole.
        if self.position.is_none() {
            self.position = text("leasehold-revision").map(str::to_owned);
        }
        self.link = Some(Link { turn, opened: Instant::now(), body, parser: Parser::default() });
        self.client.inner.servers.served(turn);
        self.connected = true;
        Ok(())
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let Some(link) = &mut self.link else { return Ok(()) };
        let mut blocks = Vec::new();
        let read = link.parser.read(bytes, &mut blocks);
        for block in blocks {
            self.block(block)?;
        }
        read.map_err(Error::transport)
    }

    fn block(&mut self, block: Block) -> Result<(), Error> {
        let Some(data) = &block.data else {
            self.move_on(&block.id);
            return Ok(());
        };
        let told = if block.event == Gap::EVENT {
            let gap: Gap<'static> = read(data)?;
            // Also backwards: what the service told after this place is not what was told before.
            self.position = Some(gap.to.clone().into_owned());
            Some(WatchItem::Gap(gap))
        } else {
            let event: Event<'static> = read(data)?;
            self.move_on(&event.revision).then_some(WatchItem::Event(event))
        };
        if let Some(item) = told {
            self.failures = 0;
            self.ready.push_back(item);
        }
        Ok(())
    }

    /// Whether this is later than everything that was told.
    fn move_on(&mut self, revision: &str) -> bool {
        if revision.is_empty() {
            return false;
        }
        let later = match &self.position {
            Some(position) => is_later(revision, position),
            None => true,
        };
        if later {
            self.position = Some(revision.to_owned());
        }
        later
    }
}

fn read<T: DeserializeOwned>(data: &str) -> Result<T, Error> {
    serde_json::from_str(data).map_err(|error| {
        Error::transport(format!("an event is not of the expected shape: {error}"))
    })
}

/// How many failures there were in a row once a connection that lasted this long is cut.
fn failures_after(before: u32, lasted: Duration) -> u32 {
    if lasted >= GOOD { 1 } else { before.saturating_add(1) }
}

/// Revisions are decimal numbers of any length.
fn is_later(revision: &str, position: &str) -> bool {
    let number = |text: &str| {
        let digits = text.trim_start_matches('0');
        (digits.len(), digits.to_owned())
    };
    number(revision) > number(position)
}

/// The next bytes of a connection.
async fn piece(link: &mut Link, silence_max: Duration) -> Result<Bytes, Ended> {
    loop {
        let frame = timeout(silence_max, link.body.frame()).await;
        let frame =
            frame.map_err(|_| Ended::silent(format!("nothing came for {silence_max:?}")))?;
        match frame {
            Some(Ok(frame)) => {
                if let Ok(bytes) = frame.into_data() {
                    return Ok(bytes);
                }
            }
            Some(Err(error)) => return Err(Ended::cut(error.to_string())),
            None => return Err(Ended::cut("the server ended the stream")),
        }
    }
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
