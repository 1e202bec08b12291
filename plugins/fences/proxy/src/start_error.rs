//! Why a proxy does not start.

use std::io;
use std::path::{Path, PathBuf};

/// Why a proxy does not start, or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Another proxy stands before this upstream, or runs on this data directory.
    #[error("{detail}")]
    Held {
        /// Who, as far as the service says.
        detail: String,
    },
    /// The data directory is that of another upstream, whose tokens say nothing about this one.
    #[error(
        "{} belongs to the upstream {upstream}: give this one another --data-dir, or \
         --upstream-name {upstream} if it is the same storage",
        dir.display()
    )]
    OtherUpstream {
        /// The data directory.
        dir: PathBuf,
        /// What its upstream is called.
        upstream: String,
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

impl StartError {
    /// The name of whoever works on the directory is known once it has one.
    pub(crate) fn in_use(name: Option<&str>, dir: &Path) -> Self {
        let (name, dir) = (name.unwrap_or("one that has just started"), dir.display());
        let detail = format!(
            "another proxy runs on this data directory: {name}, on {dir}. One upstream has one \
             proxy: send clients to that one, or stop it; another upstream needs another --data-dir"
        );
        Self::Held { detail }
    }
}
