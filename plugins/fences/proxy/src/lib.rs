//! A reverse proxy that refuses a write with a stale token before its upstream sees a byte of it.
//!
//! ```text
//! client ──► door ──► answer ─────────────────► upstream ──► line ──► storage
//!                       │ rules: must it show a token, and whose?
//!                       │ fence: stale? ── checks: was it ever issued?
//!                       │ fence: older writes in flight? then it waits
//!                       │ gate: do we hold our own lock on the upstream?
//! ```
//!
//! | file | holds |
//! | --- | --- |
//! | [`Proxy`] (`proxy`), [`Settings`], [`Home`], [`StartError`] | its life: start, stop, what it is told, where it keeps things |
//! | `door`, `patient`, `ops` | where clients come in; health and metrics |
//! | `answer` | one request, from its head to its answer |
//! | `origin`, [`Rules`], [`MakesOnly`], [`Pattern`], `paths`, `shown` | what a request asks for, from its head alone |
//! | `headers` | what is taken off and put on, both ways |
//! | `checks` | asking the service about a token that nobody has seen |
//! | `upstream`, `line`, [`Target`], `tls` | connections to the upstream |
//! | `exchange`, `outgoing`, `answering`, `stall` | a request under way, and when a write is over |
//! | `tenure`, `witness`, `service`, `gate` | the proxy's own lock, who says how it ended, whether that can be believed, and what it means for writes |
//! | [`Problem`], [`Code`], `metrics` | what went wrong, and how often |
//!
//! What must stay true:
//!
//! - Of a write that is refused, the upstream gets no byte.
//! - A newer token is durable before it is let through, and is let through only when every older
//!   write of its resource is over: its whole answer was read, or its connection ended a settle
//!   time ago.
//! - A write is begun only while the lock on the upstream is held, and cut before it may end.
//! - That nothing of a proxy before this one is in flight is taken from its own word alone.
//! - Bodies are never held: what is in memory of one is bounded, whatever its length.

mod answer;
mod answering;
mod checks;
mod door;
mod exchange;
mod gate;
mod headers;
mod home;
mod line;
mod metrics;
mod ops;
mod origin;
mod outgoing;
mod paths;
mod patient;
mod pattern;
mod problem;
mod proxy;
mod rules;
mod service;
mod settings;
mod shown;
mod stall;
mod start_error;
mod target;
mod tenure;
mod tls;
mod upstream;
mod witness;

pub use home::Home;
pub use pattern::Pattern;
pub use problem::{Code, Problem};
pub use proxy::{Proxy, Stopped};
pub use rules::{MakesOnly, Rules};
pub use settings::{Limits, Settings};
pub use start_error::StartError;
pub use target::Target;
