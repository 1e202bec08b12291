//! `/livez`, `/readyz`, `/healthz`, `/metrics`: never shed, and none waits for anything.

use crate::answer::{Answer, Answered};
use crate::ask::Ask;
use crate::fault::Fault;
use actix_web::http::header::HeaderValue;
use leasehold_wire::Health;
use leasehold_wire::health::HealthStatus;
use prometheus::{Encoder as _, TextEncoder};
use std::future::{Ready, ready};

/// What the process can say of itself: that it answers.
pub(crate) fn live(_: Ask) -> Ready<Answered> {
    ready(Ok(healthy()))
}

/// Whether a load balancer should send requests here.
pub(crate) fn ready_to_serve(ask: Ask) -> Ready<Answered> {
    let waits_for = ask.node().waits_for();
    let ready_now = !ask.app.stopping() && waits_for.is_none() && ask.node().is_ready();
    let not_ready = || Err(Fault::not_ready(waits_for.as_deref()));
    ready(if ready_now { Ok(healthy()) } else { not_ready() })
}

/// Everything that the registry knows, in Prometheus' text format.
pub(crate) fn metrics(ask: Ask) -> Ready<Answered> {
    let mut body = Vec::with_capacity(64 << 10);
    let written = TextEncoder::new().encode(&ask.app.registry.gather(), &mut body);
    let answer =
        Answer::bytes(body, HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"));
    ready(written.map(|()| answer.unstored()).map_err(|cause| Fault::internal(cause.to_string())))
}

fn healthy() -> Answer {
    Answer::json(&Health { status: HealthStatus::Ok }).unstored()
}
