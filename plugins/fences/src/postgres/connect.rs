//! An address, and sessions at it.

use crate::error::{Error, chain};
use crate::tls;
use std::path::Path;
use std::time::Duration;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, SimpleQueryMessage};
use tokio_postgres_rustls::MakeRustlsConnect;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Whatever the server's settings are: literals mean what they say, notices stay away, and nothing
/// that is left behind blocks anybody for long. And whatever others have made in the schemas of the
/// path: a better match there than that of the system would run with the rights of this session. And
/// each statement sees what was committed before it, which the scripts ask for: what somebody commits
/// while one of them waits is not missed.
const SETTINGS: &str = "SET search_path = pg_catalog, pg_temp; \
     SET default_transaction_isolation = 'read committed'; \
     SET standard_conforming_strings = on; SET client_min_messages = warning; \
     SET statement_timeout = '60s'; SET lock_timeout = '30s'; \
     SET idle_in_transaction_session_timeout = '60s'";

/// Where a database is.
#[derive(Clone)]
pub struct Database {
    config: Config,
    tls: MakeRustlsConnect,
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").field("hosts", &self.config.get_hosts()).finish_non_exhaustive()
    }
}

impl Database {
    /// From a URL or a connection string, as `psql` takes it. With `sslmode=require` or stricter
    /// the certificate of the server is always verified, against `ca_file` or the machine's
    /// authorities.
    ///
    /// # Errors
    /// [`Error::Usage`] when the address or the file cannot be understood.
    pub fn new(address: &str, ca_file: Option<&Path>) -> Result<Self, Error> {
        // Both are what `require` means here.
        let address = ["verify-full", "verify-ca"].iter().fold(address.to_owned(), |text, mode| {
            text.replace(&format!("sslmode={mode}"), "sslmode=require")
        });
        let mut config: Config = address.parse().map_err(|error: tokio_postgres::Error| {
            Error::Usage(format!(
                "the address of the database: {}; it looks like \
                 postgres://USER:PASSWORD@HOST:PORT/DATABASE, or host=HOST dbname=DATABASE",
                chain(&error)
            ))
        })?;
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_application_name().is_none() {
            config.application_name("leasehold");
        }
        Ok(Self { config, tls: MakeRustlsConnect::new(tls::config(ca_file)?) })
    }

    /// The same with another name for those who list sessions.
    pub(crate) fn named(&self, name: &str) -> Self {
        let mut config = self.config.clone();
        config.application_name(name);
        Self { config, tls: self.tls.clone() }
    }

    pub(crate) async fn connect(&self) -> Result<Client, Error> {
        // A port may accept and never answer: what is set counts for the first step only.
        let most = self.config.get_connect_timeout().copied().unwrap_or(CONNECT_TIMEOUT);
        let connected = tokio::time::timeout(most, self.session()).await;
        connected.unwrap_or_else(|_| {
            let told = "no connection to the database: it takes one and does not answer";
            Err(Error::Unreachable(told.to_owned()))
        })
    }

    async fn session(&self) -> Result<Client, Error> {
        let connected = self.config.connect(self.tls.clone()).await;
        let (client, connection) = connected.map_err(|error| match error.as_db_error() {
            Some(_) => failure(&error),
            None => Error::Unreachable(format!(
                "no connection to the database: {}{}",
                chain(&error),
                hint(&error)
            )),
        })?;
        // It ends with the client, and whoever uses the client learns what went wrong.
        tokio::spawn(connection);
        client.batch_execute(SETTINGS).await.map_err(|error| failure(&error))?;
        Ok(client)
    }
}

fn hint(error: &tokio_postgres::Error) -> &'static str {
    if chain(error).contains("certificate") {
        "; name the authority with --ca-file, or say sslmode=disable for a server without TLS"
    } else {
        ""
    }
}

/// An error of the database with its code, or of the way to it.
pub(crate) fn failure(error: &tokio_postgres::Error) -> Error {
    let Some(told) = error.as_db_error() else { return Error::Unreachable(chain(error)) };
    let detail = told.detail().map(|detail| format!(" ({detail})")).unwrap_or_default();
    let hint = told.hint().map(|hint| format!(" - {hint}")).unwrap_or_default();
    let text = format!("{}: {}{detail}{hint}", told.code().code(), told.message());
    if went_away(told.code()) { Error::Unreachable(text) } else { Error::Refused(text) }
}

/// Shut down, starting up, or out of connections.
fn went_away(code: &SqlState) -> bool {
    let code = code.code();
    code.starts_with("57P") || code.starts_with("08") || code == "53300"
}

/// From here on names are looked up as the role and the database have it, for statements of a user's.
pub(crate) async fn as_the_user_has_it(client: &Client) -> Result<(), Error> {
    client.batch_execute("RESET search_path").await.map_err(|error| failure(&error))
}

/// From here on names are those of the system, for statements of our own.
pub(crate) async fn as_the_system_has_it(client: &Client) -> Result<(), Error> {
    let pin = "SET search_path = pg_catalog, pg_temp";
    client.batch_execute(pin).await.map_err(|error| failure(&error))
}

/// From here on locks are waited for as the role and the database have it, and else as the scripts do.
pub(crate) async fn as_the_database_waits(client: &Client) -> Result<(), Error> {
    client.batch_execute("RESET lock_timeout").await.map_err(|error| failure(&error))
}

/// The rows of a query of our own, as text.
pub(crate) async fn rows(client: &Client, sql: &str) -> Result<Vec<Vec<Option<String>>>, Error> {
    let answer = client.simple_query(sql).await.map_err(|error| failure(&error))?;
    let rows = answer.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => {
            Some((0..row.len()).map(|column| row.get(column).map(str::to_owned)).collect())
        }
        _ => None,
    });
    Ok(rows.collect())
}

/// The first column of the first row.
pub(crate) async fn value(client: &Client, sql: &str) -> Result<Option<String>, Error> {
    Ok(rows(client, sql).await?.into_iter().next().and_then(|row| row.into_iter().next().flatten()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_that_does_not_answer_is_given_up() {
        let mute = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = mute.local_addr().expect("it is bound");
        let address = format!("postgres://app@{address}/shop?connect_timeout=1");
        let database = Database::new(&address, None).expect("an address");
        let error = database.connect().await.expect_err("nobody answers");
        assert_eq!(error.code(), "store_unavailable");
    }

    #[test]
    fn strict_modes_are_understood_and_wrong_addresses_tell_no_password() {
        for mode in ["verify-full", "verify-ca", "require", "disable", "prefer"] {
            let address = format!("postgres://app@db/shop?sslmode={mode}");
            assert!(Database::new(&address, None).is_ok(), "{mode}");
        }
        for address in ["postgres://app:hunter2@db:port/x", "host=db password=hunter2 nonsense=1"] {
            let error = Database::new(address, None).expect_err(address);
            assert!(!error.to_string().contains("hunter2"), "{error}");
            assert!(error.to_string().contains("HOST:PORT/DATABASE"), "{error}");
            assert_eq!(error.code(), "usage");
        }
        let shown = format!("{:?}", Database::new("postgres://a:hunter2@db/x", None));
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
