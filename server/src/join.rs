//! `--join`: an empty node asks a running cluster to take it in, again and again until it is.
//!
//! It asks as anybody would, over the HTTP API: `POST /v1/cluster/add`. Whether the answer arrived
//! does not matter. The node is in once the leader has sent it the log.

use crate::settings::Settings;
use leasehold_client::{Client, Error};
use leasehold_node::Node;
use leasehold_wire::AddNode;
use std::time::Duration;

/// The first pause between two rounds; each is twice the one before, up to the second.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(15));
/// How long one cluster may take: it greets this node, and waits for a quorum.
const ASKED_WITHIN: Duration = Duration::from_secs(10);

/// Refusals that no second attempt changes.
const FOR_GOOD: [&str; 2] = ["id_taken", "id_retired"];

/// Asks for as long as the node is empty, and returns only if it is refused for good. The caller
/// drops it once the node has its place.
pub(crate) async fn ask(settings: &Settings, node: &Node) -> Error {
    let Some(peers) = settings.node.peers.as_ref().filter(|_| !settings.join.is_empty()) else {
        return std::future::pending().await;
    };
    let add = AddNode {
        id: settings.node.id,
        peer_addr: peers.advertise.as_str().into(),
        reason: Some("the node asked for it".into()),
    };
    let (mut pause, longest) = PAUSES;
    let mut said = String::new();
    while node.is_empty() {
        if let Err(cause) = ask_once(&settings.join, &add).await {
            let reason = cause.problem().and_then(|problem| problem.reason.as_deref());
            if reason.is_some_and(|reason| FOR_GOOD.contains(&reason)) {
                return cause;
            }
            let why = cause.to_string();
            if why != said {
                tracing::warn!(%why, "no cluster has taken this node in yet: asking again");
            }
            said = why;
        }
        tokio::time::sleep(pause).await;
        pause = longest.min(pause * 2);
    }
    std::future::pending().await
}

async fn ask_once(servers: &[String], add: &AddNode<'_>) -> Result<(), Error> {
    let client = Client::builder().servers(servers).budget(ASKED_WITHIN).build()?;
    client.add_node(add).await.map(drop)
}
