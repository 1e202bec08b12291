//! `POST /v1/batch`

use crate::answer::{Answer, Answered};
use crate::ask::Ask;
use crate::{failure, from_wire, to_wire};
use leasehold_node::{Failure, Operated};
use leasehold_wire::{self as wire, BatchResult};

pub(crate) async fn post(ask: Ask) -> Answered {
    let shape: wire::Batch<'_> = wire::parse(&ask.body)?;
    let operations = from_wire::batch(shape, &ask.rules())?;
    let operated = ask.node().batch(ask.call, operations).await?;
    let results = operated.value.iter().map(result).collect();
    Ok(Answer::json(&wire::BatchResults { results }).at(operated.revision))
}

fn result(operated: &Result<Operated, Failure>) -> BatchResult<'_> {
    let good = BatchResult { status: 200, ..BatchResult::default() };
    match operated {
        Ok(Operated::Granted(granted)) => {
            BatchResult { grant: Some(to_wire::granted(granted)), ..good }
        }
        Ok(Operated::Renewed(renewed)) => {
            BatchResult { renewed: Some(to_wire::renewed(renewed)), ..good }
        }
        Ok(Operated::Released(released)) => {
            BatchResult { released: Some(to_wire::released(released)), ..good }
        }
        Err(failure) => {
            let problem = failure::problem(failure.clone());
            BatchResult { status: problem.status, problem: Some(Box::new(problem)), ..good }
        }
    }
}
