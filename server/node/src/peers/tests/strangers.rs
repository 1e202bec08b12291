//! Who is no member, and what no member would say.

use super::{Cluster, open, token};
use crate::codec::{self, Dating, Told, Welcome};
use crate::node::{Node, StartError};
use crate::peers::{Line, LineError, framed};
use crate::runtime;
use crate::types::{AppendAsk, CommittedLeader, LeaderId, LogId, Vote, VoteAsk};
use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _, stream};
use openraft::async_runtime::WatchReceiver as _;
use std::time::Duration;
use tokio::net::TcpStream;

/// A vote that would depose any leader, were it taken.
fn usurping(by: u64) -> VoteAsk {
    VoteAsk {
        vote: Vote { leader_id: LeaderId { term: 1_000, voted_for: by }, committed: false },
        last_log_id: Some(LogId::new(CommittedLeader::new(999), 1_000_000)),
        leadership_transfer: true,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_is_greeted_and_may_ask_for_nothing() {
    let mut cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    let stranger = open(&cluster.newcomer()).await;
    let node = &cluster.nodes[&leader];
    let term =
        |node: &Node| node.inner_raft().server_metrics().borrow_watched().vote.leader_id.term;
    let before = term(node);
    let vote = usurping(4);
    for message in [
        codec::encode_vote_ask(&vote, false),
        codec::encode_vote_ask(&vote, true),
        codec::encode_read_index(),
        codec::encode_session(),
    ] {
        let us = stranger.inner.identity.clone();
        let mut line = Line::unmet(us, leader, cluster.founders[&leader].clone());
        let told = line.call(message, Duration::from_secs(60)).await;
        assert!(matches!(told, Err(LineError::Unable { .. })), "{told:?}");
    }
    assert_eq!(term(node), before);
    // How a node is anybody may ask; where a stranger says that it is, is not kept.
    let us = stranger.inner.identity.clone();
    let ask = codec::encode_status_ask(&us.status_ask());
    let mut line = Line::unmet(us, leader, cluster.founders[&leader].clone());
    let told = line.call(ask, Duration::from_secs(60)).await;
    assert!(matches!(told, Ok(Told::Status(_))), "{told:?}");
    assert_eq!(node.inner.identity.told().get(&4), None);
    token(node, "r/1").await;
    stranger.shutdown().await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_that_asks_nothing_keeps_no_place() {
    let mut cluster = Cluster::of(1).await;
    let stranger = open(&cluster.newcomer()).await;
    let connected = TcpStream::connect(&cluster.founders[&1]).await.expect("it listens");
    let mut frames = framed(connected).expect("tuned");
    let hello = codec::encode_hello(&stranger.inner.identity.hello(1));
    frames.send(Bytes::from(hello)).await.expect("it is there");
    let heard = frames.next().await.expect("it is greeted").expect("a frame");
    assert!(matches!(codec::decode_welcome(&heard), Ok(Welcome::Protocol { .. })));
    let closed = runtime::timeout_at(runtime::now() + Duration::from_secs(120), frames.next());
    assert!(matches!(closed.await, Some(None)), "the connection is closed");
    stranger.shutdown().await;
    cluster.shutdown().await;
}

/// Nothing is applied on the one that waits, which knows its members from its log all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_lost_its_data_is_told_so_by_one_that_has_no_quorum_itself() {
    let mut cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    token(&cluster.nodes[&leader], "r/1").await;
    for id in 1..=3 {
        cluster.stop(id).await;
    }
    std::fs::remove_dir_all(cluster.config(2).dir).expect("it can be removed");
    let waits = open(&cluster.config(1)).await;
    let config = cluster.config(2);
    let wiped = open(&config).await;
    let refused = wiped.take_part(&config).await.expect_err("its votes are gone");
    assert!(matches!(refused, StartError::LostData { id: 2 }), "{refused}");
    wiped.shutdown().await;
    waits.shutdown().await;
}

/// A number that cannot be counted past would stop the nodes, and again at every start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_that_no_log_has_are_refused() {
    let cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    let term_of =
        |node: &Node| node.inner_raft().server_metrics().borrow_watched().vote.leader_id.term;
    let before = term_of(&cluster.nodes[&leader]);
    let vote = |term, index| VoteAsk {
        vote: Vote { leader_id: LeaderId { term, voted_for: 2 }, committed: false },
        last_log_id: Some(LogId::new(CommittedLeader::new(9), index)),
        leadership_transfer: true,
    };
    let us = cluster.nodes[&leader].inner.identity.clone();
    let to = *cluster.nodes.keys().find(|id| **id != leader).expect("three nodes");
    for ask in [vote(u64::MAX, 9), vote(1 << 62, 9), vote(9, u64::MAX)] {
        let mut line = Line::unmet(us.clone(), to, cluster.founders[&to].clone());
        let told = line.call(codec::encode_vote_ask(&ask, false), Duration::from_secs(60)).await;
        assert!(matches!(told, Err(LineError::Unable { .. })), "{told:?}");
    }
    assert_eq!(term_of(&cluster.nodes[&to]), before);
    cluster.shutdown().await;
}

/// More appends than a node takes at a time, from somebody who listens only when all are sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_asks_much_and_listens_late_is_answered() {
    const APPENDS: usize = 1_000;
    let cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    let to = *cluster.nodes.keys().find(|id| **id != leader).expect("three nodes");
    let connected = TcpStream::connect(&cluster.founders[&to]).await.expect("it listens");
    let mut frames = framed(connected).expect("tuned");
    let node = &cluster.nodes[&leader];
    let hello = codec::encode_hello(&node.inner.identity.hello(to));
    frames.send(Bytes::from(hello)).await.expect("it is there");
    frames.next().await.expect("it is greeted").expect("a frame");
    let vote = node.inner_raft().server_metrics().borrow_watched().vote;
    let ask = AppendAsk { vote, prev_log_id: None, entries: Vec::new(), leader_commit: None };
    let message = Bytes::from(codec::encode_append(&ask, Dating::default()).0);
    let mut messages = stream::iter((0..APPENDS).map(|_| Ok(message.clone())));
    frames.send_all(&mut messages).await.expect("it takes them");
    for nth in 0..APPENDS {
        let told = runtime::timeout_at(runtime::now() + Duration::from_secs(60), frames.next());
        let told = told.await.unwrap_or_else(|| panic!("no answer after {nth}"));
        let told = codec::decode_told(&told.expect("it goes on").expect("a frame"));
        assert!(matches!(told, Ok(Told::Append(_))), "{told:?}");
    }
    cluster.shutdown().await;
}
