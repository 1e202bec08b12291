//! The nodes of a cluster, and changes to them.

use super::entry::{Entry, Tag};
use leasehold_wire::{self as wire, Code};

pub(super) fn entries() -> Vec<Entry> {
    vec![status(), add(), promote(), remove(), transfer()]
}

fn status() -> Entry {
    Entry::new(
        "cluster",
        Tag::Cluster,
        "Nodes, and how they are",
        "The answering node asks all others at once; one that does not answer within a second is \
         `unreachable`. Needs no leader.",
    )
    .gives::<wire::Cluster<'static>>()
}

fn add() -> Entry {
    Entry::new(
        "add-node",
        Tag::Cluster,
        "Add a node",
        "It has to be running at this address, empty, under an id that no node of this cluster had \
         before. It becomes a learner: it gets everything and has no vote yet. A node that is a \
         member already stays what it is. Goes into the audit.",
    )
    .takes::<wire::AddNode<'static>>()
    .gives::<wire::NodeChanged>()
    .fails([(409, Code::Conflict)])
}

fn promote() -> Entry {
    Entry::new(
        "promote-node",
        Tag::Cluster,
        "Give a learner a vote",
        "Once it has caught up. A voter stays one. Goes into the audit.",
    )
    .takes::<wire::ChangeNode<'static>>()
    .gives::<wire::NodeChanged>()
    .fails([(404, Code::NotFound), (409, Code::Conflict)])
}

fn remove() -> Entry {
    Entry::new(
        "remove-node",
        Tag::Cluster,
        "Remove a node",
        "Reachable or not, the leader as well. Refused where the voters that remain would have no \
         majority that answers. The node says so and stops. Goes into the audit.",
    )
    .takes::<wire::ChangeNode<'static>>()
    .gives::<wire::NodeChanged>()
    .fails([(404, Code::NotFound), (409, Code::Conflict)])
}

fn transfer() -> Entry {
    Entry::new(
        "transfer-leadership",
        Tag::Cluster,
        "Have another node lead",
        "What is on its way is answered first, so it costs clients less than an election. The body \
         may be left out: the voter that has caught up furthest takes over. Goes into the audit.",
    )
    .may_take::<wire::TransferLeadership<'static>>()
    .gives::<wire::LeadershipTransferred>()
    .fails([(404, Code::NotFound), (409, Code::Conflict)])
}
