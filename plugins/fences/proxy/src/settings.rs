//! What can be set. Every bound has a default that holds on a small machine.

use crate::rules::Rules;
use crate::target::Target;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

const LOCK_TTL_MIN: Duration = Duration::from_secs(1);
/// No time that is set is longer.
pub(crate) const TIME_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// With a smaller buffer the HTTP library does not start.
const HEAD_BYTES_MIN: usize = 8 * 1024;

/// Everything that a proxy is told.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where everything is passed on to.
    pub upstream: Target,
    /// What the upstream is called in the proxy's lock, if not by its URL.
    pub upstream_name: Option<String>,
    /// Who may have signed the upstream's certificate, if not those that the machine trusts.
    pub upstream_ca: Option<PathBuf>,
    /// Where clients come in.
    pub listen: SocketAddr,
    /// Where health and metrics are, if anywhere.
    pub ops_listen: Option<SocketAddr>,
    /// What counts as a write, and what is protected.
    pub rules: Rules,
    /// Whether the service is asked about a token that is higher than any seen.
    pub check_tokens: bool,
    /// Whether each token passes only once.
    pub strict: bool,
    /// What is bounded.
    pub limits: Limits,
}

/// The bounds.
#[derive(Debug, Clone)]
pub struct Limits {
    /// How long connecting to the upstream may take, TLS included.
    pub connect_timeout: Duration,
    /// How long the upstream may neither take a byte of a body nor say one of its answer.
    pub upstream_timeout: Duration,
    /// How long a write without a complete answer counts as in flight after its connection ended.
    pub upstream_settle: Duration,
    /// How long a connection to the upstream is kept for the next request. Shorter than the
    /// upstream keeps it: a write that meets a closing connection has an unknown outcome.
    pub upstream_idle: Duration,
    /// How long a newer write waits for older ones.
    pub wait_max: Duration,
    /// How many wait for older writes at a time.
    pub waiting_max: usize,
    /// How many resources have a highest token of their own.
    pub resources_max: u64,
    /// How long one write may take in all.
    pub write_max: Duration,
    /// How many clients are connected at a time; more wait to be accepted.
    pub connections_max: usize,
    /// How large the head of a request or an answer may be, in bytes.
    pub head_max: usize,
    /// How long a client may take for a head, and how long it may leave a connection unused.
    pub head_timeout: Duration,
    /// How long a client may be silent in its body, and how long it may take none of an answer.
    pub client_timeout: Duration,
    /// How many tokens the service is asked about at a time.
    pub checks_max: usize,
    /// How long the answer to such a question may take.
    pub check_timeout: Duration,
    /// How long a stop waits for what is under way.
    pub drain: Duration,
    /// The TTL of the proxy's own lock.
    pub lock_ttl: Duration,
}

/// One bound, with its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    Time(Duration),
    Bytes(u64),
    Count(u64),
}

impl Default for Limits {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            connect_timeout: seconds(5),
            upstream_timeout: seconds(60),
            upstream_settle: seconds(30),
            upstream_idle: seconds(3),
            wait_max: seconds(30),
            waiting_max: 10_000,
            resources_max: 1_000_000,
            write_max: seconds(600),
            connections_max: 10_000,
            head_max: 64 * 1024,
            head_timeout: seconds(30),
            client_timeout: seconds(30),
            checks_max: 64,
            check_timeout: seconds(5),
            drain: seconds(25),
            lock_ttl: seconds(10),
        }
    }
}

impl Limits {
    /// Refuses times that make no sense together.
    ///
    /// # Errors
    /// Names them, for people.
    pub fn check(&self) -> Result<(), String> {
        let named = [
            ("--upstream-timeout", self.upstream_timeout),
            ("--connect-timeout", self.connect_timeout),
            ("--wait-max", self.wait_max),
            ("--write-max", self.write_max),
            ("--head-timeout", self.head_timeout),
            ("--client-timeout", self.client_timeout),
            ("--check-timeout", self.check_timeout),
        ];
        if let Some((name, _)) = named.iter().find(|(_, time)| time.is_zero()) {
            return Err(format!("{name}: no time at all lets nothing through"));
        }
        if self.lock_ttl < LOCK_TTL_MIN {
            return Err(
                "--lock-ttl: less than 1s leaves no time to cut what is under way".to_owned()
            );
        }
        let others = [
            ("--upstream-settle", self.upstream_settle),
            ("--upstream-idle", self.upstream_idle),
            ("--drain", self.drain),
            ("--lock-ttl", self.lock_ttl),
        ];
        let mut all = named.iter().chain(&others);
        if let Some((name, _)) = all.find(|(_, time)| *time > TIME_MAX) {
            return Err(format!("{name}: no time is longer than a day"));
        }
        if self.head_max < HEAD_BYTES_MIN {
            return Err(format!("--head-max: at least {HEAD_BYTES_MIN} bytes"));
        }
        Ok(())
    }

    /// How long writes may be in flight that a proxy before this one has let through: as long as
    /// the upstream works on one alone, or as long as that proxy would have waited for it.
    pub(crate) fn after_another(&self) -> Duration {
        self.upstream_settle.max(self.upstream_timeout)
    }

    /// Each under its name, for the metrics.
    pub(crate) fn bounds(&self) -> [(&'static str, Bound); 16] {
        let count = |count: usize| Bound::Count(count as u64);
        [
            ("connect_timeout", Bound::Time(self.connect_timeout)),
            ("upstream_timeout", Bound::Time(self.upstream_timeout)),
            ("upstream_settle", Bound::Time(self.upstream_settle)),
            ("upstream_idle", Bound::Time(self.upstream_idle)),
            ("wait_max", Bound::Time(self.wait_max)),
            ("waiting_max", count(self.waiting_max)),
            ("resources_max", Bound::Count(self.resources_max)),
            ("write_max", Bound::Time(self.write_max)),
            ("connections_max", count(self.connections_max)),
            ("head_max", Bound::Bytes(self.head_max as u64)),
            ("head_timeout", Bound::Time(self.head_timeout)),
            ("client_timeout", Bound::Time(self.client_timeout)),
            ("checks_max", count(self.checks_max)),
            ("check_timeout", Bound::Time(self.check_timeout)),
            ("drain", Bound::Time(self.drain)),
            ("lock_ttl", Bound::Time(self.lock_ttl)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut Limits)) -> String {
        let mut limits = Limits::default();
        change(&mut limits);
        limits.check().expect_err("refused")
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        assert_eq!(Limits::default().check(), Ok(()));
        let long = TIME_MAX + Duration::from_millis(1);
        assert!(refused(|limits| limits.wait_max = long).starts_with("--wait-max: "));
        assert!(refused(|limits| limits.drain = long).starts_with("--drain: "));
        assert!(refused(|limits| limits.write_max = Duration::ZERO).starts_with("--write-max: "));
        assert!(refused(|limits| limits.head_max = 8191).starts_with("--head-max: "));
        assert_eq!(Limits { head_max: 8192, ..Limits::default() }.check(), Ok(()));
    }
}
