//! `POST /v1/renew-lock`

use crate::answer::{Answer, Answered};
use crate::ask::Ask;
use crate::{from_wire, to_wire};
use leasehold_wire as wire;

pub(crate) async fn post(ask: Ask) -> Answered {
    let shape: wire::Renew<'_> = wire::parse(&ask.body)?;
    let (grant, ttl_ms) = from_wire::renew(&shape, &ask.rules())?;
    let renewed = ask.node().renew(ask.call, grant, ttl_ms).await?;
    Ok(Answer::json(&to_wire::renewed(&renewed)).at(renewed.revision))
}
