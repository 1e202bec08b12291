//! `leasehold cluster`: which nodes there are, how they are, and changes to them.

use crate::args;
use crate::duration::human;
use crate::failure::Failure;
use crate::output::shown;
use crate::service::Service;
use crate::table::Table;
use clap::{Arg, ArgMatches, Command, value_parser};
use leasehold_wire::{
    AddNode, ChangeNode, Cluster, ClusterNode, NodeChanged, NodeRole, NodeStanding,
    TransferLeadership,
};

const AFTER: &str = "\
A node is added as a learner: it gets everything and has no vote. Once it has caught up it is
promoted. Members change one at a time; what would leave no majority that answers is refused.

Examples:
  leasehold cluster status
  leasehold cluster status --output json | jq -r '.nodes[] | select(.role == \"unreachable\") | .id'

Replace node 3, which is gone for good, by a new one under an id that was never used:
  leasehold cluster remove 3 --reason 'its disk died'
  leasehold serve --node-id 4 --peer-listen 10.0.0.4:7171 --join http://10.0.0.1:7070   # over there
  leasehold cluster promote 4";

pub(crate) fn command() -> Command {
    Command::new("cluster")
        .about("Show the nodes and how they are; change them, and which one leads")
        .after_help(AFTER)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(Command::new("status").about("Show the nodes, and how they are"))
        .subcommand(
            Command::new("add")
                .about("Add a node that is running and empty, without a vote")
                .arg(node("Its id, which no node of this cluster had before"))
                .arg(
                    Arg::new("peer-addr")
                        .value_name("HOST:PORT")
                        .required(true)
                        .help("Where it answers other nodes: its --peer-listen"),
                )
                .arg(reason()),
        )
        .subcommand(
            Command::new("promote")
                .about("Give a node a vote, once it has caught up")
                .arg(node("Its id"))
                .arg(reason()),
        )
        .subcommand(
            Command::new("remove")
                .about("Remove a node, reachable or not; if it runs it stops")
                .arg(node("Its id"))
                .arg(reason()),
        )
        .subcommand(
            Command::new("transfer")
                .about("Have another node lead, before work on the one that does")
                .arg(
                    node("Which one [default: the voter that has caught up furthest]")
                        .required(false),
                )
                .arg(reason()),
        )
}

fn node(help: &'static str) -> Arg {
    let id = value_parser!(u64).range(1..);
    Arg::new("id").value_name("NODE").required(true).value_parser(id).help(help)
}

fn reason() -> Arg {
    args::filter("reason", "TEXT", "Why, for the audit: 1 to 512 bytes")
}

pub(crate) async fn run(given: &ArgMatches, service: &Service) -> Result<(), Failure> {
    let client = &service.client;
    let changed = match given.subcommand() {
        Some(("status", _)) => {
            return service.show(&service.get::<Cluster<'static>>("/v1/cluster", &[]).await?, told);
        }
        Some(("add", given)) => {
            let (id, reason) = (id(given), given_reason(given));
            let peer_addr = args::text(given, "peer-addr").unwrap_or_default().into();
            client.add_node(&AddNode { id, peer_addr, reason }).await?
        }
        Some(("promote", given)) => client.promote_node(&change(given)).await?,
        Some(("remove", given)) => client.remove_node(&change(given)).await?,
        Some(("transfer", given)) => return transfer(given, service).await,
        _ => return Err(Failure::Usage("status, add, promote, remove or transfer?".to_owned())),
    };
    service.show_value(&changed.value, done)
}

fn id(given: &ArgMatches) -> u64 {
    given.get_one("id").copied().unwrap_or_default()
}

fn given_reason(given: &ArgMatches) -> Option<std::borrow::Cow<'_, str>> {
    args::text(given, "reason").map(Into::into)
}

fn change(given: &ArgMatches) -> ChangeNode<'_> {
    ChangeNode { id: id(given), reason: given_reason(given) }
}

async fn transfer(given: &ArgMatches, service: &Service) -> Result<(), Failure> {
    let to = given.get_one("id").copied();
    let asked = TransferLeadership { to, reason: given_reason(given) };
    let transferred = service.client.transfer_leadership(&asked).await?;
    service.show_value(&transferred.value, |now| format!("node {} leads", now.leader))
}

fn done(changed: &NodeChanged) -> String {
    let NodeChanged { id, standing } = changed;
    match standing {
        NodeStanding::Learner => {
            format!("node {id} is a member without a vote; promote it once it has caught up")
        }
        NodeStanding::Voter => format!("node {id} has a vote"),
        NodeStanding::Removed => format!("node {id} is no member any more"),
    }
}

fn told(cluster: &Cluster<'_>) -> String {
    let id = cluster.cluster_id.as_deref().map_or_else(|| "none yet".to_owned(), shown);
    let leads = match cluster.leader {
        Some(leader) => format!("node {leader} leads in term {}", cluster.term),
        None => "nobody leads".to_owned(),
    };
    let mut table = Table::new(&["NODE", "ROLE", "PEERS", "CLIENTS", "APPLIED", "VERSION", "NOTE"]);
    let newest = cluster.nodes.iter().filter_map(|node| node.log_index).max().unwrap_or(0);
    for node in &cluster.nodes {
        let text = |text: &str| text.to_owned();
        table.row([
            node.id.to_string(),
            text(node.role.as_str()),
            text(&node.peer_addr),
            text(&node.http_addr),
            node.applied_index.map(|index| index.to_string()).unwrap_or_default(),
            text(node.version.as_deref().unwrap_or_default()),
            notes(node, cluster, newest).join("; "),
        ]);
    }
    format!("Cluster {id}: {leads}, {}.\n\n{table}", majority(cluster))
}

/// How many voters may still go.
fn majority(cluster: &Cluster<'_>) -> String {
    let voters = || cluster.nodes.iter().filter(|node| node.voter);
    let answering = voters().filter(|node| node.role != NodeRole::Unreachable).count();
    let needed = voters().count() / 2 + 1;
    let all = voters().count();
    match answering.checked_sub(needed) {
        Some(spare) => format!("{answering} of {all} voters answer, {spare} more may fail"),
        None => format!("only {answering} of {all} voters answer, and {needed} are needed"),
    }
}

/// A clock that is off by less is as good as any.
const CLOCK_OFF_MS: u64 = 1_000;
/// Under load every follower lacks some entries that are on their way.
const BEHIND: u64 = 100;

fn notes(node: &ClusterNode<'_>, cluster: &Cluster<'_>, newest: u64) -> Vec<String> {
    let mut notes = Vec::new();
    if node.id == cluster.this_node {
        notes.push("answers".to_owned());
    }
    if !node.voter && node.role != NodeRole::Learner {
        notes.push("has no vote".to_owned());
    }
    notes.extend(node.unreachable.as_deref().map(shown));
    notes.extend(node.waits_for.as_deref().map(|what| format!("waits for {}", shown(what))));
    let behind = node.applied_index.map_or(0, |applied| newest.saturating_sub(applied));
    if behind > BEHIND {
        notes.push(format!("{behind} entries behind"));
    }
    if node.storage_full == Some(true) {
        notes.push("disk full".to_owned());
    }
    if profiles_differ(cluster) {
        let profile = node.raft_profile.as_deref();
        notes.extend(profile.map(|profile| format!("raft profile {}", shown(profile))));
    }
    notes.extend(node.clock_ahead_ms.filter(|ms| ms.unsigned_abs() >= CLOCK_OFF_MS).map(clock));
    notes
}

/// With several in one cluster its elections go wrong.
fn profiles_differ(cluster: &Cluster<'_>) -> bool {
    let mut profiles = cluster.nodes.iter().filter_map(|node| node.raft_profile.as_deref());
    let first = profiles.next();
    profiles.any(|profile| Some(profile) != first)
}

fn clock(ahead_ms: i64) -> String {
    let by = human(ahead_ms.unsigned_abs());
    format!("clock {by} {}", if ahead_ms > 0 { "ahead" } else { "behind" })
}

#[cfg(test)]
#[path = "cluster_tests.rs"]
mod tests;
