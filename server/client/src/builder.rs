//! What a client is made of.

use crate::client::Client;
use crate::error::Error;
use crate::servers::Servers;
use crate::transport::Transport;
use hyper::header::HeaderValue;
use std::fmt;
use std::time::Duration;

/// Nothing is waited for longer: a year, so that sums of times stay far from what a clock can say.
pub(crate) const SPAN_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Settings of a [`Client`]; start with [`Client::builder`].
#[derive(Clone)]
pub struct Builder {
    servers: Vec<String>,
    client_id: Option<String>,
    credential: Option<String>,
    times: Times,
}

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    /// A whole call, repeats and all; a wait in line comes on top.
    pub(crate) budget: Duration,
    /// One attempt, from sending to the whole answer; a wait in line comes on top.
    pub(crate) attempt: Duration,
    /// One connection to one server.
    pub(crate) connect: Duration,
    /// A watch without a single byte.
    pub(crate) silence: Duration,
}

impl Default for Builder {
    fn default() -> Self {
        let times = Times {
            budget: Duration::from_secs(15),
            attempt: Duration::from_secs(5),
            connect: Duration::from_secs(2),
            silence: Duration::from_secs(45),
        };
        Self { servers: Vec::new(), client_id: None, credential: None, times }
    }
}

/// Without the credential, which has no place in logs.
impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("servers", &self.servers)
            .field("client_id", &self.client_id)
            .field("times", &self.times)
            .finish_non_exhaustive()
    }
}

impl Builder {
    /// Adds a server, such as `http://127.0.0.1:7070`: a node of the cluster, whose every node
    /// answers every call. The first one is asked first. Another one is asked when it cannot be
    /// reached, cannot serve or says nothing, also in the middle of a wait or a watch; and once it
    /// is known which of them leads, that one. No address but these is ever asked.
    #[must_use]
    pub fn server(mut self, url: impl Into<String>) -> Self {
        self.servers.push(url.into());
        self
    }

    /// Adds several servers.
    #[must_use]
    pub fn servers<U: Into<String>>(mut self, urls: impl IntoIterator<Item = U>) -> Self {
        self.servers.extend(urls.into_iter().map(Into::into));
        self
    }

    /// The label under which the service knows this client: 1 to 256 bytes. Left out: one that
    /// no other process has.
    #[must_use]
    pub fn client_id(mut self, client_id: impl Into<String>) -> Self {
        self.client_id = Some(client_id.into());
        self
    }

    /// The secret that says who calls, sent as a bearer token.
    #[must_use]
    pub fn credential(mut self, credential: impl Into<String>) -> Self {
        self.credential = Some(credential.into());
        self
    }

    /// How long a call may take with all its repeats: 15 s unless it is said otherwise. Time in
    /// line comes on top.
    #[must_use]
    pub fn budget(mut self, budget: Duration) -> Self {
        self.times.budget = budget.min(SPAN_MAX);
        self
    }

    /// How long one attempt may take before the call is repeated: 5 s unless it is said otherwise.
    /// With several servers the first attempt at each has a quarter of it, and twice as much every
    /// further round, unless the call is one that must not be repeated.
    #[must_use]
    pub fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.times.attempt = timeout.min(SPAN_MAX);
        self
    }

    /// How long a server may take to accept a connection: 2 s unless it is said otherwise.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.times.connect = timeout.min(SPAN_MAX);
        self
    }

    /// How long a watch may be silent before its connection counts as cut: 45 s unless it is said
    /// otherwise. The service says something every 15 s, if only that it is there.
    #[must_use]
    pub fn watch_silence(mut self, silence: Duration) -> Self {
        self.times.silence = silence.min(SPAN_MAX);
        self
    }

    /// The client. Connects to nobody yet.
    ///
    /// # Errors
    /// [`Error::Invalid`] names the setting that makes no sense.
    pub fn build(self) -> Result<Client, Error> {
        let servers = Servers::parse(&self.servers)?;
        let credential = self.credential.as_deref().map(bearer).transpose()?;
        let client_id = self.client_id.unwrap_or_else(own_label);
        if client_id.is_empty() || client_id.len() > 256 {
            return Err(Error::invalid("client_id", "the client id must have 1 to 256 bytes"));
        }
        let transport = Transport::new(self.times.connect, credential);
        Ok(Client::new_with(servers, transport, client_id, self.times))
    }
}

fn bearer(credential: &str) -> Result<HeaderValue, Error> {
    let mut value = HeaderValue::from_str(&format!("Bearer {credential}"))
        .map_err(|_| Error::invalid("credential", "the credential is not visible ASCII"))?;
    value.set_sensitive(true);
    Ok(value)
}

fn own_label() -> String {
    format!("rust-{}-{:08x}", std::process::id(), fastrand::u32(..))
}
