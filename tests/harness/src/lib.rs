//! What every black-box test needs: the real binary in a process of its own, a client that speaks
//! plain HTTP/1.1 to it, and a checker that judges a recorded history.
//!
//! Nothing here links the server. A test sees what an operator and a client see, so it keeps its
//! meaning when the inside is rewritten.

mod answer;
pub mod certificate;
mod client;
mod clock;
mod cluster;
mod disk;
mod history;
mod network;
pub mod nginx;
mod ports;
pub mod postgres;
pub mod process;
mod random;
pub mod redis;
mod roaming;
mod server;
pub mod storm;
mod verbs;
mod wait;
mod watcher;

pub use answer::Answer;
pub use client::{Client, encode};
pub use clock::{Clocks, WallClock, ahead};
pub use cluster::{Cluster, Nodes, slow_sync};
pub use disk::Disk;
pub use history::{Breach, History};
pub use network::Network;
pub use ports::free_ports;
pub use random::Random;
pub use roaming::{Book, Roaming};
pub use serde_json::{Value, json};
pub use server::{Builder, Refused, Server};
pub use verbs::{ask, ask_on, with};
pub use wait::{eventually, within};
pub use watcher::{Told, Watcher};
