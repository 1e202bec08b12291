//! `POST /v1/release-lock`

use crate::answer::{Answer, Answered};
use crate::ask::Ask;
use crate::{from_wire, to_wire};
use leasehold_wire as wire;

pub(crate) async fn post(ask: Ask) -> Answered {
    let shape: wire::Release<'_> = wire::parse(&ask.body)?;
    let grant = from_wire::release(&shape, &ask.caller)?;
    let released = ask.node().release(ask.call, grant).await?;
    Ok(Answer::json(&to_wire::released(&released.value)).at(released.revision))
}
