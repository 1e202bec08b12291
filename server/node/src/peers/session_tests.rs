//! What a session takes, and what becomes of the rest.

use super::*;
use crate::config::NodeConfig;
use crate::forward::AnswerForwarded;
use crate::peers::framed;
use crate::peers::tests::{Cluster, open};
use futures_util::future::BoxFuture;
use tokio::net::{TcpListener, TcpStream};

/// Answers each request with its own body; `/long` with more than may be sent.
struct Echo;

impl AnswerForwarded for Echo {
    fn answer(&self, request: Forwarded) -> BoxFuture<'static, ForwardedAnswer> {
        let long = request.target == "/long";
        let body = if long { vec![0; BODY_BYTES_MAX as usize + 1].into() } else { request.body };
        Box::pin(async { ForwardedAnswer { status: 200, headers: Vec::new(), body } })
    }

    fn failed(&self, failure: Failure) -> ForwardedAnswer {
        let status = match failure {
            Failure::Overloaded => 503,
            Failure::AnswerTooLarge => 400,
            other => panic!("no reason for {other:?}"),
        };
        ForwardedAnswer { status, headers: Vec::new(), body: Bytes::new() }
    }
}

fn request(target: &str, body: usize) -> Forwarded {
    Forwarded {
        method: "POST".to_owned(),
        target: target.to_owned(),
        headers: Vec::new(),
        body: vec![7; body].into(),
        principal: "anonymous".to_owned(),
        role: "admin".to_owned(),
        source: None,
        elapsed: Duration::ZERO,
        remaining: None,
    }
}

struct Asking {
    frames: Frames,
    metrics: Metrics,
}

impl Asking {
    async fn begin() -> Self {
        let metrics = Metrics::new(&prometheus::Registry::new()).expect("a fresh registry");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let ours = TcpStream::connect(address).await.expect("it listens");
        let (theirs, _) = listener.accept().await.expect("it was asked");
        let (frames, theirs) = (framed(ours).expect("tuned"), framed(theirs).expect("tuned"));
        let serving = serve(theirs, Arc::new(Echo), metrics.clone());
        tokio::spawn(async move { drop(serving.await) });
        Self { frames, metrics }
    }

    async fn say(&mut self, message: Message) {
        self.frames.send(Bytes::from(message)).await.expect("the session goes on");
    }

    /// The status and length of the answer that is heard next.
    async fn answer(&mut self) -> (u64, u16, u64) {
        loop {
            let heard = self.frames.next().await.expect("the session goes on").expect("a frame");
            match codec::decode_carried(&heard.freeze()).expect("a message") {
                Carried::Answer { id, answer, body_bytes } => {
                    return (id, answer.status, body_bytes);
                }
                Carried::Beat | Carried::Part { .. } => {}
                other => panic!("no answer: {other:?}"),
            }
        }
    }
}

fn head(id: u64, request: &Forwarded) -> Message {
    codec::encode_request(id, request).next().expect("a head")
}

#[tokio::test]
async fn a_session_has_room_for_so_many_bytes_and_refuses_what_comes_on_top() {
    let long = request("/", BODY_BYTES_MAX as usize - 4_096);
    let heads = [head(1, &long), head(2, &long)];
    let short = request("/", 16 << 10);
    let mut asking = Asking::begin().await;
    for begun in heads {
        asking.say(begun).await;
    }
    asking.say(head(3, &short)).await;
    assert_eq!(asking.answer().await, (3, 503, 0), "the rest of both was promised room");
    let refused = asking.metrics.refusals.with_label_values(&["passed_on"]);
    assert_eq!(refused.get(), 1);
    assert!(asking.metrics.passed_on_bytes.get() as u64 > 2 * BODY_BYTES_MAX - 16_384);
    asking.say(codec::encode_hang_up(1)).await;
    asking.say(head(4, &short)).await;
    assert_eq!(asking.answer().await, (4, 200, 16 << 10), "there is room again");
    asking.say(codec::encode_hang_up(2)).await;
    asking.say(head(5, &request("/", 0))).await;
    assert_eq!(asking.answer().await, (5, 200, 0));
    assert_eq!(asking.metrics.passed_on_bytes.get(), 0);
}

#[tokio::test]
async fn an_answer_that_is_too_long_is_a_problem_with_words() {
    let mut asking = Asking::begin().await;
    asking.say(head(1, &request("/long", 0))).await;
    assert_eq!(asking.answer().await, (1, 400, 0));
}

/// Its machine is gone: the kernel takes connections, and nobody speaks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_tries_a_silent_leader_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = NodeConfig { reserve_bytes: 0, ..NodeConfig::new(1, dir.path().join("data")) };
    let node = open(&config).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let peer = listener.local_addr().expect("bound").to_string();
    let silent = Member { peer, ..Member::default() };
    let forwarder = Forwarder::new(node.inner.identity.clone());
    let asked = (0..50).map(|_| forwarder.forward(2, &silent, request("/v1/lock", 0)));
    for told in futures_util::future::join_all(asked).await {
        assert!(matches!(told, Err(Failure::NoLeader)), "{told:?}");
    }
    listener.accept().await.expect("one has tried");
    let another =
        runtime::timeout_at(runtime::now() + Duration::from_millis(200), listener.accept());
    assert!(another.await.is_none(), "more than one has tried");
    node.shutdown().await;
}

/// Whatever was asked for may be asked for again, of whoever leads next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_takes_no_session_was_sent_nothing() {
    let mut cluster = Cluster::of(1).await;
    let leader = cluster.nodes[&1].inner.identity.member();
    let stranger = open(&cluster.newcomer()).await;
    for node in [&stranger, &cluster.nodes[&1]] {
        // To the one it is a stranger; to the other, which is itself, one that serves nobody yet.
        let forwarder = Forwarder::new(node.inner.identity.clone());
        let told = forwarder.forward(1, &leader, request("/v1/lock", 0)).await;
        assert!(matches!(told, Err(Failure::NoLeader)), "{told:?}");
    }
    stranger.shutdown().await;
    cluster.shutdown().await;
}
