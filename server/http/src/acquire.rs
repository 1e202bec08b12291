//! `POST /v1/acquire-lock`

use crate::answer::{Answer, Answered};
use crate::ask::Ask;
use crate::head::IDEMPOTENCY_KEY;
use crate::{from_wire, to_wire};
use leasehold_wire::{self as wire, Invalid};

pub(crate) async fn post(ask: Ask) -> Answered {
    let shape = wire::parse(&ask.body)?;
    let key = idempotency_key(&ask)?;
    let (asked, wait_ms) = from_wire::acquire(shape, key, &ask.rules())?;
    let waiting = (wait_ms > 0).then(|| ask.app.metrics.waiting());
    let granted = ask.node().acquire(ask.call, asked, wait_ms).await?;
    drop(waiting);
    let answer = Answer::json(&to_wire::granted(&granted));
    Ok(answer.with_token(to_wire::fencing_token(&granted.grant)).at(granted.revision))
}

/// The header that is the same thing as `request_id`.
fn idempotency_key(ask: &Ask) -> Result<Option<&str>, Invalid> {
    const NAME: &str = "Idempotency-Key";
    let mut values = ask.head.all(IDEMPOTENCY_KEY);
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Invalid::field(NAME, "stands there more than once", "one value"));
    }
    let text = std::str::from_utf8(value.as_bytes());
    text.map(Some).map_err(|_| Invalid::field(NAME, "is not UTF-8", "UTF-8"))
}
