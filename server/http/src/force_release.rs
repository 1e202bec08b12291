//! `POST /v1/lock/force-release`: an operator ends a grant against its holder's will.

use crate::answer::{Answer, Answered};
use crate::ask::Ask;
use crate::from_wire;
use leasehold_wire as wire;

pub(crate) async fn post(ask: Ask) -> Answered {
    let shape: wire::ForceRelease<'_> = wire::parse(&ask.body)?;
    let (resource, token, when) = from_wire::force_release(&shape)?;
    let operator = ask.caller.operator(from_wire::reason(&shape.reason)?);
    let done = ask.node().force_release(ask.call, operator, resource, token, when).await?;
    let shape = wire::ForceReleased {
        ended: done.value.ended,
        expires_in_ms: done.value.expires_in_ms,
        overlap: done.value.overlap,
    };
    Ok(Answer::json(&shape).at(done.revision))
}
