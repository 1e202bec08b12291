//! A backup of the whole service, as it comes.

use crate::client::Client;
use crate::error::Error;
use crate::failure::{Failure, stream_of};
use crate::servers::Fault;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, HeaderValue};
use std::fmt;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// A backup on its way. It is complete only if its own end says so: whoever keeps it checks that.
pub struct Backup {
    body: Incoming,
    silence: Duration,
    revision: Option<String>,
}

impl fmt::Debug for Backup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backup").field("revision", &self.revision).finish_non_exhaustive()
    }
}

impl Backup {
    /// The revision that it reflects.
    #[must_use]
    pub fn revision(&self) -> Option<&str> {
        self.revision.as_deref()
    }

    /// The next bytes of the file; `None` when no more come.
    ///
    /// # Errors
    /// [`Error::Transport`] when the connection breaks or says nothing for too long. What came
    /// before is no backup, and there is no going on: begin another.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            let frame = timeout(self.silence, self.body.frame()).await;
            let frame = frame.map_err(|_| {
                Error::transport(format!("nothing of the backup came for {:?}", self.silence))
            })?;
            match frame {
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Ok(Some(bytes));
                    }
                }
                Some(Err(error)) => {
                    return Err(Error::transport(format!("the backup was cut off: {error}")));
                }
                None => return Ok(None),
            }
        }
    }
}

impl Client {
    /// Begins a backup of everything, from the first server that gives one.
    ///
    /// # Errors
    /// As of any read; [`Error::Denied`] for whoever may not.
    pub async fn backup(&self) -> Result<Backup, Error> {
        let deadline = Instant::now() + self.budget;
        let mut failures = 0;
        loop {
            let failure = match self.begin_backup().await {
                Ok(backup) => return Ok(backup),
                Err(failure) => failure,
            };
            failures += 1;
            let pause = self.pause(&failure, failures);
            let too_late = Instant::now() + pause >= deadline;
            if !failure.may_pass() || too_late {
                return Err(failure.of_reading());
            }
            sleep(pause).await;
        }
    }

    async fn begin_backup(&self) -> Result<Backup, Failure> {
        let (turn, attempt) = (self.inner.servers.turn(), self.inner.times.attempt);
        let opened = match timeout(attempt, self.open_backup(self.inner.servers.base(turn))).await {
            Ok(opened) => opened,
            Err(_) => Err(Failure::Silent(format!("no answer within {attempt:?}"))),
        };
        if let Err(failure) = &opened {
            self.inner.servers.move_on(turn, failure.of_the_server().unwrap_or(Fault::Unable));
        }
        opened
    }

    async fn open_backup(&self, base: &str) -> Result<Backup, Failure> {
        let mut request = Request::new(Full::default());
        *request.uri_mut() = format!("{base}/v1/backup")
            .parse()
            .map_err(|error| Failure::Nonsense(format!("not an address: {error}")))?;
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static("application/octet-stream"));
        let (head, body) = stream_of(self.inner.transport.open(request).await?).await?;
        let revision = head.headers.get("leasehold-revision");
        let revision = revision.and_then(|text| text.to_str().ok()).map(str::to_owned);
        Ok(Backup { body, silence: self.inner.times.silence, revision })
    }
}
