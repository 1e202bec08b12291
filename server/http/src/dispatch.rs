//! What every request goes through, whichever its route.

use crate::answer::Answered;
use crate::app::App;
use crate::ask::{self, Ask};
use crate::caller::Caller;
use crate::fault::Fault;
use crate::head::{Head, TRACE_PARENT};
use crate::link::Link;
use crate::metrics::{Metrics, RouteMetrics, UNKNOWN_ROUTE};
use crate::routes::{Body, Class, Route};
use crate::trace::TraceId;
use crate::{accept, body, browser};
use actix_web::dev::Payload;
use actix_web::http::{Method, header};
use actix_web::{HttpRequest, HttpResponse};
use bytes::Bytes;
use futures_util::FutureExt as _;
use leasehold_node::Call;
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
    let answered = match route {
        Ok(index) => serve(&app, &place.routes[index], &http, payload, received).await,
        Err(fault) => refuse(&app, fault, &http, payload).await,
    };
    if let Some(link) = link {
        link.answered();
    }
    watch.end(answered.as_ref().err().map(|fault| fault.problem.code));
    match answered {
        Ok(answer) => answer.respond(),
        Err(fault) => respond(fault, &http),
    }
}

async fn serve(
    app: &Arc<App>,
    route: &'static Route,
    http: &HttpRequest,
    mut payload: Payload,
    received: Instant,
) -> Answered {
    let (caller, call) = match enter(app, route, http, received) {
        Ok(entered) => entered,
        Err(fault) => return refuse(app, fault, http, payload).await,
    };
    let body = whole_body(app, route, http, &mut payload).await?;
    if let Some(link) = http.conn_data::<Rc<Link>>() {
        link.serving(body.len());
    }
    let ask = Ask { app: Arc::clone(app), head: Head::of(http), body, caller, call };
    handle(route, ask).await
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

/// Runs the route's handler.
async fn handle(route: &Route, ask: Ask) -> Answered {
    let app = Arc::clone(&ask.app);
    // A handler is a future of its own, so nothing outside it can be left half changed.
    match AssertUnwindSafe((route.handler)(ask)).catch_unwind().await {
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
    if !caller.role.may(route.permission) {
        return Err(Fault::forbidden());
    }
    // A stopping node takes nothing new, but whoever wants to give something back still can.
    if route.class == Class::Acquire && app.stopping() {
        return Err(Fault::shutting_down());
    }
    Ok((caller, ask::call(headers, received)?))
}

fn head_size(http: &HttpRequest) -> usize {
    let fields = http.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
    http.path().len() + http.query_string().len() + fields.sum::<usize>()
}

async fn refuse(app: &App, fault: Fault, http: &HttpRequest, mut payload: Payload) -> Answered {
    body::discard(&mut payload, http.headers(), app.settings.body_max).await;
    Err(fault)
}

fn respond(mut fault: Fault, http: &HttpRequest) -> HttpResponse {
    let trace = TraceId::of(http.headers().get(TRACE_PARENT));
    if let Some(cause) = fault.internal.take() {
        tracing::error!(%trace, method = %http.method(), path = http.path(), cause, "request failed");
    }
    let (status, code) = (fault.problem.status, fault.problem.code);
    // A target of its own: a refusal is everyday work, and a log of all of them is for whoever
    // looks for one trace.
    tracing::info!(
        target: "leasehold_http::refused",
        %trace, method = %http.method(), path = http.path(), status, ?code, "request refused"
    );
    fault.respond(trace)
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
