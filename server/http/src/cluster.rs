//! `/v1/cluster`: which nodes there are, how they are, and changes to them.
//!
//! A change leaves two marks in the audit at most: that it was begun, before anything is done, since
//! a leader that is removed or hands over writes nothing afterwards; and that it was refused.

use crate::answer::{Answer, Answered};
use crate::ask::Ask;
use crate::fault::Fault;
use crate::from_wire;
use crate::to_wire;
use leasehold_core::command::ClusterChange;
use leasehold_core::command::Stage::{Begun, Refused};
use leasehold_node::Operator;
use leasehold_wire::{self as wire, Code, NodeStanding};
use std::future::Future;

/// `GET /v1/cluster`. Asks every node how it is, and none whether it may: it is looked at most when
/// nobody leads.
pub(crate) async fn get(ask: Ask) -> Answered {
    ask.query(&[])?;
    let view = ask.node().cluster_view().await;
    Ok(Answer::json(&to_wire::cluster::cluster(&view)).unstored())
}

/// `POST /v1/cluster/add`
pub(crate) async fn add(ask: Ask) -> Answered {
    let shape: wire::AddNode<'_> = wire::parse(&ask.body)?;
    let node = from_wire::node_id("id", shape.id)?;
    let address = from_wire::peer_addr(&shape.peer_addr)?;
    let adding = ask.node().add_learner(node, address);
    change(&ask, shape.reason.as_deref(), ClusterChange::Add { node }, adding).await?;
    // One that is a member already stays what it is.
    let voter = ask.node().is_voter(node);
    Ok(changed(node, if voter { NodeStanding::Voter } else { NodeStanding::Learner }))
}

/// `POST /v1/cluster/promote`
pub(crate) async fn promote(ask: Ask) -> Answered {
    let shape: wire::ChangeNode<'_> = wire::parse(&ask.body)?;
    let node = from_wire::node_id("id", shape.id)?;
    let promoting = ask.node().promote(node);
    change(&ask, shape.reason.as_deref(), ClusterChange::Promote { node }, promoting).await?;
    Ok(changed(node, NodeStanding::Voter))
}

/// `POST /v1/cluster/remove`
pub(crate) async fn remove(ask: Ask) -> Answered {
    let shape: wire::ChangeNode<'_> = wire::parse(&ask.body)?;
    let node = from_wire::node_id("id", shape.id)?;
    let removing = ask.node().remove(node);
    change(&ask, shape.reason.as_deref(), ClusterChange::Remove { node }, removing).await?;
    Ok(changed(node, NodeStanding::Removed))
}

fn changed(id: u64, standing: NodeStanding) -> Answer {
    Answer::json(&wire::NodeChanged { id, standing }).unstored()
}

/// `POST /v1/cluster/transfer`
pub(crate) async fn transfer(ask: Ask) -> Answered {
    let shape: wire::TransferLeadership<'_> = match ask.body.is_empty() {
        true => wire::TransferLeadership::default(),
        false => wire::parse(&ask.body)?,
    };
    let node = shape.to.map(|to| from_wire::node_id("to", to)).transpose()?;
    let transferring = ask.node().transfer(node);
    let change =
        change(&ask, shape.reason.as_deref(), ClusterChange::Transfer { node }, transferring);
    Ok(Answer::json(&wire::LeadershipTransferred { leader: change.await? }).unstored())
}

/// Runs a change between its marks in the audit.
async fn change<T, E>(
    ask: &Ask,
    reason: Option<&str>,
    change: ClusterChange,
    run: impl Future<Output = Result<T, E>>,
) -> Result<T, Fault>
where
    Fault: From<E>,
{
    let operator = ask.caller.operator(from_wire::reason_or_none(reason)?);
    let note = async |operator: Operator, stage| {
        ask.node().note_cluster_change(ask.call, operator, change, stage).await
    };
    note(operator.clone(), Begun).await?;
    let done = run.await.map_err(Fault::from);
    if done.as_ref().is_err_and(|fault| fault.problem.code != Code::OutcomeUnknown) {
        // The refusal is told in any case; a leader that has just lost its place cannot note it.
        let _ = note(operator, Refused).await;
    }
    done
}
