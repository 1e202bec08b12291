//! What goes wrong, as a line for people or the problem for programs, and the exit code for it.

use crate::exit;
use leasehold_client::Error;
use serde::Serialize;
use std::io;

/// Why a command did not do what it was asked to.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The service, or the way to it.
    Service(Box<Error>),
    /// A store, or the way to it.
    Store(leasehold_fences::Error),
    /// The command line.
    Usage(String),
    /// Standard output.
    Output(io::Error),
    /// Another process has what can be had once.
    Held(String),
    /// A stop that left work behind for the next start.
    Unclean(String),
    /// Anything else of this machine.
    Local(String),
}

/// The part of a problem that the command itself can tell of.
#[derive(Serialize)]
struct Own<'a> {
    code: &'a str,
    detail: &'a str,
}

impl Failure {
    /// A code that stays the same: that of the service where it gave one.
    pub(crate) fn code(&self) -> &str {
        match self {
            Self::Service(error) => match error.code() {
                Some(code) => code.as_str(),
                None if matches!(**error, Error::Transport { .. }) => "protocol_error",
                None => "unavailable",
            },
            Self::Store(error) => error.code(),
            Self::Usage(_) => "usage",
            Self::Output(_) => "output_failed",
            Self::Held(_) => "held",
            Self::Unclean(_) => "unclean_stop",
            Self::Local(_) => "local_failure",
        }
    }

    /// What happened, for people.
    pub(crate) fn detail(&self) -> String {
        match self {
            Self::Service(error) => error.to_string(),
            Self::Store(error) => error.to_string(),
            Self::Usage(detail)
            | Self::Held(detail)
            | Self::Unclean(detail)
            | Self::Local(detail) => detail.clone(),
            Self::Output(error) => format!("standard output: {error}"),
        }
    }

    /// The problem as JSON: the service's own where it sent one.
    pub(crate) fn json(&self) -> String {
        let problem = match self {
            Self::Service(error) => error.problem(),
            _ => None,
        };
        let own = || serde_json::to_string(&Own { code: self.code(), detail: &self.detail() });
        let text = problem.map_or_else(own, serde_json::to_string);
        text.unwrap_or_else(|error| {
            format!("{{\"code\":\"local_failure\",\"detail\":\"{error}\"}}")
        })
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Service(error) => match **error {
                Error::Held(_)
                | Error::WaitTimeout(_)
                | Error::WouldDeadlock(_)
                | Error::Shed(_) => exit::NOT_GOT,
                Error::Ended(_) => exit::LOST,
                Error::Invalid(_) => exit::USAGE,
                Error::Unavailable { .. }
                | Error::OutcomeUnknown { .. }
                | Error::Transport { .. } => exit::UNAVAILABLE,
                _ => exit::REFUSED,
            },
            Self::Store(leasehold_fences::Error::Unreachable(_)) => exit::UNAVAILABLE,
            Self::Store(leasehold_fences::Error::Refused(_)) => exit::REFUSED,
            Self::Usage(_) | Self::Store(leasehold_fences::Error::Usage(_)) => exit::USAGE,
            Self::Output(_) => exit::OUTPUT,
            Self::Held(_) => exit::NOT_GOT,
            Self::Unclean(_) => exit::UNCLEAN,
            Self::Local(_) => exit::REFUSED,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Service(Box::new(error))
    }
}

impl From<leasehold_fences::Error> for Failure {
    fn from(error: leasehold_fences::Error) -> Self {
        Self::Store(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_wire::{Code, Problem};

    fn of(code: Code) -> Failure {
        Error::from(Problem::new(400, code, "why")).into()
    }

    #[test]
    fn every_code_of_the_service_has_its_exit_code() {
        for (code, exit_code) in [
            (Code::Held, 75),
            (Code::WaitTimeout, 75),
            (Code::Shed, 75),
            (Code::WouldDeadlock, 75),
            (Code::GrantEnded, 76),
            (Code::LeaseEnded, 76),
            (Code::NotHolder, 76),
            (Code::InvalidRequest, 64),
            (Code::RequestIdReused, 64),
            (Code::NoLeader, 69),
            (Code::OutcomeUnknown, 69),
            (Code::PolicyDenied, 1),
            (Code::Forbidden, 1),
            (Code::Conflict, 1),
        ] {
            assert_eq!(of(code).exit_code(), exit_code, "{code}");
            assert_eq!(of(code).code(), code.as_str());
        }
    }

    #[test]
    fn programs_get_the_problem_of_the_service_or_one_of_the_same_kind() {
        let told: serde_json::Value =
            serde_json::from_str(&of(Code::Held).json()).expect("it is JSON");
        assert_eq!((&told["code"], &told["detail"]), (&"held".into(), &"why".into()));
        let own = Failure::Usage("a \"quoted\" word".to_owned()).json();
        let told: serde_json::Value = serde_json::from_str(&own).expect("it is JSON");
        assert_eq!(told["detail"], "a \"quoted\" word");
    }
}
