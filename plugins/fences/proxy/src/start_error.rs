//! Why a proxy does not start.

use std::io;

/// Why a proxy does not start, or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Another proxy stands before this upstream.
    #[error("{detail}")]
    Held {
        /// Who, as far as the service says.
        detail: String,
    },
    /// The service, or the way to it.
    #[error("the lock on the upstream was not got: {0}")]
    Service(Box<leasehold_client::Error>),
    /// The data directory.
    #[error("{0}")]
    Home(io::Error),
    /// The file with the highest tokens.
    #[error("{0}")]
    Fence(String),
    /// An address to listen on.
    #[error("cannot listen on {0}: {1}")]
    Listen(std::net::SocketAddr, io::Error),
    /// A setting.
    #[error("{0}")]
    Setting(String),
}
