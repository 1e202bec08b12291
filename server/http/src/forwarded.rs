//! Requests that reached another node, which passed them on to this one because it leads.
//!
//! The same table, and the same handlers. What that node found out about the client is taken as
//! it says; that the client's role permits what it asks is looked at once more, since the two
//! nodes may be of different versions. One hop only: nothing is passed on from here.

use crate::accept::Gives;
use crate::answer::{self, Answered};
use crate::app::App;
use crate::ask::Ask;
use crate::caller::{Caller, Role};
use crate::dispatch::{self, Asked, Place};
use crate::fault::Fault;
use crate::forward;
use crate::head::{Head, TRACE_PARENT};
use crate::routes::{self, Route, Serves};
use crate::trace::TraceId;
use actix_web::dev::{Path, ResourceDef, Url};
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::http::{Method, Uri, Version};
use futures_util::future::BoxFuture;
use leasehold_core::Principal;
use leasehold_node::{AnswerForwarded, Call, Failure, Forwarded, ForwardedAnswer};
use std::sync::{Arc, Weak};
use std::time::Instant;

/// Answers what other nodes pass on, for as long as the application is there.
pub(crate) fn answer_forwarded(app: &Arc<App>) -> Arc<dyn AnswerForwarded> {
    Arc::new(Answering { app: Arc::downgrade(app), paths: Arc::new(Paths::new(app)) })
}

struct Answering {
    /// The application has the node, which has this.
    app: Weak<App>,
    paths: Arc<Paths>,
}

impl AnswerForwarded for Answering {
    fn answer(&self, request: Forwarded) -> BoxFuture<'static, ForwardedAnswer> {
        let (app, paths) = (self.app.upgrade(), Arc::clone(&self.paths));
        Box::pin(async move {
            match app {
                Some(app) => answer(&app, &paths, &request).await,
                None => answer::whole(Fault::shutting_down().respond(asked(&request).trace)),
            }
        })
    }

    fn failed(&self, failure: Failure) -> ForwardedAnswer {
        answer::whole(Fault::from(failure).respond(TraceId::of(None)))
    }
}

async fn answer(app: &Arc<App>, paths: &Paths, request: &Forwarded) -> ForwardedAnswer {
    app.metrics.forwarded_in.inc();
    let answered = serve(app, paths, request).await;
    answer::whole(match answered {
        Ok(answer) => answer.respond(),
        Err(fault) => dispatch::refused(app, fault, &asked(request)),
    })
}

fn asked(request: &Forwarded) -> Asked<'_> {
    let parent = request.headers.iter().find(|(name, _)| *name == TRACE_PARENT.as_str());
    Asked {
        trace: TraceId::of(parent.map(|(_, value)| value.as_slice())),
        method: &request.method,
        path: request.target.split('?').next().unwrap_or_default(),
    }
}

/// The paths of the API, matched as the workers' router does it.
pub(crate) struct Paths(Vec<(ResourceDef, Arc<Place>)>);

impl Paths {
    pub(crate) fn new(app: &App) -> Self {
        let places = routes::places(Serves::OnlyApi, &app.metrics);
        Self(places.into_iter().map(|place| (ResourceDef::new(place.path()), place)).collect())
    }

    /// The route of a request, and what stands in the place of `{id}` in its path.
    pub(crate) fn find(
        &self,
        method: &Method,
        uri: &Uri,
    ) -> Result<(&'static Route, Option<String>), Fault> {
        let mut path = Path::new(Url::new(uri.clone()));
        let found = self.0.iter().find(|(pattern, _)| pattern.capture_match_info(&mut path));
        let (_, place) = found.ok_or_else(Fault::not_found)?;
        Ok((place.row(method)?, path.get("id").map(str::to_owned)))
    }
}

async fn serve(app: &Arc<App>, paths: &Paths, request: &Forwarded) -> Answered {
    let head = head(request)?;
    let (route, id) = paths.find(&head.method, &head.uri)?;
    let head = Head { id, ..head };
    let caller = caller(request)?;
    // That this node is not ready is its own affair: its peer's client learns that nobody leads.
    if app.node.waits_for().is_some() {
        return Err(Failure::NoLeader.into());
    }
    dispatch::admit(app, route, &caller)?;
    if route.gives() == Gives::Events {
        // It has no end that could be waited for. Every node streams by itself.
        return Err(Fault::not_found());
    }
    if forward::is_leaders(route, &head) && !app.onward.leads() {
        return Err(Failure::NoLeader.into());
    }
    let (body, call) = (request.body.clone(), call(request));
    let ask = Ask { app: Arc::clone(app), head, body, caller, call };
    dispatch::guarded(app, (route.handler)(ask)).await
}

fn head(request: &Forwarded) -> Result<Head, Fault> {
    let headers = request.headers.iter().map(|(name, value)| {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        Some((name, HeaderValue::from_bytes(value).ok()?))
    });
    Ok(Head {
        method: Method::from_bytes(request.method.as_bytes()).map_err(|_| garbled("method"))?,
        version: Version::HTTP_11,
        uri: Uri::try_from(&*request.target).map_err(|_| garbled("target"))?,
        id: None,
        headers: headers.collect::<Option<_>>().ok_or_else(|| garbled("headers"))?,
    })
}

fn caller(request: &Forwarded) -> Result<Caller, Fault> {
    let principal = Principal::parse(&request.principal).map_err(|_| garbled("principal"))?;
    let role = Role::parse(&request.role).ok_or_else(|| garbled("role"))?;
    Ok(Caller { principal, role, source: request.source })
}

/// A node sends only what it has read, so this is a fault of one of the two.
fn garbled(what: &str) -> Fault {
    Fault::internal(format!("the {what} of a request from another node cannot be read"))
}

/// The time that the request took from node to node counts for nobody: what is promised ends a
/// little earlier for it, and its client is given up a little later.
fn call(request: &Forwarded) -> Call {
    let now = Instant::now();
    Call {
        received: now.checked_sub(request.elapsed).unwrap_or(now),
        deadline: request.remaining.and_then(|remaining| now.checked_add(remaining)),
    }
}

#[cfg(test)]
#[path = "forwarded_tests.rs"]
mod tests;
