//! `SET` beside the function that fences it.

use ::redis::aio::MultiplexedConnection;
use ::redis::{Client, cmd};
use leasehold_harness::redis::Redis;

use super::{Store, Writer};

const LIBRARY: &str = include_str!("../../../../plugins/fences/redis/leasehold.lua");

/// A Redis with the library, which syncs every write before it answers.
pub(super) struct Library {
    server: Redis,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Way {
    Set,
    /// A holder that writes often: its token is known.
    SameToken,
    /// A holder for each write: every write raises the fence.
    NewToken,
}

impl Library {
    pub(super) async fn start() -> anyhow::Result<Self> {
        let server = Redis::start();
        let mut connection = Client::open(server.url())?.get_multiplexed_async_connection().await?;
        cmd("FUNCTION").arg(&["LOAD", "REPLACE", LIBRARY]).exec_async(&mut connection).await?;
        Ok(Self { server })
    }
}

impl Store for Library {
    type Way = Way;
    type Writer = Setter;

    const WAYS: &[(&str, Way)] =
        &[("SET", Way::Set), ("redis", Way::SameToken), ("redis-new", Way::NewToken)];

    async fn open(&self, way: Way, connection: usize) -> anyhow::Result<Setter> {
        let client = Client::open(self.server.url())?;
        let mut redis = client.get_multiplexed_async_connection().await?;
        let resource = format!("invoice/{connection}");
        let fence = format!("fence:{{{resource}}}");
        let highest = cmd("FCALL").arg(&["leasehold_highest", "1", &fence]).to_owned();
        let highest: Option<u64> = highest.query_async(&mut redis).await?;
        let token = highest.unwrap_or_default() + 1;
        Ok(Setter { redis, way, fence, key: format!("{{{resource}}}"), token, value: 0 })
    }
}

pub(super) struct Setter {
    redis: MultiplexedConnection,
    way: Way,
    fence: String,
    key: String,
    token: u64,
    value: u64,
}

impl Writer for Setter {
    async fn write(&mut self) -> anyhow::Result<()> {
        self.value += 1;
        self.token += u64::from(self.way == Way::NewToken);
        let command = match self.way {
            Way::Set => cmd("SET").arg(&self.key).arg(self.value).to_owned(),
            Way::SameToken | Way::NewToken => cmd("FCALL")
                .arg(&["leasehold_set", "2", &self.fence, &self.key])
                .arg(self.token)
                .arg(self.value)
                .to_owned(),
        };
        Ok(command.exec_async(&mut self.redis).await?)
    }
}
