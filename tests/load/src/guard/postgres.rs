//! A read and a write of one row, as a holder makes them, beside the same with a guard: as a
//! condition of the write, as a statement of its own that goes with `BEGIN` or is waited for, and on
//! a table in trigger mode. And the write alone, all in one flight, of which a guard is the largest
//! part that it can be of anything.

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
    Passes,
    Guard,
    /// A guard that costs a round trip of its own.
    Waited,
    Trigger,
}

impl Way {
    /// A table of its own, so that no way leaves its dead rows to the next one.
    fn table(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Passes => "passed",
            Self::Guard => "guarded",
            Self::Waited => "waited",
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
        for (_, way) in Self::WAYS {
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

    const WAYS: &[(&str, Way)] = &[
        ("plain", Way::Plain),
        ("passes", Way::Passes),
        ("guard", Way::Guard),
        ("guard-waited", Way::Waited),
        ("trigger", Way::Trigger),
    ];

    async fn open(&self, way: Way, connection: usize) -> anyhow::Result<Transaction> {
        let client = self.connect().await?;
        let fence = match way {
            Way::Plain | Way::Passes => None,
            Way::Guard | Way::Waited => Some("SELECT leasehold.guard($1, $2)"),
            Way::Trigger => Some(
                "SELECT set_config('leasehold.resource', $1, true),
                        set_config('leasehold.token', $2::bigint::text, true)",
            ),
        };
        let fence = match fence {
            Some(text) => Some(client.prepare(text).await?),
            None => None,
        };
        let table = way.table();
        let condition = match way {
            Way::Passes => "leasehold.passes($2, $3)",
            // The same parameters for all.
            _ => "$2::text IS NOT NULL AND $3::bigint IS NOT NULL",
        };
        let read = client.prepare(&format!("SELECT amount FROM {table} WHERE id = $1")).await?;
        let update = format!("UPDATE {table} SET amount = $4 WHERE id = $1 AND {condition}");
        let update = client.prepare(&update).await?;
        let resource = format!("invoice/{table}/{connection}");
        let waits = way == Way::Waited;
        Ok(Transaction { client, fence, waits, read, update, resource, id: connection as i32 })
    }
}

/// Statement after statement, as most applications do, but for a guard, which goes with `BEGIN` unless
/// it is waited for.
pub(super) struct Transaction {
    client: Client,
    fence: Option<Statement>,
    /// Whether `BEGIN` is answered before the fence is asked.
    waits: bool,
    read: Statement,
    update: Statement,
    resource: String,
    id: i32,
}

impl Transaction {
    async fn begin(&self) -> anyhow::Result<()> {
        let begin = self.client.batch_execute("BEGIN");
        let Some(fence) = &self.fence else { return Ok(begin.await?) };
        let parameters: [&(dyn ToSql + Sync); 2] = [&self.resource, &TOKEN];
        let guard = self.client.query(fence, &parameters);
        if self.waits {
            begin.await?;
            guard.await?;
        } else {
            tokio::try_join!(biased; begin, guard)?;
        }
        Ok(())
    }

    async fn update(&self, amount: i64) -> Result<u64, tokio_postgres::Error> {
        self.client.execute(&self.update, &[&self.id, &self.resource, &TOKEN, &amount]).await
    }
}

impl Writer for Transaction {
    async fn write(&mut self) -> anyhow::Result<()> {
        self.begin().await?;
        let amount: i64 = self.client.query_one(&self.read, &[&self.id]).await?.get(0);
        let updated = self.update(amount + 1).await?;
        anyhow::ensure!(updated == 1, "{updated} rows instead of one");
        Ok(self.client.batch_execute("COMMIT").await?)
    }
}

/// The same without the read, sent together: a guard that refuses makes the update after it fail as
/// well, so nothing has to wait for its answer.
pub(super) struct Pipelined(pub(super) Transactions);

impl Store for Pipelined {
    type Way = Way;
    type Writer = Flight;

    const WAYS: &[(&str, Way)] = &[
        ("plain-pipelined", Way::Plain),
        ("passes-pipelined", Way::Passes),
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
        let one = &self.0;
        // Sent in this order, as each is sent when it is first polled.
        let ((), updated, ()) = tokio::try_join!(
            biased;
            one.begin(),
            async { Ok(one.update(1).await?) },
            async { Ok(one.client.batch_execute("COMMIT").await?) },
        )?;
        anyhow::ensure!(updated == 1, "{updated} rows instead of one");
        Ok(())
    }
}
