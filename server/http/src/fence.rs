//! `POST /v1/fence/check`

use crate::answer::{Answer, Answered};
use crate::ask::Ask;
use crate::{from_wire, to_wire};
use leasehold_wire as wire;

pub(crate) async fn check(ask: Ask) -> Answered {
    let shape: wire::FenceCheck<'_> = wire::parse(&ask.body)?;
    let (resource, token) = from_wire::fence_check(&shape)?;
    let checked = ask.node().fence_check(ask.call, resource, token).await?;
    Ok(Answer::json(&to_wire::fence(checked.value)).at(checked.revision))
}
