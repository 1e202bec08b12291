//! One client of one lock service, on one connection.

use std::net::SocketAddr;

use clap::ValueEnum;

use crate::etcd::Gateway;
use crate::grpc::Grpc;
use crate::leasehold::Leasehold;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Target {
    Leasehold,
    /// etcd's lock service through its JSON gateway.
    Etcd,
    /// The same service through gRPC, so that the gateway is not what is measured.
    EtcdGrpc,
    Constant,
}

impl Target {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Leasehold => "leasehold",
            Self::Etcd => "etcd (JSON)",
            Self::EtcdGrpc => "etcd (gRPC)",
            Self::Constant => "constant",
        }
    }
}

/// A connected client that locks and unlocks one name.
#[derive(Debug)]
pub(crate) enum Session {
    Leasehold(Leasehold),
    Gateway(Gateway),
    Grpc(Grpc),
}

impl Session {
    pub(crate) async fn open(
        target: Target,
        addr: SocketAddr,
        name: &str,
        client: usize,
    ) -> anyhow::Result<Self> {
        Ok(match target {
            // The constant server is asked in exactly the same words.
            Target::Leasehold | Target::Constant => {
                Self::Leasehold(Leasehold::open(addr, name, client).await?)
            }
            Target::Etcd => Self::Gateway(Gateway::open(addr, name).await?),
            Target::EtcdGrpc => Self::Grpc(Grpc::open(addr, name).await?),
        })
    }

    /// Waits until the lock is ours.
    pub(crate) async fn lock(&mut self) -> anyhow::Result<()> {
        match self {
            Self::Leasehold(session) => session.lock().await,
            Self::Gateway(session) => session.lock().await,
            Self::Grpc(session) => session.lock().await,
        }
    }

    pub(crate) async fn unlock(&mut self) -> anyhow::Result<()> {
        match self {
            Self::Leasehold(session) => session.unlock().await,
            Self::Gateway(session) => session.unlock().await,
            Self::Grpc(session) => session.unlock().await,
        }
    }

    /// Tidies up what would slow the next run down. Best effort: names are never used twice.
    pub(crate) fn leftover(&self) -> Option<i64> {
        match self {
            Self::Leasehold(_) => None,
            Self::Gateway(session) => Some(session.lease()),
            Self::Grpc(session) => Some(session.lease()),
        }
    }
}
