//! What every request goes through, whichever its route.

use crate::answer::{self, Answer};
use crate::app::App;
use crate::ask::{self, Ask};
use crate::caller::Caller;
use crate::fault::Fault;
use crate::forward::Passed;
use crate::head::{Head, TRACE_PARENT};
use crate::link::Link;
use crate::metrics::{Metrics, RouteMetrics, UNKNOWN_ROUTE};
use crate::routes::{Body, Class, Route};
use crate::trace::TraceId;
use crate::{accept, body, browser, forward};
use actix_web::dev::Payload;
use actix_web::http::header::HeaderValue;
use actix_web::http::{Method, header};
use actix_web::{HttpRequest, HttpResponse};
use bytes::Bytes;
use futures_util::FutureExt as _;
use leasehold_node::{Call, ForwardedAnswer};
use leasehold_wire::Code;
use serde::Deserialize;
use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// One path, with the routes that share it. No routes: nothing is there.
#[derive(Debug)]
pub(crate) struct Place {
    routes: &'static [Route],
    /// One a route, and at the end those of requests that no route takes.
    metrics: Vec<RouteMetrics>,
}

impl Place {
    pub(crate) fn new(routes: &'static [Route], metrics: &Metrics) -> Self {
        let names = routes.iter().map(|route| route.name).chain([UNKNOWN_ROUTE]);
        Self { routes, metrics: names.map(|name| metrics.route(name)).collect() }
    }

    pub(crate) fn path(&self) -> &'static str {
        self.routes.first().map_or("", |route| route.path)
    }

    /// The route for a method; `HEAD` is answered like `GET`.
    fn route(&self, method: &Method) -> Result<usize, Fault> {
        let wanted = if *method == Method::HEAD { &Method::GET } else { method };
        let found = self.routes.iter().position(|route| route.method == *wanted);
        found.ok_or_else(|| self.no_such_method())
    }

    pub(crate) fn row(&self, method: &Method) -> Result<&'static Route, Fault> {
        self.route(method).map(|index| &self.routes[index])
    }

    fn no_such_method(&self) -> Fault {
        if self.routes.is_empty() {
            return Fault::not_found();
        }
        let mut allow: Vec<&str> = self.routes.iter().map(|route| route.method.as_str()).collect();
        if allow.contains(&"GET") {
            allow.push("HEAD");
        }
        Fault::method_not_allowed(allow.join(", "))
    }
}

/// Who answered a request, and what.
enum Told {
    Own(Answer),
    Passed { leader: u64, answer: ForwardedAnswer },
}

/// Answers one request.
pub(crate) async fn dispatch(
    app: Arc<App>,
    place: Arc<Place>,
    http: HttpRequest,
    payload: Payload,
) -> HttpResponse {
    // The head is there, so the client began to send before this: what it counts from its sending
    // ends no later than what is counted from here.
    let received = Instant::now();
    let route = place.route(http.method());
    let index = route.as_ref().map_or(place.routes.len(), |index| *index);
    let link = http.conn_data::<Rc<Link>>().cloned();
    if let Some(link) = &link {
        link.entered(http.headers().contains_key(header::TRANSFER_ENCODING));
    }
    let watch = place.metrics[index].watch(received);
    let told = match route {
        Ok(index) => serve(&app, &place.routes[index], &http, payload, received).await,
        Err(fault) => refuse(&app, fault, &http, payload).await,
    };
    if let Some(link) = link {
        link.answered();
    }
    watch.end(code(&told));
    match told {
        Ok(Told::Own(answer)) => answer.respond(),
        Ok(Told::Passed { leader, answer }) => {
            let mut response = answer::passed_back(answer);
            answer::name_leader(&mut response, leader);
            response
        }
        Err(fault) => refused(&app, fault, &Asked::of(&http)),
    }
}

/// The code of the problem that the answer is, if it is one.
fn code(told: &Result<Told, Fault>) -> Option<Code> {
    #[derive(Deserialize)]
    struct Coded {
        code: Code,
    }
    match told {
        Ok(Told::Passed { answer, .. }) if answer.status >= 400 => {
            // The leader may be of a later version, with codes that are not known here.
            let coded = serde_json::from_slice::<Coded>(&answer.body);
            Some(coded.map_or(Code::Internal, |coded| coded.code))
        }
        Ok(_) => None,
        Err(fault) => Some(fault.problem.code),
    }
}

async fn serve(
    app: &Arc<App>,
    route: &'static Route,
    http: &HttpRequest,
    mut payload: Payload,
    received: Instant,
) -> Result<Told, Fault> {
    let (caller, call) = match enter(app, route, http, received) {
        Ok(entered) => entered,
        Err(fault) => return refuse(app, fault, http, payload).await,
    };
    let body = whole_body(app, route, http, &mut payload).await?;
    if let Some(link) = http.conn_data::<Rc<Link>>() {
        link.serving(body.len());
    }
    let ask = Ask { app: Arc::clone(app), head: Head::of(http), body, caller, call };
    match forward::elsewhere(app, route, &ask.head) {
        Some(leader) => pass_on(app, route, ask, leader).await,
        None => guarded(app, (route.handler)(ask)).await.map(Told::Own),
    }
}

/// Has the leader answer, whoever that is by the time it does.
async fn pass_on(
    app: &Arc<App>,
    route: &'static Route,
    ask: Ask,
    leader: u64,
) -> Result<Told, Fault> {
    match guarded(app, forward::pass_on(route, &ask, leader)).await? {
        Passed::Answered { leader, answer } => Ok(Told::Passed { leader, answer }),
        Passed::Here { doubt } => {
            let answered = guarded(app, (route.handler)(ask.clone())).await.map(Told::Own);
            answered
                .map_err(|fault| if doubt { forward::doubted(route, &ask, fault) } else { fault })
        }
    }
}

/// The whole body, within the route's limits of size and time.
async fn whole_body(
    app: &App,
    route: &Route,
    http: &HttpRequest,
    payload: &mut Payload,
) -> Result<Bytes, Fault> {
    let (settings, headers) = (&app.settings, http.headers());
    let size_max = match route.body {
        Body::None => return Ok(Bytes::new()),
        Body::Single => settings.body_max,
        Body::Bulk => settings.bulk_body_max,
    };
    if let Err(fault) = body::check_type(headers) {
        body::discard(payload, headers, size_max).await;
        return Err(fault);
    }
    body::read(headers, payload, size_max, settings.body_timeout).await
}

/// Runs a handler. A panic costs one answer.
pub(crate) async fn guarded<T>(
    app: &App,
    handler: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    // A handler is a future of its own, so nothing outside it can be left half changed.
    match AssertUnwindSafe(handler).catch_unwind().await {
        Ok(answered) => answered,
        Err(panic) => {
            app.metrics.panics.inc();
            Err(Fault::internal(format!("the handler panicked: {}", message(&*panic))))
        }
    }
}

/// Everything that can be decided from the head.
fn enter(
    app: &App,
    route: &Route,
    http: &HttpRequest,
    received: Instant,
) -> Result<(Caller, Call), Fault> {
    let headers = http.headers();
    if head_size(http) > app.settings.head_max {
        return Err(Fault::headers_too_large(app.settings.head_max));
    }
    // Probes and scrapers reach a node by any name, and learn nothing about locks.
    if route.class != Class::Ops {
        browser::check_host(headers, &app.settings.hosts)?;
        browser::check_origin(http.method(), headers)?;
        accept::check(headers, route.gives())?;
    }
    let caller = Caller { source: http.peer_addr(), ..app.anonymous.clone() };
    admit(app, route, &caller)?;
    Ok((caller, ask::call(headers, received)?))
}

/// Whether a caller may ask this now, whichever node it reached.
pub(crate) fn admit(app: &App, route: &Route, caller: &Caller) -> Result<(), Fault> {
    // What is not applied yet must not be answered from.
    if route.class != Class::Ops
        && let Some(what) = app.node.waits_for()
    {
        return Err(Fault::not_ready(Some(&what)));
    }
    if !caller.role.may(route.permission) {
        return Err(Fault::forbidden());
    }
    // A stopping node takes nothing new, but whoever wants to give something back still can.
    if route.class == Class::Acquire && app.stopping() {
        return Err(Fault::shutting_down());
    }
    Ok(())
}

fn head_size(http: &HttpRequest) -> usize {
    let fields = http.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
    http.path().len() + http.query_string().len() + fields.sum::<usize>()
}

async fn refuse<T>(
    app: &App,
    fault: Fault,
    http: &HttpRequest,
    mut payload: Payload,
) -> Result<T, Fault> {
    body::discard(&mut payload, http.headers(), app.settings.body_max).await;
    Err(fault)
}

/// What the log says of a request.
pub(crate) struct Asked<'a> {
    pub(crate) trace: TraceId,
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
}

impl<'a> Asked<'a> {
    fn of(http: &'a HttpRequest) -> Self {
        let parent = http.headers().get(TRACE_PARENT).map(HeaderValue::as_bytes);
        Self { trace: TraceId::of(parent), method: http.method().as_str(), path: http.path() }
    }
}

/// The answer to a request that has none.
pub(crate) fn refused(app: &App, mut fault: Fault, asked: &Asked<'_>) -> HttpResponse {
    let Asked { trace, method, path } = *asked;
    if let Some(cause) = fault.internal.take() {
        tracing::error!(%trace, method, path, cause, "request failed");
    }
    let (status, code) = (fault.problem.status, fault.problem.code);
    // A target of its own: a refusal is everyday work, and a log of all of them is for whoever
    // looks for one trace.
    tracing::info!(
        target: "leasehold_http::refused",
        %trace, method, path, status, ?code, "request refused"
    );
    let mut response = fault.respond(trace);
    // Not this node itself: it has just found that it cannot say so.
    if matches!(code, Code::NoLeader | Code::OutcomeUnknown)
        && let Some(leader) = app.onward.leader().filter(|leader| *leader != app.node.id())
    {
        answer::name_leader(&mut response, leader);
    }
    response
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
