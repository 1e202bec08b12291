//! What came of one attempt that was not done, and what that means for the next one.

use crate::call::Repeat;
use crate::error::Error;
use crate::servers::Fault;
use crate::transport::{Cut, Whole, whole};
use crate::wire::{Code, Problem};
use hyper::Response;
use hyper::body::Incoming;
use hyper::http::response::Parts;
use std::time::Duration;

/// What came of one attempt that was not done.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Nothing left this machine.
    NotSent(String),
    /// It may or may not have been done.
    Unanswered(String),
    /// The same, and the server has said nothing at all for as long as it was given.
    Silent(String),
    /// The service said no.
    Refused(Box<Problem<'static>>),
    /// Something that is not this service answered.
    Nonsense(String),
}

impl Failure {
    /// The attempt cannot have changed anything.
    pub(crate) fn nothing_was_done(&self) -> bool {
        match self {
            Self::NotSent(_) => true,
            Self::Refused(problem) => problem.code != Code::OutcomeUnknown,
            Self::Unanswered(_) | Self::Silent(_) | Self::Nonsense(_) => false,
        }
    }

    /// A later attempt may fare better.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::NotSent(_) | Self::Unanswered(_) | Self::Silent(_) => true,
            Self::Refused(problem) => problem.status == 503,
            Self::Nonsense(_) => false,
        }
    }

    /// Refused to protect others, for as long as there is no room.
    pub(crate) fn is_shed(&self) -> bool {
        matches!(self, Self::Refused(problem) if problem.code == Code::Shed)
    }

    /// Another server may fare better right now: then how this one failed.
    pub(crate) fn of_the_server(&self) -> Option<Fault> {
        match self {
            Self::Silent(_) => Some(Fault::Silent),
            Self::NotSent(_) | Self::Unanswered(_) => Some(Fault::Unable),
            Self::Refused(problem) => matches!(
                problem.code,
                Code::NoLeader
                    | Code::OutcomeUnknown
                    | Code::ShuttingDown
                    | Code::NotReady
                    | Code::StorageFull
            )
            .then_some(Fault::Unable),
            Self::Nonsense(_) => None,
        }
    }

    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused(problem) => problem.retry_after_ms.map(Duration::from_millis),
            _ => None,
        }
    }

    /// What a service has said tells more than that another server is not there.
    pub(crate) fn or_what_was(self, said: Option<Self>) -> Self {
        match self {
            Self::NotSent(_) | Self::Unanswered(_) | Self::Silent(_) => said.unwrap_or(self),
            Self::Refused(_) | Self::Nonsense(_) => self,
        }
    }

    fn told(self) -> (String, Option<Box<Problem<'static>>>) {
        match self {
            Self::NotSent(detail)
            | Self::Unanswered(detail)
            | Self::Silent(detail)
            | Self::Nonsense(detail) => (detail, None),
            Self::Refused(problem) => (problem.detail.to_string(), Some(problem)),
        }
    }

    /// The error for a read that ends here.
    pub(crate) fn of_reading(self) -> Error {
        self.into_error(Repeat::Reading, None, false)
    }

    /// The error for a call that ends here. `doubt`: some attempt may have been done.
    pub(crate) fn into_error(self, repeat: Repeat, request_id: Option<&str>, doubt: bool) -> Error {
        match self {
            Self::Nonsense(detail) => Error::Transport { detail },
            Self::Refused(problem) if problem.status != 503 => (*problem).into(),
            other if doubt && repeat != Repeat::Reading => {
                let (detail, problem) = other.told();
                Error::OutcomeUnknown { detail, problem, request_id: request_id.map(str::to_owned) }
            }
            other => {
                let (detail, problem) = other.told();
                Error::Unavailable { detail, problem }
            }
        }
    }
}

impl From<Cut> for Failure {
    fn from(cut: Cut) -> Self {
        match cut {
            Cut::NotSent(detail) => Self::NotSent(detail),
            Cut::Sent(detail) => Self::Unanswered(detail),
        }
    }
}

/// The head of an answer whose body is read as it comes, and that body.
pub(crate) async fn stream_of(answer: Response<Incoming>) -> Result<(Parts, Incoming), Failure> {
    let (head, body) = answer.into_parts();
    if head.status.is_success() {
        return Ok((head, body));
    }
    let body = whole(body).await.map_err(Failure::Unanswered)?;
    Err(refusal(&Whole { status: head.status, headers: head.headers, body }))
}

/// What an answer that is no success says.
pub(crate) fn refusal(whole: &Whole) -> Failure {
    match serde_json::from_slice::<Problem<'static>>(&whole.body) {
        Ok(problem) => Failure::Refused(Box::new(problem)),
        // A proxy on the way that lost its server: the request may have gone through.
        Err(_) if matches!(whole.status.as_u16(), 502..=504) => {
            Failure::Unanswered(format!("status {} without a problem", whole.status))
        }
        Err(_) => Failure::Nonsense(format!("status {} without a problem", whole.status)),
    }
}
