//! Which problems a route can answer with.

use super::entry::Entry;
use crate::routes::{Body, Class, Route};
use leasehold_wire::Code;

/// A status, with a code that can stand in its body.
pub(super) type Pair = (u16, Code);

/// Decided from the head of any request.
const HEAD: &[Pair] =
    &[(400, Code::InvalidRequest), (431, Code::HeadersTooLarge), (500, Code::Internal)];

/// Decided from the head of a request that is not for health.
const GATE: &[Pair] = &[(403, Code::Forbidden), (406, Code::NotAcceptable)];

const BODY: &[Pair] =
    &[(408, Code::RequestTimeout), (413, Code::TooLarge), (415, Code::UnsupportedMediaType)];

/// What a node that is asked anything may say.
const NODE: &[Pair] = &[
    (408, Code::RequestTimeout),
    (503, Code::NoLeader),
    (503, Code::NotReady),
    (503, Code::Overloaded),
    (503, Code::ShuttingDown),
];

/// What it may say in addition when something is to be changed.
const CHANGE: &[Pair] = &[(503, Code::StorageFull), (503, Code::OutcomeUnknown)];

/// All problems of a route, in the order of status and code, each once.
pub(super) fn of(route: &Route, entry: &Entry) -> Vec<Pair> {
    let mut all = HEAD.to_vec();
    if route.class != Class::Ops {
        all.extend(GATE.iter().chain(NODE));
    }
    if !matches!(route.class, Class::Ops | Class::Read) {
        all.extend(CHANGE);
    }
    if route.body != Body::None {
        all.extend(BODY);
    }
    all.extend(&entry.problems);
    all.sort_unstable();
    all.dedup();
    all
}
