//! One `UPDATE` beside the same one after a guard, and on a table in trigger mode: each in a
//! transaction, statement after statement or all in one flight.

use anyhow::Context as _;
use leasehold_harness::postgres::Postgres;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls, Statement};

use super::{Store, Writer};
use crate::Guard;

const KIT: &str = include_str!("../../../../plugins/fences/postgres/install.sql");

/// That of every writer: each has a fence of its own.
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

/// The same server and the same statements, sent together: a guard that refuses makes the update
/// after it fail as well, so nothing has to wait for its answer.
pub(super) struct Pipelined(pub(super) Transactions);

impl Store for Pipelined {
    type Way = Way;
    type Writer = Flight;

    const WAYS: &[(&str, Way)] = &[
        ("plain-pipelined", Way::Plain),
        ("guard-pipelined", Way::Guard),
        ("trigger-pipelined", Way::Trigger),
    ];

    async fn open(&self, way: Way, connection: usize) -> anyhow::Result<Flight> {
        Ok(Flight(self.0.open(way, connection).await?))
    }
}

pub(super) struct Flight(Transaction);

impl Writer for Flight {
    async fn write(&mut self) -> anyhow::Result<()> {
        let Transaction { client, fence, update, resource, id } = &self.0;
        let guard = async {
            match fence {
                Some(fence) => client.query(fence, &[resource, &TOKEN]).await.map(drop),
                None => Ok(()),
            }
        };
        let row: [&(dyn ToSql + Sync); 1] = [id];
        // Sent in this order, as each is sent when it is first polled.
        let ((), (), updated, ()) = tokio::try_join!(
            biased;
            client.batch_execute("BEGIN"),
            guard,
            client.execute(update, &row),
            client.batch_execute("COMMIT"),
        )?;
        anyhow::ensure!(updated == 1, "{updated} rows instead of one");
        Ok(())
    }
}
