//! An address, and sessions at it.

use crate::error::Error;
use crate::tls;
use ::redis::aio::MultiplexedConnection;
use ::redis::{AsyncConnectionConfig, Client, ErrorKind, RedisError, TlsCertificates, Value};
use std::path::Path;
use std::time::Duration;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Where a Redis is.
#[derive(Clone)]
pub struct Server(Client);

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let info = self.0.get_connection_info();
        f.debug_tuple("Server").field(&info.addr().to_string()).finish()
    }
}

impl Server {
    /// From a `redis://` or `rediss://` URL. With TLS the certificate of the server is verified,
    /// against `ca_file` or the machine's authorities.
    ///
    /// # Errors
    /// [`Error::Usage`] when the address or the file cannot be understood.
    pub fn new(address: &str, ca_file: Option<&Path>) -> Result<Self, Error> {
        let wrong = |error: RedisError| {
            Error::Usage(format!(
                "the address of the Redis: {error}; it looks like redis://HOST:PORT or \
                 rediss://USER:PASSWORD@HOST:PORT"
            ))
        };
        let Some(path) = ca_file else { return Client::open(address).map(Self).map_err(wrong) };
        if !address.starts_with("rediss://") {
            return Err(Error::Usage("a CA file is for a rediss:// address".to_owned()));
        }
        // Whether there is a certificate in it shows here, and not in a handshake that fails.
        tls::config(ca_file)?;
        let certificates = TlsCertificates { client_tls: None, root_cert: Some(tls::pem(path)?) };
        Client::build_with_tls(address, certificates).map(Self).map_err(wrong)
    }

    pub(crate) async fn connect(&self) -> Result<MultiplexedConnection, Error> {
        // The library for TLS asks for the provider of the process where it is given none.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(ANSWER_TIMEOUT));
        // A port may accept and never answer.
        let connecting = self.0.get_multiplexed_async_connection_with_config(&config);
        match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) if !error.is_timeout() => Err(unconnected(failure(&error))),
            Ok(Err(_)) | Err(_) => Err(unconnected(Error::Unreachable(format!(
                "it does not answer within {} s",
                CONNECT_TIMEOUT.as_secs()
            )))),
        }
    }
}

/// A refusal is of the server itself, and says all.
fn unconnected(error: Error) -> Error {
    let Error::Unreachable(why) = error else { return error };
    let hint = if why.contains("certificate") { "; name the authority with --ca-file" } else { "" };
    Error::Unreachable(format!("no connection to the Redis: {why}{hint}"))
}

/// An error of Redis, or of the way to it.
pub(crate) fn failure(error: &RedisError) -> Error {
    let text = told(error);
    let code = error.code().unwrap_or_default();
    let away = ["LOADING", "CLUSTERDOWN", "MASTERDOWN"].contains(&code);
    match error.kind() {
        ErrorKind::Server(_) | ErrorKind::Extension | ErrorKind::AuthenticationFailed if !away => {
            Error::Refused(text)
        }
        _ => Error::Unreachable(text),
    }
}

/// The error in the words of the server.
pub(crate) fn told(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    }
}

/// A text or a number, as text.
pub(crate) fn text(value: &Value) -> Option<String> {
    match value {
        Value::Int(number) => Some(number.to_string()),
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text.clone()),
        Value::Okay => Some("OK".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_addresses_are_refused_and_tell_no_password() {
        for address in ["http://u:hunter2@db", "redis://:hunter2@db:port", ""] {
            let error = Server::new(address, None).expect_err(address);
            assert!(!error.to_string().contains("hunter2"), "{error}");
            assert!(error.to_string().contains("redis://HOST:PORT"), "{error}");
            assert_eq!(error.code(), "usage");
        }
        let shown = format!("{:?}", Server::new("redis://:hunter2@db/0", None));
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
