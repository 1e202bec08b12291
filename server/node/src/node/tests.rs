//! A whole node in a directory of its own.

use super::*;
use crate::answer::Call;
use crate::config::NodeConfig;
use crate::lists::LocksFilter;
use leasehold_core::command::{Caller, GrantRef};
use leasehold_core::{ClientId, Owner, Principal, ResourceName, command};
use std::path::Path;

async fn start(dir: &Path) -> Node {
    let config = NodeConfig { reserve_bytes: 0, ..NodeConfig::new(1, dir.to_owned()) };
    let metrics = Metrics::new(&prometheus::Registry::new()).expect("a fresh registry");
    Node::start(config, metrics).await.expect("the node starts")
}

/// An acquire without a wait, for ten minutes.
pub(crate) fn acquire(node: &Node, resource: &str) -> command::Acquire {
    command::Acquire {
        resource: ResourceName::parse(resource).expect("a name"),
        owner: Owner {
            principal: Principal::parse("anonymous").expect("a name"),
            client: ClientId::parse("w1").expect("a name"),
        },
        basis: command::Basis::Single { lease: node.new_lease_id(), ttl_ms: 600_000 },
        mode: command::Mode::Exclusive,
        wait: false,
        request_id: None,
        claim_ms: None,
        keep_place: false,
        holding: Vec::new(),
        metadata: None,
        priority: 0,
        ttl_cap_ms: None,
        policies: None,
    }
}

/// What a node's files are like when its process is killed: nobody writes while they are copied.
pub(crate) fn crash_image(dir: &Path) -> tempfile::TempDir {
    let image = tempfile::tempdir().expect("a directory");
    for entry in std::fs::read_dir(dir).expect("the directory is there") {
        let entry = entry.expect("it can be listed");
        std::fs::copy(entry.path(), image.path().join(entry.file_name())).expect("a copy");
    }
    image
}

/// How far the log is committed is written down with the entry after it, so the newest entry of a
/// killed node is applied only once the node leads again. Whoever asks before that, and does not
/// ask for more than what this node knows, must not be shown a past that was over already.
#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_node_serves_nothing_older_than_what_it_had_acknowledged() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = start(dir.path()).await;
    for round in 0..10 {
        let asked = acquire(&node, &format!("r/{round}"));
        node.acquire(Call::now(), asked, 0).await.expect("a grant");
        let image = crash_image(dir.path());
        let again = start(image.path()).await;
        let filter = LocksFilter { limit: 100, ..LocksFilter::default() };
        let page = again.locks(Call::now(), filter, true).await.expect("a stale read").value;
        assert_eq!(page.items.len(), round + 1, "round {round}");
        again.shutdown().await;
    }
    node.shutdown().await;
}

/// A renewal may shorten a TTL. Whoever leads next does not know whether the longer one was believed.
#[tokio::test(flavor = "multi_thread")]
async fn the_latest_end_of_a_lease_counts_its_longest_ttl() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = start(dir.path()).await;
    let asked = acquire(&node, "shortened");
    let command::Basis::Single { lease, ttl_ms } = asked.basis else { panic!("it is") };
    let caller = Caller {
        principal: asked.owner.principal.clone(),
        client: Some(asked.owner.client.clone()),
    };
    let resource = asked.resource.clone();
    let granted = node.acquire(Call::now(), asked, 0).await.expect("a grant");
    let grant = GrantRef { resource, token: granted.grant.token, caller };
    node.renew(Call::now(), grant, Some(2_000)).await.expect("it is ours");
    let seen = loop {
        let seen = node.lease(Call::now(), lease).await.expect("it lives").value;
        if seen.earliest_end_in_ms < ttl_ms {
            break seen;
        }
    };
    assert_eq!(seen.ttl_ms, 2_000);
    let election_ms = runtime::ms(node.inner.timing.election());
    assert_eq!(seen.latest_end_in_ms, ttl_ms + election_ms);
    node.shutdown().await;
}
