//! An answer that is a problem, on its way out.

use leasehold_wire::{Code, Invalid, Problem};

/// A problem, and what only headers say about it.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) problem: Box<Problem<'static>>,
    /// The methods that the route takes.
    pub(crate) allow: Option<String>,
    /// For the log only: what must not be shown to clients.
    pub(crate) internal: Option<String>,
}

impl From<Problem<'static>> for Fault {
    fn from(problem: Problem<'static>) -> Self {
        Self { problem: Box::new(problem), allow: None, internal: None }
    }
}

impl From<Invalid> for Fault {
    fn from(invalid: Invalid) -> Self {
        let mut problem = Problem::new(400, Code::InvalidRequest, invalid.to_string());
        problem.field = invalid.field;
        problem.allowed = invalid.allowed;
        problem.into()
    }
}

impl Fault {
    pub(crate) fn not_found() -> Self {
        Problem::new(404, Code::NotFound, "there is nothing at this address").into()
    }

    pub(crate) fn method_not_allowed(allow: String) -> Self {
        let problem = Problem::new(405, Code::MethodNotAllowed, format!("the route takes {allow}"));
        Self { allow: Some(allow), ..problem.into() }
    }

    pub(crate) fn headers_too_large(max: usize) -> Self {
        let detail = format!("the head of the request has more than {max} bytes");
        let problem = Problem::new(431, Code::HeadersTooLarge, detail);
        Problem { max: Some(max as u64), ..problem }.into()
    }

    pub(crate) fn forbidden() -> Self {
        Problem::new(403, Code::Forbidden, "the caller's role does not permit this").into()
    }

    pub(crate) fn shutting_down() -> Self {
        let mut problem = Problem::new(503, Code::ShuttingDown, "the node is stopping");
        problem.retry_after_ms = Some(1_000);
        problem.into()
    }

    /// `waits_for` says what has to come first.
    pub(crate) fn not_ready(waits_for: Option<&str>) -> Self {
        let detail = match waits_for {
            Some(what) => format!("the node is not ready to serve: it waits for {what}"),
            None => "the node is not ready to serve".to_owned(),
        };
        let mut problem = Problem::new(503, Code::NotReady, detail);
        problem.retry_after_ms = Some(1_000);
        problem.into()
    }

    /// A fault of the service; `cause` goes to the log and not to the client.
    pub(crate) fn internal(cause: String) -> Self {
        let detail = "the service failed; its log has the cause under the trace id";
        Self { internal: Some(cause), ..Problem::new(500, Code::Internal, detail).into() }
    }
}
