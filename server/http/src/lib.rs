//! The rim of Leasehold: everything between a socket and the node.
//!
//! One request, in the order of reading:
//!
//! | file | does |
//! | --- | --- |
//! | [`server`], `listen`, `rim`, `link` | listeners, socket options, connections, stop |
//! | `routes` | the one table: route, permission, class, handler |
//! | `dispatch` | what every request goes through: who, how, may they; panic guard; counting |
//! | `forward`, `forwarded` | what only the leader answers: the way to it, and the other end |
//! | `acquire`, `renew`, `release`, `cancel_wait`, `batch`, `leases`, `locks`, `clients`, `why`, `fence`, `health` | one verb, one story |
//! | `watch`, `grants`, `audit` | what happens, and how it was |
//! | `force_release`, `domains`, `cluster`, `backup` | what operators do |
//! | `about`, `attention` | the service about itself |
//! | `ask`, `head`, `body`, `query`, `caller`, `browser`, `accept`, `trace` | the parts of a request |
//! | `from_wire` | shapes to meaning, every value checked once |
//! | `to_wire`, `answer` | meaning to shapes |
//! | `failure`, `fault` | every failure to its status and code, in one `match` |
//! | [`metrics`] | the catalogue of names |
//! | `openapi` | the same API, described for programs |
//!
//! What must stay true:
//!
//! - The clock of a request is read after its first byte came, and never from what it says: a
//!   client that counts from its sending stops before the service does.
//! - A request takes one hop at most. Unless it only looks or has a request id, it is sent once:
//!   repeating it is for its client.
//! - A request whose client is gone is dropped, and with it whatever it waits for.
//! - Every error has the one shape. The only exceptions are written at `rim`.
//! - Health and metrics wait for nothing but a worker thread.

mod about;
mod accept;
mod acquire;
mod answer;
mod app;
mod ask;
mod attention;
mod audit;
mod backup;
mod batch;
mod body;
mod browser;
mod caller;
mod cancel_wait;
mod clients;
mod cluster;
mod dispatch;
mod domains;
mod failure;
mod fault;
mod fence;
mod force_release;
mod forward;
mod forwarded;
mod from_wire;
mod grants;
mod head;
mod health;
mod leases;
mod link;
mod listen;
mod locks;
pub mod metrics;
mod openapi;
mod query;
mod release;
mod renew;
mod rim;
mod routes;
pub mod server;
mod settings;
#[cfg(test)]
mod testing;
mod to_wire;
mod trace;
mod watch;
mod why;

pub use app::Shown;
pub use server::{Server, Sockets, StartError, start};
pub use settings::Settings;
