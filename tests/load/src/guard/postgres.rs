//! One `UPDATE` beside the same one after a guard, and on a table in trigger mode.

use anyhow::Context as _;
use leasehold_harness::postgres::Postgres;
use tokio_postgres::{Client, NoTls, Statement};

use super::{Store, Writer};
use crate::Guard;

const KIT: &str = include_str!("../../../../plugins/fences/postgres/install.sql");

/// How often a fence is guarded in its life: once per way, as every way has tables of its own.
const TOKEN: i64 = 34;

/// A PostgreSQL with the kit, which syncs every commit as it does by default.
pub(super) struct Transactions {
    server: Postgres,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Way {
    Plain,
    Guard,
    Trigger,
}

impl Way {
    /// A table of its own, so that no way leaves its dead rows to the next one.
    fn table(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Guard => "guarded",
            Self::Trigger => "protected",
        }
    }
}

impl Transactions {
    pub(super) async fn start(args: &Guard) -> anyhow::Result<Self> {
        let most = args.connections.iter().max().copied().unwrap_or_default();
        let limit = (most + 10).to_string();
        let server = Postgres::start_with(&[("max_connections", &limit)]);
        let store = Self { server };
        let client = store.connect().await?;
        client.batch_execute(KIT).await.context("install the kit")?;
        for way in [Way::Plain, Way::Guard, Way::Trigger] {
            let table = way.table();
            client
                .batch_execute(&format!(
                    "CREATE TABLE {table} (id int PRIMARY KEY, amount bigint NOT NULL);
                     INSERT INTO {table} SELECT id, 0 FROM generate_series(0, {most}) AS id"
                ))
                .await?;
        }
        client.batch_execute("SELECT leasehold.protect('protected')").await?;
        Ok(store)
    }

    async fn connect(&self) -> anyhow::Result<Client> {
        let (client, connection) = tokio_postgres::connect(&self.server.url(), NoTls).await?;
        // It ends with its client, and what went wrong reaches the client's call.
        tokio::spawn(connection);
        Ok(client)
    }
}

impl Store for Transactions {
    type Way = Way;
    type Writer = Transaction;

    const WAYS: &[(&str, Way)] =
        &[("plain", Way::Plain), ("guard", Way::Guard), ("trigger", Way::Trigger)];

    async fn open(&self, way: Way, connection: usize) -> anyhow::Result<Transaction> {
        let client = self.connect().await?;
        let fence = match way {
            Way::Plain => None,
            Way::Guard => Some("SELECT leasehold.guard($1, $2)"),
            Way::Trigger => Some(
                "SELECT set_config('leasehold.resource', $1, true),
                        set_config('leasehold.token', $2::bigint::text, true)",
            ),
        };
        let fence = match fence {
            Some(text) => Some(client.prepare(text).await?),
            None => None,
        };
        let update = format!("UPDATE {} SET amount = amount + 1 WHERE id = $1", way.table());
        let update = client.prepare(&update).await?;
        let resource = format!("invoice/{}/{connection}", way.table());
        Ok(Transaction { client, fence, update, resource, id: connection as i32 })
    }
}

/// Statement after statement, as most applications do.
pub(super) struct Transaction {
    client: Client,
    fence: Option<Statement>,
    update: Statement,
    resource: String,
    id: i32,
}

impl Writer for Transaction {
    async fn write(&mut self) -> anyhow::Result<()> {
        self.client.batch_execute("BEGIN").await?;
        if let Some(fence) = &self.fence {
            self.client.query(fence, &[&self.resource, &TOKEN]).await?;
        }
        let updated = self.client.execute(&self.update, &[&self.id]).await?;
        anyhow::ensure!(updated == 1, "{updated} rows instead of one");
        Ok(self.client.batch_execute("COMMIT").await?)
    }
}

/// The same server, asked in single messages: several statements in one are one transaction.
pub(super) struct Single(pub(super) Transactions);

impl Store for Single {
    type Way = Way;
    type Writer = Message;

    const WAYS: &[(&str, Way)] = &[
        ("single-plain", Way::Plain),
        ("guard-single", Way::Guard),
        ("trigger-single", Way::Trigger),
    ];

    async fn open(&self, way: Way, connection: usize) -> anyhow::Result<Message> {
        let table = way.table();
        let resource = format!("invoice/{table}/{connection}");
        let fence = match way {
            Way::Plain => String::new(),
            Way::Guard => format!("SELECT leasehold.guard('{resource}', {TOKEN}); "),
            Way::Trigger => format!(
                "SET LOCAL leasehold.resource = '{resource}'; SET LOCAL leasehold.token = '{TOKEN}'; "
            ),
        };
        let text = format!("{fence}UPDATE {table} SET amount = amount + 1 WHERE id = {connection}");
        // Outside of a transaction that somebody has begun, a setting for it would be lost.
        let text = if way == Way::Trigger { format!("BEGIN; {text}; COMMIT") } else { text };
        Ok(Message { client: self.0.connect().await?, text })
    }
}

pub(super) struct Message {
    client: Client,
    text: String,
}

impl Writer for Message {
    async fn write(&mut self) -> anyhow::Result<()> {
        Ok(self.client.batch_execute(&self.text).await?)
    }
}
