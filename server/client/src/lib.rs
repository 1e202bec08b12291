//! The async client of Leasehold: leases, guards, fencing tokens, and watch.
//!
//! Take a lock, write with its token, give it back:
//!
//! ```
//! use leasehold_client::{Client, State};
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = leasehold_client_fake::Service::start().await?;
//! # let url = server.url();
//! // Several servers may be named; any of them answers for the cluster.
//! let client = Client::builder().server(url).client_id("billing-worker-7").build()?;
//!
//! // Stands in line for up to a minute. The guard renews in the background until it is dropped.
//! let guard = client
//!     .acquire("payments/invoice/42")
//!     .ttl(Duration::from_secs(10))
//!     .wait(Duration::from_secs(60))
//!     .await?;
//!
//! // Storage that compares the token refuses a holder that was overtaken without noticing it.
//! for (name, value) in guard.fencing_headers() {
//!     println!("{name}: {value}");
//! }
//! # let write_invoice = async |_token: u64| {};
//!
//! // Work only while the lock is held: `lost` resolves before anybody else can be let in.
//! tokio::select! {
//!     () = write_invoice(guard.token()) => {}
//!     why = guard.lost() => panic!("stopped in time: {why}"),
//! }
//! assert_eq!(guard.state(), State::Held);
//!
//! guard.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! | file | holds |
//! | --- | --- |
//! | [`Client`] (`client`, `builder`, `verbs`, `readers`, `operator`) | the handle and its calls |
//! | [`Acquire`], [`Guard`], [`Lease`] | asking for a lock, holding it, holding many |
//! | [`Belief`], [`validity`], `keeper` | held, uncertain, lost; renewal in the background |
//! | [`BootInstant`] (`clock`), [`Alarm`], `timer` | the clock that runs through a suspend |
//! | [`Watch`] (`watch`, `sse`) | events in order, once, over any number of connections |
//! | [`Pages`] (`pages`) | lists, page by page |
//! | [`Backup`] (`backup`) | everything that the service has, as one file |
//! | [`fence`] | for the other side: storage in Rust that refuses stale tokens |
//! | [`Error`] | what a caller can act upon |
//! | `call`, `failure`, `backoff`, `transport`, `encode` | repeats within a budget, over HTTP |
//! | `servers`, `leader`, `vigil` | which server is asked; which one leads; whether one is still there |
//!
//! What must stay true:
//!
//! - A holder never believes longer than the instant at which the confirmed request was sent +
//!   its `valid_for_ms`. See [`validity`].
//! - A call that may have taken effect is repeated only with the same `request_id`, or where
//!   doing it twice is doing it once.
//! - No call outlives its budget, and no place in line and no lock outlives the call that asked
//!   for it, as far as the network lets the client say so.
//!
//! Linux only: the clock and its timers are the kernel's.

mod acquire;
mod alarm;
mod answer;
mod backoff;
mod backup;
mod belief;
mod builder;
mod call;
mod client;
mod clock;
mod encode;
mod error;
mod failure;
pub mod fence;
mod filters;
mod guard;
mod keeper;
mod leader;
mod lease;
mod operator;
mod pages;
mod readers;
mod servers;
mod sse;
mod timer;
mod transport;
pub mod validity;
mod verbs;
mod vigil;
mod watch;

pub use acquire::Acquire;
pub use alarm::Alarm;
pub use answer::Answer;
pub use backup::Backup;
pub use belief::Belief;
pub use builder::Builder;
pub use client::Client;
pub use clock::BootInstant;
pub use encode::fencing_resource;
pub use error::Error;
pub use filters::{GrantsFilter, LeasesFilter, LocksFilter};
pub use guard::Guard;
pub use lease::Lease;
pub use leasehold_wire as wire;
pub use pages::Pages;
pub use validity::{Lost, State};
pub use verbs::new_request_id;
pub use watch::{Watch, WatchFilter, WatchItem};
