//! Nodes of several releases: what they agree on before they talk, and which commands they know.

use super::{Cluster, caught_up, open, runtime, start, token};
use crate::answer::Failure;
use crate::codec::{self, About, Hello, Unwelcome, Welcome};
use crate::config::NodeConfig;
use crate::hub::cell::ReplyTo;
use crate::level::{Outdated, Raising, Round};
use crate::node::Node;
use crate::peers::{Line, LineError, framed};
use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// Nodes that know commands up to these versions, the first for node 1.
async fn knowing<const N: usize>(versions: [u16; N]) -> Cluster {
    let knows = |config: &mut NodeConfig| config.commands = versions[config.id as usize - 1];
    Cluster::adjusted(N as u64, 262_144, knows).await
}

fn level(node: &Node) -> u16 {
    node.inner.shared.table.read().level()
}

async fn at_level(node: &Node, wanted: u16) {
    let limit = runtime::now() + Duration::from_secs(120);
    while level(node) != wanted {
        assert!(runtime::now() < limit, "level {} instead of {wanted}", level(node));
        runtime::sleep(Duration::from_millis(20)).await;
    }
}

async fn round(node: &Node) -> Option<Round> {
    let inner = &node.inner;
    let raising = Raising {
        raft: inner.raft.clone(),
        shared: inner.shared.clone(),
        batcher: inner.batcher.clone(),
        identity: inner.identity.clone(),
        leading: inner.leading.clone(),
    };
    raising.round().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_level_rises_to_what_every_member_knows() {
    let cluster = knowing([4, 3, 5]).await;
    for node in cluster.nodes.values() {
        at_level(node, 3).await;
    }
    let leader = &cluster.nodes[&cluster.leader().await];
    leader.propose_version(3).await.expect("it is in force");
    let refused = leader.propose_version(4).await;
    assert!(matches!(refused, Err(Failure::AboveLevel { needs: 4, level: 3 })), "{refused:?}");
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_knows_less_or_does_not_answer_holds_the_level() {
    let mut cluster = knowing([2, 2, 1]).await;
    let leader = cluster.leader().await;
    let node = cluster.nodes[&leader].clone();
    let held = round(&node).await;
    assert_eq!(held, Some(Round::Held { old: vec![3], silent: vec![] }));
    let refused = node.propose_version(2).await;
    assert!(matches!(refused, Err(Failure::AboveLevel { needs: 2, level: 1 })), "{refused:?}");
    if leader != 3 {
        cluster.nodes.remove(&3).expect("it is one of them").shutdown().await;
        let held = round(&node).await;
        assert_eq!(held, Some(Round::Held { old: vec![], silent: vec![3] }));
        assert_eq!(level(&node), 1);
        // It comes back as the newer release.
        let config = NodeConfig { commands: 2, ..cluster.config(3) };
        let again = start(config).await;
        at_level(&again, 2).await;
        cluster.nodes.insert(3, again);
    }
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_learner_holds_the_level_as_well() {
    let mut cluster = knowing([2, 1]).await;
    let config = NodeConfig { commands: 1, ..cluster.newcomer() };
    let leader = cluster.nodes[&cluster.leader().await].clone();
    let new = open(&config).await;
    let member = new.inner.identity.member();
    let adding = leader.inner_raft().add_learner(config.id, member, true);
    let (taken, added) = tokio::join!(new.take_part(&config), adding);
    taken.expect("it is taken in");
    added.expect("it may learn");
    let held = round(&leader).await;
    assert_eq!(held, Some(Round::Held { old: vec![2, 3], silent: vec![] }));
    cluster.nodes.insert(config.id, new);
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_knows_less_than_the_level_cannot_join() {
    let mut cluster = knowing([2]).await;
    at_level(&cluster.nodes[&1], 2).await;
    let config = NodeConfig { commands: 1, ..cluster.newcomer() };
    let new = open(&config).await;
    let member = new.inner.identity.member();
    let raft = cluster.nodes[&1].inner_raft();
    raft.add_learner(config.id, member, false).await.expect("its number is free");
    assert_eq!(new.outdated().await, Outdated { needs: 2, knows: 1 });
    assert_eq!(new.inner.shared.applied(), None);
    new.shutdown().await;
    cluster.shutdown().await;
}

/// The leader makes sure that it never comes to this; so it is forced here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_meets_an_entry_it_does_not_know_stops_and_keeps_its_data() {
    let mut cluster = knowing([2, 2, 1]).await;
    // The old one must not lead: whoever raises the level knows that version.
    cluster.nodes.remove(&3).expect("it is one of them").shutdown().await;
    let leader = cluster.nodes[&cluster.leader().await].clone();
    let old = start(NodeConfig { commands: 1, ..cluster.config(3) }).await;
    token(&leader, "r/1").await;
    caught_up(&old, &leader).await;
    let last = old.inner.shared.applied();
    let (reply, answer) = oneshot::channel();
    leader.inner.batcher.push_raise(2, ReplyTo::Once(reply)).expect("there is room");
    leader.inner.batcher.kick();
    answer.await.expect("the other two are a quorum");
    assert_eq!(old.outdated().await, Outdated { needs: 2, knows: 1 });
    assert_eq!(old.inner.shared.applied(), last);
    old.shutdown().await;
    drop(old);

    // With nothing newer in its files it starts, and is told by its peers.
    let config = NodeConfig { commands: 1, ..cluster.config(3) };
    let again = open(&config).await;
    let told = tokio::select! {
        told = again.outdated() => told,
        _ = again.take_part(&config) => panic!("it has no place any more"),
    };
    assert_eq!(told, Outdated { needs: 2, knows: 1 });
    again.shutdown().await;
    drop(again);
    // A newer release goes on where the older one stood.
    let again = start(NodeConfig { commands: 2, ..cluster.config(3) }).await;
    at_level(&again, 2).await;
    cluster.nodes.insert(3, again);
    cluster.shutdown().await;
}

fn hello(node: &Node) -> Hello {
    let caller =
        About { incarnation: 77, commands: 1, http: String::new(), peer: "127.0.0.1:1".to_owned() };
    let (cluster, founders, level) = (None, None, 1);
    Hello { protocols: (1, 1), cluster, from: 9, to: node.id(), caller, founders, level }
}

/// What a node answers to the first message of a connection.
async fn answer(address: &str, first: Vec<u8>) -> Option<Welcome> {
    let stream = TcpStream::connect(address).await.expect("it listens");
    let mut frames = framed(stream).expect("a socket");
    frames.send(Bytes::from(first)).await.expect("it is open");
    let bytes = frames.next().await?.ok()?;
    Some(codec::decode_welcome(&bytes).expect("an answer"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_releases_agree_on_the_newest_protocol_of_both_or_say_what_they_speak() {
    let cluster = Cluster::of(1).await;
    let (node, address) = (&cluster.nodes[&1], &cluster.founders[&1]);
    for (protocols, agreed) in [((1, 1), true), ((1, 9), true), ((2, 9), false), ((0, 0), false)] {
        let hello = Hello { protocols, ..hello(node) };
        match answer(address, codec::encode_hello(&hello)).await {
            Some(Welcome::Protocol { version: 1, .. }) if agreed => {}
            Some(Welcome::Refused(Unwelcome::Protocol(1, 1))) if !agreed => {}
            other => panic!("{protocols:?}: {other:?}"),
        }
    }
    // A message of another version, as if nobody had agreed on anything: no answer, no harm.
    let mut other = codec::encode_hello(&hello(node));
    other[0] = 2;
    assert!(answer(address, other).await.is_none());
    token(node, "r/1").await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_protocol_that_was_not_offered_is_refused() {
    let cluster = Cluster::of(1).await;
    let node = &cluster.nodes[&1];
    let peer = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = peer.local_addr().expect("bound").to_string();
    let answering = async {
        let (stream, _) = peer.accept().await.expect("it calls");
        let mut frames = framed(stream).expect("a socket");
        frames.next().await.expect("a hello").expect("whole");
        let Some(Welcome::Protocol { about, standing, .. }) =
            answer(&cluster.founders[&1], codec::encode_hello(&hello(node))).await
        else {
            panic!("it is welcome");
        };
        let welcome = Welcome::Protocol { version: 9, about, standing };
        frames.send(Bytes::from(codec::encode_welcome(&welcome))).await.expect("it is open");
    };
    let mut line = Line::unmet(node.inner.identity.clone(), 7, address);
    let (greeted, ()) = tokio::join!(line.greet(), answering);
    let refused = greeted.expect_err("nobody offered 9");
    let protocol = matches!(refused, LineError::Unwelcome { why: Unwelcome::Protocol(1, 1), .. });
    assert!(protocol, "{refused}");
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_cannot_make_a_node_believe_that_it_is_too_old() {
    let cluster = Cluster::of(1).await;
    let (node, address) = (&cluster.nodes[&1], &cluster.founders[&1]);
    let newer = Hello { level: 9, ..hello(node) };
    let answered = answer(address, codec::encode_hello(&newer)).await;
    assert!(matches!(answered, Some(Welcome::Refused(Unwelcome::Commands(9)))), "{answered:?}");
    assert_eq!(*node.inner.identity.outdated().borrow(), None);
    let mut older = hello(node);
    older.caller.commands = 0;
    let answered = answer(address, codec::encode_hello(&older)).await;
    assert!(matches!(answered, Some(Welcome::Refused(Unwelcome::Commands(1)))), "{answered:?}");
    cluster.shutdown().await;
}
