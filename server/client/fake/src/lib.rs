//! Servers for the tests and the examples of the client, which speak HTTP by hand so that they can
//! do what a library forbids: cut answers anywhere, keep silent, answer late.
//!
//! | file | holds |
//! | --- | --- |
//! | [`Fake`] (`fake`) | answers every request as a closure says, and remembers what came |
//! | [`Service`] (`service`) | behaves like one small node: locks, leases, watch; no waits, no clock |

mod fake;
mod service;

pub use fake::{Closed, Fake, Received, Reply};
pub use service::Service;
