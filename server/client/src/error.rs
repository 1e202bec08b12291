//! What can come of a call that did not succeed: one variant for each thing that a caller does.

use leasehold_wire::{Code, Problem};
use std::fmt;
use std::time::Duration;

/// Why a call did not do what it was asked to.
///
/// Whatever the service said is kept whole: [`Error::problem`].
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Somebody else has the lock, and the call did not want to wait. Nothing was done.
    #[error("{}", .0.detail)]
    Held(Box<Problem<'static>>),
    /// The wait is over without a grant. The place in line is given up.
    #[error("{}", .0.detail)]
    WaitTimeout(Box<Problem<'static>>),
    /// The wait would never end; the problem names the cycle.
    #[error("{}", .0.detail)]
    WouldDeadlock(Box<Problem<'static>>),
    /// A policy, the caller's role, or a missing credential: trying again does not help.
    #[error("{}", .0.detail)]
    Denied(Box<Problem<'static>>),
    /// The grant or lease has ended, or is somebody else's.
    #[error("{}", .0.detail)]
    Ended(Box<Problem<'static>>),
    /// Refused to protect others; [`Error::retry_after`] says when to come again.
    #[error("{}", .0.detail)]
    Shed(Box<Problem<'static>>),
    /// No server could serve the call before its budget was over. Nothing was done.
    #[error("no server could serve the call in time: {detail}")]
    Unavailable {
        /// What the last attempt met.
        detail: String,
        /// The last refusal, if a server answered at all.
        problem: Option<Box<Problem<'static>>>,
    },
    /// The call may or may not have taken effect, and the budget was over before this was settled.
    #[error("the outcome is not known: {detail}")]
    OutcomeUnknown {
        /// What the last attempt met.
        detail: String,
        /// What the service said, if it said anything.
        problem: Option<Box<Problem<'static>>>,
        /// Repeat the acquire with it ([`crate::Acquire::request_id`]) to settle what came of it.
        request_id: Option<String>,
    },
    /// The call makes no sense; the problem names the field and what is allowed.
    #[error("{}", .0.detail)]
    Invalid(Box<Problem<'static>>),
    /// Any other refusal.
    #[error("{}", .0.detail)]
    Problem(Box<Problem<'static>>),
    /// What answered does not speak this protocol.
    #[error("{detail}")]
    Transport {
        /// What was wrong with the answer.
        detail: String,
    },
}

impl Error {
    /// What the service said.
    #[must_use]
    pub fn problem(&self) -> Option<&Problem<'static>> {
        match self {
            Self::Held(problem)
            | Self::WaitTimeout(problem)
            | Self::WouldDeadlock(problem)
            | Self::Denied(problem)
            | Self::Ended(problem)
            | Self::Shed(problem)
            | Self::Invalid(problem)
            | Self::Problem(problem) => Some(problem),
            Self::Unavailable { problem, .. } | Self::OutcomeUnknown { problem, .. } => {
                problem.as_deref()
            }
            Self::Transport { .. } => None,
        }
    }

    /// The service's code for it, if the service said anything.
    ///
    /// [`Error::OutcomeUnknown`] always has [`Code::OutcomeUnknown`], whoever found it out.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::OutcomeUnknown { .. } => Some(Code::OutcomeUnknown),
            other => other.problem().map(|problem| problem.code),
        }
    }

    /// When the service asks to be called again.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.problem()?.retry_after_ms.map(Duration::from_millis)
    }

    pub(crate) fn invalid(field: &'static str, detail: impl fmt::Display) -> Self {
        let mut problem = Problem::new(400, Code::InvalidRequest, detail.to_string());
        problem.field = Some(field.into());
        Self::Invalid(Box::new(problem))
    }

    pub(crate) fn transport(detail: impl fmt::Display) -> Self {
        Self::Transport { detail: detail.to_string() }
    }
}

impl From<Problem<'static>> for Error {
    fn from(problem: Problem<'static>) -> Self {
        let problem = Box::new(problem);
        match problem.code {
            Code::Held => Self::Held(problem),
            Code::WaitTimeout => Self::WaitTimeout(problem),
            Code::WouldDeadlock => Self::WouldDeadlock(problem),
            Code::PolicyDenied | Code::Forbidden | Code::Unauthenticated => Self::Denied(problem),
            Code::GrantEnded | Code::LeaseEnded | Code::NotHolder => Self::Ended(problem),
            Code::Shed => Self::Shed(problem),
            Code::Overloaded
            | Code::NoLeader
            | Code::NotReady
            | Code::PolicyUnavailable
            | Code::StorageFull
            | Code::ShuttingDown => {
                Self::Unavailable { detail: problem.detail.to_string(), problem: Some(problem) }
            }
            Code::OutcomeUnknown => Self::OutcomeUnknown {
                detail: problem.detail.to_string(),
                request_id: problem.request_id.as_deref().map(str::to_owned),
                problem: Some(problem),
            },
            Code::InvalidRequest
            | Code::TooLarge
            | Code::HeadersTooLarge
            | Code::UnsupportedMediaType
            | Code::MethodNotAllowed
            | Code::NotAcceptable
            | Code::InvalidPolicy
            | Code::RequestIdReused => Self::Invalid(problem),
            Code::NotFound
            | Code::RequestTimeout
            | Code::Conflict
            | Code::PreconditionFailed
            | Code::PreconditionRequired
            | Code::Internal => Self::Problem(problem),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_keeps_its_problem() {
        for code in Code::ALL {
            let problem = Problem::new(400, *code, "detail");
            let error = Error::from(problem.clone());
            assert_eq!(error.code(), Some(*code));
            assert_eq!(error.problem(), Some(&problem));
            assert!(error.to_string().ends_with("detail"), "{error}");
        }
    }

    #[test]
    fn a_refusal_says_when_to_come_again() {
        let mut problem = Problem::new(429, Code::Shed, "full");
        problem.retry_after_ms = Some(250);
        assert_eq!(Error::from(problem).retry_after(), Some(Duration::from_millis(250)));
        assert_eq!(Error::transport("garbage").retry_after(), None);
    }
}
