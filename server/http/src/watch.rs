//! `GET /v1/watch`: server-sent events, written as fast as their reader takes them and no faster.
//!
//! Nothing is buffered for a slow reader: it is asked for more only when it has taken what there
//! was, and then reads on from the history. One that takes nothing for long is cut off at the
//! rim, and resumes with the number of the last event that it saw.

use crate::answer::{Answer, Answered};
use crate::app::App;
use crate::ask::Ask;
use crate::head::LAST_EVENT_ID;
use crate::metrics::Raised;
use crate::{from_wire, to_wire};
use actix_web::http::{Method, Version};
use bytes::Bytes;
use futures_util::stream::{self, Stream};
use leasehold_node::{Change, Failure, Watch, WatchFilter, Watched};
use leasehold_wire::{Code, Gap, Invalid, Problem};
use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch as flag;
use tokio::time::timeout;

pub(crate) const PARAMETERS: &[&str] = &["resource", "prefix", "domain", "from"];

/// A silent stream says at least this often that it lives. The contract promises 15 s.
const BREATH: Duration = Duration::from_secs(10);

/// `GET /v1/watch`
pub(crate) async fn get(ask: Ask) -> Answered {
    if ask.head.version < Version::HTTP_11 {
        // It knows no chunks, so the ends of events could not be told from those of pieces.
        return Err(Problem::new(400, Code::InvalidRequest, "a stream needs HTTP/1.1").into());
    }
    let filter = filter(&ask)?;
    let from = from(&ask)?;
    if ask.head.method == Method::HEAD {
        return Ok(Answer::events(stream::empty()));
    }
    let counted = ask.app.metrics.watching();
    let max = ask.app.settings.watch_streams_max;
    if counted.count() > max {
        return Err(too_many(max).into());
    }
    let watch = ask.node().watch(ask.call, filter, from).await?;
    let at = watch.at();
    let stopping = ask.app.stop_signal();
    let streaming = Streaming { app: ask.app, watch, stopping, begun: false, _counted: counted };
    Ok(Answer::events(streaming.chunks()).at(at))
}

fn too_many(max: usize) -> Problem<'static> {
    let detail = format!("the bound is reached: {max} streams are open on this node");
    Problem {
        reason: Some("capacity".into()),
        max: Some(max as u64),
        retry_after_ms: Some(1_000),
        ..Problem::new(429, Code::Shed, detail)
    }
}

fn filter(ask: &Ask) -> Result<WatchFilter, Invalid> {
    let query = ask.query(PARAMETERS)?;
    match (query.text("resource"), query.text("prefix"), query.text("domain")) {
        (None, None, None) => Ok(WatchFilter::All),
        (Some(name), None, None) => Ok(WatchFilter::Resource(from_wire::resource(name)?)),
        (None, Some(prefix), None) => Ok(WatchFilter::Prefix(prefix.to_owned())),
        (None, None, Some(domain)) => Ok(WatchFilter::Domain(domain.to_owned())),
        (Some(_), Some(_), _) | (None, Some(_), Some(_)) => Err(one_of("prefix")),
        (Some(_), None, Some(_)) => Err(one_of("domain")),
    }
}

fn one_of(field: &'static str) -> Invalid {
    let allowed = "at most one of resource, prefix and domain";
    Invalid::field(field, "stands beside another filter", allowed)
}

/// A browser connects again with the address of the first time, and the last event as a header:
/// so the header counts if both are there.
fn from(ask: &Ask) -> Result<Option<u64>, Invalid> {
    let query = ask.query(PARAMETERS)?;
    let header = ask.head.header(LAST_EVENT_ID);
    match (header, query.text("from")) {
        (Some(value), _) if !value.is_empty() => {
            revision("Last-Event-ID", value.to_str().unwrap_or_default()).map(Some)
        }
        (_, Some(text)) => revision("from", text).map(Some),
        _ => Ok(None),
    }
}

/// Revisions are opaque to clients, which give back what they were given.
fn revision(field: &'static str, text: &str) -> Result<u64, Invalid> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits
        .then(|| text.parse().ok())
        .flatten()
        .ok_or_else(|| Invalid::field(field, "is not a revision", "a revision that was given out"))
}

/// One stream.
struct Streaming {
    app: Arc<App>,
    watch: Watch,
    stopping: flag::Receiver<bool>,
    begun: bool,
    _counted: Raised,
}

impl Streaming {
    fn chunks(self) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
        stream::unfold(Some(self), |state| async move {
            let mut streaming = state?;
            let (chunk, goes_on) = streaming.chunk().await;
            Some((Ok(Bytes::from(chunk)), goes_on.then_some(streaming)))
        })
    }

    /// The next piece, and whether another follows.
    async fn chunk(&mut self) -> (String, bool) {
        if !std::mem::replace(&mut self.begun, true) {
            // At once, so that whoever is cut before the first event knows where it was.
            return (format!("retry: 1000\n{}", place(self.watch.position())), true);
        }
        let Self { watch, stopping, .. } = self;
        let told = tokio::select! {
            biased;
            _ = stopping.wait_for(|stopping| *stopping) => None,
            told = timeout(BREATH, watch.next()) => Some(told),
        };
        match told {
            None => (": the node is stopping\n\n".to_owned(), false),
            Some(Err(_)) => (format!(": still here\n{}", place(self.watch.position())), true),
            Some(Ok(Ok(told))) => (self.written(&told), true),
            // Elsewhere it goes on, from the last place that it was told.
            Some(Ok(Err(Failure::NoLeader))) => {
                (": this node has lost touch with the leader\n\n".to_owned(), false)
            }
            Some(Ok(Err(failure))) => {
                tracing::warn!(?failure, "a watch ended");
                (": the stream cannot go on here\n\n".to_owned(), false)
            }
        }
    }

    fn written(&self, told: &Watched) -> String {
        let mut text = String::new();
        match told {
            Watched::Changes(changes) => {
                self.app.metrics.events.inc_by(changes.len() as u64);
                changes.iter().for_each(|change| write_event(change, &mut text));
            }
            Watched::Gap { from, to } => {
                self.app.metrics.gaps.inc();
                let gap = Gap { from: from.to_string().into(), to: to.to_string().into() };
                write(*to, Gap::EVENT, &gap, &mut text);
            }
        }
        text
    }
}

fn write_event(change: &Change, into: &mut String) {
    let event = to_wire::history::event(change);
    write(change.revision, event.event.as_str(), &event, into);
}

fn write(id: u64, kind: &str, data: &impl serde::Serialize, into: &mut String) {
    let data = serde_json::to_string(data).expect("shapes have string keys");
    // JSON has no raw line ends, so the data is one line.
    writeln!(into, "id: {id}\nevent: {kind}\ndata: {data}\n").expect("a string grows");
}

/// An id without data tells of nothing, but moves the place from which a reader resumes.
fn place(revision: u64) -> String {
    format!("id: {revision}\n\n")
}
