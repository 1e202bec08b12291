//! `POST /v1/cancel-wait`

use crate::answer::{Answer, Answered};
use crate::ask::Ask;
use crate::from_wire;
use leasehold_wire as wire;

pub(crate) async fn post(ask: Ask) -> Answered {
    let shape: wire::CancelWait<'_> = wire::parse(&ask.body)?;
    let (owner, request_id) = from_wire::cancel_wait(&shape, &ask.caller)?;
    let cancelled = ask.node().cancel_wait(ask.call, owner, request_id).await?;
    Ok(Answer::json(&wire::WaitCancelled { cancelled: cancelled.value }).at(cancelled.revision))
}
